package discover

import (
	"cmp"
	"maps"
	"slices"
)

// memory is what a [Finder] knows of cards from earlier looks.
type memory struct {
	// cards are by PCI address, as they last told their uuid.
	cards map[string]Card
	// minors are the numbers that cards were first seen with, by uuid.
	minors map[string]int
	// ports are the peers of ports that were up once, by uuid and number.
	ports map[string]map[int]Port
}

func newMemory() memory {
	return memory{cards: map[string]Card{}, minors: map[string]int{}, ports: map[string]map[int]Port{}}
}

// recognise gives cards without a uuid the identity that they had at their
// address. Such cards are not available, so nothing is handed out by it.
func (m *memory) recognise(s *Snapshot) {
	for i := range s.Cards {
		c := &s.Cards[i]
		known, ok := m.cards[c.BDF]
		taken := func(o Card) bool { return o.UUID == known.UUID }
		if c.UUID != "" || !ok || slices.ContainsFunc(s.Cards, taken) {
			continue
		}
		c.UUID, c.Model, c.Memory = known.UUID, cmp.Or(c.Model, known.Model), known.Memory
		c.NUMA, c.PCIeRoot, c.PCIeSwitch = cmp.Or(c.NUMA, known.NUMA), cmp.Or(c.PCIeRoot, known.PCIeRoot), cmp.Or(c.PCIeSwitch, known.PCIeSwitch)
		c.DRMCard, c.DRMRender = cmp.Or(c.DRMCard, known.DRMCard), cmp.Or(c.DRMRender, known.DRMRender)
		c.Virtual = c.Virtual || known.Virtual
	}
}

// number gives known cards the numbers that they had, and new ones theirs or,
// where that is another card's, the next that was never used.
func (m *memory) number(s *Snapshot) {
	used := map[int]bool{}
	next := 0
	for _, minor := range m.minors {
		used[minor] = true
		next = max(next, minor+1)
	}
	for i := range s.Cards {
		next = max(next, s.Cards[i].Minor+1)
	}
	for i := range s.Cards {
		c := &s.Cards[i]
		minor, known := m.minors[c.UUID]
		switch {
		case known:
			c.Minor = minor
		case used[c.Minor]:
			c.Minor = next
			next++
		}
		used[c.Minor] = true
	}
}

// remember takes note of a complete picture, and adds the ports to it that
// were up once and are not even listed any more.
func (m *memory) remember(s *Snapshot) {
	for i := range s.Cards {
		c := &s.Cards[i]
		if c.UUID == "" {
			continue
		}
		m.minors[c.UUID] = c.Minor
		if c.BDF != "" && !c.unavailable() {
			m.cards[c.BDF] = *c
		}
		if c.Vitals.Ports != nil {
			m.rememberPorts(c)
		}
	}
}

func (m *memory) rememberPorts(c *Card) {
	known := m.ports[c.UUID]
	if known == nil {
		known = map[int]Port{}
		m.ports[c.UUID] = known
	}
	for i := range c.Vitals.Ports {
		p := &c.Vitals.Ports[i]
		if p.Up {
			known[p.Number] = Port{Number: p.Number, Peer: p.Peer}
		}
		p.Peer = cmp.Or(p.Peer, known[p.Number].Peer)
	}
	for _, number := range slices.Sorted(maps.Keys(known)) {
		listed := func(p Port) bool { return p.Number == number }
		if !slices.ContainsFunc(c.Vitals.Ports, listed) {
			c.Vitals.Ports = append(c.Vitals.Ports, known[number])
		}
	}
	slices.SortFunc(c.Vitals.Ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
}
