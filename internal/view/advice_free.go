package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Freed is the least that has to become free for the pod to fit, whoever it is
// that gives it up: on no single node would less do.
type Freed struct {
	Node    string      `json:"node"`
	Cards   []FreedCard `json:"cards"`
	Message string      `json:"message"`
}

// FreedCard is what has to become free of one card. Emptied means all of it:
// nobody else may be there.
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

// freed finds the smallest amounts to free. It knows an answer for pods in which
// one container asks, and where cards are known one by one.
func (a *adviser) freed() *Freed {
	asking, ok := a.asking()
	if !ok {
		return nil
	}
	req := &a.ask.Request.Requests[asking]
	var plans []plan
	for i, n := range a.nodes {
		if a.refusals[i].Permanent || n.Counted || n.Problem != nil || len(n.Unknown()) > 0 {
			continue
		}
		for _, emptying := range []bool{false, true} {
			if p, ok := a.planOn(n, req, emptying); ok {
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

// asking returns the position of the only container that asks for cards.
func (a *adviser) asking() (int, bool) {
	asking := -1
	for i := range a.ask.Request.Requests {
		if a.ask.Request.Requests[i].Cards == 0 {
			continue
		}
		if asking >= 0 {
			return 0, false
		}
		asking = i
	}
	return asking, asking >= 0
}

// planOn returns the cheapest way to make the node's cards suffice. Emptying
// means that only cards nobody uses will do, which is not known beforehand for
// every pod.
func (a *adviser) planOn(n *ledger.Node, req *gpu.Request, emptying bool) (plan, bool) {
	p := plan{node: n}
	var lacks []lack
	missing := req.Cards
	for c := range n.Topology().Len() {
		switch g, ok := a.lackOf(n, c, req, emptying); {
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

// lackOf returns what card c lacks; false means that nothing pods could give up
// would do.
func (a *adviser) lackOf(n *ledger.Node, c int, req *gpu.Request, emptying bool) (lack, bool) {
	card, used, foreign := n.Topology().Card(c), &n.Now().Usage[c], &n.WithoutPods().Usage[c]
	pod, seat := &a.ask.Request, req.Whole && n.Serves.Seats
	if !card.Healthy || !pod.Admits(card.ID) || req.Memory.Of(card.Memory) > card.Memory {
		return lack{}, false
	}
	if used.Idle() {
		return lack{card: c}, true
	}
	var share ledger.Usage
	share.Add(n.ShareOf(req, c), pod.Class, pod.QoS)
	if seat {
		share.QoS = 0
	}
	if emptying || used.Conflict(&share) != 0 {
		g := lack{card: c, emptied: true, cost: used.Fullness(card)}
		return g, foreign.Idle()
	}
	return a.amountsShort(n, c, req, seat)
}

// amountsShort returns what card c lacks in memory, compute and slots. A seat
// takes neither memory nor compute.
func (a *adviser) amountsShort(n *ledger.Node, c int, req *gpu.Request, seat bool) (lack, bool) {
	card, used, foreign := n.Topology().Card(c), &n.Now().Usage[c], &n.WithoutPods().Usage[c]
	g := lack{card: c}
	if !seat {
		g.memory = max(0, req.Memory.Of(card.Memory)-max(0, card.Memory-used.Memory))
	}
	if !seat && a.ask.Request.Class != gpu.Online {
		g.compute = max(0, max(1, req.Compute)-max(0, gpu.FullCompute-used.Compute))
	}
	if int(used.Slots) >= card.Slots {
		g.shares = 1
	}
	if g.memory > used.Memory-foreign.Memory || g.compute > used.Compute-foreign.Compute || g.shares > int(used.Slots-foreign.Slots) {
		return lack{}, false
	}
	need := ledger.Usage{Memory: g.memory, Compute: g.compute, Slots: int16(g.shares)}
	g.cost = need.Fullness(card)
	return g, true
}

// carriedOut returns the node with so much free as the plan says.
func (p *plan) carriedOut() *ledger.Node {
	n := p.node.Clone()
	for i := range p.cards {
		g := p.cards[i]
		for _, holding := range slices.Clone(n.Holdings()) {
			n.Book(g.takeFrom(holding))
		}
	}
	return n
}

// takeFrom returns the holding without what it gives up of the card, and notes
// how much is still to be found.
func (g *lack) takeFrom(h ledger.Holding) ledger.Holding {
	h.Parts = slices.Clone(h.Parts)
	for i := range h.Parts {
		part := &h.Parts[i]
		part.Shares = slices.Clone(part.Shares)
		part.Shares = slices.DeleteFunc(part.Shares, func(s ledger.Share) bool {
			if s.Card != g.card || !g.emptied && g.shares == 0 {
				return false
			}
			g.shares, g.memory, g.compute = max(0, g.shares-1), max(0, g.memory-s.Memory), max(0, g.compute-s.Compute)
			return true
		})
		for k := range part.Shares {
			if s := &part.Shares[k]; s.Card == g.card {
				memory, compute := min(g.memory, s.Memory), min(g.compute, s.Compute)
				s.Memory, s.Compute = s.Memory-memory, s.Compute-compute
				g.memory, g.compute = g.memory-memory, g.compute-compute
			}
		}
	}
	return h
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
	if len(emptied) > 0 {
		parts = append(parts, fmt.Sprintf("all of %s %s", plural(len(emptied), "card"), strings.Join(emptied, ", ")))
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
		parts = append(parts, g.memory.String())
	}
	if g.shares > 0 {
		parts = append(parts, "the place of one share")
	}
	return strings.Join(parts, " and ")
}

// plural returns the word for n things.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
