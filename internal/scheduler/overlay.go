package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// nodeOverlay is what this process knows of a node beyond kube-scheduler's
// snapshot: the cards of pods between Reserve and the moment when the snapshot
// shows the pod with its annotations, and the cards that are kept for preemptors.
// Its version is part of the key of everything that is cached about the node:
// kube-scheduler's generation does not change within a snapshot.
type nodeOverlay struct {
	version  uint64
	reserved []*reservation // in the order of Reserve
}

// touch gives the node's overlay a new version. The lock is held.
func (p *pods) touch(node string) *nodeOverlay {
	n := p.nodes[node]
	if n == nil {
		n = &nodeOverlay{}
		p.nodes[node] = n
	}
	n.version = p.version.Add(1)
	p.changed[node] = struct{}{}
	return n
}

// versionOf returns the version of the node's overlay. Equal versions mean an equal
// overlay.
func (p *pods) versionOf(node string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[node]; n != nil {
		return n.version
	}
	return 0
}

// takeChanged appends the nodes whose overlay or Device changed since the last
// call, and returns the version that the answer is complete for.
func (p *pods) takeChanged(names []string) (all []string, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.changed {
		names = append(names, name)
	}
	clear(p.changed)
	return names, p.version.Load()
}

// retain drops the nodes that are not listed. Reservations stay until their pods end.
func (p *pods) retain(listed func(name string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.nodes, func(name string, n *nodeOverlay) bool {
		return !listed(name) && len(n.reserved) == 0
	})
}

// unreserve removes the reservation, if there is one. The lock is held.
func (p *pods) unreserve(uid types.UID) *reservation {
	r := p.byUID[uid]
	if r == nil || r.reservation == nil {
		return nil
	}
	res := r.reservation
	r.reservation = nil
	n := p.nodes[res.node]
	n.reserved = slices.DeleteFunc(n.reserved, func(other *reservation) bool { return other == res })
	return res
}

// reservations returns how many pods have reserved cards.
func (p *pods) reservations() (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.nodes {
		count += len(n.reserved)
	}
	return count
}

// reservedElsewhere returns the reservations on nodes that are not listed.
func (p *pods) reservedElsewhere(listed func(name string) bool) (out []*reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, n := range p.nodes {
		if !listed(name) {
			out = append(out, n.reserved...)
		}
	}
	return out
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
func (p *pods) reservationOf(pod *corev1.Pod, mode foldMode) (res *reservation, carried bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byUID[pod.UID]
	if r == nil || r.reservation == nil || r.reservation.node != pod.Spec.NodeName {
		return nil, false
	}
	res = r.reservation
	carried = carries(pod, res.annotations)
	if mode == ofSnapshot {
		res.inSnapshot = true
		if carried {
			p.unreserve(pod.UID)
			p.settle(pod.UID)
		}
	}
	return res, carried
}

// reservedBeyond returns the reservations on the node of pods that are not on
// it: those that kube-scheduler assumed after its snapshot was taken, or has
// already forgotten although their Bindings may still succeed. Pods that the
// snapshot has were removed from the node by a what-if, and are left out of it.
// Found is how many of the reservations belong to pods that are on the node.
func (p *pods) reservedBeyond(node string, mode foldMode, found int, on func(types.UID) bool) (beyond []*reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil || len(n.reserved) == found {
		return nil
	}
	for _, res := range n.reserved {
		if on(res.uid) || mode == ofWhatIf && res.inSnapshot {
			continue
		}
		if mode == ofSnapshot {
			res.inSnapshot = false
		}
		beyond = append(beyond, res)
	}
	return beyond
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

// dealt deals as many cards of the node as the set has, idle ones first.
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
		out.Parts[i] = ledger.Part{Container: part.Container, Phase: part.Phase, Whole: part.Whole}
		for _, s := range part.Shares {
			if index, ok := to(s.Card); ok {
				s.Card = index
				out.Parts[i].Shares = append(out.Parts[i].Shares, s)
			}
		}
	}
	return out
}
