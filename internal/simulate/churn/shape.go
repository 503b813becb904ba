package churn

import (
	"fmt"
	"math/bits"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// serverCards is how many cards a server has.
const serverCards = 8

// Shape is how the cards of a server are joined.
type Shape struct {
	// Name is what options and reports call it.
	Name string
	// Zone is the number of cards in a zone; 0 means that no card is linked.
	Zone int
	// Ring tells that each card of a zone is linked to its two neighbours only.
	Ring bool
}

// Shapes returns the known shapes.
func Shapes() []Shape {
	return []Shape{
		{Name: "2x4", Zone: 4},
		{Name: "4x2", Zone: 2},
		{Name: "1x8", Zone: 8},
		{Name: "2x4-ring", Zone: 4, Ring: true},
		{Name: "1x8-ring", Zone: 8, Ring: true},
		{Name: "none"},
	}
}

// zone returns the zone of a card, counted from 1; 0 is none.
func (s Shape) zone(card int) int {
	if s.Zone == 0 {
		return 0
	}
	return card/s.Zone + 1
}

// linked tells whether two cards are directly linked.
func (s Shape) linked(a, b int) bool {
	if a == b || s.zone(a) == 0 || s.zone(a) != s.zone(b) {
		return false
	}
	if !s.Ring {
		return true
	}
	step := (a - b + s.Zone) % s.Zone
	return step == 1 || step == s.Zone-1
}

// links lists the direct links for the core.
func (s Shape) links() []gpu.Link {
	var links []gpu.Link
	for b := range serverCards {
		for a := range b {
			if s.linked(a, b) {
				links = append(links, gpu.Link{A: a, B: b})
			}
		}
	}
	return links
}

// topology returns the core's picture of a server.
func (s Shape) topology() (*gpu.Topology, error) {
	cards := make([]gpu.Card, serverCards)
	for i := range cards {
		cards[i] = gpu.Card{
			ID: gpu.CardID(fmt.Sprintf("GPU-%d", i)), Minor: i, Model: "C500", Memory: cardMemory,
			Slots: gpu.MaxSlices, Healthy: true,
		}
	}
	return gpu.NewTopology(cards, s.links())
}

// cardMemory is a C500's. Jobs ask for the same part of it as of the compute.
const cardMemory gpu.MiB = 64 << 10

// worth is what a set of cards is worth to the job on it.
type worth struct {
	// pairs counts the pairs of cards in one zone.
	pairs int64
	// weight adds up what the pairs weigh: 110 for a direct link, 50 for one
	// zone, 10 for any other pair.
	weight int64
}

// measure is the brute force that rules are held against: the worth of every
// set of cards, and the best that any n of a set have to offer. It is written
// without the core, so that it can tell when the core is wrong.
type measure struct {
	of   [1 << serverCards]worth
	best [1 << serverCards][serverCards + 1]worth
}

func newMeasure(s Shape) *measure {
	m := &measure{}
	for set := range m.of {
		m.of[set] = s.worth(set)
	}
	for idle := range m.best {
		for set := range m.of {
			if set&^idle != 0 {
				continue
			}
			b := &m.best[idle][bits.OnesCount(uint(set))]
			b.pairs = max(b.pairs, m.of[set].pairs)
			b.weight = max(b.weight, m.of[set].weight)
		}
	}
	return m
}

func (s Shape) worth(set int) worth {
	var w worth
	for b := range serverCards {
		for a := range b {
			switch both := 1<<a | 1<<b; {
			case set&both != both:
			case s.linked(a, b):
				w.pairs++
				w.weight += 110
			case s.zone(a) != 0 && s.zone(a) == s.zone(b):
				w.pairs++
				w.weight += 50
			default:
				w.weight += 10
			}
		}
	}
	return w
}

// oneZone tells whether all cards of the set are in one zone.
func (s Shape) oneZone(cards gpu.Set) bool {
	zone := s.zone(cards.First())
	for c := range cards.All() {
		if s.zone(c) == 0 || s.zone(c) != zone {
			return false
		}
	}
	return true
}

// zoneCards returns the cards of the zone that the card is in, or the card
// alone where there are no zones.
func (s Shape) zoneCards(card int) gpu.Set {
	if s.Zone == 0 {
		return gpu.SetOf(card)
	}
	return gpu.FirstCards(s.Zone) << (card / s.Zone * s.Zone)
}
