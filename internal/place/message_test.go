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

// messageCase is a request and the message of its refusal.
type messageCase struct {
	node    *ledger.Node
	request *gpu.PodRequest
	want    string
}

func (tc messageCase) run(t *testing.T) {
	t.Helper()
	_, refusal := place.Fit(tc.node, tc.request, &place.Preference{})
	if got := refusal.Message(tc.node); got != tc.want {
		t.Errorf("message\n got %q\nwant %q", got, tc.want)
	}
}

func TestMessage(t *testing.T) {
	const be, fixed = gpu.BestEffort, gpu.FixedShare
	unreadable := func(n *ledger.Node) { n.Problem = errors.New("two cards have one id") }
	unknown := func(n *ledger.Node) { n.BookUnknown("default/stray") }
	denied := ask(gputest.AskWhole(1), func(r *gpu.PodRequest) { r.Deny = []gpu.CardID{"GPU-0"} })
	cases := map[string]messageCase{
		"no cards":           {node: ledger.NewNode("n1", nil, ledger.Serves{}), request: gputest.AskWhole(1), want: "the node has no MetaX cards"},
		"unreadable":         {node: node(cards(1, nil), unreadable), request: gputest.AskWhole(1), want: "the node's cards can't be read: two cards have one id"},
		"unaccounted":        {node: node(cards(1, nil), unknown), request: gputest.AskWhole(1), want: "pod default/stray holds cards that are not known: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod"},
		"whole cards only":   {node: node(cards(1, nil), serves(ledger.Serves{Whole: true})), request: gputest.AskSlice(1, gib), want: "the node serves whole cards (metax-tech.com/gpu), not slices"},
		"slices only":        {node: node(cards(1, nil), serves(ledger.Serves{Slices: true})), request: gputest.AskWhole(1), want: "the node serves slices (metax-tech.com/sgpu), not whole cards"},
		"seats only":         {node: node(cards(1, nil), serves(ledger.Serves{Seats: true})), request: gputest.AskSlice(1, gib), want: "the node serves shared cards without isolation (metax-tech.com/gpu), not slices"},
		"nothing served":     {node: node(cards(1, nil), serves(ledger.Serves{})), request: gputest.AskWhole(1), want: "the node serves neither whole cards nor slices"},
		"one unhealthy card": {node: node(cards(1, unhealthy(0))), request: gputest.AskWhole(1), want: "wants 1 card, 0 fit: 1 card is unhealthy"},
		"unhealthy cards":    {node: node(cards(3, unhealthy(0, 1))), request: gputest.AskWhole(2), want: "wants 2 cards, only 1 fits; 2 cards are unhealthy"},
		"not served":         {node: node(cards(3, unhealthy(0)), func(n *ledger.Node) { n.Paused = "its agent is about to end" }), request: gputest.AskWhole(1), want: "the node hands out no cards for now: its agent is about to end"},
		"excluded":           {node: node(cards(1, nil)), request: denied, want: "wants 1 card, 0 fit: 1 card is excluded by the pod"},
		"another class":      {node: node(cards(2, nil), online(0, gib), online(1, gib)), request: gputest.AskSlice(1, gib), want: "wants 1 card, 0 fit: 2 cards run pods of another class"},
		"another QoS class":  {node: node(cards(1, nil), slice(0, 1, gib, fixed)), request: gputest.AskSlice(1, gib), want: "wants 1 card, 0 fit: 1 card runs another QoS class"},
		"in use":             {node: node(cards(4, unhealthy(3)), alone(0, 1)), request: gputest.AskWhole(2), want: "wants 2 cards, only 1 fits; 1 card is unhealthy, 2 cards are in use"},
		"no slice left":      {node: node(cards(2, nil), full(0), full(1)), request: gputest.AskSlice(1, gib), want: "wants a free slice: 2 cards have no free slice"},
		"no slice left, and a card held exclusively": {
			node: node(cards(3, nil), full(0), full(1), alone(2)), request: gputest.AskSlice(1, gib),
			want: "wants a free slice: 1 card is held exclusively, 2 cards have no free slice",
		},
		"too little memory": {
			node: node(cards(2, nil), slice(0, 1, 60*gib, be), slice(1, 1, 62*gib, be)), request: gputest.AskSlice(1, 8*gib),
			want: "wants 8 GiB of a card's memory, the best card has 4 GiB free",
		},
		"too little memory, in odd amounts": {
			node: node(cards(2, nil), slice(0, 1, 64*gib-640, be), alone(1)), request: gputest.AskSlice(1, 1152),
			want: "wants 1152 MiB of a card's memory, the best card has 640 MiB free; 1 card is held exclusively",
		},
		"too little compute": {
			node: node(cards(3, nil), slice(0, 70, gib, be), slice(1, 60, gib, be), full(2)), request: gputest.AskSlice(50, gib),
			want: "wants 50% of a card's compute, the best card has 40% free; 1 card has no free slice",
		},
		"too few cards":                     {node: node(cards(3, nil)), request: gputest.AskWhole(4), want: "wants 4 cards, only 3 fit"},
		"too few cards, one of them in use": {node: node(cards(3, nil), alone(0)), request: gputest.AskWhole(3), want: "wants 3 cards, only 2 fit; 1 card is in use"},
		"too few cards, some of them in use": {
			node: node(cards(3, nil), alone(0)), request: gputest.AskWhole(4),
			want: "wants 4 cards, only 3 fit, even on an empty node; today 1 card is in use",
		},
		"today in use, never large enough": {
			node: node(cards(2, nil), alone(0, 1)), request: gputest.AskSlice(1, 80*gib),
			want: "wants 80 GiB of a card's memory, the best card has 64 GiB free, even on an empty node; today 2 cards are held exclusively",
		},
		"never large enough, in use or not": {
			node: node(cards(1, nil), slice(0, 1, gib, be)), request: gputest.AskSlice(1, 80*gib),
			want: "wants 80 GiB of a card's memory, the best card has 63 GiB free",
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestMessageOfSeveralContainers: where each container fits by itself, the message has
// what all of them want and what the node has.
func TestMessageOfSeveralContainers(t *testing.T) {
	const be = gpu.BestEffort
	share, whole, pod := gputest.Share, gputest.Whole, gputest.Ask
	same := func(n int, r gpu.Request) []gpu.Request { return slices.Repeat([]gpu.Request{r}, n) }
	ratio := func(percent int32) gpu.Request {
		return gpu.Request{Cards: 1, Compute: 1, Memory: gpu.Memory{Ratio: gpu.Percent(percent)}}
	}
	const apart = "each container fits by itself, but no way was found to fit all of them"
	cases := map[string]messageCase{
		"more slices than the node has":      {node(cards(8, nil)), pod(same(129, share(1, 128))...), "wants 129 slices for its containers, the node has 128 free"},
		"more slices than are left":          {node(cards(2, nil), slice(0, 1, gib, be)), pod(same(32, share(1, 128))...), "wants 32 slices for its containers, the node has 31 free"},
		"more compute than the node has":     {node(cards(8, nil)), pod(append(same(40, share(13, gib)), same(20, share(15, gib))...)...), "wants 820% of card compute for its containers, the node has 800% free"},
		"more memory than the node has":      {node(cards(2, nil)), pod(same(5, share(1, 30*gib))...), "wants 150 GiB of card memory for its containers, the node has 128 GiB free"},
		"more of the memory than there is":   {node(cards(2, nil)), pod(same(5, ratio(50))...), "wants 160 GiB of card memory for its containers, the node has 128 GiB free"},
		"enough of all, but in odd parts":    {node(cards(8, nil)), pod(same(9, share(60, gib))...), apart},
		"more whole cards than the node":     {node(cards(8, nil)), pod(whole(5), whole(4)), "wants 9 cards, only 8 fit"},
		"whole cards and a slice":            {node(cards(2, nil)), pod(whole(2), share(1, gib)), apart},
		"one of them is too large by itself": {node(cards(2, nil)), pod(share(1, gib), share(1, 80*gib)), "wants 80 GiB of a card's memory, the best card has 64 GiB free"},
		"one of them needs an idle card":     {node(cards(2, nil), slice(0, 10, gib, be), slice(1, 10, gib, be)), pod(share(10, gib), whole(1)), "wants 1 card, 0 fit: 2 cards are in use"},
		"both want more than is left":        {node(cards(1, nil), slice(0, 60, gib, be)), pod(share(30, gib), share(50, gib)), "wants 80% of card compute for its containers, the node has 40% free"},
		"the second wants more than is left of any": {
			node(cards(4, nil), slice(0, 60, gib, be), slice(1, 60, gib, be), slice(2, 60, gib, be), slice(3, 60, gib, be)), pod(share(30, gib), share(50, gib)),
			"wants 50% of a card's compute, the best card has 40% free",
		},
		"what an init container wants is not added": {node(cards(1, nil)), pod(initial(share(90, gib)), share(60, gib), share(50, gib)), "wants 110% of card compute for its containers, the node has 100% free"},
		"another QoS class comes first":             {node(cards(1, nil), slice(0, 60, gib, gpu.FixedShare)), pod(share(30, gib), share(80, gib)), "wants 110% of card compute for its containers, the node has 100% free, even on an empty node; today 1 card runs another QoS class"},
		"cards that can take nothing do not count":  {node(cards(3, unhealthy(2)), full(1)), pod(share(60, gib), share(60, gib)), "wants 120% of card compute for its containers, the node has 100% free"},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestCardThatNoNodeHas: a card that use-gpuuuid names and the node does not have is
// in the message.
func TestCardThatNoNodeHas(t *testing.T) {
	nameless := func(c []gpu.Card) { c[0].ID = "" }
	listing := func(ids ...gpu.CardID) *gpu.PodRequest {
		return ask(gputest.AskSlice(10, gib), func(r *gpu.PodRequest) { r.Allow = ids })
	}
	cases := map[string]messageCase{
		"one":                       {node(cards(2, nil)), listing("GPU-x"), "no card of the node has the UUID GPU-x of use-gpuuuid"},
		"several":                   {node(cards(2, nil)), listing("GPU-x", "GPU-y"), "no card of the node has one of the 2 UUIDs of use-gpuuuid (such as GPU-x)"},
		"one that is unhealthy":     {node(cards(2, unhealthy(0))), listing("GPU-0"), "wants 1 card, 0 fit: 1 card is unhealthy, 1 card is excluded by the pod"},
		"cards without an identity": {node(cards(2, nameless)), listing("GPU-x"), "wants 1 card, 0 fit: 2 cards are excluded by the pod"},
		"one that is in use":        {node(cards(2, nil), alone(0)), listing("GPU-0", "GPU-x"), "wants 1 card, 0 fit: 1 card is excluded by the pod, 1 card is held exclusively"},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
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

// idle: the refusals are of a pod that wants its cards for itself.
func idle(refusals []place.Refusal) []place.Refusal {
	for i := range refusals {
		refusals[i].Idle = true
	}
	return refusals
}

// total: the numbers are those of all containers.
func total(refusals []place.Refusal) []place.Refusal {
	for i := range refusals {
		refusals[i].Total = true
	}
	return refusals
}

// absent: the nodes have none of so many cards that the pod lists.
func absent(refusals []place.Refusal, listed int) []place.Refusal {
	for i := range refusals {
		refusals[i].Absent, refusals[i].Listed = "GPU-x", listed
	}
	return refusals
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
			refusals: join(nodes(7, place.NoCards, 1, 0), nodes(2, place.QoSConflict, 4, 0)),
			want:     "0/9 nodes: 2 run another QoS class, 7 have no MetaX cards",
		},
		"nothing but nodes without cards": {refusals: nodes(2, place.NoCards, 1, 0), want: "0/2 nodes: 2 have no MetaX cards"},
		"equally many: the order of the codes": {
			refusals: join(nodes(1, place.TooFewCards, 8, 4), nodes(1, place.SlicesFull, 1, 0), nodes(1, place.Unhealthy, 1, 0)),
			want:     "0/3 nodes: 1 has unhealthy cards, 1 has no free slice, 1 needs 8 cards that fit (best has 4)",
		},
		"idle cards": {
			refusals: join(idle(nodes(3, place.ExclusiveConflict, 4, 0)), idle(nodes(1, place.TooFewCards, 4, 1)), idle(nodes(1, place.TooFewCards, 4, 3))),
			want:     "0/5 nodes: 3 have no idle card, 2 need 4 idle cards (best has 3)",
		},
		"a slice needs no idle card": {refusals: nodes(2, place.ExclusiveConflict, 1, 0), want: "0/2 nodes: 2 have cards that are held exclusively"},
		"all containers of the pod": {
			refusals: join(total(nodes(4, place.SlicesFull, 129, 128)), total(nodes(3, place.MemoryShort, 600<<10, 512<<10)), total(nodes(2, place.ComputeShort, 820, 800)), total(nodes(1, place.TooFewCards, 60, 57))),
			want: "0/10 nodes: 4 have too few slices for the whole pod (wants 129, best has 128 free), 3 have too little card memory for the whole pod (wants 600 GiB, best has 512 GiB free), " +
				"2 have too little card compute for the whole pod (wants 820%, best has 800% free), 1 takes each container of the pod, but no way was found to fit all of them",
		},
		"where each container fits by itself is nearer": {
			refusals: join(nodes(1, place.ComputeShort, 50, 45), total(nodes(1, place.ComputeShort, 90, 70))),
			want:     "0/2 nodes: 2 have too little card compute for the whole pod (wants 90%, best has 70% free)",
		},
		"a card that no node has": {
			refusals: join(absent(nodes(3, place.CardExcluded, 1, 0), 1), nodes(1, place.NoCards, 1, 0)),
			want:     "0/4 nodes: no card in the cluster has the UUID GPU-x of use-gpuuuid, 1 has no MetaX cards",
		},
		"several cards that no node has": {
			refusals: absent(nodes(3, place.CardExcluded, 1, 0), 4),
			want:     "0/3 nodes: no card in the cluster has one of the 4 UUIDs of use-gpuuuid (such as GPU-x)",
		},
		"a card that other nodes may have": {
			refusals: join(absent(nodes(3, place.CardExcluded, 1, 0), 1), []place.Refusal{place.Excluded(place.Cordoned)}),
			want:     "0/4 nodes: 3 have no card with the UUID GPU-x of use-gpuuuid, 1 is cordoned",
		},
		"a card that one node has": {
			refusals: join(absent(nodes(3, place.CardExcluded, 1, 0), 1), nodes(1, place.CardExcluded, 1, 0)),
			want:     "0/4 nodes: 4 have no healthy card that the pod admits",
		},
		"the rest, many": {
			refusals: join(nodes(2, place.BadInventory, 1, 0), nodes(2, place.Unaccounted, 1, 0), nodes(2, place.ModeConflict, 1, 0), nodes(2, place.CardExcluded, 1, 0), nodes(2, place.ClassConflict, 1, 0)),
			want: "0/10 nodes: 2 have an unreadable card inventory, 2 have a pod whose cards are not known, 2 serve cards in another mode, " +
				"2 have no healthy card that the pod admits, 2 run pods of another class",
		},
		"the rest, one each": {
			refusals: join(nodes(1, place.BadInventory, 1, 0), nodes(1, place.Unaccounted, 1, 0), nodes(1, place.ModeConflict, 1, 0), nodes(1, place.CardExcluded, 1, 0), nodes(1, place.ClassConflict, 1, 0)),
			want: "0/5 nodes: 1 has an unreadable card inventory, 1 has a pod whose cards are not known, 1 serves cards in another mode, " +
				"1 has no healthy card that the pod admits, 1 runs pods of another class",
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
		"nothing": {},
		"a card that other nodes may have": {
			refusals: absent(nodes(2, place.CardExcluded, 1, 0), 1), others: map[string]int{"had untolerated taint(s)": 4},
			want: "2 have no card with the UUID GPU-x of use-gpuuuid, 4 had untolerated taint(s)",
		},
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
