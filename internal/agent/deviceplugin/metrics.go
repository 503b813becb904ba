package deviceplugin

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are those of one server.
type Metrics struct {
	slicesCreated, slicesRemoved, slicesFailed *metrics.Counter
	preStart                                   *metrics.HistogramVec
	registrations                              *metrics.CounterVec
}

// Results of PreStart, as metrics name them.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// NewMetrics returns metrics whose names begin with these words.
func NewMetrics(namespace, subsystem string) *Metrics {
	counter := func(name, help string) *metrics.Counter {
		return metrics.NewCounter(&metrics.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	return &Metrics{
		slicesCreated: counter("slices_created_total", "Slices that were made for containers."),
		slicesRemoved: counter("slices_removed_total", "Slices that were removed after their containers."),
		slicesFailed:  counter("slices_failed_total", "Slices that could not be made or removed; each try counts."),
		preStart: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "prestart_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help: "How long kubelet waited for a container's cards, by result: ok, failed.",
			// From an answer that is ready to kubelet's limit.
			Buckets: metrics.ExponentialBuckets(0.0005, 2, 17),
		}, []string{"result"}),
		registrations: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "registrations_total", StabilityLevel: metrics.ALPHA,
			Help: "Registrations of a resource with kubelet: one, and one more whenever kubelet restarts.",
		}, []string{"resource"}),
	}
}

// Register adds the metrics to a registry.
func (m *Metrics) Register(registry metrics.KubeRegistry) {
	registry.MustRegister(m.Collectors()...)
	for _, r := range resources {
		m.registrations.WithLabelValues(string(r))
	}
	for _, r := range []string{resultOK, resultFailed} {
		m.preStart.WithLabelValues(r)
	}
}

// Collectors are the metrics one by one.
func (m *Metrics) Collectors() []metrics.Registerable {
	return []metrics.Registerable{m.slicesCreated, m.slicesRemoved, m.slicesFailed, m.preStart, m.registrations}
}

func (m *Metrics) preStarted(took time.Duration, err error) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	m.preStart.WithLabelValues(result).Observe(took.Seconds())
}
