package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// checkOthers makes sure that the container's cards are not another pod's: of
// those that were given cards before, whether their pods are still there or not,
// by this agent or by another plugin, and, for a newcomer, of those that were
// placed earlier and are yet to come.
func (s *Server) checkOthers(n *Node, r *record, newcomer *claimed) error {
	held, known := s.pods.Held()
	if !known {
		return errors.New("the pods of this node are not known yet, so it is not known who has the cards")
	}
	node := n.Inventory.Open()
	given := map[types.UID][]*record{}
	for _, o := range s.journal.now().Records {
		if o.id() != r.id() {
			given[o.PodUID] = append(given[o.PodUID], o)
		}
	}
	own := append(slices.Clone(given[r.PodUID]), r)
	delete(given, r.PodUID)
	for _, pod := range held {
		if pod.UID == r.PodUID {
			continue
		}
		if err := s.bookOther(n, node, pod, given[pod.UID], newcomer); err != nil {
			return err
		}
	}
	there := uids(held)
	for uid, records := range given {
		if there[uid] == nil {
			node.Book(leftBehind(node, ledger.Holder(uid), records))
		}
	}
	wants := leftBehind(node, ledger.Holder(r.PodUID), own)
	if newcomer != nil {
		wants = newcomer.claim.Holding
	}
	return checkUsage(node, &wants, func(card int) string { return holderOf(node, given, there, card) })
}

// bookOther books what another pod of the node has. What can't be told of a pod
// that has cards is an error; a pod that was given none by anyone has none,
// since it gets them from this agent alone.
func (s *Server) bookOther(n *Node, node *ledger.Node, pod *corev1.Pod, records []*record, newcomer *claimed) error {
	s.mu.Lock()
	asked, granted, said := s.grantsKnown, s.granted[pod.UID], s.status.Given[pod.UID]
	s.mu.Unlock()
	if len(records) == 0 && !granted && (newcomer == nil || !earlier(pod, newcomer.pod)) {
		if !asked {
			return errors.New("kubelet has not told yet which devices pods have that other plugins served")
		}
		return nil
	}
	h, known, _ := n.Inventory.HoldingOf(node, pod)
	h.Holder = ledger.Holder(pod.UID)
	switch {
	case known && hasAll(node, &h, said, records):
		node.Book(h)
	case len(records) > 0:
		node.Book(leftBehind(node, h.Holder, records))
	case granted:
		return errors.New("another plugin gave devices to another pod of this node, and its cards are not known yet")
	case !asked:
		return errors.New("kubelet has not told yet which devices pods have that other plugins served")
	}
	return nil
}

// hasAll reports whether a holding has all that kubelet and the journal know of.
func hasAll(node *ledger.Node, h *ledger.Holding, said wire.Given, records []*record) bool {
	for _, cards := range said.Cards {
		if !hasCards(node, h, cards) {
			return false
		}
	}
	for _, r := range records {
		for i := range r.Shares {
			if !hasCards(node, h, []gpu.CardID{r.Shares[i].Card}) {
				return false
			}
		}
	}
	return true
}

// hasCards reports whether a holding has all of the cards that the node has.
func hasCards(node *ledger.Node, h *ledger.Holding, cards []gpu.CardID) bool {
	return !slices.ContainsFunc(cards, func(id gpu.CardID) bool {
		at, ok := node.Topology().Index(id)
		return ok && !h.Cards().Has(at)
	})
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
func checkUsage(node *ledger.Node, h *ledger.Holding, holderOf func(card int) string) error {
	for card := range h.Cards().All() {
		there, wants, facts := node.Now().Usage[card], h.On(card), node.Topology().Card(card)
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
func holderOf(node *ledger.Node, given map[types.UID][]*record, there map[types.UID]*corev1.Pod, card int) string {
	for i := range node.Holdings() {
		h := &node.Holdings()[i]
		if !h.Cards().Has(card) {
			continue
		}
		if pod := there[types.UID(h.Holder)]; pod != nil {
			return fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)
		}
		if records := given[types.UID(h.Holder)]; len(records) > 0 {
			return fmt.Sprintf("pod %s/%s, which is gone but has not let go", records[0].Namespace, records[0].Pod)
		}
	}
	return "slices that Daybreak did not make"
}
