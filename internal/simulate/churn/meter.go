package churn

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// meter collects what a run is judged by.
type meter struct {
	*world
	measure *measure
	warmup  int

	measuring  bool
	booked     float64 // cards booked now
	time, area float64 // measured time, and booked cards over it

	got, best worth
	sizes     map[string]*sizeStats
	opened    int // fractional jobs that broke an idle zone without need
}

// sizeStats is about the jobs of one size.
type sizeStats struct {
	jobs, oneZone int
	wait          float64
}

func newMeter(w *world, warmup int) *meter {
	return &meter{world: w, measure: newMeasure(w.shape), warmup: warmup, sizes: map[string]*sizeStats{}}
}

func (m *meter) open()  { m.measuring = true }
func (m *meter) close() { m.measuring = false }

// pass counts what is booked while time passes.
func (m *meter) pass(dt float64) {
	if m.measuring {
		m.time += dt
		m.area += dt * m.booked
	}
}

// start counts a job that is about to be booked.
func (m *meter) start(j int, arrived, now float64, k *kind, server int, cards gpu.Set) {
	if j < m.warmup {
		return
	}
	s := m.sizes[k.size()]
	if s == nil {
		s = &sizeStats{}
		m.sizes[k.size()] = s
	}
	s.jobs++
	s.wait += now - arrived
	switch {
	case k.fractional():
		if m.breaksZone(k, server, cards) {
			m.opened++
		}
	case k.cards > 1:
		if m.shape.oneZone(cards) {
			s.oneZone++
		}
		m.compare(k.cards, cards)
	}
}

// compare holds the cards against the best that any server has to offer now.
func (m *meter) compare(n int, cards gpu.Set) {
	var best worth
	for _, s := range m.servers {
		b := m.measure.best[idle(s)][n]
		best.pairs = max(best.pairs, b.pairs)
		best.weight = max(best.weight, b.weight)
	}
	got := m.measure.of[cards]
	m.got.pairs += got.pairs
	m.got.weight += got.weight
	m.best.pairs += best.pairs
	m.best.weight += best.weight
}

// breaksZone tells whether a fractional job goes onto a card in an idle zone
// while a card in use somewhere has room for it.
func (m *meter) breaksZone(k *kind, server int, cards gpu.Set) bool {
	if m.shape.Zone == 0 || m.shape.zoneCards(cards.First())&^idle(m.servers[server]) != 0 {
		return false
	}
	for _, n := range m.servers {
		if roomy(n, k)&^idle(n) != 0 {
			return true
		}
	}
	return false
}
