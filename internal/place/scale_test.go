package place_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// workload is the pods of a Deployment on some nodes, placed as a scheduler does.
type workload struct {
	*testing.T
	nodes  []*ledger.Node
	census *place.Census
	of     *gpu.PodRequest
	// cordoned nodes get no pods.
	cordoned map[*ledger.Node]bool
	names    int
	pods     []placed
}

// placed is a pod and its node.
type placed struct {
	holder ledger.Holder
	node   *ledger.Node
}

// add places one more pod, if it fits.
func (w *workload) add() bool {
	p := place.Preference{Demand: w.census.Demand()}
	var open []*ledger.Node
	for _, n := range w.nodes {
		if !w.cordoned[n] {
			open = append(open, n)
		}
	}
	at, offer, _, ok := choose(open, w.of, &p)
	if !ok {
		return false
	}
	w.names++
	holder := ledger.Holder(fmt.Sprint("pod-", w.names))
	if _, err := open[at].Commit(offer, holder, w.of); err != nil {
		w.Fatal(err)
	}
	w.census.Add(place.KindsOf(w.of), 1)
	w.pods = append(w.pods, placed{holder, open[at]})
	return true
}

// scaleDown removes pods as the controller of a ReplicaSet does: from the nodes
// with the most pods, the youngest first.
func (w *workload) scaleDown(to int) {
	for len(w.pods) > to {
		on := map[*ledger.Node]int{}
		for _, p := range w.pods {
			on[p.node]++
		}
		victim := 0
		for i, p := range w.pods {
			if on[p.node] >= on[w.pods[victim].node] {
				victim = i
			}
		}
		w.end(w.pods[victim])
		w.pods = slices.Delete(w.pods, victim, victim+1)
	}
}

func (w *workload) end(p placed) {
	p.node.Release(p.holder)
	w.census.Add(place.KindsOf(w.of), -1)
}

// drain moves the pods of a node to the others.
func (w *workload) drain(node *ledger.Node) {
	w.cordoned[node] = true
	gone := 0
	w.pods = slices.DeleteFunc(w.pods, func(p placed) bool {
		if p.node != node {
			return false
		}
		w.end(p)
		gone++
		return true
	})
	for range gone {
		if !w.add() {
			w.Fatal("a drained pod fits nowhere")
		}
	}
}

// cards counts the cards in use.
func (w *workload) cards() int {
	n := 0
	for _, node := range w.nodes {
		for _, u := range node.Now().Usage {
			if !u.Idle() {
				n++
			}
		}
	}
	return n
}

// TestScaling: a Deployment of slices of 40 % that was scaled from 80 to 5 and then
// to 12 is on few cards, also after a drain. Six would do. Without pods for whole
// cards the fuller node goes first and opens cards of its own.
func TestScaling(t *testing.T) {
	for name, tc := range map[string]struct {
		whole                   int // pods for a whole card on other nodes
		wantScaled, wantDrained int
	}{
		"only slices":       {whole: 0, wantScaled: 8, wantDrained: 7},
		"a few whole cards": {whole: 5, wantScaled: 8, wantDrained: 7}, // and too few pods to expect anything
		"some whole cards":  {whole: 30, wantScaled: 6, wantDrained: 6},
		"many whole cards":  {whole: 80, wantScaled: 6, wantDrained: 6},
	} {
		for _, memory := range []gpu.MiB{1 << 10, 8 << 10, 25 << 10} {
			t.Run(fmt.Sprint(name, " ", memory), func(t *testing.T) {
				w := &workload{T: t, census: place.NewCensus(), of: gputest.AskSlice(40, memory), cordoned: map[*ledger.Node]bool{}}
				for i := range 4 {
					w.nodes = append(w.nodes, ledger.NewNode(fmt.Sprint("metax-", i+1), gputest.Zones(4, 4), ledger.Serves{Whole: true, Slices: true}))
				}
				w.census.Add(place.KindsOf(gputest.AskWhole(1)), tc.whole)
				for range 80 {
					w.add() // 64 fit
				}
				w.scaleDown(5)
				for len(w.pods) < 12 {
					w.add()
				}
				if got := w.cards(); got != tc.wantScaled {
					t.Errorf("12 slices are on %d cards, want %d", got, tc.wantScaled)
				}
				w.drain(w.nodes[0])
				if got := w.cards(); got != tc.wantDrained {
					t.Errorf("after a drain they are on %d cards, want %d", got, tc.wantDrained)
				}
			})
		}
	}
}
