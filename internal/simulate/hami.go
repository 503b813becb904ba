package simulate

import (
	"cmp"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// hami is HAMi's scheduler as its source reads, with its defaults: the
// fullest server (binpack), and on it the emptiest card (spread) for a part of
// a card. It is a model: HAMi itself did not run.
type hami struct {
	// zones: whole cards are taken zone by zone, as HAMi does for exclusive
	// slices. Otherwise they are taken from the last index down, as it does for
	// whole cards.
	zones bool
	// weighNodes: what the cards are worth on each server counts before how full
	// the server is. HAMi calls this topology-aware and has it off by default.
	weighNodes bool
	// computeOnly: full means booked compute; traces have nothing else. Otherwise
	// it is slots, compute and memory added up.
	computeOnly bool
}

func (h *hami) score(s *server, k *kind) (float64, gpu.Set) {
	if k.cards == 0 {
		return 0, 0
	}
	cards := h.choose(s, k)
	sum := 0.0
	for c := range s.cards() {
		sum += float64(h.full(s, c))
	}
	fullness := sum / float64(s.cards())
	if h.weighNodes && !k.fractional() {
		fullness += float64(worth(s.Topology(), cards, s.idle())) * float64(ledger.MaxFullness+1)
	}
	return -fullness, cards
}

// full returns how full the card is.
func (h *hami) full(s *server, card int) int64 {
	if h.computeOnly {
		return int64(s.Now().Usage[card].Compute)
	}
	return int64(s.Now().Full[card])
}

func (h *hami) choose(s *server, k *kind) gpu.Set {
	room := s.room(k)
	switch {
	case h.zones && !k.fractional():
		return byZone(s.Topology().Zones(), room, k.cards)
	case !k.fractional():
		return last(room, k.cards)
	}
	// The emptiest card, the last of equals.
	best := room.First()
	for c := range room.All() {
		if h.full(s, c) <= h.full(s, best) {
			best = c
		}
	}
	return gpu.SetOf(best)
}

// byZone takes the smallest group of free cards in one zone that is large
// enough; where there is none, it empties the groups from the smallest up, and
// takes cards without a zone last. HAMi leaves groups of equal size in the order
// of a Go map; here the first zone goes first.
func byZone(zones []gpu.Set, free gpu.Set, n int) gpu.Set {
	var groups []gpu.Set
	for _, zone := range zones {
		groups = append(groups, zone&free)
	}
	slices.SortStableFunc(groups, func(a, b gpu.Set) int { return cmp.Compare(a.Len(), b.Len()) })
	for _, g := range groups {
		if g.Len() >= n {
			return last(g, n)
		}
	}
	var taken gpu.Set
	for _, g := range groups {
		taken |= last(g, n-taken.Len())
	}
	return taken | last(free&^taken, n-taken.Len())
}

// worth is what HAMi gives a server for the chosen cards: ten times their
// pairs in one zone, times ten, less what the rest loses.
func worth(t *gpu.Topology, chosen, idle gpu.Set) int64 {
	pairs := func(cards gpu.Set) int64 {
		var sum int64
		for _, zone := range t.Zones() {
			n := int64((cards & zone).Len())
			sum += 10 * n * (n - 1) / 2
		}
		return sum
	}
	return 10*pairs(chosen) - (pairs(idle) - pairs(chosen) - pairs(idle&^chosen))
}
