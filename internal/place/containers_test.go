package place_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func initial(r gpu.Request) gpu.Request { return gputest.As(gpu.Init, r) }

func sidecar(r gpu.Request) gpu.Request { return gputest.As(gpu.Sidecar, r) }

// onCards returns the request for a share of each of n cards.
func onCards(n int, r gpu.Request) gpu.Request {
	r.Cards = n
	return r
}

// small: these cards have half the memory of the others.
func small(indices ...int) func(cards []gpu.Card) {
	return func(cards []gpu.Card) {
		for _, i := range indices {
			cards[i].Memory = 32 * gib
		}
	}
}

// unequalZones returns two linked large cards and two linked small ones.
func unequalZones() *gpu.Topology {
	c := gputest.Cards(4)
	small(2, 3)(c)
	return gputest.MustTopology(c, gpu.ZoneLinks([]int{1, 1, 2, 2}))
}

func TestContainersOfAPod(t *testing.T) {
	const be = gpu.BestEffort
	share, whole, pod := gputest.Share, gputest.Whole, gputest.Ask
	quiet := gpu.Request{}
	cases := map[string]choiceCase{
		"no container asks":                                 {node: node(cards(2, nil)), request: pod(quiet, quiet), want: [][]int{{}, {}}},
		"one of two containers asks":                        {node: node(cards(2, nil)), request: pod(quiet, share(10, gib)), want: [][]int{{}, {0}}},
		"two slices share a card":                           {node: node(cards(2, nil)), request: pod(share(40, gib), share(60, gib)), want: [][]int{{0}, {0}}},
		"two slices too large for one card":                 {node: node(cards(2, nil)), request: pod(share(60, gib), share(60, gib)), want: [][]int{{0}, {1}}},
		"too much memory for one card":                      {node: node(cards(2, nil)), request: pod(share(1, 33*gib), share(1, 33*gib)), want: [][]int{{0}, {1}}},
		"no slot left for the second":                       {node: node(cards(2, func(c []gpu.Card) { c[0].Slots = 1 })), request: pod(share(1, gib), share(1, gib)), want: [][]int{{0}, {1}}},
		"the second does not fit":                           {node: node(cards(1, nil)), request: pod(share(60, gib), share(60, gib)), refused: place.ComputeShort},
		"whole cards are disjoint":                          {node: node(cards(4, nil)), request: pod(whole(2), whole(2)), want: [][]int{{0, 1}, {2, 3}}},
		"whole cards, one too few":                          {node: node(cards(3, nil)), request: pod(whole(2), whole(2)), refused: place.TooFewCards},
		"a slice does not join a whole card":                {node: node(cards(2, nil)), request: pod(whole(1), share(1, gib)), want: [][]int{{0}, {1}}},
		"both need the only idle card":                      {node: node(cards(2, nil), slice(0, 50, gib, be)), request: pod(share(60, gib), whole(1)), refused: place.TooFewCards},
		"the first would take what only the second can use": {node: node(cards(2, nil), slice(0, 1, 60*gib, be), slice(1, 60, gib, be)), request: pod(share(10, gib), share(95, 2*gib)), want: [][]int{{1}, {0}}},
		"as much as is left of each card":                   {node: node(cards(2, nil), slice(0, 70, gib, be), slice(1, 69, gib, be)), request: pod(share(30, gib), share(31, gib)), want: [][]int{{0}, {1}}},
		"spread keys put a small one in the way":            {node: node(cards(2, nil), slice(0, 50, gib, be)), request: pod(share(30, gib), whole(1)), prefer: keys(place.Emptiest), want: [][]int{{0}, {1}}},
		"no compute asked, and none left by the others":     {node: node(cards(4, nil), slice(1, 70, 16*gib, be)), request: pod(onCards(3, share(0, 16*gib)), share(70, 40*gib), onCards(4, share(30, 24*gib))), want: [][]int{{0, 1, 2}, {3}, {0, 1, 2, 3}}},
		"links count for each container":                    {node: node(gputest.Zones(2, 3, 2)), request: pod(whole(2), whole(3)), want: [][]int{{0, 1}, {2, 3, 4}}},
		"a zone kept for the second by packing":             {node: node(gputest.Zones(4, 2)), request: pod(whole(2), whole(4)), prefer: place.Preference{Node: place.Binpack}, want: [][]int{{4, 5}, {0, 1, 2, 3}}},
		"more containers than an offer has inline":          {node: node(cards(2, nil)), request: pod(share(20, gib), share(20, gib), share(20, gib), share(20, gib), share(20, gib), share(20, gib), share(20, gib)), want: [][]int{{0}, {0}, {0}, {0}, {0}, {1}, {1}}},

		"a whole card leaves the large one to a slice":   {node: node(cards(2, small(1))), request: pod(whole(1), share(10, 48*gib)), want: [][]int{{1}, {0}}},
		"two cards alone leave the large one to a slice": {node: node(cards(3, small(0, 1))), request: pod(gputest.Alone(2, 8*gib), share(10, 48*gib)), want: [][]int{{0, 1}, {2}}},
		"and are as well linked as can be":               {node: node(unequalZones()), request: pod(whole(2), share(10, 48*gib)), want: [][]int{{2, 3}, {0}}},
		"a large card each, and no third one":            {node: node(cards(3, small(0))), request: pod(whole(1), share(60, 48*gib), share(60, 48*gib)), want: [][]int{{0}, {1}, {2}}},
		"too few large cards":                            {node: node(cards(3, small(0, 1))), request: pod(whole(1), share(60, 48*gib), share(60, 48*gib)), refused: place.TooFewCards},

		"a sidecar runs next to the app":               {node: node(cards(2, nil)), request: pod(sidecar(share(50, gib)), share(60, gib)), want: [][]int{{0}, {1}}},
		"an init container alone":                      {node: node(cards(2, nil), slice(1, 1, gib, be)), request: pod(initial(share(50, gib)), quiet), want: [][]int{{1}, {}}},
		"an init container takes what the pod holds":   {node: node(cards(2, nil), slice(0, 50, gib, be)), request: pod(initial(share(30, gib)), share(60, gib)), want: [][]int{{1}, {1}}},
		"even a card it could not share with the app":  {node: node(cards(2, nil), slice(0, 50, gib, be)), request: pod(initial(share(90, gib)), share(60, gib)), want: [][]int{{1}, {1}}},
		"whole cards too":                              {node: node(cards(4, nil), alone(0)), request: pod(initial(whole(1)), whole(2)), want: [][]int{{1}, {1, 2}}},
		"an init container larger than the app":        {node: node(gputest.Zones(4, 4)), request: pod(initial(whole(3)), whole(2)), want: [][]int{{0, 1, 2}, {0, 1}}},
		"larger, and what the app holds is part of it": {node: node(gputest.Zones(2, 2), alone(0)), request: pod(initial(whole(2)), whole(1)), prefer: place.Preference{Node: place.Binpack}, want: [][]int{{1, 2}, {1}}},
		"larger, and no zone holds both":               {node: node(gputest.Zones(3, 3), alone(1)), request: pod(initial(whole(3)), whole(1)), want: [][]int{{0, 2, 3}, {0}}},
		"an init slice where the app has whole cards":  {node: node(cards(2, nil), slice(0, 5, gib, be)), request: pod(initial(share(90, gib)), whole(1)), want: [][]int{{1}, {1}}},
		"the second takes from the first as well":      {node: node(cards(3, nil), slice(0, 50, gib, be)), request: pod(initial(whole(1)), initial(share(10, gib)), quiet), want: [][]int{{1}, {1}, {}}},
		"an init container next to an earlier sidecar": {node: node(cards(2, nil)), request: pod(sidecar(share(50, gib)), initial(share(60, gib)), quiet), want: [][]int{{0}, {1}, {}}},
		"an init container before the sidecar":         {node: node(cards(2, nil)), request: pod(initial(share(60, gib)), sidecar(share(50, gib)), quiet), want: [][]int{{0}, {0}, {}}},
		"a sidecar leaves an idle card to a later one": {node: node(cards(2, nil), slice(0, 50, gib, be)), request: pod(sidecar(share(10, gib)), initial(whole(1)), quiet), prefer: keys(place.Emptiest), want: [][]int{{0}, {1}, {}}},
		"two sidecars do":                              {node: node(cards(2, nil)), request: pod(sidecar(share(10, gib)), sidecar(share(10, gib)), initial(gputest.Alone(1, gib)), quiet), prefer: keys(place.Emptiest), want: [][]int{{0}, {0}, {1}, {}}},
		"a sidecar alone leaves it the large card":     {node: node(cards(2, small(1))), request: pod(sidecar(whole(1)), initial(share(10, 48*gib)), quiet), want: [][]int{{1}, {0}, {}}},
		"no sidecar can":                               {node: node(cards(1, nil)), request: pod(sidecar(share(10, gib)), initial(whole(1)), quiet), refused: place.TooFewCards},
		"an init container that is too large":          {node: node(cards(2, nil)), request: pod(initial(whole(3)), share(1, gib)), refused: place.TooFewCards},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestInitContainersOfTwoPods asks one node twice: what it remembers of the
// first pod, which holds another card, must not be the answer to the second.
func TestInitContainersOfTwoPods(t *testing.T) {
	n := node(numa(0, 0, 0, 1, 1, 1, 1, 1))
	pod := gputest.Ask(initial(gputest.Whole(2)), gputest.Share(10, gib))
	choiceCase{node: n, request: pod, want: [][]int{{0, 1}, {0}}}.run(t)
	choiceCase{node: n, request: pod, prefer: keys(place.SameNUMA), want: [][]int{{0, 3}, {3}}}.run(t)
}

// TestRefusedContainer: a refusal names the container that could not be placed
// in the order of the spec.
func TestRefusedContainer(t *testing.T) {
	share, whole, pod := gputest.Share, gputest.Whole, gputest.Ask
	cases := map[string]refusalCase{
		"the second": {
			node: node(cards(2, nil)), request: pod(share(60, gib), gpu.Request{}, gpu.Request{Cards: 2, Compute: 50}),
			want: place.Refusal{
				Code: place.TooFewCards, Want: 3, Have: 1, Total: true, Container: 2, Cards: counts{place.TooFewCards: 2},
				Permanent: true, WhenEmpty: place.Shortage{Code: place.TooFewCards, Want: 3, Have: 1, Total: true},
			},
		},
		"only one asks, and is the second": {
			node: node(cards(1, nil), alone(0)), request: pod(gpu.Request{}, whole(1)),
			want: place.Refusal{Code: place.ExclusiveConflict, Want: 1, Idle: true, Container: 1, Cards: counts{place.ExclusiveConflict: 1}},
		},
		"the init container, though the app fits": {
			node: node(cards(2, nil), alone(0)), request: pod(initial(whole(2)), whole(1)),
			want: place.Refusal{Code: place.TooFewCards, Want: 2, Have: 1, Idle: true, Container: 0, Cards: counts{place.ExclusiveConflict: 1, place.TooFewCards: 1}},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestWorthOfSeveralContainers: score and loss are added up over the containers
// that run together, each at what the ones before it left.
func TestWorthOfSeveralContainers(t *testing.T) {
	whole := gputest.Whole
	cases := map[string]struct {
		request             *gpu.PodRequest
		wantScore, wantLoss int64
	}{
		// Two zones of four: {0,1} cut 4 links and 8 far pairs, then {2,3} cut
		// 8 far pairs.
		"two containers":                      {request: gputest.Ask(whole(2), whole(2)), wantScore: 220, wantLoss: 4*110 + 8*10 + 8*10},
		"a sidecar counts":                    {request: gputest.Ask(sidecar(whole(2)), whole(2)), wantScore: 220, wantLoss: 4*110 + 8*10 + 8*10},
		"an init container does not":          {request: gputest.Ask(initial(whole(4)), whole(2)), wantScore: 110, wantLoss: 4*110 + 8*10},
		"a slice has no worth":                {request: gputest.Ask(gputest.Share(10, gib), whole(4)), wantScore: 660, wantLoss: 4 * 3 * 10},
		"alone in the words of slices counts": {request: gputest.Ask(gputest.Alone(4, gib)), wantScore: 660, wantLoss: 4 * 4 * 10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			offer, _ := place.Fit(node(gputest.Zones(4, 4)), tc.request, &place.Preference{})
			if offer.Score != tc.wantScore || offer.Loss != tc.wantLoss {
				t.Errorf("score %d, loss %d; want %d, %d", offer.Score, offer.Loss, tc.wantScore, tc.wantLoss)
			}
		})
	}
}

// TestBookedAtThePeak books a pod whose init container needs more compute and
// whose app needs more memory, and checks what is left for others.
func TestBookedAtThePeak(t *testing.T) {
	n := node(cards(1, nil))
	if !commit(n, "pod", gputest.Ask(initial(gputest.Share(80, gib)), gputest.Share(30, 40*gib), gputest.Share(30, 4*gib))) {
		t.Fatal("refused")
	}
	want := ledger.Usage{Compute: 80, Memory: 44 * gib, Slots: 2, QoS: gpu.BestEffort.Set()}
	gputest.Equal(t, "usage", want, n.Now().Usage[0])
	for _, tc := range []struct {
		compute gpu.Percent
		memory  gpu.MiB
		want    place.Code
	}{{20, 20 * gib, place.Fits}, {21, gib, place.ComputeShort}, {1, 21 * gib, place.MemoryShort}} {
		if _, got := place.Fit(n, gputest.AskSlice(tc.compute, tc.memory), &place.Preference{}); got.Code != tc.want {
			t.Errorf("%d%% and %v: refused for %q, want %q", tc.compute, tc.memory, got.Code, tc.want)
		}
	}
}
