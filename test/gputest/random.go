package gputest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Rand returns a source of random numbers that repeats: the same seed gives
// the same numbers on every machine.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// Plan is what a topology is built from. Tests that work weights out by
// themselves start from it.
type Plan struct {
	Cards []gpu.Card
	Links []gpu.Link
}

// Topology builds the plan.
func (p *Plan) Topology() *gpu.Topology { return MustTopology(p.Cards, p.Links) }

// String returns what matters about the plan when a test fails.
func (p *Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d cards, links %v", len(p.Cards), p.Links)
	for i := range p.Cards {
		if p.Cards[i].Switch != "" {
			fmt.Fprintf(&s, ", card %d at %s", i, p.Cards[i].Switch)
		}
	}
	return s.String()
}

// Random returns n cards joined at random: zones, rings and chains of any
// length, a few links more or less, and PCIe switches on some nodes. The cards
// of a zone lie side by side on some nodes and anywhere on others.
func Random(r *rand.Rand, n int) *Plan {
	p := &Plan{Cards: Cards(n)}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if r.IntN(2) == 0 {
		order = r.Perm(n)
	}
	for len(order) > 0 {
		group := order[:1+r.IntN(len(order))]
		order = order[len(group):]
		p.join(r, group)
	}
	for range r.IntN(3) * r.IntN(n+1) / 2 {
		if a, b := r.IntN(n), r.IntN(n); a != b {
			p.Links = append(p.Links, gpu.Link{A: a, B: b})
		}
	}
	if switches := r.IntN(5); switches > 0 {
		for i := range p.Cards {
			if s := r.IntN(switches + 1); s > 0 {
				p.Cards[i].Switch = fmt.Sprintf("switch-%d", s)
			}
		}
	}
	return p
}

// join links the cards of a group as a zone, a ring or a chain, or not at all.
func (p *Plan) join(r *rand.Rand, group []int) {
	kind := r.IntN(4)
	for i := range group {
		for j := range i {
			ends := i == len(group)-1 && j == 0
			if kind == 0 || (kind == 1 || kind == 2) && i-j == 1 || kind == 1 && ends {
				p.Links = append(p.Links, gpu.Link{A: group[j], B: group[i]})
			}
		}
	}
}

// UnlikePlan returns one zone of n cards of which no two can stand for each
// other, the worst case for an exact search: a chain with chords and switches
// here and there.
func UnlikePlan(n int) *Plan {
	p := &Plan{Cards: Cards(n)}
	for i := range p.Cards {
		p.Cards[i].Switch = strconv.Itoa(i * i % 7)
		if i > 0 {
			p.Links = append(p.Links, gpu.Link{A: i - 1, B: i})
		}
		if j := i * i * 3 % n; j < i {
			p.Links = append(p.Links, gpu.Link{A: j, B: i})
		}
	}
	return p
}

// Subset returns a random set of the first n cards, each in it with the given
// chance in percent.
func Subset(r *rand.Rand, n, percent int) gpu.Set {
	var s gpu.Set
	for i := range n {
		if r.IntN(100) < percent {
			s |= gpu.SetOf(i)
		}
	}
	return s
}
