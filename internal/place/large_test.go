package place_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestLargeNodesWithSymmetry: on nodes of 64 cards as they are built, however
// full, the search sees everything.
func TestLargeNodesWithSymmetry(t *testing.T) {
	zonesOf8 := gputest.Zones(8, 8, 8, 8, 8, 8, 8, 8)
	nodes := map[string]*ledger.Node{
		"eight zones of eight":         node(zonesOf8),
		"four zones of sixteen":        node(gputest.Zones(16, 16, 16, 16)),
		"64 virtual functions":         node(cards(64, nil)),
		"one zone of all cards":        node(gputest.Zones(64)),
		"eight zones, some cards used": node(zonesOf8, alone(0, 1, 9, 20, 33, 34, 35, 63)),
	}
	for name, n := range nodes {
		t.Run(name, func(t *testing.T) {
			for _, k := range []int{1, 2, 8, 9, 16, 23, 31, 46, 64} {
				for _, policy := range []place.Policy{place.Spread, place.Binpack} {
					offer, refusal := place.Fit(n, gputest.AskWhole(k), &place.Preference{Node: policy})
					if refusal.Code == place.Fits && offer.Incomplete {
						t.Errorf("%d cards under policy %d: incomplete", k, policy)
					}
				}
			}
		})
	}
}

// TestLargeNodesWithoutSymmetry: where the search gives up, what it has is
// still as good as what the obvious quick way finds.
func TestLargeNodesWithoutSymmetry(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for seed := range uint64(4) {
		r := gputest.Rand(seed)
		plan := gputest.Random(r, 30+r.IntN(34))
		compareWithGreedy(t, plan, 3+r.IntN(12))
	}
	unlike := gputest.UnlikePlan(40)
	incomplete := compareWithGreedy(t, unlike, 2) || compareWithGreedy(t, unlike, 3)
	if incomplete {
		t.Error("a search for 2 or 3 of 40 cards, far below the budget, gave up")
	}
	if !compareWithGreedy(t, unlike, 20) {
		t.Error("a search for 20 of 40 cards without symmetry says it saw everything")
	}
}

// compareWithGreedy returns whether the search gave up under any policy.
func compareWithGreedy(t *testing.T, plan *gputest.Plan, k int) (incomplete bool) {
	t.Helper()
	w, n := worthOf(plan), node(plan.Topology())
	all := uint64(n.Topology().All())
	for _, policy := range []place.Policy{place.Default, place.Spread, place.Binpack} {
		offer, refusal := place.Fit(n, gputest.AskWhole(k), &place.Preference{Node: policy})
		if refusal.Code != place.Fits || offer.Cards(0).Len() != k {
			t.Fatalf("%d of %d cards: %v", k, len(plan.Cards), refusal.Code)
		}
		got, want := w.pick(uint64(offer.Cards(0)), all), w.greedy(all, k, policy)
		if want.better(got, policy) {
			t.Errorf("%d cards under policy %d: %+v, the quick way finds %+v\n%v", k, policy, got, want, plan)
		}
		if got.score != offer.Score || got.loss != offer.Loss {
			t.Errorf("%d cards under policy %d are said to be worth %d and %d, want %+v", k, policy, offer.Score, offer.Loss, got)
		}
		incomplete = incomplete || offer.Incomplete
	}
	return incomplete
}

// TestEveryZoneGetsItsTurn: a large zone that uses up the whole search must not
// keep it from a small one that is better.
func TestEveryZoneGetsItsTurn(t *testing.T) {
	plan := &gputest.Plan{Cards: gputest.Cards(64)}
	for i := 1; i < 56; i++ { // one zone of 56 cards, sparse and without symmetry
		plan.Links = append(plan.Links, gpu.Link{A: i - 1, B: i})
		if j := i * i * 3 % 56; j < i {
			plan.Links = append(plan.Links, gpu.Link{A: j, B: i})
		}
	}
	for i := 56; i < 64; i++ { // and one of eight, all linked
		for j := 56; j < i; j++ {
			plan.Links = append(plan.Links, gpu.Link{A: j, B: i})
		}
	}
	if !compareWithGreedy(t, plan, 8) {
		t.Error("the search saw everything: the test shows nothing")
	}
}
