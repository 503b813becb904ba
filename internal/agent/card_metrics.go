package agent

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// addValue adds a value of a metric, with the labels of its own.
type addValue func(value float64, labels ...string)

// gauge is a metric whose values are read from an S. Unknown values are left out.
type gauge[S any] struct {
	name, help string
	label      string // of its own, beyond those of all gauges of its table
	read       func(S, addValue)
}

// cardLabels are the vendor's. Only a pod that holds the card alone is named, so
// there are never more series than cards.
var cardLabels = []string{
	"deviceId", "uuid", "modelName", "driver_version", "bios_version", "Hostname",
	"exported_namespace", "exported_pod", "exported_container",
}

// cardGauges are the figures of the cards at the last good look, under the names
// and in the units of the vendor's exporter.
var cardGauges = []gauge[*discover.Card]{
	{"mx_gpu_state", "Whether the driver reports the card as available (1) or not (0).", "", func(c *discover.Card, add addValue) {
		if available := c.Vitals.Available; available != nil {
			add(number(*available))
		}
	}},
	{"mx_gpu_usage", "How busy the card's compute units are, in percent.", "", func(c *discover.Card, add addValue) { known(add, c.Figures.UsagePercent) }},
	{"mx_memory_total", "Memory of the card in KB.", "type", func(c *discover.Card, add addValue) { known(add, c.Figures.MemoryTotalKiB, "vram") }},
	{"mx_memory_used", "Memory of the card in use, the driver's reserve included, in KB.", "type", func(c *discover.Card, add addValue) {
		known(add, c.Figures.MemoryUsedKiB, "vram")
	}},
	{"mx_board_power", "Power of the whole board in mW.", "", func(c *discover.Card, add addValue) { known(add, c.Figures.PowerMilliwatt) }},
	{"mx_chip_hotspot_temp", "Temperature of the hottest point of the chip in °C.", "", func(c *discover.Card, add addValue) {
		known(add, c.Figures.HotspotCelsius)
	}},
	{"mx_ecc_error_count", "Memory errors since the driver was loaded, by type: sramCE, sramUE, dramCE, dramUE; and retiredPage.", "type", func(c *discover.Card, add addValue) {
		if e := c.Vitals.ECC; e != nil {
			add(float64(e.SRAMCorrectable), "sramCE")
			add(float64(e.SRAMUncorrectable), "sramUE")
			add(float64(e.DRAMCorrectable), "dramCE")
			add(float64(e.DRAMUncorrectable), "dramUE")
			add(float64(e.RetiredPages), "retiredPage")
		}
	}},
	{"mx_mxlk_speed", "Speed of a MetaXLink port in GT/s.", "linkId", func(c *discover.Card, add addValue) {
		for _, p := range c.Vitals.Ports {
			add(p.SpeedGT, strconv.Itoa(p.Number))
		}
	}},
	{"mx_mxlk_width", "Width of a MetaXLink port in lanes.", "linkId", func(c *discover.Card, add addValue) {
		for _, p := range c.Vitals.Ports {
			add(float64(p.Width), strconv.Itoa(p.Number))
		}
	}},
	{"mx_sgpu_compute_quota", "Compute of a slice in percent of its card.", "sgpuId", ofSlices(func(s *discover.Slice, add addValue) { add(float64(s.ComputePercent)) })},
	{"mx_sgpu_usage", "How busy a slice is, in percent.", "sgpuId", ofSlices(func(s *discover.Slice, add addValue) { known(add, s.UsagePercent) })},
	{"mx_sgpu_total_memory", "Memory of a slice in bytes.", "sgpuId", ofSlices(func(s *discover.Slice, add addValue) { add(float64(s.Memory) * wire.Mebibyte) })},
	{"mx_sgpu_used_memory", "Memory of a slice in use in bytes.", "sgpuId", ofSlices(func(s *discover.Slice, add addValue) {
		if s.MemoryUsed != nil {
			add(float64(*s.MemoryUsed) * wire.Mebibyte)
		}
	})},
	{"mx_sgpu_free_memory", "Memory of a slice not in use in bytes.", "sgpuId", ofSlices(func(s *discover.Slice, add addValue) {
		if s.MemoryUsed != nil {
			add(float64(max(0, s.Memory-*s.MemoryUsed)) * wire.Mebibyte)
		}
	})},
}

// moment is the status of the agent at one time. Its publication is not nil.
type moment struct {
	status
	now time.Time
}

// agentGauges are the state of the agent.
var agentGauges = []gauge[*moment]{
	{"daybreak_agent_cards", "Cards in the Device by health: healthy, unhealthy, or lost, which are not found any more.", "health", func(m *moment, add addValue) {
		var healthy, unhealthy, lost float64
		for i := range m.publication.Cards {
			switch c := conditionOf(&m.publication.Cards[i], wire.ConditionHealthy); {
			case c.Reason == reasonLost:
				lost++
			case m.publication.Topology.Card(i).Healthy:
				healthy++
			default:
				unhealthy++
			}
		}
		add(healthy, "healthy")
		add(unhealthy, "unhealthy")
		add(lost, "lost")
	}},
	{"daybreak_agent_last_good_look_age_seconds", "Time since the cards could last be read; what is published is as old as that.", "", func(m *moment, add addValue) {
		if !m.lastGood.IsZero() {
			add(m.now.Sub(m.lastGood).Seconds())
		}
	}},
	{"daybreak_agent_mode", "1 for the mode in which the node hands its cards out, 0 for the others.", "mode", func(m *moment, add addValue) {
		for _, mode := range modeWords {
			add(number(mode == string(m.publication.Mode)), mode)
		}
	}},
	{"daybreak_agent_mode_pending", "1 while a mode that was asked for waits.", "", func(m *moment, add addValue) { add(number(m.publication.Pending != "")) }},
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func known[T int64 | float64](add addValue, value *T, labels ...string) {
	if value != nil {
		add(float64(*value), labels...)
	}
}

// ofSlices reads a value of each slice, with its number as the label.
func ofSlices(read func(*discover.Slice, addValue)) func(*discover.Card, addValue) {
	return func(c *discover.Card, add addValue) {
		for i := range c.Figures.Slices {
			s := &c.Figures.Slices[i]
			read(s, func(value float64, _ ...string) { add(value, strconv.Itoa(s.ID)) })
		}
	}
}

type collector struct {
	agent *Agent
	descs map[string]*prometheus.Desc // by the name of the gauge
}

func newCollector(a *Agent) *collector {
	c := &collector{agent: a, descs: map[string]*prometheus.Desc{}}
	for _, g := range cardGauges {
		c.descs[g.name] = g.desc(cardLabels)
	}
	for _, g := range agentGauges {
		c.descs[g.name] = g.desc(nil)
	}
	return c
}

func (g *gauge[S]) desc(labels []string) *prometheus.Desc {
	if g.label != "" {
		labels = append(slices.Clone(labels), g.label)
	}
	return prometheus.NewDesc(g.name, g.help, labels, nil)
}

// Describe lists the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect sends the metrics as they are now.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(name string, labels []string) addValue {
		return func(value float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, value, slices.Concat(labels, more)...)
		}
	}
	m := &moment{*c.agent.status.Load(), c.agent.clock.Now()}
	m.publication = cmp.Or(m.publication, &inventory.Publication{})
	for _, g := range agentGauges {
		g.read(m, send(g.name, nil))
	}
	if m.snapshot == nil || m.now.Sub(m.lastGood) >= maxFigureAge {
		return
	}
	for i := range m.snapshot.Cards {
		card := &m.snapshot.Cards[i]
		if card.UUID == "" {
			continue
		}
		labels := labelsOf(&m.status, card, c.agent.cfg.Node)
		for _, g := range cardGauges {
			g.read(card, send(g.name, labels))
		}
	}
}

// labelsOf returns the values of cardLabels.
func labelsOf(st *status, c *discover.Card, node string) []string {
	var namespace, pod, container string
	if holders := st.holders[gpu.CardID(c.UUID)]; len(holders) == 1 && holders[0] != nil {
		namespace, pod = holders[0].Namespace, holders[0].Name
		if len(holders[0].Spec.Containers) == 1 {
			container = holders[0].Spec.Containers[0].Name
		}
	}
	return []string{
		strconv.Itoa(c.Minor), c.UUID, "MX" + c.Model, st.snapshot.Driver, c.Figures.BIOS, node, namespace, pod, container,
	}
}
