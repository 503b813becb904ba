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
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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

// maxFigureAge is how old figures of cards may be; older ones are not told.
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

// DescribeMetrics registers the agent's metrics with nothing counted, for who
// wants to list them.
func DescribeMetrics(registry prometheus.Registerer) error {
	a := &Agent{clock: clock.RealClock{}, metrics: newMetrics()}
	a.status.Store(&status{})
	m, c := a.metrics, &collector{agent: a, descs: newDescs()}
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

// register adds what is told at the moment of asking.
func (m *Metrics) register(a *Agent) {
	m.registry.CustomMustRegister(&collector{agent: a, descs: newDescs()})
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

// collector tells the figures of the last good look, under the names that the
// vendor's exporter has for them, and the state of the agent. A figure that no
// look told is left out.
type collector struct {
	metrics.BaseStableCollector
	agent *Agent
	descs *descs
}

// cardLabels are the vendor's. The pod is named when one pod alone holds the
// card, so there are never more series than cards.
var cardLabels = []string{
	"deviceId", "uuid", "modelName", "driver_version", "bios_version", "Hostname",
	"exported_namespace", "exported_pod", "exported_container",
}

func vendorDesc(name, help string, more ...string) *metrics.Desc {
	return metrics.NewDesc(name, help, append(append([]string(nil), cardLabels...), more...), nil, metrics.ALPHA, "")
}

func ownDesc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(metricsNamespace+"_"+metricsSubsystem+"_"+name, help, labels, nil, metrics.ALPHA, "")
}

// descs are all that the collector tells.
type descs struct {
	state, usage, memoryTotal, memoryUsed, power, temperature, ecc, linkSpeed, linkWidth *metrics.Desc
	sliceQuota, sliceUsage, sliceTotal, sliceUsed, sliceFree                             *metrics.Desc
	cards, age, mode, pending                                                            *metrics.Desc
}

func newDescs() *descs {
	return &descs{
		state:       vendorDesc("mx_gpu_state", "Whether the driver says that the card is available (1) or not (0)."),
		usage:       vendorDesc("mx_gpu_usage", "How busy the card's compute units are, in percent."),
		memoryTotal: vendorDesc("mx_memory_total", "Memory of the card in KB.", "type"),
		memoryUsed:  vendorDesc("mx_memory_used", "Memory of the card in use, the driver's reserve included, in KB.", "type"),
		power:       vendorDesc("mx_board_power", "Power of the whole board in mW."),
		temperature: vendorDesc("mx_chip_hotspot_temp", "Temperature of the hottest point of the chip in °C."),
		ecc:         vendorDesc("mx_ecc_error_count", "Memory errors since the driver was loaded, by type: sramCE, sramUE, dramCE, dramUE; and retiredPage.", "type"),
		linkSpeed:   vendorDesc("mx_mxlk_speed", "Speed of a MetaXLink port in GT/s.", "linkId"),
		linkWidth:   vendorDesc("mx_mxlk_width", "Width of a MetaXLink port in lanes.", "linkId"),
		sliceQuota:  vendorDesc("mx_sgpu_compute_quota", "Compute of a slice in percent of its card.", "sgpuId"),
		sliceUsage:  vendorDesc("mx_sgpu_usage", "How busy a slice is, in percent.", "sgpuId"),
		sliceTotal:  vendorDesc("mx_sgpu_total_memory", "Memory of a slice in bytes.", "sgpuId"),
		sliceUsed:   vendorDesc("mx_sgpu_used_memory", "Memory of a slice in use in bytes.", "sgpuId"),
		sliceFree:   vendorDesc("mx_sgpu_free_memory", "Memory of a slice not in use in bytes.", "sgpuId"),
		cards:       ownDesc("cards", "Cards in the Device by health: healthy, unhealthy, or lost, which are not found any more.", "health"),
		age:         ownDesc("last_good_look_age_seconds", "Time since the cards could last be read; what is published is as old as that."),
		mode:        ownDesc("mode", "1 for the mode in which the node hands its cards out, 0 for the others.", "mode"),
		pending:     ownDesc("mode_pending", "1 while a mode that was asked for waits."),
	}
}

func (d *descs) all() []*metrics.Desc {
	return []*metrics.Desc{
		d.state, d.usage, d.memoryTotal, d.memoryUsed, d.power, d.temperature, d.ecc, d.linkSpeed, d.linkWidth,
		d.sliceQuota, d.sliceUsage, d.sliceTotal, d.sliceUsed, d.sliceFree, d.cards, d.age, d.mode, d.pending,
	}
}

// sample is one value of a metric.
type sample struct {
	desc   *metrics.Desc
	value  float64
	labels []string
}

func (d *descs) agentSamples(st *status, now time.Time) []sample {
	var list []sample
	healthy, unhealthy, lost := 0, 0, 0
	mode, pending := gpu.Mode(""), 0.0
	if p := st.publication; p != nil {
		mode = p.Mode
		if p.Pending != "" {
			pending = 1
		}
		for i := range p.Cards {
			switch c := conditionOf(&p.Cards[i], wire.ConditionHealthy); {
			case c.Reason == reasonLost:
				lost++
			case p.Topology.Card(i).Healthy:
				healthy++
			default:
				unhealthy++
			}
		}
	}
	for _, s := range []struct {
		health string
		n      int
	}{{"healthy", healthy}, {"unhealthy", unhealthy}, {"lost", lost}} {
		list = append(list, sample{d.cards, float64(s.n), []string{s.health}})
	}
	for _, m := range []gpu.Mode{gpu.ModeNative, gpu.ModeSGPU, gpu.ModeShared, gpu.ModeVGPU} {
		is := 0.0
		if m == mode {
			is = 1
		}
		list = append(list, sample{d.mode, is, []string{string(m)}})
	}
	list = append(list, sample{d.pending, pending, nil})
	if !st.lastGood.IsZero() {
		list = append(list, sample{d.age, now.Sub(st.lastGood).Seconds(), nil})
	}
	return list
}

// DescribeWithStability lists the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range c.descs.all() {
		ch <- d
	}
}

// CollectWithStability tells the metrics as they are now.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	st, now := c.agent.status.Load(), c.agent.clock.Now()
	samples := c.descs.agentSamples(st, now)
	if now.Sub(st.lastGood) < maxFigureAge {
		samples = append(samples, c.descs.cardSamples(st, c.agent.cfg.Node)...)
	}
	for _, s := range samples {
		ch <- metrics.NewLazyConstMetric(s.desc, metrics.GaugeValue, s.value, s.labels...)
	}
}
