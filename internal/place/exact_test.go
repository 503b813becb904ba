package place_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestWholeCardsAreExact compares what Fit offers with a brute force over all
// sets of cards, on nodes of every shape and in every state.
func TestWholeCardsAreExact(t *testing.T) {
	sizes := []struct{ nodes, least, most int }{
		{nodes: 800, least: 1, most: 8},
		{nodes: 80, least: 9, most: 11},
		{nodes: 24, least: 12, most: 14},
		{nodes: 10, least: 15, most: 16},
		// More than 16 candidates are searched with bounds, which must not
		// change the answer.
		{nodes: 10, least: 17, most: 17},
		{nodes: 1, least: 19, most: 19},
	}
	compared := 0
	for i, size := range sizes {
		t.Run(fmt.Sprintf("%d to %d cards", size.least, size.most), func(t *testing.T) {
			if testing.Short() && size.least > 9 {
				t.Skip("takes seconds")
			}
			for k := range size.nodes {
				r := gputest.Rand(uint64(1000*i + k))
				compared += compareWithBruteForce(t, r, size.least+r.IntN(size.most-size.least+1))
			}
		})
	}
	t.Logf("%d choices compared", compared)
}

// compareWithBruteForce makes a node of n cards, asks it for every number of
// cards under every policy, and returns how often it asked.
func compareWithBruteForce(t *testing.T, r *rand.Rand, n int) int {
	t.Helper()
	plan := gputest.Random(r, n)
	sick, busy, denied := gputest.Subset(r, n, 5), gputest.Subset(r, n, r.IntN(40)), gputest.Subset(r, n, r.IntN(2)*10)
	if n > 16 {
		sick, busy, denied = 0, 0, 0 // candidates beyond 16 are the point
	}
	for i := range plan.Cards {
		plan.Cards[i].Healthy = !sick.Has(i)
	}
	topology := plan.Topology()
	account := node(topology, alone(busy.Indices()...))
	free := gpu.FirstCards(n) &^ sick &^ busy
	candidates := free &^ denied
	best := worthOf(plan).bruteForce(uint64(candidates), uint64(free))

	for k := 1; k <= n; k++ {
		request := gputest.AskWhole(k)
		for i := range denied.All() {
			request.Deny = append(request.Deny, plan.Cards[i].ID)
		}
		for policy, bests := range best {
			offer, refusal := place.Fit(account, request, &place.Preference{Node: policy})
			if fits := refusal.Code == place.Fits; fits != (k < len(bests)) {
				t.Fatalf("%d of %v: refused for %v\n%v", k, candidates.Indices(), refusal.Code, plan)
			}
			if k >= len(bests) {
				continue
			}
			want, got := bests[k], pick{mask: uint64(offer.Cards(0)), score: offer.Score, loss: offer.Loss}
			if diff := cmp.Diff(want.indices(), got.indices()); diff != "" || want != got {
				t.Fatalf("%d of %v with %v free under policy %d: worth %+v, want %+v; cards (-want +got):\n%s\n%v",
					k, candidates.Indices(), free.Indices(), policy, got, want, diff, plan)
			}
			if offer.Incomplete {
				t.Fatalf("%d of %v: the search gave up\n%v", k, candidates.Indices(), plan)
			}
		}
	}
	return 3 * n
}

// TestWeightsAreTheDesigns compares the weight of every pair.
func TestWeightsAreTheDesigns(t *testing.T) {
	for seed := range uint64(300) {
		r := gputest.Rand(seed)
		plan := gputest.Random(r, 1+r.IntN(20))
		topology, w := plan.Topology(), worthOf(plan)
		for i := range plan.Cards {
			for j := range plan.Cards {
				if got, want := topology.Pull(i, gpu.SetOf(j)), w.pair[i][j]; got != want {
					t.Fatalf("seed %d: cards %d and %d weigh %d, want %d\n%v", seed, i, j, got, want, plan)
				}
			}
		}
	}
}

// TestLinkFirst: a zone that can hold the request beats everything outside it,
// even where a set across zones would be worth more.
func TestLinkFirst(t *testing.T) {
	// A chain of six, and two full zones of three behind one switch.
	plan := &gputest.Plan{Cards: gputest.Cards(12), Links: gpu.ZoneLinks([]int{0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2})}
	for i := range 5 {
		plan.Links = append(plan.Links, gpu.Link{A: i, B: i + 1})
	}
	for i := 6; i < 12; i++ {
		plan.Cards[i].Switch = "s"
	}
	cases := map[string]struct {
		ask    int
		policy place.Policy
		busy   []int
		want   []int
	}{
		"both full zones would score higher":       {ask: 6, policy: place.Spread, want: []int{0, 1, 2, 3, 4, 5}},
		"and without a policy":                     {ask: 6, policy: place.Default, want: []int{0, 1, 2, 3, 4, 5}},
		"the rest of the others would lose less":   {ask: 4, policy: place.Binpack, busy: []int{10, 11}, want: []int{0, 1, 2, 3}},
		"the chain is too short: all sets compete": {ask: 6, policy: place.Spread, busy: []int{0}, want: []int{6, 7, 8, 9, 10, 11}},
		"of several zones the best":                {ask: 3, policy: place.Spread, want: []int{6, 7, 8}},
		"one card has no use for links":            {ask: 1, policy: place.Binpack, busy: []int{6, 7, 8, 10, 11}, want: []int{9}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := node(plan.Topology(), alone(tc.busy...))
			offer, _ := place.Fit(n, gputest.AskWhole(tc.ask), &place.Preference{Node: tc.policy})
			gputest.Equal(t, "cards", tc.want, offer.Cards(0).Indices())
		})
	}
}
