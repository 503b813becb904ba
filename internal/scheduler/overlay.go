package scheduler

import (
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// overlay is what this process knows of the nodes beyond kube-scheduler's
// snapshot: the cards of pods between Reserve and the moment when the snapshot
// shows the pod with its annotations, and the cards that are kept for preemptors.
// Each node has a version, which is part of the key of everything that is cached
// about the node: kube-scheduler's generation does not change within a snapshot.
// All profiles of a process share the overlay.
type overlay struct {
	// version counts the changes of all nodes. It is read without the lock.
	version atomic.Uint64

	mu       sync.Mutex
	nodes    map[string]*nodeOverlay
	reserved map[types.UID]*reservation
	held     map[types.UID]preemptorHold
	// changed has the nodes that changed since [overlay.takeChanged].
	changed map[string]struct{}
}

// nodeOverlay is one node's part of the overlay.
type nodeOverlay struct {
	version  uint64
	reserved []*reservation // in the order of Reserve
}

// placed is a holding together with the topology that its cards are counted in.
// Topologies are immutable, so the two identify the cards by UUID.
type placed struct {
	holding  ledger.Holding
	topology *gpu.Topology
}

// reservation is what a pod gets and what Bind writes about it.
type reservation struct {
	uid  types.UID
	node string
	placed
	annotations map[string]string
	// candidates is how many nodes had room.
	candidates int
	// inSnapshot tells that the snapshot's NodeInfo had the pod when the node was
	// last folded.
	inSnapshot bool
}

// preemptorHold is the cards for which a preemptor had other pods evicted. They
// are kept for it until it has them: otherwise pods that come while the victims
// leave would take what the victims free, bit by bit.
type preemptorHold struct {
	node string
	placed
}

func newOverlay() *overlay {
	return &overlay{
		nodes: map[string]*nodeOverlay{}, reserved: map[types.UID]*reservation{}, held: map[types.UID]preemptorHold{}, changed: map[string]struct{}{},
	}
}

// touch gives the node a new version. The lock is held.
func (o *overlay) touch(node string) *nodeOverlay {
	n := o.nodes[node]
	if n == nil {
		n = &nodeOverlay{}
		o.nodes[node] = n
	}
	n.version = o.version.Add(1)
	o.changed[node] = struct{}{}
	return n
}

// versionOf returns the node's version. Equal versions mean an equal overlay.
func (o *overlay) versionOf(node string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.nodes[node]; n != nil {
		return n.version
	}
	return 0
}

// takeChanged appends the nodes that changed since the last call, and returns
// the version that the answer is complete for.
func (o *overlay) takeChanged(names []string) (all []string, version uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.changed {
		names = append(names, name)
	}
	clear(o.changed)
	return names, o.version.Load()
}

// forget drops a node that is gone. Reservations stay until their pods end.
func (o *overlay) forget(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.nodes[node]; n != nil && len(n.reserved) == 0 {
		delete(o.nodes, node)
	}
}

// putReservation reserves cards for the pod, in place of what it had.
func (o *overlay) putReservation(uid types.UID, res reservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before := o.unreserve(uid); before != nil {
		o.touch(before.node)
	}
	res.uid = uid
	o.reserved[uid] = &res
	n := o.touch(res.node)
	n.reserved = append(n.reserved, &res)
}

// getReservation returns what is reserved for the pod.
func (o *overlay) getReservation(uid types.UID) (reservation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if res := o.reserved[uid]; res != nil {
		return *res, true
	}
	return reservation{}, false
}

// dropReservation releases the pod's cards.
func (o *overlay) dropReservation(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if res := o.unreserve(uid); res != nil {
		o.touch(res.node)
	}
}

// unreserve takes the reservation out, if there is one. The lock is held.
func (o *overlay) unreserve(uid types.UID) *reservation {
	res := o.reserved[uid]
	if res == nil {
		return nil
	}
	delete(o.reserved, uid)
	n := o.nodes[res.node]
	n.reserved = slices.DeleteFunc(n.reserved, func(other *reservation) bool { return other == res })
	return res
}

// reservations returns how many pods have reserved cards.
func (o *overlay) reservations() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.reserved)
}

// reservedOn reports whether the pod has a reservation on the node.
func (o *overlay) reservedOn(uid types.UID, node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	res := o.reserved[uid]
	return res != nil && res.node == node
}

// foldMode is what a fold is for.
type foldMode int

const (
	// ofSnapshot is a fold of a NodeInfo of kube-scheduler's snapshot, which
	// decisions are made on. It is kept.
	ofSnapshot foldMode = iota
	// ofWhatIf is a fold of a NodeInfo to which pods were added or from which
	// they were taken, to see what that would change.
	ofWhatIf
	// ofHint is a fold of the pods that were last seen with what happened to them
	// since, for queueing hints.
	ofHint
)

// reservationOf returns what is reserved for a pod that is on the node. A pod
// that carries what was reserved for it needs no reservation any more. In the
// snapshot, where no later fold can see an older version of the pod, it is
// dropped; the node's version stays, since what the pod holds is the same.
func (o *overlay) reservationOf(pod *corev1.Pod, mode foldMode) (res *reservation, carried bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	res = o.reserved[pod.UID]
	if res == nil || res.node != pod.Spec.NodeName {
		return nil, false
	}
	carried = carries(pod, res.annotations)
	if mode == ofSnapshot {
		res.inSnapshot = true
		if carried {
			o.unreserve(pod.UID)
		}
	}
	return res, carried
}

// reservedBeside returns the reservations on the node of pods that are not on
// it: those that kube-scheduler assumed after its snapshot was taken, or has
// already forgotten although their Bindings may still succeed. Pods that the
// snapshot has were taken off the node by a what-if, and are left out of it.
// Found is how many of the reservations belong to pods that are on the node.
func (o *overlay) reservedBeside(node string, mode foldMode, found int, on func(types.UID) bool) []*reservation {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.nodes[node]
	if n == nil || len(n.reserved) == found {
		return nil
	}
	var beside []*reservation
	for _, res := range n.reserved {
		if on(res.uid) || mode == ofWhatIf && res.inSnapshot {
			continue
		}
		if mode == ofSnapshot {
			res.inSnapshot = false
		}
		beside = append(beside, res)
	}
	return beside
}

// putHold keeps cards for the preemptor, in place of those kept before.
func (o *overlay) putHold(uid types.UID, hold preemptorHold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unhold(uid)
	o.held[uid] = hold
	o.touch(hold.node)
}

// getHold returns the cards that are kept for the preemptor on the node.
func (o *overlay) getHold(uid types.UID, node *ledger.Node) (ledger.Holding, bool) {
	o.mu.Lock()
	hold, ok := o.held[uid]
	o.mu.Unlock()
	if !ok || hold.node != node.Name {
		return ledger.Holding{}, false
	}
	return hold.in(node)
}

// heldOn reports whether cards of the node are kept for the pod.
func (o *overlay) heldOn(uid types.UID, node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	hold, ok := o.held[uid]
	return ok && hold.node == node
}

// preemptors returns the pods that cards are kept for.
func (o *overlay) preemptors() []ledger.Holder {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []ledger.Holder
	for _, hold := range o.held {
		out = append(out, hold.holding.Holder)
	}
	return out
}

// dropHold keeps the cards no longer.
func (o *overlay) dropHold(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unhold(uid)
}

// unhold takes the hold out, if there is one. The lock is held.
func (o *overlay) unhold(uid types.UID) {
	if hold, ok := o.held[uid]; ok {
		delete(o.held, uid)
		o.touch(hold.node)
	}
}

// in returns the holding with the positions that its cards have on the node as it
// is now. Cards without identity are dealt again by number. It is not known where
// cards are that had no identity when they were chosen and have one now.
func (p *placed) in(node *ledger.Node) (h ledger.Holding, known bool) {
	from, to := p.topology, node.Topology()
	switch {
	case node.Counted:
		return remapCards(&p.holding, dealt(node, p.holding.Cards())), true
	case from == to:
		return p.holding, true
	}
	for c := range p.holding.Cards().All() {
		if from.Card(c).ID == "" {
			return ledger.Holding{Holder: p.holding.Holder}, false
		}
	}
	return remapCards(&p.holding, func(card int) (int, bool) { return to.Index(from.Card(card).ID) }), true
}

// dealt deals as many cards of the node as the set has, those that nobody uses
// first.
func dealt(node *ledger.Node, cards gpu.Set) func(card int) (int, bool) {
	var order, used []int
	for i, u := range node.Now().Usage {
		if u.Idle() {
			order = append(order, i)
		} else {
			used = append(used, i)
		}
	}
	order = append(order, used...)
	byCard := map[int]int{}
	for c := range cards.All() {
		if len(byCard) < len(order) {
			byCard[c] = order[len(byCard)]
		}
	}
	return func(card int) (int, bool) {
		i, ok := byCard[card]
		return i, ok
	}
}

// remapCards returns the holding with its cards at other positions. Shares of
// cards that have none are left out.
func remapCards(h *ledger.Holding, to func(card int) (int, bool)) ledger.Holding {
	out := *h
	out.Parts = make([]ledger.Part, len(h.Parts))
	for i, part := range h.Parts {
		out.Parts[i] = ledger.Part{Container: part.Container, Phase: part.Phase}
		for _, s := range part.Shares {
			if index, ok := to(s.Card); ok {
				s.Card = index
				out.Parts[i].Shares = append(out.Parts[i].Shares, s)
			}
		}
	}
	return out
}
