package allocation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// HolderOf returns the name under which a pod is booked.
func HolderOf(pod *corev1.Pod) ledger.Holder {
	return ledger.Holder(pod.Namespace + "/" + pod.Name)
}

// VictimOf returns the pod as one that could be evicted.
func VictimOf(pod *corev1.Pod) *place.Victim {
	v := &place.Victim{Holder: HolderOf(pod), Priority: ptr.Deref(pod.Spec.Priority, 0)}
	if pod.Status.StartTime != nil {
		v.Started = pod.Status.StartTime.Time
	}
	return v
}

// NewNode opens the account of the node with the given pods on it, those that
// hold nothing left aside. The notes are for operators.
func NewNode(inv *inventory.Inventory, pods []*corev1.Pod) (n *ledger.Node, notes []string) {
	n = inv.NewNode()
	for _, pod := range pods {
		if !wire.Holds(pod) || !wire.Asks(pod) {
			continue
		}
		h, known, said := BookingOf(inv, n, pod)
		notes = append(notes, said...)
		if known {
			n.Book(h)
		} else {
			n.BookUnknown(HolderOf(pod))
		}
	}
	inv.BookForeign(n)
	return n, notes
}

// BookingOf returns what is booked for a bound pod. It is what [HoldingOf]
// reads; a pod of which that can read nothing is unknown only if it may hold
// cards, and is booked with none otherwise. Every account of a node asks here.
func BookingOf(inv *inventory.Inventory, n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	ask, asks := request.ReadBound(pod)
	return BookingFor(inv, n, pod, ask, asks)
}

// BookingFor is [BookingOf] for a pod whose request is known: ask and asks are
// what [request.ReadBound] returned.
func BookingFor(inv *inventory.Inventory, n *ledger.Node, pod *corev1.Pod, ask *request.PodRequest, asks bool) (h ledger.Holding, known bool, notes []string) {
	none := ledger.Holding{Holder: HolderOf(pod)}
	canHold := wire.CanHold(pod)
	if n.Counted && !canHold {
		return none, true, nil // nothing but its request could be read
	}
	b := booking{node: n, pod: pod, ask: ask, asks: asks, containers: request.Containers(pod)}
	h, known = b.held(inv)
	switch {
	case known || canHold && mayHold(inv, pod):
		return h, known, b.notes
	case canHold:
		b.note("the node's agent gave it no cards, and kubelet reports none: it holds none")
		return none, true, b.notes
	}
	return none, true, nil
}

// mayHold reports whether a pod without a readable allocation may hold cards. On
// a node that the vendor's plugin serves every pod that can hold cards may. On a
// node that Daybreak serves cards are given to pods with an allocation alone; the
// others hold what another plugin gave them before, which the agent lists on the
// Device.
func mayHold(inv *inventory.Inventory, pod *corev1.Pod) bool {
	_, listed := inv.PluginAllocation(pod.UID)
	return listed || !inv.ListsPluginAllocations() || inv.ServedBy != wire.ServedByDaybreak
}

// HoldingOf reads what a bound pod holds on the node. Where the node's agent has
// listed what kubelet gave the pod, that is it; else what the annotations say, see
// [AnnotatedHolding].
func HoldingOf(inv *inventory.Inventory, n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	b := newBooking(n, pod)
	h, known = b.held(inv)
	return h, known, b.notes
}

// AnnotatedHolding reads what a bound pod holds on the node, from its annotations. It
// is not known when none can be read; a pod whose counts are all zero holds
// nothing. The notes are for operators.
func AnnotatedHolding(n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	b := newBooking(n, pod)
	h, known = b.annotated()
	return h, known, b.notes
}

// booking reads what one pod holds.
type booking struct {
	node *ledger.Node
	pod  *corev1.Pod
	ask  *request.PodRequest // nil when the pod's request makes no sense to us
	asks bool

	containers []request.Container
	notes      []string
}

func newBooking(n *ledger.Node, pod *corev1.Pod) *booking {
	ask, asks := request.ReadBound(pod)
	return &booking{node: n, pod: pod, ask: ask, asks: asks, containers: request.Containers(pod)}
}

func (b *booking) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf("pod %s on %s: ", HolderOf(b.pod), b.node.Name)+fmt.Sprintf(format, args...))
}

// held implements [HoldingOf].
func (b *booking) held(inv *inventory.Inventory) (h ledger.Holding, known bool) {
	g, ok := inv.PluginAllocation(b.pod.UID)
	if !ok || !b.asks || b.node.Counted {
		return b.annotated()
	}
	h, lost, err := b.holding(b.given(&g))
	if err != nil {
		h, known = b.annotated()
		b.note("annotation %s of the Device: %v", wire.AnnotationPluginAllocations, err)
		return h, known
	}
	for _, id := range lost {
		b.note("kubelet gave it card %s, which the node does not have", id)
	}
	return h, true
}

// annotated implements [AnnotatedHolding].
func (b *booking) annotated() (h ledger.Holding, known bool) {
	if !b.asks {
		return ledger.Holding{Holder: HolderOf(b.pod)}, true
	}
	if b.node.Counted {
		return b.counted()
	}
	for _, r := range b.readings() {
		if r.Err != nil {
			b.note("%s: %v", r.Key, r.Err)
			continue
		}
		for _, id := range r.Lost {
			b.note("%s names card %s, which the node does not have", r.Key, id)
		}
		if !known {
			h, known = r.Holding, true
			continue
		}
		if !SameCards(&h, &r.Holding) {
			b.note("%s has other amounts than the annotations before it: booked at the larger", r.Key)
			if larger(&r.Holding, &h) {
				h = r.Holding
			}
		}
	}
	if !known {
		b.note("no annotation names its cards")
	}
	return h, known
}

// counted books by number, on a node whose cards have no identity. A pod that does
// not even fit in number leaves nothing for anyone else.
func (b *booking) counted() (ledger.Holding, bool) {
	if b.ask == nil {
		return ledger.Holding{}, false
	}
	wanted := b.ask.Request
	// The pod is there: neither its lists matter any more, nor whether the node
	// takes others.
	wanted.Allow, wanted.Deny = nil, nil
	open := *b.node
	open.Paused = ""
	offer, refusal := place.Fit(&open, &wanted, &b.ask.Prefer)
	if refusal.Code != place.Fits {
		return ledger.Holding{}, false
	}
	return b.node.Holding(&offer, HolderOf(b.pod), &wanted), true
}
