package kubelet

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// checkOthers makes sure that the pod's cards are not someone else's: of those
// who were given cards before, whether their pods are still there or not, and
// of those who were placed earlier and are yet to come.
func (s *Server) checkOthers(n *Node, r *record, c *claimed) error {
	node := n.Inventory.Open()
	held, _ := s.pods.Held()
	s.mu.Lock()
	given := map[string][]*record{}
	for _, o := range s.journal.Records {
		if o.PodUID != r.PodUID {
			given[string(o.PodUID)] = append(given[string(o.PodUID)], o)
		}
	}
	s.mu.Unlock()
	for _, pod := range held {
		_, started := given[string(pod.UID)]
		if pod.UID == r.PodUID || !started && !earlier(pod, c.pod) {
			continue
		}
		if h, known, _ := n.Inventory.HoldingOf(node, pod); known {
			h.Holder = ledger.Holder(pod.UID)
			node.Book(h)
		}
	}
	there := uids(held)
	for uid, records := range given {
		if there[records[0].PodUID] == nil {
			node.Book(leftBehind(node, ledger.Holder(uid), records))
		}
	}
	return checkUsage(node, c, func(card int) string { return holderOf(node, given, there, card) })
}

// earlier reports whether a pod was placed before another one. Pods that don't
// say when were placed by others, and first.
func earlier(a, b *corev1.Pod) bool {
	x, _ := wire.Decided(a)
	y, _ := wire.Decided(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.UID, b.UID)) < 0
}

// leftBehind is what a pod holds of which only the journal knows.
func leftBehind(node *ledger.Node, holder ledger.Holder, records []*record) ledger.Holding {
	h := ledger.Holding{Holder: holder, QoS: records[0].QoS, Class: records[0].Class}
	for _, r := range records {
		part := ledger.Part{Container: r.Container}
		for _, sh := range r.Shares {
			if card, ok := node.Topology().Index(sh.Card); ok {
				part.Shares = append(part.Shares, ledger.Share{Card: card, Compute: sh.Compute, Memory: sh.Memory, Exclusive: sh.Exclusive})
			}
		}
		h.Parts = append(h.Parts, part)
	}
	return h
}

// checkUsage asks of each card of the pod whether there is room beside what is
// booked.
func checkUsage(node *ledger.Node, c *claimed, holderOf func(card int) string) error {
	for card := range c.claim.Holding.Cards().All() {
		there, wants, facts := node.Now().Usage[card], c.claim.Holding.On(card), node.Topology().Card(card)
		if there.Idle() {
			continue
		}
		who := holderOf(card)
		switch {
		case there.Exclusive || wants.Exclusive:
			return fmt.Errorf("card %s is held by %s, one of the two wants it alone", facts.ID, who)
		case int(there.Slots+wants.Slots) > facts.Slots:
			return fmt.Errorf("card %s already carries %d shares, of %s", facts.ID, there.Slots, who)
		case there.Compute+wants.Compute > gpu.FullCompute:
			return fmt.Errorf("card %s: %d%% are held by %s, %d%% are wanted", facts.ID, there.Compute, who, wants.Compute)
		case there.Memory+wants.Memory > facts.Memory:
			return fmt.Errorf("card %s: %v of %v are held by %s, %v are wanted", facts.ID, there.Memory, facts.Memory, who, wants.Memory)
		case there.QoS|wants.QoS != there.QoS && there.QoS != 0 && wants.QoS != 0:
			return fmt.Errorf("card %s runs class %s, for %s", facts.ID, there.QoS.Only(), who)
		}
	}
	return nil
}

// holderOf names one of those who hold a card.
func holderOf(node *ledger.Node, given map[string][]*record, there map[types.UID]*corev1.Pod, card int) string {
	for i := range node.Holdings() {
		h := &node.Holdings()[i]
		if !h.Cards().Has(card) {
			continue
		}
		if pod := there[types.UID(h.Holder)]; pod != nil {
			return fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)
		}
		if records := given[string(h.Holder)]; len(records) > 0 {
			return fmt.Sprintf("pod %s/%s, which is gone but has not let go", records[0].Namespace, records[0].Pod)
		}
	}
	return "slices that Daybreak did not make"
}
