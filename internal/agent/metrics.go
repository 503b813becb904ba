package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
)

// What is written, as metrics name it.
const (
	writtenDevice = "device"
	writtenNode   = "node"
)

// maxFigureAge is how old figures of cards may be; older ones are left out.
const maxFigureAge = time.Minute

// metrics are what one agent counts; [collector] has the rest.
type metrics struct {
	looks    *prometheus.CounterVec
	duration prometheus.Histogram
	writes   *prometheus.CounterVec
	serving  *deviceplugin.Metrics
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	m := &metrics{
		looks: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_agent_looks_total",
			Help: "Polls of the cards by result: ok or failed. After a failed poll the last Device stays.",
		}, []string{"result"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "daybreak_agent_look_duration_seconds",
			Help: "Duration of polls of the cards, including failed ones.",
			// From a simulation's microseconds to a driver that does not answer.
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 11),
		}),
		writes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_agent_publishes_total",
			Help: "Writes to the API server by object (device, node) and result (ok, failed). Nothing is written while nothing changes.",
		}, []string{"object", "result"}),
		serving: deviceplugin.NewMetrics(registry),
	}
	for _, result := range []string{"ok", "failed"} {
		m.looks.WithLabelValues(result)
		for _, object := range []string{writtenDevice, writtenNode} {
			m.writes.WithLabelValues(object, result)
		}
	}
	return m
}

// DescribeMetrics registers the agent's metrics with nothing counted, to list them.
func DescribeMetrics(registry prometheus.Registerer) error {
	a := &Agent{clock: clock.RealClock{}, metrics: newMetrics(registry)}
	a.status.Store(&status{})
	return registry.Register(newCollector(a))
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

func (m *metrics) look(l look) {
	m.looks.WithLabelValues(result(l.err)).Inc()
	m.duration.Observe(l.took.Seconds())
}

func (m *metrics) write(object string, err error) {
	m.writes.WithLabelValues(object, result(err)).Inc()
}
