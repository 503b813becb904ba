package agent

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
)

const (
	metricsNamespace = "daybreak"
	metricsSubsystem = "agent"
)

// What is written, as metrics name it.
const (
	writtenDevice = "device"
	writtenNode   = "node"
)

// maxFigureAge is how old figures of cards may be; older ones are left out.
const maxFigureAge = time.Minute

// Metrics are the metrics of one agent.
type Metrics struct {
	registry metrics.KubeRegistry
	looks    *metrics.CounterVec
	duration *metrics.Histogram
	writes   *metrics.CounterVec
	serving  *deviceplugin.Metrics
}

func newMetrics() *Metrics {
	m := &Metrics{
		registry: metrics.NewKubeRegistry(),
		looks: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "looks_total", StabilityLevel: metrics.ALPHA,
			Help: "Looks at the cards by result: ok, or failed, after which the last Device stays.",
		}, []string{"result"}),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "look_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help: "How long looks at the cards took, failed ones included.",
			// From a simulation's microseconds to a driver that does not answer.
			Buckets: metrics.ExponentialBuckets(0.001, 2.5, 11),
		}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "publishes_total", StabilityLevel: metrics.ALPHA,
			Help: "Writes to the API server by object (device, node) and result (ok, failed). There are none while nothing changes.",
		}, []string{"object", "result"}),
	}
	m.registry.MustRegister(m.own()...)
	// The process's own, as every other part has them.
	m.registry.RawMustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.serving = deviceplugin.NewMetrics(metricsNamespace, metricsSubsystem)
	m.serving.Register(m.registry)
	for _, result := range []string{"ok", "failed"} {
		m.looks.WithLabelValues(result)
		for _, object := range []string{writtenDevice, writtenNode} {
			m.writes.WithLabelValues(object, result)
		}
	}
	return m
}

func (m *Metrics) own() []metrics.Registerable {
	return []metrics.Registerable{m.looks, m.duration, m.writes}
}

// DescribeMetrics registers the agent's metrics with nothing counted, to list them.
func DescribeMetrics(registry prometheus.Registerer) error {
	a := &Agent{clock: clock.RealClock{}, metrics: newMetrics()}
	a.status.Store(&status{})
	m, c := a.metrics, newCollector(a)
	m.registry.CustomMustRegister(c) // which makes it ready
	collectors := []prometheus.Collector{c}
	for _, r := range slices.Concat(m.own(), m.serving.Collectors()) {
		collectors = append(collectors, r)
	}
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return metrics.HandlerFor(m.registry, metrics.HandlerOpts{})
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

func (m *Metrics) look(l look) {
	m.looks.WithLabelValues(result(l.err)).Inc()
	m.duration.Observe(l.took.Seconds())
}

func (m *Metrics) write(object string, err error) {
	m.writes.WithLabelValues(object, result(err)).Inc()
}
