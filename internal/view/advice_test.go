package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestHelp: what would help, computed by hand.
func TestHelp(t *testing.T) {
	cases := map[string]struct {
		there []string
		pod   string
		want  *Help
	}{
		"fewer cards": {
			there: []string{device("n1", 4, "64Gi"), slice("n1", "a", 0, 10, 1), device("n2", 4, "64Gi"), slice("n2", "b", 0, 10, 1), slice("n2", "c", 1, 10, 1)},
			pod:   pod("p", "gpu: 4"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Freed:   freedOn("all of card 0 of n1", FreedCard{Index: 0, Emptied: true}),
				Smaller: &Smaller{Node: "n1", Cards: 3, ComputePercent: 100, Message: "3 cards in place of 4"},
			},
		},
		"two pods are in the way, a third is not": {
			there: []string{device("n1", 3, "64Gi"), slice("n1", "a", 0, 10, 1), slice("n1", "b", 1, 10, 1), slice("n1", "big", 2, 90, 60)},
			pod:   pod("p", "gpu: 2"),
			want: &Help{
				Room:  &Room{Node: "n1", Pods: []string{"default/a", "default/b"}},
				Freed: freedOn("all of cards 0, 1 of n1", FreedCard{Index: 0, Emptied: true}, FreedCard{Index: 1, Emptied: true}),
			},
		},
		"two pods of a low priority rather than one of a higher": {
			there: []string{device("n1", 2, "64Gi"), with(slice("n1", "a", 0, 50, 30), "priority: 5"), slice("n1", "b", 1, 20, 16), slice("n1", "c", 1, 20, 16)},
			pod:   with(pod("p", "gpu: 1"), "priority: 9"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/b", "default/c"}},
				Freed:   freedOn("all of card 1 of n1", FreedCard{Index: 1, Emptied: true}),
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 60, MemoryMiB: 32 << 10, Message: "60% compute and 32 GiB memory of a card in place of a whole one"},
			},
		},
		"a pod whose cards are not known": {
			there: []string{device("n1", 1, "64Gi"), podOn("n1", "a", "gpu: 1")},
			pod:   pod("p", "gpu: 1"),
			want:  &Help{Room: &Room{Node: "n1", Pods: []string{"default/a"}}},
		},
		"less memory": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 10, 40)},
			pod:   pod("p", "sgpu: 1, vcore: 20, vmemory: 30"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Freed:   freedOn("6 GiB of memory on card 0 of n1", FreedCard{Index: 0, MemoryMiB: 6 << 10}),
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 20, MemoryMiB: 24 << 10, Message: "24 GiB of memory in place of 30 GiB, with the same compute"},
			},
		},
		"less compute": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 70, 4), slice("n1", "b", 0, 1, 4)},
			pod:   pod("p", "sgpu: 1, vcore: 50, vmemory: 4"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Freed:   freedOn("21% of compute on card 0 of n1", FreedCard{Index: 0, ComputePercent: 21}),
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 29, MemoryMiB: 4 << 10, Message: "29% of compute in place of 50%, with the same memory"},
			},
		},
		"a share in place of a whole card": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 40, 16)},
			pod:   pod("p", "gpu: 1"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Freed:   freedOn("all of card 0 of n1", FreedCard{Index: 0, Emptied: true}),
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 60, MemoryMiB: 48 << 10, Message: "60% compute and 48 GiB memory of a card in place of a whole one"},
			},
		},
		"another QoS class is on the only card: only an empty one will do": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 40, 16)},
			pod:   pod("p", "sgpu: 1, vcore: 20, vmemory: 4", "metax-tech.com/sgpu-qos-policy: fixed-share"),
			want: &Help{
				Room:  &Room{Node: "n1", Pods: []string{"default/a"}},
				Freed: freedOn("all of card 0 of n1", FreedCard{Index: 0, Emptied: true}),
			},
		},
		"the cheapest card of all nodes, and both of its amounts": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 90, 60), device("n2", 2, "64Gi"), slice("n2", "b", 0, 80, 20), slice("n2", "c", 1, 60, 50)},
			pod:   pod("p", "sgpu: 1, vcore: 50, vmemory: 16"),
			want: &Help{
				Room:    &Room{Node: "n2", Pods: []string{"default/b"}},
				Freed:   &Freed{Node: "n2", Cards: []FreedCard{{UUID: "GPU-n2-1", Index: 1, ComputePercent: 10, MemoryMiB: 2 << 10}}, Message: "10% of compute and 2 GiB of memory on card 1 of n2"},
				Smaller: &Smaller{Node: "n2", Cards: 1, ComputePercent: 20, MemoryMiB: 16 << 10, Message: "20% of compute in place of 50%, with the same memory"},
			},
		},
		"nothing helps": {
			there: []string{counted("n1", 2), podOn("n1", "a", "gpu: 2")},
			pod:   pod("p", "sgpu: 1, vcore: 50, vmemory: 4"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := explained(t, append(tc.there, tc.pod)...)
			if len(e.Refusals) == 0 {
				t.Fatal("it fits")
			}
			gputest.Equal(t, "help", tc.want, e.Help)
		})
	}
}

// TestRoomDoesLeastHarm: of a hundred nodes, the one whose pod is the least loss is
// named, wherever it is in any order.
func TestRoomDoesLeastHarm(t *testing.T) {
	job := func(node string, priority int) string {
		var cards []string
		for i := range 8 {
			cards = append(cards, fmt.Sprintf(`{"uuid":"GPU-%s-%d","compute":100,"vRam":65536}`, node, i))
		}
		p := podOn(node, "job-"+node, "gpu: 8", `metax-tech.com/gpu-devices-allocated: '[[`+strings.Join(cards, ",")+`]]'`)
		return with(p, fmt.Sprintf("priority: %d", priority))
	}
	shared := func(node string) []string {
		docs := []string{device(node, 8, "64Gi")}
		for card := range 8 {
			docs = append(docs, slice(node, fmt.Sprintf("a%d-%s", card, node), card, 40, 20), slice(node, fmt.Sprintf("b%d-%s", card, node), card, 30, 20))
		}
		return docs
	}
	jobs := func(unimportant int) (docs []string) {
		for i := range 100 {
			name, priority := fmt.Sprintf("m%02d", i), 0
			if i == unimportant {
				priority = -5
			}
			docs = append(docs, device(name, 8, "64Gi"), job(name, priority))
		}
		return docs
	}
	cases := map[string]struct {
		there []string
		pod   string
		want  Room
	}{
		"one slice rather than a job": {
			there: slices.Concat(jobs(-1), shared("z")), pod: pod("p", "sgpu: 1, vcore: 35, vmemory: 4"),
			want: Room{Node: "z", Pods: []string{"default/b0-z"}},
		},
		"a job of lower priority rather than a slice": {
			there: slices.Concat(jobs(77), shared("z")), pod: pod("p", "sgpu: 1, vcore: 35, vmemory: 4"),
			want: Room{Node: "m77", Pods: []string{"default/job-m77"}},
		},
		"a job rather than two slices": {
			there: slices.Concat(jobs(-1), shared("a")), pod: pod("p", "gpu: 1"),
			want: Room{Node: "m00", Pods: []string{"default/job-m00"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := explained(t, append(tc.there, tc.pod)...)
			if e.Help == nil || e.Help.Room == nil {
				t.Fatalf("help is %+v, want room", e.Help)
			}
			gputest.Equal(t, "room", tc.want, *e.Help.Room)
		})
	}
}

// freedOn is what becomes free on n1.
func freedOn(message string, cards ...FreedCard) *Freed {
	for i := range cards {
		cards[i].UUID = fmt.Sprintf("GPU-n1-%d", cards[i].Index)
	}
	return &Freed{Node: "n1", Cards: cards, Message: message}
}

// TestHelpIsTrue: on random nodes, the pod fits when the pods that are in the
// way are gone, and a smaller request fits as it says.
func TestHelpIsTrue(t *testing.T) {
	r := gputest.Rand(7)
	rooms, smaller, freed := 0, 0, 0
	for range 300 {
		n := 1 + r.IntN(4)
		docs := []string{device("n1", n, "64Gi"), pod("p", []string{"gpu: 2", "gpu: 1", "sgpu: 1, vcore: 60, vmemory: 40", "sgpu: 2, vcore: 50, vmemory: 30"}[r.IntN(4)])}
		left := make([]int, n)
		for i := range 8 {
			card, vcore := r.IntN(n), 1+r.IntN(30)
			if left[card]+vcore < 100 {
				left[card] += vcore
				docs = append(docs, slice("n1", fmt.Sprintf("r%d", i), card, vcore, 1+r.IntN(8)))
			}
		}
		s := snapshot(t, docs...)
		e := Explain(s, s.Pending[0], place.Default)
		if e.Help == nil {
			continue
		}
		ask, _ := request.Read(s.Pending[0])
		a := &adviser{nodes: s.Nodes, ask: ask}
		if room := e.Help.Room; room != nil {
			rooms++
			without := s.Nodes[0].Clone()
			for _, gone := range room.Pods {
				if a.fitsOn(without, &ask.Request) {
					t.Errorf("fits before all of %v are gone", room.Pods)
				}
				without.Release(ledger.Holder(gone))
			}
			if !a.fitsOn(without, &ask.Request) {
				t.Errorf("does not fit without %v", room.Pods)
			}
		}
		if f := e.Help.Freed; f != nil {
			freed++
			checkFreed(t, a, s.Nodes[0], f)
		}
		if less := e.Help.Smaller; less != nil {
			smaller++
			req := ask.Request.Requests[0]
			req.Cards = less.Cards
			if less.MemoryMiB > 0 {
				req.Memory.Ratio, req.Memory.Amount = 0, gpu.MiB(less.MemoryMiB)
			}
			req.Compute = gpu.Percent(less.ComputePercent)
			req.Exclusive, req.Whole = req.Exclusive && less.ComputePercent == 100, req.Whole && less.ComputePercent == 100
			if a.anywhere(&req) < 0 {
				t.Errorf("%+v does not fit", less)
			}
		}
	}
	if rooms < 30 || smaller < 30 || freed < 30 {
		t.Errorf("only %d rooms, %d smaller requests and %d amounts to free were tried", rooms, smaller, freed)
	}
}

// checkFreed: the pod fits when just so much is free, and not when a little less
// is.
func checkFreed(t *testing.T, a *adviser, n *ledger.Node, f *Freed) {
	t.Helper()
	p := plan{node: n}
	for _, c := range f.Cards {
		p.cards = append(p.cards, lack{card: c.Index, emptied: c.Emptied, compute: gpu.Percent(c.ComputePercent), memory: gpu.MiB(c.MemoryMiB), shares: c.Shares})
	}
	if !a.fitsOn(p.carriedOut(), &a.ask.Request) {
		t.Errorf("does not fit when %s is free", f.Message)
	}
	for i, full := range p.cards {
		less := full
		switch {
		case less.emptied:
			less = lack{card: less.card}
		case less.memory > 0:
			less.memory -= gpu.MemoryStep
		default:
			less.compute--
		}
		p.cards[i] = less
		if a.fitsOn(p.carriedOut(), &a.ask.Request) {
			t.Errorf("fits when less than %s is free", f.Message)
		}
		p.cards[i] = full
	}
}
