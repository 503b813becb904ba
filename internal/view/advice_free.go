package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Freed is the least that has to become free for the pod to fit, whichever pods
// give it up: on no single node would less do.
type Freed struct {
	Node    string      `json:"node"`
	Cards   []FreedCard `json:"cards"`
	Message string      `json:"message"`
}

// FreedCard is what has to become free of one card. Emptied means all of it.
type FreedCard struct {
	UUID           string `json:"uuid"`
	Index          int    `json:"index"`
	Emptied        bool   `json:"emptied,omitempty"`
	ComputePercent int32  `json:"computePercent,omitempty"`
	MemoryMiB      int64  `json:"memoryMiB,omitempty"`
	// Shares is how many shares have to end because the card takes no more.
	Shares int `json:"shares,omitempty"`
}

// triedPlans is how many of the cheapest ways are tried out.
const triedPlans = 8

// plan is what would have to become free on one node.
type plan struct {
	node  *ledger.Node
	cards []lack
	cost  ledger.Fullness
}

// lack is what one card lacks for the request.
type lack struct {
	card    int
	emptied bool
	compute gpu.Percent
	memory  gpu.MiB
	shares  int
	cost    ledger.Fullness
}

// freed finds the smallest amounts to free, for pods in which one container asks
// and where cards are known one by one.
func (a *adviser) freed() *Freed {
	if !a.single {
		return nil
	}
	var plans []plan
	for i, n := range a.nodes {
		if a.refusals[i].Permanent || n.Counted || n.Problem != nil || len(n.Unknown()) > 0 {
			continue
		}
		for _, emptying := range []bool{false, true} {
			if p, ok := a.planOn(n, emptying); ok {
				plans = append(plans, p)
			}
		}
	}
	slices.SortStableFunc(plans, func(a, b plan) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(len(a.cards), len(b.cards)), cmp.Compare(a.node.Name, b.node.Name))
	})
	for _, p := range plans[:min(triedPlans, len(plans))] {
		if a.fitsOn(p.carriedOut(), &a.ask.Request) {
			return p.render()
		}
	}
	return nil
}

// planOn returns the cheapest way to make the node's cards suffice. Emptying
// means that only unused cards will do, which is not known in advance for every
// pod.
func (a *adviser) planOn(n *ledger.Node, emptying bool) (plan, bool) {
	p := plan{node: n}
	var lacks []lack
	missing := a.ask.Request.Requests[a.asking].Cards
	for c := range n.Topology().Len() {
		switch g, ok := a.lackOf(n, c, emptying); {
		case !ok:
		case g.cost == 0 && !g.emptied:
			missing--
		default:
			lacks = append(lacks, g)
		}
	}
	if missing <= 0 || missing > len(lacks) {
		return p, false
	}
	slices.SortStableFunc(lacks, func(a, b lack) int { return cmp.Compare(a.cost, b.cost) })
	p.cards = lacks[:missing]
	slices.SortFunc(p.cards, func(a, b lack) int { return cmp.Compare(a.card, b.card) })
	for i := range p.cards {
		p.cost += p.cards[i].cost
	}
	return p, true
}

// lackOf returns what card c lacks. It returns false when nothing that pods could
// give up would do.
func (a *adviser) lackOf(n *ledger.Node, c int, emptying bool) (lack, bool) {
	pod := &a.ask.Request
	req := &pod.Requests[a.asking]
	card, used, foreign := n.Topology().Card(c), &n.Now().Usage[c], &n.WithoutPods().Usage[c]
	if !card.Healthy || !pod.Admits(card.ID) || req.Memory.Of(card.Memory) > card.Memory {
		return lack{}, false
	}
	g := lack{card: c}
	if used.Idle() {
		return g, true
	}
	var share ledger.Usage
	share.Add(n.ShareOf(req, c), pod.Class, pod.QoS)
	seat := req.Whole && n.Serves.Seats // takes neither memory nor compute
	if seat {
		share.QoS = 0
	}
	if emptying || used.Conflict(&share) != 0 {
		g.emptied, g.cost = true, used.Fullness(card)
		return g, foreign.Idle()
	}
	g.memory = max(0, share.Memory-max(0, card.Memory-used.Memory))
	if !seat && pod.Class != gpu.Online {
		g.compute = max(0, max(1, share.Compute)-max(0, gpu.FullCompute-used.Compute))
	}
	if int(used.Slots) >= card.Slots {
		g.shares = 1
	}
	need := ledger.Usage{Memory: g.memory, Compute: g.compute, Slots: int16(g.shares)}
	g.cost = need.Fullness(card)
	return g, g.memory <= used.Memory-foreign.Memory && g.compute <= used.Compute-foreign.Compute && need.Slots <= used.Slots-foreign.Slots
}

// carriedOut returns a node with as much free as the plan says.
func (p *plan) carriedOut() *ledger.Node {
	usage := slices.Clone(p.node.Now().Usage)
	for _, g := range p.cards {
		u := &usage[g.card]
		if g.emptied {
			*u = ledger.Usage{}
		}
		u.Memory, u.Compute, u.Slots = u.Memory-g.memory, u.Compute-g.compute, u.Slots-int16(g.shares)
	}
	n := ledger.NewNode(p.node.Name, p.node.Topology(), p.node.Serves)
	n.SetForeign(usage)
	return n
}

func (p *plan) render() *Freed {
	f := &Freed{Node: p.node.Name}
	var emptied, parts []string
	for _, g := range p.cards {
		f.Cards = append(f.Cards, FreedCard{
			UUID: string(p.node.Topology().Card(g.card).ID), Index: g.card, Emptied: g.emptied,
			ComputePercent: int32(g.compute), MemoryMiB: int64(g.memory), Shares: g.shares,
		})
		if g.emptied {
			emptied = append(emptied, strconv.Itoa(g.card))
		} else {
			parts = append(parts, fmt.Sprintf("%s on card %d", g.amounts(), g.card))
		}
	}
	switch len(emptied) {
	case 0:
	case 1:
		parts = append(parts, "all of card "+emptied[0])
	default:
		parts = append(parts, "all of cards "+strings.Join(emptied, ", "))
	}
	f.Message = fmt.Sprintf("%s of %s", strings.Join(parts, ", "), p.node.Name)
	return f
}

func (g *lack) amounts() string {
	var parts []string
	if g.compute > 0 {
		parts = append(parts, fmt.Sprintf("%d%% of compute", g.compute))
	}
	if g.memory > 0 {
		parts = append(parts, fmt.Sprintf("%v of memory", g.memory))
	}
	if g.shares > 0 {
		parts = append(parts, "the place of one share")
	}
	return strings.Join(parts, " and ")
}

// Count returns a number of things in words.
func Count(n int, what string) string { return fmt.Sprintf("%d %s", n, plural(n, what)) }

// plural returns the word for n things.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
