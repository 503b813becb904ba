package deviceplugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are those of one server.
type Metrics struct {
	slicesCreated, slicesRemoved, slicesFailed prometheus.Counter
	preStart                                   *prometheus.HistogramVec
	registrations                              *prometheus.CounterVec
}

// Results of PreStart, as metrics name them.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// NewMetrics returns metrics that are registered, if there is a registry.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	factory := promauto.With(registry)
	m := &Metrics{
		slicesCreated: factory.NewCounter(prometheus.CounterOpts{Name: "daybreak_agent_slices_created_total", Help: "Slices created for containers."}),
		slicesRemoved: factory.NewCounter(prometheus.CounterOpts{Name: "daybreak_agent_slices_removed_total", Help: "Slices removed after their containers ended."}),
		slicesFailed:  factory.NewCounter(prometheus.CounterOpts{Name: "daybreak_agent_slices_failed_total", Help: "Failed attempts to create or remove a slice."}),
		preStart: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "daybreak_agent_prestart_duration_seconds",
			Help: "Time that kubelet waited for the cards of a container, by result: ok, failed.",
			// From an answer that is ready to kubelet's limit.
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17),
		}, []string{"result"}),
		registrations: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_agent_registrations_total",
			Help: "Registrations of a resource with kubelet: one, and one after each restart of kubelet.",
		}, []string{"resource"}),
	}
	for _, r := range resources {
		m.registrations.WithLabelValues(string(r))
	}
	for _, r := range []string{resultOK, resultFailed} {
		m.preStart.WithLabelValues(r)
	}
	return m
}

func (m *Metrics) preStarted(took time.Duration, err error) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	m.preStart.WithLabelValues(result).Observe(took.Seconds())
}
