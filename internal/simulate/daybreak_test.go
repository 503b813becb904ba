package simulate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// TestDaybreakIsTheCore: what the policy does, with all that it remembers, is
// what the core says when it is asked about every node for every pod.
func TestDaybreakIsTheCore(t *testing.T) {
	trace := mixed(4, 40)
	got, err := Place(t.Context(), trace, "daybreak", Options{})
	if err != nil {
		t.Fatal(err)
	}
	kinds, of := kindsOf(trace.Pods, false)
	s := newState(trace.Nodes, kinds, false)
	learner, supply := place.NewLearner(), map[string]int{}
	var nodes []*ledger.Node
	for i := range s.nodes {
		nodes = append(nodes, account(&s.nodes[i], i))
		supply[s.nodes[i].Model] += s.nodes[i].Cards
	}
	learner.SetSupply(supply)
	var want []Placement
	for i := range trace.Pods {
		k := &kinds[of[i]]
		p := Placement{Pod: i}
		if k.Cards == 0 { // not the core's business: as it was done
			p = got[i]
		} else if at, offer, ok := ask(s, nodes, k, learner); ok {
			p.Placed, p.Node, p.Cards = true, s.nodes[at].Name, offer.Cards(0)
		}
		want = append(want, p)
		if !p.Placed {
			continue
		}
		for at := range s.nodes {
			if s.nodes[at].Name != p.Node {
				continue
			}
			if err := s.book(at, p.Cards, k); err != nil {
				t.Fatal(err)
			}
			nodes[at].FreeCPU -= gpu.MilliCPU(k.CPU)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("placements (-core +policy):\n%s", diff)
	}
}

// ask chooses among the nodes that CPU, memory and model leave, and books.
func ask(s *state, nodes []*ledger.Node, k *kind, l *place.Learner) (int, ledger.Offer, bool) {
	r := request(&k.Pod)
	l.Observe(&r)
	var open []*ledger.Node
	var positions []int
	for i := range nodes {
		if s.nodes[i].admits(k) {
			open, positions = append(open, nodes[i]), append(positions, i)
		}
	}
	best, offer, _, ok := place.Choose(open, &r, &place.Preference{Demand: l.Demand()})
	if !ok {
		return 0, offer, false
	}
	if _, err := open[best].Commit(offer, ledger.Holder(fmt.Sprint(len(open[best].Holdings()), k.id)), &r); err != nil {
		return 0, offer, false
	}
	return positions[best], offer, true
}
