package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

var errNoCard = errors.New("names no card")

// holding turns an annotation with a list for each container into a holding,
// no larger than what the pod asked for. Cards that the node does not have are
// returned by name. A list without cards for a container that asks for some
// is ignored: the container runs, so it has cards.
func (b *booking) holding(lists [][]NamedShare) (h ledger.Holding, lost []string, err error) {
	if len(lists) == 1 && len(b.containers) > 1 {
		return b.podHolding(lists[0]) // of a writer that knows pods only
	}
	perPart, err := b.spread(lists)
	if err != nil {
		return h, nil, err
	}
	if h, err = b.empty(); err != nil {
		return h, nil, err
	}
	named := 0
	for i := range h.Parts {
		var most *gpu.Request
		if b.ask != nil {
			most = &b.ask.Request.Requests[i]
			perPart[i] = perPart[i][:min(len(perPart[i]), most.Cards)]
			if most.Cards > 0 && most.Phase != gpu.Init && len(perPart[i]) == 0 {
				return h, nil, fmt.Errorf("%w for container %s", errNoCard, most.Container)
			}
		}
		named += len(perPart[i])
		for _, s := range perPart[i] {
			share, ok := b.share(s)
			if !ok {
				lost = append(lost, string(s.UUID))
				continue
			}
			if most != nil {
				share = atMost(share, b.node.ShareOf(most, share.Card))
			}
			h.Parts[i].Shares = append(h.Parts[i].Shares, share)
		}
	}
	if named == 0 {
		return h, nil, errNoCard
	}
	return h, lost, nil
}

// podHolding turns an annotation about the pod as a whole into a
// holding, no larger than what all its containers asked for together. It is
// put down to the first container that asks.
func (b *booking) podHolding(shares []NamedShare) (h ledger.Holding, lost []string, err error) {
	if h, err = b.empty(); err != nil {
		return h, nil, err
	}
	if len(shares) == 0 {
		return h, nil, errNoCard
	}
	part := &h.Parts[b.firstAsking()]
	part.Phase = gpu.App
	var left ledger.Share
	if b.ask != nil {
		shares = shares[:min(len(shares), b.ask.Request.Cards())]
		left = b.limit()
	}
	for _, s := range shares {
		share, ok := b.share(s)
		if !ok {
			lost = append(lost, string(s.UUID))
			continue
		}
		if b.ask != nil {
			share = atMost(atMost(share, LimitOn(b.node, &b.ask.Request, share.Card)), left)
			left.Compute -= share.Compute
			left.Memory -= share.Memory
		}
		part.Shares = append(part.Shares, share)
	}
	return h, lost, nil
}

// limit returns what the containers asked for together, over all cards.
func (b *booking) limit() ledger.Share {
	all, memory := ledger.Share{Exclusive: true}, b.node.Topology().LargestCard() // where a ratio means most
	for i := range b.ask.Request.Requests {
		req := &b.ask.Request.Requests[i]
		all.Compute += gpu.Percent(req.Cards) * req.Compute
		all.Memory += gpu.MiB(req.Cards) * req.Memory.Of(memory)
	}
	return all
}

// LimitOn returns what the containers ask for together, should they all be on one
// card of the node.
func LimitOn(n *ledger.Node, pod *gpu.PodRequest, card int) ledger.Share {
	most := ledger.Share{Card: card}
	for i := range pod.Requests {
		if req := &pod.Requests[i]; req.Cards > 0 {
			each := n.ShareOf(req, card)
			most.Compute = min(gpu.FullCompute, most.Compute+each.Compute)
			most.Memory += each.Memory
			most.Exclusive = most.Exclusive || each.Exclusive
		}
	}
	return most
}

// empty returns the pod's holding without shares.
func (b *booking) empty() (ledger.Holding, error) {
	if node, ok := b.pod.Annotations[wire.AnnotationHAMiNode]; ok && node != b.node.Name {
		return ledger.Holding{}, errors.New("was written for another node: " + wire.AnnotationHAMiNode + " differs from spec.nodeName")
	}
	h := ledger.Holding{Holder: HolderOf(b.pod), QoS: gpu.BestEffort}
	if b.ask != nil {
		h.QoS, h.Class = b.ask.Request.QoS, b.ask.Request.Class
	}
	h.Parts = make([]ledger.Part, len(b.containers))
	for i := range b.containers {
		h.Parts[i] = ledger.Part{Container: b.containers[i].Name, Phase: b.containers[i].Phase, Whole: b.ask != nil && b.ask.Request.Requests[i].Whole}
	}
	return h, nil
}

// share finds the card of a share.
func (b *booking) share(s NamedShare) (ledger.Share, bool) {
	index, ok := b.node.Topology().Index(s.UUID)
	return ledger.Share{Card: index, Compute: s.Compute, Memory: s.Memory.RoundUp(), Exclusive: s.Compute == gpu.FullCompute}, ok
}

// atMost limits a share to what was asked for: an annotation does not raise the
// limits.
func atMost(s, most ledger.Share) ledger.Share {
	s.Compute = min(s.Compute, most.Compute)
	s.Memory = min(s.Memory, most.Memory)
	s.Exclusive = s.Exclusive && most.Exclusive && s.Compute == gpu.FullCompute
	return s
}

// spread gives each container its list. Annotations have one list for each
// container, init containers first; those of writers that know of no init
// containers have one for each app container.
func (b *booking) spread(lists [][]NamedShare) ([][]NamedShare, error) {
	all, apps := len(b.containers), len(b.pod.Spec.Containers)
	out := make([][]NamedShare, all)
	switch len(lists) {
	case all:
		copy(out, lists)
	case apps:
		copy(out[all-apps:], lists)
	default:
		return nil, fmt.Errorf("has entries for %d containers, the pod has %d", len(lists), all)
	}
	return out, nil
}

func (b *booking) firstAsking() int {
	if b.ask != nil {
		for i := range b.ask.Request.Requests {
			if b.ask.Request.Requests[i].Cards > 0 {
				return i
			}
		}
	}
	return min(len(b.containers)-len(b.pod.Spec.Containers), len(b.containers)-1)
}

// SameCards reports whether two holdings book the same amounts of each card.
func SameCards(a, b *ledger.Holding) bool {
	for c := range (a.Cards() | b.Cards()).All() {
		ua, ub := a.On(c), b.On(c)
		if ua.Memory != ub.Memory || ua.Compute != ub.Compute {
			return false
		}
	}
	return true
}

// larger reports whether a books more than b: more cards, then more compute,
// then more memory.
func larger(a, b *ledger.Holding) bool {
	ca, pa, ma := size(a)
	cb, pb, mb := size(b)
	return cmp.Or(cmp.Compare(ca, cb), cmp.Compare(pa, pb), cmp.Compare(ma, mb)) > 0
}

func size(h *ledger.Holding) (cards int, compute gpu.Percent, memory gpu.MiB) {
	for c := range h.Cards().All() {
		u := h.On(c)
		cards, compute, memory = cards+1, compute+u.Compute, memory+u.Memory
	}
	return cards, compute, memory
}

// isCountedName reports whether a card's name is one that HAMi made up.
func isCountedName(node string, id gpu.CardID) bool {
	return strings.HasPrefix(string(id), node+"-metax-")
}

// given lists what each container has: as much of the cards as it asks for.
func (b *booking) given(g *inventory.PluginAllocation) [][]NamedShare {
	lists := make([][]NamedShare, len(b.containers))
	for i := range b.containers {
		for _, id := range g.Cards[b.containers[i].Name] {
			s := NamedShare{UUID: id, Compute: gpu.FullCompute}
			if at, ok := b.node.Topology().Index(id); ok {
				s.Memory = b.node.Topology().Card(at).Memory
			}
			lists[i] = append(lists[i], s)
		}
	}
	return lists
}
