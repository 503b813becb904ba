package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// nodeOverlay is what this process knows of a node beyond kube-scheduler's snapshot.
// Its version is part of the key of everything that is cached about the node:
// kube-scheduler's generation does not change within a snapshot.
type nodeOverlay struct {
	version uint64
	claims  []*claim // in the order in which they were made
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
		return !listed(name) && !slices.ContainsFunc(n.claims, func(c *claim) bool { return c.kind == reservedClaim })
	})
}

// claimKind is why cards are promised.
type claimKind int

const (
	// The cards were chosen for a pod. They are promised from Reserve until the
	// snapshot shows the pod with its annotations.
	reservedClaim claimKind = iota
	// The cards are those for which a preemptor had other pods evicted. They are kept
	// for it until it has them: otherwise pods that come while the victims leave would
	// take what the victims free, bit by bit.
	heldClaim
)

// placed is a holding together with the topology that its cards are counted in.
// Topologies are immutable, so the two identify the cards by UUID.
type placed struct {
	holding  ledger.Holding
	topology *gpu.Topology
}

// claim is cards of a node that this process has promised to a pod beyond what
// kube-scheduler's snapshot shows.
type claim struct {
	kind claimKind
	node string
	placed
	// pod is the version of the pod that the cards were chosen for, and ask what it
	// asks for and counts in the census.
	pod   *corev1.Pod
	ask   *request.PodRequest
	kinds []place.Kind

	// The rest is about reserved cards: what Bind writes, and how many nodes had room.
	annotations map[string]string
	candidates  int
	// inSnapshot is true when the snapshot's NodeInfo had the pod when the node was
	// last folded.
	inSnapshot bool
}

// isFor reports whether the pod still asks for what its cards were chosen for,
// apart from what the Binding adds.
func (c *claim) isFor(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(wire.AskAnnotations(), func(key string) bool {
		_, added := c.annotations[key]
		return !added && c.pod.Annotations[key] != pod.Annotations[key]
	})
}

// putClaim promises cards to the pod, in place of what it was promised before. Cards
// are held for pods that exist only: what a pod has reserved is dropped by Unreserve.
func (p *pods) putClaim(c claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclaim(p.claims[c.pod.UID])
	if c.kind == heldClaim && p.lister != nil && isGone(p.lister, c.pod) {
		return
	}
	p.claims[c.pod.UID] = &c
	n := p.touch(c.node)
	n.claims = append(n.claims, &c)
}

// dropClaim ends what the pod was promised, if it is of the kind, and returns the node.
func (p *pods) dropClaim(uid types.UID, kind claimKind) (node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.claims[uid]; c != nil && c.kind == kind {
		p.unclaim(c)
		return c.node
	}
	return ""
}

// unclaim ends the claim, which may be nil. The lock is held.
func (p *pods) unclaim(c *claim) {
	if c != nil {
		p.forget(c)
		p.touch(c.node)
	}
}

// forget removes the claim, and leaves the version of the node as it is. The lock is
// held.
func (p *pods) forget(c *claim) {
	delete(p.claims, c.pod.UID)
	if n := p.nodes[c.node]; n != nil {
		n.claims = slices.DeleteFunc(n.claims, func(other *claim) bool { return other == c })
	}
}

// claimOf returns what the pod was promised, or nil if it is of another kind.
func (p *pods) claimOf(uid types.UID, kind claimKind) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.claims[uid]; c != nil && c.kind == kind {
		return c
	}
	return nil
}

// claimsOf returns the claims of the kind, in any order.
func (p *pods) claimsOf(kind claimKind) (out []*claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.claims {
		if c.kind == kind {
			out = append(out, c)
		}
	}
	return out
}

// hasReserved reports whether the pod has reserved cards of the node.
func (p *pods) hasReserved(uid types.UID, node string) bool {
	return p.claimOf(uid, reservedClaim).isOn(node)
}

// isOn reports whether there is a claim, and it is on the node.
func (c *claim) isOn(node string) bool { return c != nil && c.node == node }

// heldOn returns the cards of the node that are held for the pod.
func (p *pods) heldOn(uid types.UID, node *ledger.Node) (ledger.Holding, bool) {
	if c := p.claimOf(uid, heldClaim); c.isOn(node.Name) {
		return c.in(node)
	}
	return ledger.Holding{}, false
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
func (p *pods) reservationOf(pod *corev1.Pod, mode foldMode) (res *claim, carried bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	res = p.claims[pod.UID]
	if res == nil || res.kind != reservedClaim || res.node != pod.Spec.NodeName {
		return nil, false
	}
	carried = carries(pod, res.annotations)
	if mode == ofSnapshot {
		res.inSnapshot = true
		if carried {
			p.forget(res)
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
func (p *pods) reservedBeyond(node string, mode foldMode, found int, on func(types.UID) bool) (beyond []*claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil || len(n.claims) == found {
		return nil
	}
	for _, res := range n.claims {
		if res.kind != reservedClaim || on(res.pod.UID) || mode == ofWhatIf && res.inSnapshot {
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
