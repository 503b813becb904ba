package place_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

type refusalCase struct {
	node    *ledger.Node
	request *gpu.PodRequest
	prefer  place.Preference
	want    place.Refusal // the zero refusal is none
}

func (tc refusalCase) run(t *testing.T) {
	t.Helper()
	_, got := place.Fit(tc.node, tc.request, &tc.prefer)
	if diff := cmp.Diff(tc.want, got); diff != "" {
		t.Errorf("refusal %q (-want +got):\n%s", got.Message(tc.node), diff)
	}
}

func TestNodeRefuses(t *testing.T) {
	unreadable := func(n *ledger.Node) { n.Problem = errors.New("two cards have one id") }
	unknown := func(n *ledger.Node) { n.BookUnknown("default/stray") }
	wholeOnly, slicesOnly := serves(ledger.Serves{Whole: true}), serves(ledger.Serves{Slices: true})
	two := func(code place.Code, want int64, count uint8) place.Refusal {
		r := place.Refusal{Code: code, Want: want, Permanent: true, WhenEmpty: place.Shortage{Code: code, Want: want}}
		r.Cards[code] = count
		return r
	}
	cases := map[string]refusalCase{
		"a node without cards": {
			node: ledger.NewNode("n1", nil, ledger.Serves{}), request: gputest.AskWhole(2), want: two(place.NoCards, 2, 0),
		},
		"cards that can't be read": {
			node: node(gputest.Zones(4), unreadable), request: gputest.AskWhole(2), want: two(place.BadInventory, 2, 4),
		},
		"cards that can't be read are not taken for none": {
			node: node(nil, unreadable), request: gputest.AskSlice(1, gib), want: two(place.BadInventory, 1, 0),
		},
		"a pod whose cards are not known": {
			node: node(gputest.Zones(4), unknown), request: gputest.AskWhole(2),
			want: place.Refusal{Code: place.Unaccounted, Want: 2, Cards: counts{place.Unaccounted: 4}},
		},
		"such a pod, and a request that can never be": {
			node: node(gputest.Zones(4), unknown), request: gputest.AskWhole(5),
			want: place.Refusal{
				Code: place.Unaccounted, Want: 5, Cards: counts{place.Unaccounted: 4},
				Permanent: true, WhenEmpty: place.Shortage{Code: place.TooFewCards, Want: 5, Have: 4, Idle: true},
			},
		},
		"slices where there are whole cards":            {node: node(gputest.Zones(4), wholeOnly), request: gputest.AskSlice(1, gib), want: two(place.ModeConflict, 1, 4)},
		"whole cards where there are slices":            {node: node(gputest.Zones(4), slicesOnly), request: gputest.AskWhole(3), want: two(place.ModeConflict, 3, 4)},
		"slices where there are seats":                  {node: node(gputest.Zones(4), serves(ledger.Serves{Seats: true})), request: gputest.AskSlice(1, gib), want: two(place.ModeConflict, 1, 4)},
		"a node that serves nothing":                    {node: node(gputest.Zones(4), serves(ledger.Serves{})), request: gputest.AskWhole(1), want: two(place.ModeConflict, 1, 4)},
		"one of two containers asks for the other kind": {node: node(gputest.Zones(4), slicesOnly), request: gputest.Ask(gputest.Share(1, gib), gputest.Whole(2)), want: two(place.ModeConflict, 1, 4)},
		"alone on a card in the words of slices":        {node: node(gputest.Zones(4), slicesOnly), request: gputest.Ask(gputest.Alone(2, gib))},
		"alone on a card where only whole cards are":    {node: node(gputest.Zones(4), wholeOnly), request: gputest.Ask(gputest.Alone(2, gib)), want: two(place.ModeConflict, 2, 4)},
		"a container that asks nothing has no mode":     {node: node(gputest.Zones(4), slicesOnly), request: gputest.Ask(gpu.Request{Whole: true}, gputest.Share(1, gib))},
		"both kinds where both are served":              {node: node(gputest.Zones(4)), request: gputest.Ask(gputest.Share(1, gib), gputest.Whole(2))},
		"the order is unreadable, unaccounted, mode":    {node: node(gputest.Zones(4), unreadable, unknown, slicesOnly), request: gputest.AskWhole(2), want: two(place.BadInventory, 2, 4)},
		"a pod with unknown cards comes before the mode": {
			node: node(gputest.Zones(4), unknown, slicesOnly), request: gputest.AskWhole(2),
			want: place.Refusal{
				Code: place.Unaccounted, Want: 2, Cards: counts{place.Unaccounted: 4},
				Permanent: true, WhenEmpty: place.Shortage{Code: place.ModeConflict, Want: 2},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

func TestCardsRefuse(t *testing.T) {
	always := func(r place.Refusal) place.Refusal {
		r.Permanent, r.WhenEmpty = true, place.Shortage{Code: r.Code, Want: r.Want, Have: r.Have, Idle: r.Idle}
		return r
	}
	denied := ask(gputest.AskSlice(10, gib), func(r *gpu.PodRequest) { r.Deny = []gpu.CardID{"GPU-0", "GPU-1"} })
	cases := map[string]refusalCase{
		"all cards are unhealthy": {
			node: node(cards(2, unhealthy(0, 1))), request: gputest.AskSlice(10, gib),
			want: always(place.Refusal{Code: place.Unhealthy, Want: 1, Cards: counts{place.Unhealthy: 2}}),
		},
		"all cards are on the deny list": {
			node: node(cards(2, nil)), request: denied,
			want: always(place.Refusal{Code: place.CardExcluded, Want: 1, Cards: counts{place.CardExcluded: 2}}),
		},
		"an ordinary pod and cards with online ones": {
			node: node(cards(2, nil), online(0, gib), online(1, gib)), request: gputest.AskSlice(10, gib),
			want: place.Refusal{Code: place.ClassConflict, Want: 1, Cards: counts{place.ClassConflict: 2}},
		},
		"cards of another QoS class": {
			node: node(cards(2, nil), slice(0, 1, gib, gpu.FixedShare), slice(1, 1, gib, gpu.BurstShare)), request: gputest.AskSlice(10, gib),
			want: place.Refusal{Code: place.QoSConflict, Want: 1, Cards: counts{place.QoSConflict: 2}},
		},
		"cards wanted alone but in use": {
			node: node(cards(2, nil), slice(0, 1, gib, gpu.BestEffort), alone(1)), request: gputest.AskWhole(1),
			want: place.Refusal{Code: place.ExclusiveConflict, Want: 1, Idle: true, Cards: counts{place.ExclusiveConflict: 2}},
		},
		"cards held by others alone": {
			node: node(cards(2, nil), alone(0, 1)), request: gputest.AskSlice(10, gib),
			want: place.Refusal{Code: place.ExclusiveConflict, Want: 1, Cards: counts{place.ExclusiveConflict: 2}},
		},
		"sixteen slices on each card": {
			node: node(cards(2, nil), full(0), full(1)), request: gputest.AskSlice(10, gib),
			want: place.Refusal{Code: place.SlicesFull, Want: 1, Have: 0, Cards: counts{place.SlicesFull: 2}},
		},
		"too little memory; the best card is named": {
			node: node(cards(2, nil), slice(0, 1, 62*gib, gpu.BestEffort), slice(1, 1, 60*gib, gpu.BestEffort)), request: gputest.AskSlice(10, 8*gib),
			want: place.Refusal{Code: place.MemoryShort, Want: 8192, Have: 4096, Cards: counts{place.MemoryShort: 2}},
		},
		"more memory than any card has": {
			node: node(cards(2, nil), slice(0, 1, 62*gib, gpu.BestEffort)), request: gputest.AskSlice(10, 80*gib),
			want: always(place.Refusal{Code: place.MemoryShort, Want: 80 << 10, Have: 64 << 10, Cards: counts{place.MemoryShort: 2}}),
		},
		"too little compute; the best card is named": {
			node: node(cards(2, nil), slice(0, 90, gib, gpu.BestEffort), slice(1, 70, gib, gpu.BestEffort)), request: gputest.AskSlice(31, gib),
			want: place.Refusal{Code: place.ComputeShort, Want: 31, Have: 30, Cards: counts{place.ComputeShort: 2}},
		},
		"more cards than there are": {
			node: node(cards(2, nil)), request: gputest.AskWhole(3),
			want: always(place.Refusal{Code: place.TooFewCards, Want: 3, Have: 2, Idle: true, Cards: counts{place.TooFewCards: 2}}),
		},
		"half of each of two cards, one is too full": {
			node: node(cards(3, nil), slice(0, 60, gib, gpu.BestEffort), slice(1, 60, gib, gpu.BestEffort)), request: gputest.Ask(gpu.Request{Cards: 2, Compute: 50}),
			want: place.Refusal{Code: place.TooFewCards, Want: 2, Have: 1, Cards: counts{place.ComputeShort: 2, place.TooFewCards: 1}},
		},
		"an overbooked card has nothing left, not less": {
			node: node(cards(1, nil), slice(0, 1, 70*gib, gpu.BestEffort)), request: gputest.AskSlice(10, gib),
			want: place.Refusal{Code: place.MemoryShort, Want: 1024, Have: 0, Cards: counts{place.MemoryShort: 1}},
		},
		"compute overbooked by a foreign slice": {
			node: node(cards(1, nil), foreign(ledger.Usage{Slots: 1, Compute: 150})), request: gputest.AskSlice(10, gib),
			want: always(place.Refusal{Code: place.ComputeShort, Want: 10, Have: 0, Cards: counts{place.ComputeShort: 1}}),
		},
		"today in use, never large enough": {
			node: node(cards(1, nil), alone(0)), request: gputest.AskSlice(10, 80*gib),
			want: place.Refusal{
				Code: place.ExclusiveConflict, Want: 1, Cards: counts{place.ExclusiveConflict: 1},
				Permanent: true, WhenEmpty: place.Shortage{Code: place.MemoryShort, Want: 80 << 10, Have: 64 << 10},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestFirstReasonOfACard puts everything wrong on one card and takes it away
// again, reason by reason, in the order of the codes.
func TestFirstReasonOfACard(t *testing.T) {
	wrong := gputest.Cards(1)[0]
	wrong.Healthy, wrong.Slots = false, 1
	usage := ledger.Usage{Slots: 1, Online: 1, QoS: gpu.FixedShare.Set(), Exclusive: true, Memory: gputest.Memory, Compute: 100}
	request := ask(gputest.AskSlice(10, gib), func(r *gpu.PodRequest) { r.Deny = []gpu.CardID{"GPU-0"} })
	steps := []struct {
		want place.Code
		fix  func()
	}{
		{place.Unhealthy, func() { wrong.Healthy = true }},
		{place.CardExcluded, func() { request.Deny = nil }},
		{place.ClassConflict, func() { usage.Online = 0 }},
		{place.QoSConflict, func() { usage.QoS = gpu.BestEffort.Set() }},
		{place.ExclusiveConflict, func() { usage.Exclusive = false }},
		{place.SlicesFull, func() { wrong.Slots = 2 }},
		{place.MemoryShort, func() { usage.Memory = 0 }},
		{place.ComputeShort, func() { usage.Compute = 0 }},
		{place.Fits, func() {}},
	}
	for _, step := range steps {
		n := node(gputest.MustTopology([]gpu.Card{wrong}, nil), foreign(usage))
		if _, got := place.Fit(n, request, &place.Preference{}); got.Code != step.want {
			t.Errorf("refused for %v, want %v", got.Code, step.want)
		}
		step.fix()
	}
}

// TestReasonOfTheNode: the reason of the card nearest to fitting, however many
// cards gave another one.
func TestReasonOfTheNode(t *testing.T) {
	cases := map[string]refusalCase{
		"the latest, though others are as frequent": {
			node:    node(cards(4, nil), slice(0, 1, 64*gib, gpu.BestEffort), slice(1, 1, gib, gpu.FixedShare), slice(2, 1, 64*gib, gpu.BestEffort), slice(3, 1, gib, gpu.FixedShare)),
			request: gputest.AskSlice(10, gib),
			want:    place.Refusal{Code: place.MemoryShort, Want: 1024, Cards: counts{place.QoSConflict: 2, place.MemoryShort: 2}},
		},
		"one card lacks compute, all others are held exclusively": {
			node:    node(cards(8, nil), alone(0, 1, 2, 4, 5, 6, 7), slice(3, 70, gib, gpu.BestEffort)),
			request: gputest.AskSlice(35, gib),
			want:    place.Refusal{Code: place.ComputeShort, Want: 35, Have: 30, Cards: counts{place.ExclusiveConflict: 7, place.ComputeShort: 1}},
		},
		"the best of the cards that gave it": {
			node:    node(cards(4, unhealthy(0)), slice(1, 100, gib, gpu.BestEffort), slice(2, 99, gib, gpu.BestEffort), alone(3)),
			request: gputest.AskSlice(10, gib),
			want:    place.Refusal{Code: place.ComputeShort, Want: 10, Have: 1, Cards: counts{place.Unhealthy: 1, place.ComputeShort: 2, place.ExclusiveConflict: 1}},
		},
		"a slice that asks for an idle card": {
			node:    node(cards(2, nil), slice(0, 70, gib, gpu.BestEffort), slice(1, 70, gib, gpu.BestEffort)),
			request: gputest.AskSlice(10, gib), prefer: keys(place.Unused),
			want: place.Refusal{Code: place.ExclusiveConflict, Want: 1, Idle: true, Cards: counts{place.ExclusiveConflict: 2}},
		},
		"as many fit as are in use": {
			node: node(cards(4, nil), alone(0, 1)), request: gputest.AskWhole(3),
			want: place.Refusal{Code: place.TooFewCards, Want: 3, Have: 2, Idle: true, Cards: counts{place.ExclusiveConflict: 2, place.TooFewCards: 2}},
		},
		"one fits, and more are in use": {
			node: node(cards(4, nil), alone(0, 1, 2)), request: gputest.AskWhole(4),
			want: place.Refusal{Code: place.TooFewCards, Want: 4, Have: 1, Idle: true, Cards: counts{place.ExclusiveConflict: 3, place.TooFewCards: 1}},
		},
		"memory as a ratio: the card that lacks least": {
			node:    node(cards(2, func(c []gpu.Card) { c[1].Memory = 32 * gib }), slice(0, 1, 40*gib, gpu.BestEffort), slice(1, 1, 17*gib, gpu.BestEffort)),
			request: gputest.Ask(gpu.Request{Cards: 1, Memory: gpu.Memory{Ratio: 50}}),
			want:    place.Refusal{Code: place.MemoryShort, Want: 16 << 10, Have: 15 << 10, Cards: counts{place.MemoryShort: 2}},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

// TestNearestCardDecides compares the reasons of random nodes with those of their
// cards, each asked as the only card of a node.
func TestNearestCardDecides(t *testing.T) {
	seen := map[place.Code]int{}
	for seed := range uint64(10_000) {
		r := gputest.Rand(seed)
		n, _ := randomAccount(r)
		pod := randomAsk(r, n.Topology().Len())
		pod.Requests = pod.Requests[:1]
		var prefer place.Preference
		if r.IntN(4) == 0 {
			prefer.Cards = []place.CardKey{place.Unused}
		}
		_, got := place.Fit(n, pod, &prefer)
		if got.Code < place.Unhealthy || pod.Requests[0].Cards == 0 {
			continue // fits, or the node as a whole is out
		}
		seen[got.Code]++
		want, fitting := place.Refusal{}, int64(0)
		one := *pod
		one.Requests = []gpu.Request{pod.Requests[0]}
		one.Requests[0].Cards = 1
		for i := range n.Topology().Len() {
			card := node(gputest.MustTopology([]gpu.Card{*n.Topology().Card(i)}, nil), serves(n.Serves), foreign(n.Now().Usage[i]))
			switch _, its := place.Fit(card, &one, &prefer); {
			case its.Code == place.Fits:
				fitting++
			case its.Code > want.Code || its.Code == want.Code && its.Want-its.Have < want.Want-want.Have:
				want = its
			}
		}
		if fitting > 0 {
			want.Code = place.TooFewCards
		}
		if want.Code < place.SlicesFull || want.Code == place.TooFewCards {
			want.Want, want.Have = int64(pod.Requests[0].Cards), fitting
		}
		if got.Code != want.Code || got.Want != want.Want || got.Have != want.Have {
			t.Fatalf("seed %d: refused for %v (%d, %d), want %v (%d, %d)", seed, got.Code, got.Want, got.Have, want.Code, want.Want, want.Have)
		}
	}
	for code := place.Unhealthy; code <= place.TooFewCards; code++ {
		if seen[code] < 20 {
			t.Errorf("%d nodes refused for %v, want 20 at least", seen[code], code)
		}
	}
}

// TestCodesAreStable: codes that were published keep their names and their order.
func TestCodesAreStable(t *testing.T) {
	published := []string{
		"NodeExcluded", "NoCards", "BadInventory", "Unaccounted", "ModeConflict", "Unhealthy", "CardExcluded", "ClassConflict",
		"QoSConflict", "ExclusiveConflict", "SlicesFull", "MemoryShort", "ComputeShort", "TooFewCards",
	}
	var got []string
	for _, c := range place.Codes() {
		text, err := c.MarshalText()
		if err != nil || string(text) != c.String() {
			t.Errorf("code %d is written %q and %q", c, text, c)
		}
		if slices.Contains(published, c.String()) {
			got = append(got, c.String())
		}
	}
	if diff := cmp.Diff(published, got); diff != "" {
		t.Errorf("codes in order (-published +got):\n%s", diff)
	}
	if place.Fits.String() != "" {
		t.Errorf("no refusal is called %q", place.Fits)
	}
}
