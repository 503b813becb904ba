package agent

import (
	"slices"
	"strconv"

	"k8s.io/component-base/metrics"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// cardSamples are the figures of the cards at the last good look, in the units
// of the vendor's exporter.
func (d *descs) cardSamples(st *status, node string) []sample {
	if st.snapshot == nil {
		return nil
	}
	var list []sample
	for i := range st.snapshot.Cards {
		c := &st.snapshot.Cards[i]
		if c.UUID == "" {
			continue
		}
		s := cardSampler{labels: labelsOf(st, c, node)}
		s.card(d, c)
		s.memoryErrors(d, c.Vitals.ECC)
		for _, p := range c.Vitals.Ports {
			port := strconv.Itoa(p.Number)
			s.add(d.linkSpeed, p.SpeedGT, port)
			s.add(d.linkWidth, float64(p.Width), port)
		}
		for k := range c.Figures.Slices {
			s.slice(d, &c.Figures.Slices[k])
		}
		list = append(list, s.samples...)
	}
	return list
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

// cardSampler collects the samples of one card.
type cardSampler struct {
	labels  []string
	samples []sample
}

func (s *cardSampler) add(desc *metrics.Desc, value float64, more ...string) {
	s.samples = append(s.samples, sample{desc, value, slices.Concat(s.labels, more)})
}

func known[T int64 | float64](s *cardSampler, desc *metrics.Desc, value *T, more ...string) {
	if value != nil {
		s.add(desc, float64(*value), more...)
	}
}

func (s *cardSampler) card(d *descs, c *discover.Card) {
	if available := c.Vitals.Available; available != nil {
		state := 0.0
		if *available {
			state = 1
		}
		s.add(d.state, state)
	}
	f := &c.Figures
	known(s, d.usage, f.UsagePercent)
	known(s, d.memoryTotal, f.MemoryTotalKiB, "vram")
	known(s, d.memoryUsed, f.MemoryUsedKiB, "vram")
	known(s, d.power, f.PowerMilliwatt)
	known(s, d.temperature, f.HotspotCelsius)
}

func (s *cardSampler) memoryErrors(d *descs, e *discover.ECC) {
	if e == nil {
		return
	}
	for _, v := range []struct {
		kind string
		n    int64
	}{
		{"sramCE", e.SRAMCorrectable}, {"sramUE", e.SRAMUncorrectable}, {"dramCE", e.DRAMCorrectable}, {"dramUE", e.DRAMUncorrectable},
		{"retiredPage", e.RetiredPages},
	} {
		s.add(d.ecc, float64(v.n), v.kind)
	}
}

func (s *cardSampler) slice(d *descs, slice *discover.Slice) {
	const mebibyte = 1 << 20
	id, total := strconv.Itoa(slice.ID), float64(slice.Memory)*mebibyte
	s.add(d.sliceQuota, float64(slice.ComputePercent), id)
	known(s, d.sliceUsage, slice.UsagePercent, id)
	s.add(d.sliceTotal, total, id)
	if slice.MemoryUsed != nil {
		used := float64(*slice.MemoryUsed) * mebibyte
		s.add(d.sliceUsed, used, id)
		s.add(d.sliceFree, max(0, total-used), id)
	}
}
