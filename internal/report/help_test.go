package report

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/gputest"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestHelp: what would help is worked out by hand.
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
				Smaller: &Smaller{Node: "n1", Cards: 3, ComputePercent: 100, Message: "3 cards in place of 4"},
			},
		},
		"two pods are in the way, a third is not": {
			there: []string{device("n1", 3, "64Gi"), slice("n1", "a", 0, 10, 1), slice("n1", "b", 1, 10, 1), slice("n1", "big", 2, 90, 60)},
			pod:   pod("p", "gpu: 2"),
			want:  &Help{Room: &Room{Node: "n1", Pods: []string{"default/a", "default/b"}}},
		},
		"less memory": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 10, 40)},
			pod:   pod("p", "sgpu: 1, vcore: 20, vmemory: 30"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 20, MemoryMiB: 24 << 10, Message: "24 GiB of memory in place of 30 GiB, with the same compute"},
			},
		},
		"less compute": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 70, 4), slice("n1", "b", 0, 1, 4)},
			pod:   pod("p", "sgpu: 1, vcore: 50, vmemory: 4"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 29, MemoryMiB: 4 << 10, Message: "29% of compute in place of 50%, with the same memory"},
			},
		},
		"a share in place of a whole card": {
			there: []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 40, 16)},
			pod:   pod("p", "gpu: 1"),
			want: &Help{
				Room:    &Room{Node: "n1", Pods: []string{"default/a"}},
				Smaller: &Smaller{Node: "n1", Cards: 1, ComputePercent: 60, MemoryMiB: 48 << 10, Message: "a share of 60% and 48 GiB of a card, in place of a whole one"},
			},
		},
		"nothing helps": {
			there: []string{counted("n1", 2), podOn("n1", "a", "gpu: 2")},
			pod:   pod("p", "sgpu: 1, vcore: 50, vmemory: 4"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, append(tc.there, tc.pod)...)
			e := Explain(s, s.Pending[0])
			if len(e.Refusals) == 0 {
				t.Fatal("it fits")
			}
			if diff := cmp.Diff(tc.want, e.Help); diff != "" {
				t.Errorf("help (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHelpIsTrue: on random nodes, the pod fits when the pods that are in the
// way are gone, and a smaller request fits as it says.
func TestHelpIsTrue(t *testing.T) {
	r := gputest.Rand(7)
	rooms, smaller := 0, 0
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
		e := Explain(s, s.Pending[0])
		if e.Help == nil {
			continue
		}
		ask, _ := wire.Admit(s.Pending[0])
		h := newHelper(s.Nodes, ask, nil)
		if room := e.Help.Room; room != nil {
			rooms++
			without := s.Nodes[0].Clone()
			for _, gone := range room.Pods {
				if h.fitsOn(without, &ask.Request) {
					t.Errorf("fits before all of %v are gone", room.Pods)
				}
				without.Release(ledger.Holder(gone))
			}
			if !h.fitsOn(without, &ask.Request) {
				t.Errorf("does not fit without %v", room.Pods)
			}
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
			if h.anywhere(0, &req) < 0 {
				t.Errorf("%+v does not fit", less)
			}
		}
	}
	if rooms < 30 || smaller < 30 {
		t.Errorf("only %d rooms and %d smaller requests were tried", rooms, smaller)
	}
}
