package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// held returns the holding of a pod with one slice.
func held(pod ledger.Holder, card int, compute gpu.Percent, memory gpu.MiB) ledger.Holding {
	return ledger.Holding{Holder: pod, QoS: gpu.BestEffort, Parts: []ledger.Part{
		{Container: "c", Shares: []ledger.Share{{Card: card, Compute: compute, Memory: memory}}},
	}}
}

func used(shares int16, compute gpu.Percent, memory gpu.MiB) ledger.Usage {
	u := ledger.Usage{Slots: shares, Compute: compute, Memory: memory}
	if shares > 0 {
		u.QoS = gpu.BestEffort.Set()
	}
	return u
}

func TestBook(t *testing.T) {
	cases := map[string]struct {
		do          func(n *ledger.Node)
		want        []ledger.Usage // of two cards
		wantHolders []ledger.Holder
		wantUnknown []ledger.Holder
	}{
		"nothing": {
			do:   func(*ledger.Node) {},
			want: []ledger.Usage{{}, {}},
		},
		"two pods on one card": {
			do:          func(n *ledger.Node) { n.Book(held("a", 0, 30, 1024)); n.Book(held("b", 0, 20, 2048)) },
			want:        []ledger.Usage{used(2, 50, 3072), {}},
			wantHolders: []ledger.Holder{"a", "b"},
		},
		"booking a pod again replaces what it had": {
			do: func(n *ledger.Node) {
				n.Book(held("a", 0, 30, 1024))
				n.Book(held("b", 0, 1, 128))
				n.Book(held("a", 1, 40, 512))
			},
			want:        []ledger.Usage{used(1, 1, 128), used(1, 40, 512)},
			wantHolders: []ledger.Holder{"b", "a"},
		},
		"reality may break the rules": {
			do:          func(n *ledger.Node) { n.Book(held("a", 0, 80, 60<<10)); n.Book(held("b", 0, 80, 60<<10)) },
			want:        []ledger.Usage{used(2, 160, 120<<10), {}},
			wantHolders: []ledger.Holder{"a", "b"},
		},
		"a card that is no longer there is left out": {
			do:          func(n *ledger.Node) { n.Book(held("a", 9, 30, 1024)) },
			want:        []ledger.Usage{{}, {}},
			wantHolders: []ledger.Holder{"a"},
		},
		"a released pod is gone, and only that pod": {
			do:          func(n *ledger.Node) { n.Book(held("a", 0, 30, 1024)); n.Book(held("b", 0, 20, 2048)); n.Release("a") },
			want:        []ledger.Usage{used(1, 20, 2048), {}},
			wantHolders: []ledger.Holder{"b"},
		},
		"releasing twice is fine": {
			do: func(n *ledger.Node) {
				n.Book(held("a", 0, 30, 1024))
				n.Release("a")
				n.Release("a")
				n.Release("other")
			},
			want: []ledger.Usage{{}, {}},
		},
		"a pod whose cards are not known": {
			do: func(n *ledger.Node) {
				n.Book(held("a", 0, 30, 1024))
				n.BookUnknown("a")
				n.BookUnknown("b")
				n.BookUnknown("b")
			},
			want:        []ledger.Usage{{}, {}},
			wantUnknown: []ledger.Holder{"a", "b"},
		},
		"its cards become known": {
			do:          func(n *ledger.Node) { n.BookUnknown("a"); n.Book(held("a", 1, 30, 1024)) },
			want:        []ledger.Usage{{}, used(1, 30, 1024)},
			wantHolders: []ledger.Holder{"a"},
		},
		"an unknown pod is released": {
			do:   func(n *ledger.Node) { n.BookUnknown("a"); n.Release("a") },
			want: []ledger.Usage{{}, {}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := gputest.Node(gputest.Zones(2))
			tc.do(n)
			gputest.Equal(t, "usage", tc.want, n.Now().Usage)
			gputest.Equal(t, "holders", tc.wantHolders, holders(n))
			gputest.Equal(t, "unknown holders", tc.wantUnknown, append([]ledger.Holder(nil), n.Unknown()...))
		})
	}
}

func holders(n *ledger.Node) []ledger.Holder {
	var out []ledger.Holder
	for _, h := range n.Holdings() {
		out = append(out, h.Holder)
	}
	return out
}

func TestForeignUsageStays(t *testing.T) {
	theirs := ledger.Usage{Slots: 2, Memory: 2048, Compute: 25, QoS: gpu.FixedShare.Set()}
	n := gputest.Node(gputest.Zones(2))
	n.Book(held("a", 0, 30, 1024))
	given := []ledger.Usage{theirs}
	n.SetForeign(given)
	given[0].Memory = 0 // the caller's own copy

	both := ledger.Usage{Slots: 3, Memory: 3072, Compute: 55, QoS: gpu.FixedShare.Set() | gpu.BestEffort.Set()}
	gputest.Equal(t, "usage with a pod", []ledger.Usage{both, {}}, n.Now().Usage)
	n.Release("a")
	n.Book(held("b", 1, 1, 128))
	n.Release("b")
	gputest.Equal(t, "usage without a pod", []ledger.Usage{theirs, {}}, n.Now().Usage)
	if diff := cmp.Diff(n.Now(), n.WithoutPods()); diff != "" {
		t.Errorf("no pod is on the node, but it differs from WithoutPods (-now +without):\n%s", diff)
	}
	n.SetForeign(nil)
	gputest.Equal(t, "usage without foreign slices", []ledger.Usage{{}, {}}, n.Now().Usage)
}

// TestFoldIsIncremental books and releases at random: at any time the usage is
// the same as on a fresh node with the holdings that remain.
func TestFoldIsIncremental(t *testing.T) {
	for seed := range uint64(60) {
		r := gputest.Rand(seed)
		cards := gputest.Cards(1 + r.IntN(8))
		for i := range cards {
			cards[i].Healthy = r.IntN(6) > 0
			cards[i].Memory = []gpu.MiB{64 << 10, 72 << 10, 16000}[r.IntN(3)] / 128 * 128
		}
		topology := gputest.MustTopology(cards, nil)
		foreign := make([]ledger.Usage, len(cards))
		foreign[0] = ledger.Usage{Slots: 1, Memory: 4096, Compute: 10}
		n := gputest.Node(topology)
		n.SetForeign(foreign)
		for step := range 60 {
			pod := ledger.Holder(fmt.Sprintf("pod-%d", r.IntN(12)))
			if r.IntN(3) == 0 {
				n.Release(pod)
			} else {
				n.Book(randomHolding(r, pod, len(cards)))
			}
			fresh := gputest.Node(topology)
			fresh.SetForeign(foreign)
			for _, h := range n.Holdings() {
				fresh.Book(h)
			}
			if now, want := n.Now(), fresh.Now(); !slices.Equal(now.Usage, want.Usage) || !slices.Equal(now.Full, want.Full) || now.Mean != want.Mean {
				t.Fatalf("seed %d, step %d: the node differs from a fresh one (-fresh +node):\n%s", seed, step, cmp.Diff(want, now))
			}
		}
	}
}

func randomHolding(r *rand.Rand, pod ledger.Holder, cards int) ledger.Holding {
	h := ledger.Holding{
		Holder: pod,
		QoS:    gpu.QoSClasses()[r.IntN(3)],
		Class:  []gpu.Class{gpu.Normal, gpu.Online, gpu.Offline}[r.IntN(3)],
		Parts:  make([]ledger.Part, r.IntN(4)),
	}
	for i := range h.Parts {
		h.Parts[i].Phase = []gpu.Phase{gpu.App, gpu.Init, gpu.Sidecar}[r.IntN(3)]
		for c := range gputest.Subset(r, cards, 40).All() {
			h.Parts[i].Shares = append(h.Parts[i].Shares, ledger.Share{
				Card: c, Compute: gpu.Percent(r.IntN(60)), Memory: gpu.MiB(r.IntN(100)) * 128, Exclusive: r.IntN(5) == 0,
			})
		}
	}
	return h
}

func TestCloneIsIndependent(t *testing.T) {
	n := gputest.Node(gputest.Zones(2))
	n.SetForeign([]ledger.Usage{used(1, 10, 128)})
	n.Book(held("a", 0, 30, 1024))
	n.Book(held("b", 0, 20, 1024))
	n.BookUnknown("u")

	change := n.Clone()
	change.Release("a")
	change.Release("u")
	change.Book(held("c", 1, 5, 128))
	change.SetForeign(nil)

	for name, pair := range map[string][2]any{
		"usage now":     {[]ledger.Usage{used(3, 60, 2176), {}}, n.Now().Usage},
		"usage emptied": {[]ledger.Usage{used(1, 10, 128), {}}, n.WithoutPods().Usage},
		"holders":       {[]ledger.Holder{"a", "b"}, holders(n)},
		"unknown":       {[]ledger.Holder{"u"}, n.Unknown()},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s changed with the clone (-before +after):\n%s", name, diff)
		}
	}
	gputest.Equal(t, "usage of the clone", []ledger.Usage{used(1, 20, 1024), used(1, 5, 128)}, change.Now().Usage)
	if change.Topology() != n.Topology() {
		t.Error("the clone has a topology of its own")
	}
}

func TestNodeWithoutCards(t *testing.T) {
	n := ledger.NewNode("n1", nil, ledger.Serves{})
	n.Book(held("a", 0, 30, 1024))
	if n.Topology().Len() != 0 || len(n.Now().Usage) != 0 || n.Now().Mean != 0 {
		t.Errorf("a node without cards has %d, used %v", n.Topology().Len(), n.Now().Usage)
	}
}

func TestCommit(t *testing.T) {
	request := gputest.Ask(gputest.Share(30, 1024), gpu.Request{}, gputest.Whole(1))
	request.Class = gpu.Offline
	n := gputest.Node(gputest.Zones(4))
	offer := n.NewOffer(3)
	offer.SetCards(0, gpu.SetOf(1))
	offer.SetCards(2, gpu.SetOf(3))
	want := ledger.Holding{Holder: "a", QoS: gpu.BestEffort, Class: gpu.Offline, Parts: []ledger.Part{
		{Container: "c0", Shares: []ledger.Share{{Card: 1, Compute: 30, Memory: 1024}}},
		{Container: "c1"},
		{Container: "c2", Whole: true, Shares: []ledger.Share{{Card: 3, Compute: 100, Memory: gputest.Memory, Exclusive: true}}},
	}}

	got, err := n.Commit(offer, "a", request)
	if err != nil {
		t.Fatal(err)
	}
	gputest.Equal(t, "holding", want, got)
	gputest.Equal(t, "booked", []ledger.Holding{want}, n.Holdings())
	if u := n.Now().Usage; u[1].Offline != 1 || u[1].Compute != 30 || !u[3].Exclusive || !u[0].Idle() || u[3].Idle() {
		t.Errorf("usage %+v", u)
	}
}

func TestCommitRefusesStaleOffers(t *testing.T) {
	cases := map[string]struct {
		change    func(n *ledger.Node)
		wantStale bool
	}{
		"nothing happened":                     {change: func(*ledger.Node) {}},
		"a pod that is not there was released": {change: func(n *ledger.Node) { n.Release("other") }},
		"a clone was changed":                  {change: func(n *ledger.Node) { n.Clone().Book(held("b", 0, 1, 128)) }},
		"a pod was booked":                     {change: func(n *ledger.Node) { n.Book(held("b", 0, 1, 128)) }, wantStale: true},
		"a pod was booked again":               {change: func(n *ledger.Node) { n.Book(held("a", 0, 1, 128)) }, wantStale: true},
		"a pod left":                           {change: func(n *ledger.Node) { n.Release("a") }, wantStale: true},
		"a pod with unknown cards came":        {change: func(n *ledger.Node) { n.BookUnknown("b") }, wantStale: true},
		"foreign slices came":                  {change: func(n *ledger.Node) { n.SetForeign([]ledger.Usage{used(1, 1, 128)}) }, wantStale: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := gputest.Node(gputest.Zones(2))
			n.Book(held("a", 0, 1, 128))
			offer := n.NewOffer(1)
			offer.SetCards(0, gpu.SetOf(1))
			tc.change(n)
			before := n.Clone()
			_, err := n.Commit(offer, "new", gputest.AskSlice(1, 128))
			if stale := errors.Is(err, ledger.ErrStale); stale != tc.wantStale || err != nil && !stale {
				t.Fatalf("error %v, want stale: %t", err, tc.wantStale)
			}
			if diff := cmp.Diff(before.Now(), n.Now()); tc.wantStale && diff != "" {
				t.Errorf("a refused offer changed the node:\n%s", diff)
			}
			if _, err := n.Commit(offer, "new", gputest.AskSlice(1, 128)); !errors.Is(err, ledger.ErrStale) {
				t.Errorf("committing again: error %v, want stale", err)
			}
		})
	}
}

func TestOfferOfManyContainers(t *testing.T) {
	for _, containers := range []int{1, 6, 7, 20} {
		t.Run(strconv.Itoa(containers), func(t *testing.T) {
			requests := make([]gpu.Request, containers)
			for i := range requests {
				requests[i] = gputest.Share(1, 128)
			}
			n := gputest.Node(gputest.Zones(32))
			offer := n.NewOffer(containers)
			for i := range containers {
				offer.SetCards(i, gpu.SetOf(i, i+1))
			}
			h, err := n.Commit(offer, "a", gputest.Ask(requests...))
			if err != nil {
				t.Fatal(err)
			}
			if len(h.Parts) != containers || h.Cards() != gpu.FirstCards(containers+1) {
				t.Errorf("%d parts on cards %v", len(h.Parts), h.Cards().Indices())
			}
			for i := range containers {
				if got := offer.Cards(i); got != gpu.SetOf(i, i+1) {
					t.Errorf("container %d has cards %v", i, got.Indices())
				}
			}
		})
	}
}

func TestShareOf(t *testing.T) {
	cards := gputest.Cards(2)
	cards[1].Memory = 32 << 10
	topology := gputest.MustTopology(cards, nil)
	cases := map[string]struct {
		serves  ledger.Serves
		request gpu.Request
		want    ledger.Share
	}{
		"a slice":                       {serves: ledger.Serves{Slices: true}, request: gputest.Share(20, 512), want: ledger.Share{Card: 1, Compute: 20, Memory: 512}},
		"half of a card's memory":       {serves: ledger.Serves{Slices: true}, request: gpu.Request{Cards: 1, Compute: 20, Memory: gpu.Memory{Ratio: 50}}, want: ledger.Share{Card: 1, Compute: 20, Memory: 16 << 10}},
		"a whole card":                  {serves: ledger.Serves{Whole: true}, request: gputest.Whole(1), want: ledger.Share{Card: 1, Compute: 100, Memory: 32 << 10, Exclusive: true}},
		"alone with some of its memory": {serves: ledger.Serves{Slices: true}, request: gputest.Alone(1, 512), want: ledger.Share{Card: 1, Compute: 100, Memory: 512, Exclusive: true}},
		"a seat has no amounts":         {serves: ledger.Serves{Seats: true}, request: gputest.Whole(1), want: ledger.Share{Card: 1}},
		"a slice where there are seats": {serves: ledger.Serves{Seats: true, Slices: true}, request: gputest.Share(20, 512), want: ledger.Share{Card: 1, Compute: 20, Memory: 512}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := ledger.NewNode("n1", topology, tc.serves)
			gputest.Equal(t, "share", tc.want, n.ShareOf(&tc.request, 1))
		})
	}
}

// TestRemember: the value holds until something is booked or released.
func TestRemember(t *testing.T) {
	n := gputest.Node(gputest.Zones(4))
	if got := n.Remembered(); got != nil {
		t.Errorf("a new node remembers %v", got)
	}
	n.Remember("idle")
	copied := n.Clone()
	if got := n.Remembered(); got != "idle" {
		t.Errorf("the node remembers %v, want idle", got)
	}
	if got := copied.Remembered(); got != nil {
		t.Errorf("a copy remembers %v, want nothing", got)
	}
	gputest.Exclusive(n, 0)
	if got := n.Remembered(); got != nil {
		t.Errorf("after a booking the node remembers %v, want nothing", got)
	}
	n.Remember("one")
	n.Release("exclusive-0")
	if got := n.Remembered(); got != nil {
		t.Errorf("after a release the node remembers %v, want nothing", got)
	}
}
