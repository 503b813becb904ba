package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// policy chooses a place for each pod that arrives. It must not change the
// state; what it chooses is booked before the next pod arrives.
type policy interface {
	// place returns the position of the node and the cards there, or false
	// when no node can take the pod.
	place(k *kind) (node int, cards gpu.Set, ok bool)
}

// setting is what a policy is made for.
type setting struct {
	state *state
	// trace has the kind of each pod of the trace, before any inflation. Only
	// the published rule of FGD looks at it: it is told the workload ahead.
	trace []int
	ties  Ties
	rng   *rand.Rand
}

// Ties says which of equally good nodes is taken.
type Ties string

// The ways to break ties.
const (
	// TiesIndex takes the first node in the order of the run.
	TiesIndex Ties = "index"
	// TiesRandom takes any of them, as kube-scheduler does.
	TiesRandom Ties = "random"
)

// policies lists all policies in the order in which they are reported.
var policies = []struct {
	name string
	make func(*setting) policy
}{
	{"random", newRandom},
	{"first-fit", scored(firstFit)},
	{"best-fit", scored(bestFit)},
	{"dot-product", scored(dotProduct)},
	{"packing", scored(packing)},
	{"clustering", scored(clustering)},
	{"fgd", newFGD},
	{"hami", scored(hami)},
	{"daybreak", newDaybreak},
}

// PolicyNames lists the policies in the order in which they are reported.
func PolicyNames() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

func newPolicy(name string, s *setting) (policy, error) {
	for _, p := range policies {
		if p.name == name {
			return p.make(s), nil
		}
	}
	return nil, fmt.Errorf("policy %q: write one of %s", name, strings.Join(PolicyNames(), ", "))
}

// scoring says how good a place for the pod a node is, the less the better, and
// which cards it would get. It is asked only about nodes that fit, and its
// answer may depend on the node's state and the pod's kind alone.
type scoring func(s *state, n *server, k *kind) (cost float64, cards gpu.Set)

// greedy takes the node of least cost for each pod.
type greedy struct {
	*setting
	score scoring
	// memo has the answers of earlier times, by kind and node: they hold until
	// the node changes.
	memo [][]answer
}

type answer struct {
	known   bool
	fits    bool
	version uint32
	cost    float64
	cards   gpu.Set
}

func scored(score scoring) func(*setting) policy {
	return func(s *setting) policy {
		return &greedy{setting: s, score: score, memo: make([][]answer, len(s.state.kinds))}
	}
}

func (g *greedy) place(k *kind) (int, gpu.Set, bool) {
	if g.memo[k.id] == nil {
		g.memo[k.id] = make([]answer, len(g.state.nodes))
	}
	t := tie{Ties: g.ties, rng: g.rng}
	var best *answer
	for i := range g.state.nodes {
		n, a := &g.state.nodes[i], &g.memo[k.id][i]
		if !a.known || a.version != n.version {
			*a = answer{known: true, version: n.version}
			if a.fits = g.state.fits(n, k); a.fits {
				a.cost, a.cards = g.score(g.state, n, k)
			}
		}
		if a.fits && (best == nil || a.cost < best.cost || a.cost == best.cost && t.another()) {
			if best == nil || a.cost < best.cost {
				t.first()
			}
			best, t.at = a, i
		}
	}
	if best == nil {
		return 0, 0, false
	}
	return t.at, best.cards, true
}

// tie takes one of several equally good nodes, each with the same chance, while
// they come by one after the other.
type tie struct {
	Ties
	rng   *rand.Rand
	count int
	at    int
}

// first begins anew with one node.
func (t *tie) first() { t.count = 1 }

// another tells whether the next equally good node takes over.
func (t *tie) another() bool {
	if t.Ties != TiesRandom {
		return false
	}
	t.count++
	return t.rng.IntN(t.count) == 0
}

// randomly takes any node and, for a share, any card that fits.
type randomly struct{ *setting }

func newRandom(s *setting) policy { return &randomly{s} }

func (r *randomly) place(k *kind) (int, gpu.Set, bool) {
	var fitting []int
	for i := range r.state.nodes {
		if r.state.fits(&r.state.nodes[i], k) {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) == 0 {
		return 0, 0, false
	}
	at := fitting[r.rng.IntN(len(fitting))]
	n := &r.state.nodes[at]
	if !k.fractional() {
		return at, idleCards(n, k.Cards), true
	}
	var cards []int
	for c := range n.left {
		if r.state.takes(n, c, k) {
			cards = append(cards, c)
		}
	}
	return at, gpu.SetOf(cards[r.rng.IntN(len(cards))]), true
}

// The largest server of the public trace: what the published baselines measure
// CPU and cards by.
const (
	referenceCPU   = 128_000
	referenceCards = 8 * wholeCard
)

// firstFit takes the first node of the run that fits, whatever breaks ties.
func firstFit(s *state, n *server, k *kind) (float64, gpu.Set) {
	return float64(n.position), s.usualCards(n, k)
}

// bestFit leaves the least CPU and card share behind.
func bestFit(s *state, n *server, k *kind) (float64, gpu.Set) {
	return float64(n.cpu-k.CPU)/referenceCPU + float64(n.free-k.Demand())/referenceCards, s.usualCards(n, k)
}

// dotProduct takes the node whose free amounts point least in the direction of
// the request, in hundredths, as the published runs round it.
func dotProduct(s *state, n *server, k *kind) (float64, gpu.Set) {
	cpu := float64(n.cpu) / referenceCPU * float64(k.CPU) / referenceCPU
	cards := float64(n.free) / referenceCards * float64(k.Demand()) / referenceCards
	return math.Floor(50 * (cpu + cards)), s.usualCards(n, k)
}

// packing fills cards in use, then nodes with cards in use, then the smallest
// idle node. Pods without cards go to the first node with room.
func packing(s *state, n *server, k *kind) (float64, gpu.Set) {
	const tier = 1e6
	cards := s.usualCards(n, k)
	switch {
	case k.Cards == 0:
		return 0, 0
	case k.fractional() && n.left[cards.First()] < wholeCard:
		return float64(n.left[cards.First()]), cards
	case n.free < int64(n.Cards)*wholeCard:
		return tier + float64(idleCards(n, n.Cards).Len()), cards
	default:
		return 2*tier + float64(n.Cards), cards
	}
}

// clustering puts pods of one sort together, on the fullest node that has it.
// Pods without cards go to the first node with room.
func clustering(s *state, n *server, k *kind) (float64, gpu.Set) {
	const tier = 1e9
	if k.Cards == 0 {
		return 0, 0
	}
	cost := float64(n.free)
	if n.holds[k.sort] == 0 {
		cost += tier
	}
	return cost, s.usualCards(n, k)
}

// hami fills nodes and levels the cards inside them: HAMi's default for shares.
// Whole cards are taken from the last.
func hami(s *state, n *server, k *kind) (float64, gpu.Set) {
	cost := 0.0
	if n.Cards > 0 && k.Cards > 0 {
		cost = float64(n.free) / float64(n.Cards)
	}
	if !k.fractional() {
		var set gpu.Set
		for c := len(n.left) - 1; c >= 0 && set.Len() < k.Cards; c-- {
			if n.left[c] == wholeCard {
				set |= gpu.SetOf(c)
			}
		}
		return cost, set
	}
	best := -1
	for c := range slices.Backward(n.left) {
		if s.takes(n, c, k) && (best < 0 || n.left[c] > n.left[best]) {
			best = c
		}
	}
	return cost, gpu.SetOf(best)
}
