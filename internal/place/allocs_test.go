package place_test

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestFitAllocatesNothing: a scheduler asks thousands of nodes for each pod.
func TestFitAllocatesNothing(t *testing.T) {
	const be = gpu.BestEffort
	share := gputest.Share
	eight := gputest.Zones(4, 4)
	used := func() *ledger.Node { return node(eight, alone(0, 5), slice(1, 60, 8*gib, be)) }
	taken := func() *ledger.Node { return node(eight, alone(0, 1, 2, 3, 4, 5, 6, 7)) }
	everyKey := keys(place.Unused, place.SameNUMA, place.Emptiest)
	listed := ask(gputest.AskSlice(10, gib), func(r *gpu.PodRequest) { r.Allow = []gpu.CardID{"GPU-6"} })
	cases := map[string]choiceCase{
		"a slice":                               {node: used(), request: gputest.AskSlice(30, gib)},
		"a slice with every key":                {node: used(), request: gputest.AskSlice(30, gib), prefer: everyKey},
		"a slice from a list of cards":          {node: used(), request: listed},
		"a slice of four cards":                 {node: used(), request: gputest.Ask(onCards(4, share(30, gib)))},
		"an online slice":                       {node: node(eight, online(0, gib)), request: of(gpu.Online, gputest.AskSlice(0, gib))},
		"four whole cards":                      {node: node(eight), request: gputest.AskWhole(4)},
		"four whole cards packed":               {node: used(), request: gputest.AskWhole(4), prefer: place.Preference{Node: place.Binpack}},
		"four of sixteen cards":                 {node: node(gputest.Unlike(16)), request: gputest.AskWhole(4)},
		"eight of 64 cards":                     {node: node(gputest.Zones(8, 8, 8, 8, 8, 8, 8, 8)), request: gputest.AskWhole(8)},
		"whole cards without links":             {node: used(), request: gputest.AskWhole(2), prefer: place.Preference{IgnoreLinks: true}},
		"two slices":                            {node: used(), request: gputest.Ask(share(30, gib), share(50, gib))},
		"a slice and two whole cards":           {node: used(), request: gputest.Ask(share(30, gib), gputest.Whole(2))},
		"init, sidecar and app":                 {node: used(), request: gputest.Ask(initial(gputest.Whole(2)), sidecar(share(30, gib)), share(30, gib))},
		"six containers":                        {node: used(), request: gputest.Ask(share(5, gib), share(5, gib), share(5, gib), share(5, gib), share(5, gib), share(5, gib))},
		"a slice refused":                       {node: taken(), request: gputest.AskSlice(30, gib), refused: place.ExclusiveConflict},
		"whole cards refused":                   {node: used(), request: gputest.AskWhole(8), refused: place.TooFewCards},
		"whole cards refused for good":          {node: used(), request: gputest.AskWhole(9), refused: place.TooFewCards},
		"refused by a node without cards":       {node: ledger.NewNode("n1", nil, ledger.Serves{}), request: gputest.AskWhole(1), refused: place.NoCards},
		"two containers rearranged":             {node: node(cards(2, nil), slice(0, 1, 60*gib, be), slice(1, 60, gib, be)), request: gputest.Ask(share(10, gib), share(95, 2*gib))},
		"two containers refused after a search": {node: used(), request: gputest.Ask(onCards(5, share(60, gib)), onCards(5, share(60, gib))), refused: place.ComputeShort},
		"two containers refused":                {node: taken(), request: gputest.Ask(share(30, gib), gputest.Whole(2)), refused: place.ExclusiveConflict},
	}
	expected := expecting(t, nil, some{20, gputest.AskSlice(30, gib)}, some{20, gputest.AskWhole(4)}, some{5, gputest.Ask(onCards(4, share(30, gib)))})
	for name, tc := range cases {
		for _, demand := range []*place.Demand{nil, expected.Demand} {
			t.Run(fmt.Sprintf("%s, looking ahead: %v", name, demand != nil), func(t *testing.T) {
				tc.prefer.Demand = demand
				var code place.Code
				allocs := testing.AllocsPerRun(100, func() {
					_, refusal := place.Fit(tc.node, tc.request, &tc.prefer)
					code = refusal.Code
				})
				if code != tc.refused {
					t.Fatalf("refused for %q, want %q", code, tc.refused)
				}
				most := 0.0
				if demand != nil && len(tc.request.Requests) > 1 {
					most = 1 // a scratch to try containers out on
				}
				if allocs > most {
					t.Errorf("%v allocations for each decision, want %v", allocs, most)
				}
			})
		}
	}
}
