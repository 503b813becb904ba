package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// bookAll books the entry's pods and what the overlay has besides. Before may be
// nil; what it read is used again if the inventory is the same. Ended pods are
// not on the node any more although the overlay may still know them.
func (n *nodes) bookAll(now, before *entry, lock allocation.Lock, mode foldMode, ended func(types.UID) bool) {
	f := folder{nodes: n, now: now, lock: lock, mode: mode}
	if len(now.read) > 0 {
		f.holdings = make([]ledger.Holding, 0, len(now.read))
		if before != nil && before.inventory == now.inventory {
			f.before = before.read
		}
	}
	for i := range now.read {
		f.add(i)
	}
	now.node.BookAll(f.holdings, f.unknown)
	beyond := n.pods.reservedBeyond(now.node.Name, mode, f.found, func(uid types.UID) bool {
		return ended != nil && ended(uid) || slices.ContainsFunc(now.read, func(r reading) bool { return r.pod.UID == uid })
	})
	now.beyond = beyond
	for _, res := range beyond {
		// A pod of the same name may be on the node: it keeps what it holds.
		if h, known := res.in(now.node); known {
			now.node.BookAll([]ledger.Holding{h}, nil)
			f.coming = append(f.coming, h)
		} else {
			now.node.BookAll(nil, []ledger.Holder{h.Holder})
		}
	}
	now.inventory.BookForeign(now.node, f.coming...)
	for _, pod := range f.nominated {
		n.placeNominated(now.node, pod)
	}
}

// lockOf returns the node's lock; the zero value is none.
func lockOf(node *corev1.Node) allocation.Lock {
	text, ok := node.Annotations[wire.AnnotationLock]
	if !ok {
		return allocation.Lock{}
	}
	lock, _ := allocation.ParseLock(text)
	return lock
}

// folder is one fold.
type folder struct {
	*nodes
	now    *entry
	before []reading
	byUID  map[types.UID]*reading // of before, made when it is needed
	lock   allocation.Lock
	mode   foldMode
	found  int // reservations of pods that are on the node

	holdings  []ledger.Holding
	unknown   []ledger.Holder
	nominated []*corev1.Pod
	// coming are pods that are yet to be bound, and the one that the vendor's
	// plugin is yet to serve, which it takes the lock off for.
	coming []ledger.Holding
}

// add takes in the i-th pod of the node.
func (f *folder) add(i int) {
	r := &f.now.read[i]
	pod := r.pod
	was := f.earlier(i, pod)
	if was != nil {
		*r = *was
		r.pod = pod
	} else {
		r.asks = wire.Asks(pod)
	}
	if !r.asks {
		return
	}
	if pod.Spec.NodeName == "" {
		f.nominated = append(f.nominated, pod)
		return
	}
	if was == nil || was.pod != pod {
		r.kinds = request.CensusKinds(pod)
	}
	// Until the Binding is through, the annotations of a pod that this process has
	// reserved cards for are only what its author wrote. Cards without identity
	// are dealt again in every fold, to reserved pods like to the rest, so that no
	// two pods count for one.
	res, carried := f.pods.reservationOf(pod, f.mode)
	if res != nil && (!carried || f.mode != ofSnapshot) {
		f.found++
		if !f.now.node.Counted {
			r.amounts = quota.Held(f.now.node, &res.ask.Request)
			f.bookReserved(pod, res, carried)
			return
		}
	}
	if !r.read || f.now.node.Counted {
		f.book(r, res)
	}
	switch {
	case !r.known:
		f.unknown = append(f.unknown, allocation.HolderOf(pod))
		return
	case !f.now.node.Counted:
		f.holdings = append(f.holdings, r.holding)
	}
	if f.lock.Names(pod) {
		f.coming = append(f.coming, r.holding)
	}
}

// bookReserved books what is reserved for the pod. It is still to come unless the
// pod carries it.
func (f *folder) bookReserved(pod *corev1.Pod, res *claim, carried bool) {
	h, known := res.in(f.now.node)
	if !known {
		f.unknown = append(f.unknown, h.Holder)
		return
	}
	f.holdings = append(f.holdings, h)
	if !carried || f.lock.Names(pod) {
		f.coming = append(f.coming, h)
	}
}

// book reads what the pod holds from its annotations; its reservation, if it has
// one, has its request. Where cards have no identity, those that it gets depend on
// what others have already.
func (f *folder) book(r *reading, res *claim) {
	if f.now.node.Counted {
		f.now.node.BookAll(f.holdings, f.unknown)
		f.holdings, f.unknown = f.holdings[:0], f.unknown[:0]
	}
	ask, asks := r.ask, true
	switch {
	case ask != nil:
	case res != nil && res.isFor(r.pod):
		ask = res.ask
	default:
		ask, asks = request.ReadBound(r.pod)
	}
	if f.now.node.Counted && asks {
		r.ask = ask
	}
	r.holding, r.known, _ = allocation.BookingFor(f.now.inventory, f.now.node, r.pod, ask, asks)
	r.read, r.amounts = true, ledger.Amounts{}
	if ask != nil && quota.Counts(r.pod, &r.holding) {
		r.amounts = quota.Held(f.now.node, &ask.Request)
	}
	if r.known && f.now.node.Counted {
		f.now.node.Book(r.holding)
	}
}

// earlier returns what was read before of a version of the pod that holds the same.
// Pods mostly stay where they are in the NodeInfo's list.
func (f *folder) earlier(i int, pod *corev1.Pod) *reading {
	same := func(was *reading) bool {
		return was.pod == pod || was.pod.UID == pod.UID && sameHolding(was.pod, pod)
	}
	if i < len(f.before) && same(&f.before[i]) {
		return &f.before[i]
	}
	if len(f.before) == 0 {
		return nil
	}
	if f.byUID == nil {
		f.byUID = make(map[types.UID]*reading, len(f.before))
		for k := range f.before {
			f.byUID[f.before[k].pod.UID] = &f.before[k]
		}
	}
	if was := f.byUID[pod.UID]; was != nil && same(was) {
		return was
	}
	return nil
}

// placeNominated books a pod that the node is kept for but that has no cards
// yet: those that are held for it since others were evicted for it, who may still
// be there, else as if it came now.
func (n *nodes) placeNominated(node *ledger.Node, pod *corev1.Pod) {
	if h, ok := n.pods.heldOn(pod.UID, node); ok {
		node.Book(h)
		return
	}
	ask, _ := n.pods.request(pod)
	if ask == nil {
		return
	}
	if offer, refusal := place.Fit(node, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
		node.Book(node.Holding(&offer, allocation.HolderOf(pod), &ask.Request))
	}
}
