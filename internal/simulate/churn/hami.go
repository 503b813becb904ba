package churn

import (
	"cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// hami is HAMi's scheduler as its source reads, with its defaults: the
// fullest server (binpack), and on it the emptiest card (spread) for a part of
// a card. It is a model: HAMi itself did not run.
type hami struct {
	*world
	// zones: whole cards are taken zone by zone, as HAMi does for exclusive
	// slices. Otherwise they are taken from the last index down, as it does for
	// whole cards.
	zones bool
	// weighNodes: what the cards are worth on each server counts before how full
	// the server is. HAMi calls this topology-aware and has it off by default.
	weighNodes bool
}

func (h *hami) pick(k *kind) (server int, cards gpu.Set, ok bool) {
	var best int64
	tied := ties{random: h.random}
	for i, n := range h.servers {
		can := roomy(n, k)
		if can.Len() < k.cards {
			continue
		}
		chosen := h.choose(n, k, can)
		score := int64(n.Now().Mean)
		if h.weighNodes && !k.fractional() {
			// Worth first: fullness stays below 2^42.
			score += h.worth(chosen, idle(n)) << 42
		}
		if tied.replaces(cmp.Compare(score, best)) {
			server, cards, best, ok = i, chosen, score, true
		}
	}
	return server, cards, ok
}

func (h *hami) choose(n *ledger.Node, k *kind, can gpu.Set) gpu.Set {
	switch {
	case k.fractional():
		return emptiest(n, can)
	case h.zones:
		return h.byZone(can, k.cards)
	default:
		return last(can, k.cards)
	}
}

// emptiest returns the card with the least on it, the last of equals.
func emptiest(n *ledger.Node, can gpu.Set) gpu.Set {
	full := n.Now().Full
	best := can.First()
	for c := range can.All() {
		if full[c] <= full[best] {
			best = c
		}
	}
	return gpu.SetOf(best)
}

// last returns the n cards with the highest indices.
func last(can gpu.Set, n int) gpu.Set {
	for can.Len() > n {
		can &= can - 1
	}
	return can
}

// byZone takes the smallest group of cards in one zone that is large enough;
// where there is none, it empties the groups from the smallest up.
func (h *hami) byZone(can gpu.Set, n int) gpu.Set {
	groups := h.groups(can)
	for _, g := range groups {
		if g.Len() >= n {
			return last(g, n)
		}
	}
	var taken gpu.Set
	for _, g := range groups {
		taken |= last(g, min(g.Len(), n-taken.Len()))
	}
	// Cards without a zone come last.
	return taken | last(can&^taken, n-taken.Len())
}

// groups returns the cards by zone, the smallest group first, then by index.
// HAMi leaves groups of equal size in the order of a Go map.
func (h *hami) groups(can gpu.Set) []gpu.Set {
	if h.shape.Zone == 0 {
		return nil
	}
	var groups []gpu.Set
	for size := 1; size <= h.shape.Zone; size++ {
		for first := 0; first < serverCards; first += h.shape.Zone {
			if g := can & h.shape.zoneCards(first); g.Len() == size {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

// worth is what HAMi gives a server for the chosen cards: ten times their
// pairs in one zone, times ten, less what the rest loses.
func (h *hami) worth(chosen, idle gpu.Set) int64 {
	s := func(cards gpu.Set) int64 { return 10 * h.pairs(cards) }
	return 10*s(chosen) - (s(idle) - s(chosen) - s(idle&^chosen))
}

func (h *hami) pairs(cards gpu.Set) int64 {
	if h.shape.Zone == 0 {
		return 0
	}
	var pairs int64
	for first := 0; first < serverCards; first += h.shape.Zone {
		n := int64((cards & h.shape.zoneCards(first)).Len())
		pairs += n * (n - 1) / 2
	}
	return pairs
}
