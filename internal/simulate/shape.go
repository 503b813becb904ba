package simulate

import (
	"math/bits"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// serverCards is how many cards a server of the topology study has.
const serverCards = 8

// shape is how the cards of a server are joined.
type shape struct {
	name string
	zone int // cards in a zone; 0 means that no card is linked
	// ring: each card of a zone is linked to its two neighbours only.
	ring bool
}

var shapes = []shape{
	{name: "2x4", zone: 4},
	{name: "4x2", zone: 2},
	{name: "1x8", zone: 8},
	{name: "2x4-ring", zone: 4, ring: true},
	{name: "1x8-ring", zone: 8, ring: true},
	{name: "none"},
}

// String returns the name that options and reports use.
func (s shape) String() string { return s.name }

// sameZone reports whether two cards are in one zone.
func (s shape) sameZone(a, b int) bool { return s.zone != 0 && a/s.zone == b/s.zone }

// linked reports whether two cards are directly linked.
func (s shape) linked(a, b int) bool {
	if a == b || !s.sameZone(a, b) {
		return false
	}
	apart := (a - b + s.zone) % s.zone
	return !s.ring || apart == 1 || apart == s.zone-1
}

// topology returns the core's picture of a server.
func (s shape) topology() (*gpu.Topology, error) {
	var links []gpu.Link
	for b := range serverCards {
		for a := range b {
			if s.linked(a, b) {
				links = append(links, gpu.Link{A: a, B: b})
			}
		}
	}
	return newTopology(serverCards, "C500", links)
}

// quality is what a set of cards is worth to the job on it.
type quality struct {
	// pairs counts the pairs of cards in one zone.
	pairs int64
	// weight adds up what the pairs weigh: 110 for a direct link, 50 for one
	// zone, 10 for any other pair.
	weight int64
}

// atLeast returns the better of each.
func (q quality) atLeast(o quality) quality {
	return quality{pairs: max(q.pairs, o.pairs), weight: max(q.weight, o.weight)}
}

// exhaustive is the brute force that policies are compared with: the quality of
// every set of cards, and the best that any n of a set have to offer. It shares
// no code with the core, so that it shows when the core is wrong.
type exhaustive struct {
	of   [1 << serverCards]quality
	best [1 << serverCards][serverCards + 1]quality
}

func newExhaustive(s shape) *exhaustive {
	e := &exhaustive{}
	for set := range e.of {
		e.of[set] = s.quality(set)
	}
	for idle := range e.best {
		for set := range e.of {
			if set&^idle == 0 {
				b := &e.best[idle][bits.OnesCount(uint(set))]
				*b = b.atLeast(e.of[set])
			}
		}
	}
	return e
}

func (s shape) quality(set int) quality {
	var q quality
	for b := range serverCards {
		for a := range b {
			switch both := 1<<a | 1<<b; {
			case set&both != both:
			case s.linked(a, b):
				q.pairs, q.weight = q.pairs+1, q.weight+110
			case s.sameZone(a, b):
				q.pairs, q.weight = q.pairs+1, q.weight+50
			default:
				q.weight += 10
			}
		}
	}
	return q
}

// zoneCards returns the cards of the zone that the card is in, or the card
// alone where there are no zones.
func (s shape) zoneCards(card int) gpu.Set {
	if s.zone == 0 {
		return gpu.SetOf(card)
	}
	return gpu.FirstCards(s.zone) << (card / s.zone * s.zone)
}

// oneZone reports whether all cards of the set are in one zone.
func (s shape) oneZone(cards gpu.Set) bool {
	return s.zone != 0 && cards&^s.zoneCards(cards.First()) == 0
}
