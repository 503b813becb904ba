package allocation

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Claim is what one container of a pod may take of a node's cards.
type Claim struct {
	// Holding is what the pod as a whole holds.
	Holding ledger.Holding
	// Shares are the container's own, and Seats reports whether they are places on
	// shared cards.
	Shares []ledger.Share
	Seats  bool
}

// ClaimOf reads what a container of a bound pod may take. It is stricter than
// [AnnotatedHolding], which books: what is handed out must be what was asked for, no
// more and no less, on cards that the node has.
func ClaimOf(n *ledger.Node, pod *corev1.Pod, container string) (*Claim, error) {
	if pod.Spec.NodeName != n.Name {
		return nil, fmt.Errorf("the pod is on node %q, not on %s", pod.Spec.NodeName, n.Name)
	}
	ask, problems := request.Read(pod)
	if len(problems) > 0 {
		return nil, fmt.Errorf("the pod's request is invalid: %w", problems[0])
	}
	if ask == nil {
		return nil, errors.New("the pod asks for no MetaX cards")
	}
	h, known, notes := AnnotatedHolding(n, pod)
	if !known {
		return nil, fmt.Errorf("no annotation names its cards: %v", notes)
	}
	at := slices.IndexFunc(h.Parts, func(p ledger.Part) bool { return p.Container == container })
	if at < 0 {
		return nil, fmt.Errorf("the pod has no container %q", container)
	}
	wanted := &ask.Request.Requests[at]
	c := &Claim{Holding: h, Shares: h.Parts[at].Shares, Seats: n.Serves.Seats && wanted.Whole}
	if err := c.check(n, ask, wanted); err != nil {
		return nil, err
	}
	return c, nil
}

// check compares the allocation with what the container asks for.
func (c *Claim) check(n *ledger.Node, ask *request.PodRequest, wanted *gpu.Request) error {
	if len(c.Shares) != wanted.Cards {
		return fmt.Errorf("its allocation has %d cards of this node, it asks for %d", len(c.Shares), wanted.Cards)
	}
	for _, s := range c.Shares {
		card := n.Topology().Card(s.Card)
		want := n.ShareOf(wanted, s.Card)
		switch {
		case !ask.Request.Admits(card.ID):
			return fmt.Errorf("its allocation names card %s, which its own lists leave out", card.ID)
		case s.Compute != want.Compute:
			return fmt.Errorf("its allocation has %d%% of card %s, it asks for %d%%", s.Compute, card.ID, want.Compute)
		case s.Memory != want.Memory && wanted.Memory.Ratio == 0:
			return fmt.Errorf("its allocation has %v of card %s, it asks for %v", s.Memory, card.ID, want.Memory)
		}
	}
	return nil
}
