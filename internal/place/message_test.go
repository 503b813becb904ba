package place_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestMessage(t *testing.T) {
	const be, fixed = gpu.BestEffort, gpu.FixedShare
	unreadable := func(n *ledger.Node) { n.Problem = errors.New("two cards have one id") }
	unknown := func(n *ledger.Node) { n.BookUnknown("default/stray") }
	denied := ask(gputest.AskWhole(1), func(r *gpu.PodRequest) { r.Deny = []gpu.CardID{"GPU-0"} })
	cases := map[string]struct {
		node    *ledger.Node
		request *gpu.PodRequest
		want    string
	}{
		"no cards":           {node: ledger.NewNode("n1", nil, ledger.Serves{}), request: gputest.AskWhole(1), want: "the node has no MetaX cards"},
		"unreadable":         {node: node(cards(1, nil), unreadable), request: gputest.AskWhole(1), want: "the node's cards can't be read: two cards have one id"},
		"unaccounted":        {node: node(cards(1, nil), unknown), request: gputest.AskWhole(1), want: "pod default/stray holds cards that are not known: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod"},
		"whole cards only":   {node: node(cards(1, nil), serves(ledger.Serves{Whole: true})), request: gputest.AskSlice(1, gib), want: "the node serves whole cards (metax-tech.com/gpu), not slices"},
		"slices only":        {node: node(cards(1, nil), serves(ledger.Serves{Slices: true})), request: gputest.AskWhole(1), want: "the node serves slices (metax-tech.com/sgpu), not whole cards"},
		"seats only":         {node: node(cards(1, nil), serves(ledger.Serves{Seats: true})), request: gputest.AskSlice(1, gib), want: "the node serves seats on shared cards (metax-tech.com/gpu), not slices"},
		"nothing served":     {node: node(cards(1, nil), serves(ledger.Serves{})), request: gputest.AskWhole(1), want: "the node serves neither whole cards nor slices"},
		"one unhealthy card": {node: node(cards(1, unhealthy(0))), request: gputest.AskWhole(1), want: "wants 1 card, 0 fit: 1 card is unhealthy"},
		"unhealthy cards":    {node: node(cards(3, unhealthy(0, 1))), request: gputest.AskWhole(2), want: "wants 2 cards, 1 fits: 2 cards are unhealthy"},
		"not served":         {node: node(cards(3, unhealthy(0)), func(n *ledger.Node) { n.Paused = "its agent is about to end" }), request: gputest.AskWhole(1), want: "the node hands out no cards for now: its agent is about to end"},
		"excluded":           {node: node(cards(1, nil)), request: denied, want: "wants 1 card, 0 fit: 1 card is excluded by the pod"},
		"another class":      {node: node(cards(2, nil), online(0, gib), online(1, gib)), request: gputest.AskSlice(1, gib), want: "wants 1 card, 0 fit: 2 cards run pods of another class"},
		"another QoS class":  {node: node(cards(1, nil), slice(0, 1, gib, fixed)), request: gputest.AskSlice(1, gib), want: "wants 1 card, 0 fit: 1 card runs another QoS class"},
		"in use":             {node: node(cards(4, unhealthy(3)), alone(0, 1)), request: gputest.AskWhole(2), want: "wants 2 cards, 1 fits: 1 card is unhealthy, 2 cards are in use"},
		"no slice left":      {node: node(cards(2, nil), full(0), full(1)), request: gputest.AskSlice(1, gib), want: "wants a free slice: 2 cards have no free slice"},
		"no slice left, and a card in use": {
			node: node(cards(3, nil), full(0), full(1), alone(2)), request: gputest.AskSlice(1, gib),
			want: "wants a free slice: 1 card is in use, 2 cards have no free slice",
		},
		"too little memory": {
			node: node(cards(2, nil), slice(0, 1, 60*gib, be), slice(1, 1, 62*gib, be)), request: gputest.AskSlice(1, 8*gib),
			want: "wants 8 GiB of a card's memory, the best card has 4 GiB free",
		},
		"too little memory, in odd amounts": {
			node: node(cards(2, nil), slice(0, 1, 64*gib-640, be), slice(1, 100, gib, be)), request: gputest.AskSlice(1, 1152),
			want: "wants 1152 MiB of a card's memory, the best card has 640 MiB free; 1 card has too little compute",
		},
		"too little compute": {
			node: node(cards(3, nil), slice(0, 70, gib, be), slice(1, 60, gib, be), full(2)), request: gputest.AskSlice(50, gib),
			want: "wants 50% of a card's compute, the best card has 40% free; 1 card has no free slice",
		},
		"too few cards":                     {node: node(cards(3, nil)), request: gputest.AskWhole(4), want: "wants 4 cards, only 3 fit"},
		"too few cards, one of them in use": {node: node(cards(3, nil), alone(0)), request: gputest.AskWhole(3), want: "wants 3 cards, only 2 fit; 1 card is in use"},
		"today in use, never large enough": {
			node: node(cards(2, nil), alone(0, 1)), request: gputest.AskSlice(1, 80*gib),
			want: "wants 80 GiB of a card's memory, the best card has 64 GiB free, even on an empty node; today 2 cards are in use",
		},
		"never large enough, in use or not": {
			node: node(cards(1, nil), slice(0, 1, gib, be)), request: gputest.AskSlice(1, 80*gib),
			want: "wants 80 GiB of a card's memory, the best card has 63 GiB free",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, refusal := place.Fit(tc.node, tc.request, &place.Preference{})
			if got := refusal.Message(tc.node); got != tc.want {
				t.Errorf("message\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// nodes returns n refusals of one kind.
func nodes(n int, code place.Code, want, have int64) []place.Refusal {
	var out []place.Refusal
	for range n {
		out = append(out, place.Refusal{Code: code, Want: want, Have: have})
	}
	return out
}

func TestSummarize(t *testing.T) {
	join := func(lists ...[]place.Refusal) []place.Refusal {
		var out []place.Refusal
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	cases := map[string]struct {
		refusals []place.Refusal
		want     string
	}{
		"the example of the design": {
			refusals: join(nodes(3, place.QoSConflict, 1, 0), nodes(1, place.MemoryShort, 12<<10, 4<<10), nodes(8, place.MemoryShort, 12<<10, 2<<10)),
			want:     "0/12 nodes: 9 need 8 GiB more card memory (best has 4 GiB free), 3 run another QoS class",
		},
		"no nodes at all":        {want: "0/0 nodes"},
		"one needs memory":       {refusals: nodes(1, place.MemoryShort, 1024, 384), want: "0/1 nodes: 1 needs 640 MiB more card memory (best has 384 MiB free)"},
		"one runs another class": {refusals: nodes(1, place.QoSConflict, 1, 0), want: "0/1 nodes: 1 runs another QoS class"},
		"compute, the nearest miss": {
			refusals: join(nodes(1, place.ComputeShort, 50, 10), nodes(1, place.ComputeShort, 50, 45), nodes(1, place.ComputeShort, 50, 20)),
			want:     "0/3 nodes: 3 need 5% more card compute (best has 45% free)",
		},
		"nodes without cards come last, however many": {
			refusals: join(nodes(7, place.NoCards, 1, 0), nodes(2, place.ExclusiveConflict, 4, 1)),
			want:     "0/9 nodes: 2 need 4 idle cards (best has 1), 7 have no MetaX cards",
		},
		"nothing but nodes without cards": {refusals: nodes(2, place.NoCards, 1, 0), want: "0/2 nodes: 2 have no MetaX cards"},
		"equally many: the order of the codes": {
			refusals: join(nodes(1, place.TooFewCards, 8, 4), nodes(1, place.SlicesFull, 1, 0), nodes(1, place.Unhealthy, 1, 0)),
			want:     "0/3 nodes: 1 has unhealthy cards, 1 has no free slice, 1 needs 8 cards that fit (best has 4)",
		},
		"one card": {refusals: nodes(2, place.ExclusiveConflict, 1, 0), want: "0/2 nodes: 2 have no idle card"},
		"the rest, many": {
			refusals: join(nodes(2, place.BadInventory, 1, 0), nodes(2, place.Unaccounted, 1, 0), nodes(2, place.ModeConflict, 1, 0), nodes(2, place.CardExcluded, 1, 0), nodes(2, place.ClassConflict, 1, 0)),
			want: "0/10 nodes: 2 have an unreadable card inventory, 2 have a pod whose cards are not known, 2 serve cards in another mode, " +
				"2 have only cards that the pod excludes, 2 run pods of another class",
		},
		"the rest, one each": {
			refusals: join(nodes(1, place.BadInventory, 1, 0), nodes(1, place.Unaccounted, 1, 0), nodes(1, place.ModeConflict, 1, 0), nodes(1, place.CardExcluded, 1, 0), nodes(1, place.ClassConflict, 1, 0)),
			want: "0/5 nodes: 1 has an unreadable card inventory, 1 has a pod whose cards are not known, 1 serves cards in another mode, " +
				"1 has only cards that the pod excludes, 1 runs pods of another class",
		},
		"a permanent reason comes before that of today": {
			refusals: []place.Refusal{{
				Code: place.ExclusiveConflict, Want: 1, Permanent: true,
				WhenEmpty: place.Shortage{Code: place.MemoryShort, Want: 80 << 10, Have: 64 << 10},
			}},
			want: "0/1 nodes: 1 needs 16 GiB more card memory (best has 64 GiB free)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := place.Summarize(tc.refusals); got != tc.want {
				t.Errorf("summary\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestListReasons: other reasons stand in one list with those about cards.
func TestListReasons(t *testing.T) {
	cases := map[string]struct {
		refusals []place.Refusal
		others   map[string]int
		want     string
	}{
		"nothing":         {},
		"no other reason": {refusals: nodes(2, place.QoSConflict, 1, 0), want: "2 run another QoS class"},
		"others alone":    {others: map[string]int{"Insufficient memory": 1, "Insufficient cpu": 1, "had untolerated taint(s)": 4}, want: "4 had untolerated taint(s), 1 Insufficient cpu, 1 Insufficient memory"},
		"cards first, then others by number, nodes without cards last": {
			refusals: slices.Concat(nodes(5, place.NoCards, 1, 0), nodes(2, place.QoSConflict, 1, 0)), others: map[string]int{"Insufficient cpu": 2, "had untolerated taint(s)": 3},
			want: "2 run another QoS class, 3 had untolerated taint(s), 2 Insufficient cpu, 5 have no MetaX cards",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := place.ListReasons(tc.refusals, tc.others); got != tc.want {
				t.Errorf("reasons\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestEveryCodeHasItsWords: a reason to group nodes by, a summary and a message,
// each different from those of all other codes.
func TestEveryCodeHasItsWords(t *testing.T) {
	n := node(cards(1, nil), serves(ledger.Serves{Whole: true}))
	n.Problem = errors.New("unreadable")
	n.BookUnknown("stray")
	words := map[string]func(r *place.Refusal) string{
		"name":    func(r *place.Refusal) string { return r.Code.String() },
		"reason":  func(r *place.Refusal) string { return r.Code.Reason() },
		"summary": func(r *place.Refusal) string { return place.Summarize([]place.Refusal{*r}) },
		"message": func(r *place.Refusal) string { return r.Message(n) },
	}
	for kind, text := range words {
		seen := map[string]place.Code{}
		for _, code := range place.Codes() {
			r := place.Refusal{Code: code, Want: 2, Have: 1}
			r.Cards[code] = 3
			got := text(&r)
			if other, twice := seen[got]; got == "" || got == "0/1 nodes: " || twice {
				t.Errorf("the %s of %v is %q, as of %v", kind, code, got, other)
			}
			seen[got] = code
		}
	}
	if got := place.Fits.Reason(); got != "" {
		t.Errorf("no refusal has the reason %q", got)
	}
}
