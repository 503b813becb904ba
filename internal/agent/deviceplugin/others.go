package deviceplugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// checkOthers checks that the container's cards are not another pod's: one that was
// given cards before, by this agent or another plugin, even if the pod is gone, or,
// for a newcomer, one that was placed earlier.
func (s *Server) checkOthers(n *Node, r *record, newcomer *claimed) error {
	node, holderOf, err := s.bookOthers(n, r.PodUID, newcomer)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(s.journal.now().Records), func(o *record) bool { return o.PodUID != r.PodUID || o.id() == r.id() })
	wants := leftBehind(node, ledger.Holder(r.PodUID), append(own, r))
	if newcomer != nil {
		wants = newcomer.claim.Holding
	}
	return checkUsage(node, &wants, holderOf)
}

// bookOthers returns the node with what other pods hold, and who holds a card.
func (s *Server) bookOthers(n *Node, self types.UID, newcomer *claimed) (node *ledger.Node, holder func(card int) (who, name string), err error) {
	held, known := s.pods.Held()
	if !known {
		return nil, nil, errors.New("the pods of this node are not known yet, so it is not known who has the cards")
	}
	if !s.Status().GivenKnown {
		return nil, nil, errors.New("kubelet has not reported yet which devices the pods of other plugins have")
	}
	node = n.Inventory.NewNode()
	given := map[types.UID][]*record{}
	for _, o := range s.journal.now().all() {
		if o.PodUID != self {
			given[o.PodUID] = append(given[o.PodUID], o)
		}
	}
	for _, pod := range held {
		if pod.UID == self {
			continue
		}
		if err := s.bookOther(n, node, pod, given[pod.UID], newcomer); err != nil {
			return nil, nil, err
		}
	}
	there := uids(held)
	for uid, records := range given {
		switch {
		case there[uid] != nil:
		case unknownCards(records):
			return nil, nil, errUnknownCards
		default:
			node.Book(leftBehind(node, ledger.Holder(uid), records))
		}
	}
	return node, func(card int) (who, name string) { return holderOf(node, given, there, card) }, nil
}

// errUnknownCards is a pod that may have any cards, given by another plugin.
var errUnknownCards = errors.New("another plugin gave devices to another pod of this node, and its cards are not known yet")

// unknownCards reports whether what a container has is not known.
func unknownCards(records []*record) bool {
	return slices.ContainsFunc(records, func(r *record) bool { return len(r.Shares) == 0 })
}

// bookOther books what another pod of the node has. A pod with cards that are not
// known is an error; a pod that was given none gets them from this agent, later.
func (s *Server) bookOther(n *Node, node *ledger.Node, pod *corev1.Pod, records []*record, newcomer *claimed) error {
	if len(records) == 0 && (newcomer == nil || !earlier(pod, newcomer.pod)) {
		return nil
	}
	h, known, _ := allocation.HoldingOf(n.Inventory, node, pod)
	h.Holder = ledger.Holder(pod.UID)
	switch {
	case known && hasAll(node, &h, s.Status().Given[pod.UID], records):
		node.Book(h)
	case len(records) == 0:
	case unknownCards(records):
		return errUnknownCards
	default:
		node.Book(leftBehind(node, h.Holder, records))
	}
	return nil
}

// hasAll reports whether a holding has all that kubelet and the journal know of.
func hasAll(node *ledger.Node, h *ledger.Holding, said inventory.PluginAllocation, records []*record) bool {
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

// earlier reports whether a pod was placed before another one. Pods without a time
// were placed by others, and first.
func earlier(a, b *corev1.Pod) bool {
	x, _ := allocation.PredicateTime(a)
	y, _ := allocation.PredicateTime(b)
	return cmp.Or(x.Compare(y), cmp.Compare(a.UID, b.UID)) < 0
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

// checkUsage checks that each card of the pod has room next to what is booked.
func checkUsage(node *ledger.Node, h *ledger.Holding, holderOf func(card int) (who, name string)) error {
	for card := range h.Cards().All() {
		there, wants, facts := node.Now().Usage[card], h.On(card), node.Topology().Card(card)
		if there.Idle() {
			continue
		}
		who, name := holderOf(card)
		held := func(format string, args ...any) error {
			return &heldError{text: fmt.Sprintf(format, args...), name: name}
		}
		// Which of the two may join the other was decided by the scheduler.
		conflict := there.Conflict(&wants) & wants.Conflict(&there)
		switch {
		case conflict&ledger.ExclusiveConflict != 0:
			return held("card %s is held by %s, one of the two wants it alone", facts.ID, who)
		case int(there.Slots+wants.Slots) > facts.Slots:
			return held("card %s already carries %d shares, of %s", facts.ID, there.Slots, who)
		case there.Compute+wants.Compute > gpu.FullCompute:
			return held("card %s: %d%% are held by %s, %d%% are wanted", facts.ID, there.Compute, who, wants.Compute)
		case there.Memory+wants.Memory > facts.Memory:
			return held("card %s: %v of %v are held by %s, %v are wanted", facts.ID, there.Memory, facts.Memory, who, wants.Memory)
		case conflict&ledger.QoSConflict != 0:
			return held("card %s runs class %s, for %s", facts.ID, there.QoS.Only(), who)
		case conflict&ledger.ClassConflict != 0:
			return held("card %s is held by %s, and pods with a class do not share a card with pods without", facts.ID, who)
		}
	}
	return nil
}

// heldError is a card that another pod holds. The text goes to users, who may not be
// allowed to see that pod: its name is for the log.
type heldError struct{ text, name string }

func (e *heldError) Error() string { return e.text }

func holderIn(err error) string {
	if held, ok := errors.AsType[*heldError](err); ok {
		return held.name
	}
	return ""
}

// holderOf returns one of the holders of a card, and its name.
func holderOf(node *ledger.Node, given map[types.UID][]*record, there map[types.UID]*corev1.Pod, card int) (who, name string) {
	for i := range node.Holdings() {
		h := &node.Holdings()[i]
		if !h.Cards().Has(card) {
			continue
		}
		if pod := there[types.UID(h.Holder)]; pod != nil {
			return "another pod", string(allocation.HolderOf(pod))
		}
		if records := given[types.UID(h.Holder)]; len(records) > 0 {
			return "another pod, which is gone but has not let go", records[0].Namespace + "/" + records[0].Pod
		}
	}
	return "slices that Daybreak did not make", ""
}
