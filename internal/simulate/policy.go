package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// world is what a policy decides on.
type world struct {
	servers []*server
	// kinds are the jobs to expect, with their weights. Only FGD looks at them.
	kinds []kind
	ties  Ties
	rng   *rand.Rand
}

// policy chooses a place for a job. It books nothing.
type policy interface {
	// place returns the position of the server and the cards there; ok is false
	// when the job fits nowhere.
	place(k *kind) (server int, cards gpu.Set, ok bool)
}

// counting is a policy that goes by the jobs that run.
type counting interface {
	// count is called for a job that starts, or with -1 for one that ends.
	count(k *kind, jobs int)
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

// namedPolicy is a policy that a study offers.
type namedPolicy struct {
	name string
	make func(*world) policy
}

// String returns the name that options and reports use.
func (p namedPolicy) String() string { return p.name }

// ours is the policy that reports are about.
const ours = "daybreak"

// tracePolicies lists the policies for traces in the order in which they are
// reported.
var tracePolicies = []namedPolicy{
	{"random", func(w *world) policy { return &anywhere{w} }},
	{"first-fit", scored(firstFit)},
	{"best-fit", scored(bestFit)},
	{"dot-product", scored(dotProduct)},
	{"packing", scored(packing)},
	{"clustering", scored(clustering)},
	{"fgd", newPublishedFGD},
	{"hami", scored((&hami{computeOnly: true}).score)},
	{ours, newDaybreak},
}

// topologyPolicies lists the policies of the topology study, ours first.
var topologyPolicies = []namedPolicy{
	{ours, newDaybreak},
	{"hami-topology", scored((&hami{zones: true, weighNodes: true}).score)},
	{"hami", scored((&hami{zones: true}).score)},
	{"hami-greedy", scored((&hami{}).score)},
	{"fgd", newExactFGD},
}

// ranking asks about one server after the other and takes the one of the least cost.
type ranking struct {
	*world
	score scoring
	memo  [][]answer // by kind and server
}

// scoring returns the cost of a server that fits, the less the better, and the
// cards that the job would get.
type scoring func(s *server, k *kind) (cost float64, cards gpu.Set)

// scored returns the policy that takes the server of the least cost.
func scored(score scoring) func(*world) policy {
	return func(w *world) policy { return &ranking{world: w, score: score, memo: make([][]answer, len(w.kinds))} }
}

// answer is what is known of a server at one version of it.
type answer struct {
	version int
	fits    bool
	cost    float64
	cards   gpu.Set
}

func (r *ranking) place(k *kind) (server int, cards gpu.Set, ok bool) {
	if r.memo[k.id] == nil {
		r.memo[k.id] = make([]answer, len(r.servers))
	}
	t := tie{world: r.world}
	var best *answer
	for i, s := range r.servers {
		a := &r.memo[k.id][i]
		if a.version != s.version {
			*a = answer{version: s.version, fits: s.fits(k)}
			if a.fits {
				a.cost, a.cards = r.score(s, k)
			}
		}
		if a.fits && (best == nil || t.replaces(cmp.Compare(best.cost, a.cost))) {
			best, server = a, i
		}
	}
	if best == nil {
		return 0, 0, false
	}
	return server, best.cards, true
}

// tie decides between servers that a policy likes alike, each with the same
// chance, while they come by one after the other. It serves one choice.
type tie struct {
	*world
	others int
}

// replaces reports whether a server takes the place of the best so far, given
// how it compares: above zero is better, zero is as good.
func (t *tie) replaces(compared int) bool {
	switch {
	case compared > 0:
		t.others = 0
		return true
	case compared < 0 || t.ties != TiesRandom:
		return false
	}
	t.others++
	return t.rng.IntN(t.others+1) == 0
}

// anywhere takes any server and, for a share, any card that fits.
type anywhere struct{ *world }

func (a *anywhere) place(k *kind) (server int, cards gpu.Set, ok bool) {
	var fitting []int
	for i, s := range a.servers {
		if s.fits(k) {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) == 0 {
		return 0, 0, false
	}
	server = fitting[a.rng.IntN(len(fitting))]
	room := a.servers[server].room(k)
	if !k.fractional() {
		return server, first(room, k.cards), true
	}
	return server, gpu.SetOf(room.Indices()[a.rng.IntN(room.Len())]), true
}

// The largest server of the public trace: what the published baselines measure
// CPU and cards by.
const (
	referenceCPU   = 128_000
	referenceCards = 8 * wholeCard
)

// firstFit takes the first server of the run that fits, whatever breaks ties.
func firstFit(s *server, k *kind) (float64, gpu.Set) {
	return float64(s.position), s.usualCards(k)
}

// bestFit leaves the least CPU and card share behind.
func bestFit(s *server, k *kind) (float64, gpu.Set) {
	return float64(s.FreeCPU-k.cpu)/referenceCPU + float64(s.free-k.demand())/referenceCards, s.usualCards(k)
}

// dotProduct takes the server whose free amounts point least in the direction
// of the request, in hundredths, as the published runs round it.
func dotProduct(s *server, k *kind) (float64, gpu.Set) {
	cpu := float64(s.FreeCPU) / referenceCPU * float64(k.cpu) / referenceCPU
	cards := float64(s.free) / referenceCards * float64(k.demand()) / referenceCards
	return math.Floor(50 * (cpu + cards)), s.usualCards(k)
}

// packing fills cards in use, then servers with cards in use, then the smallest
// idle server. Pods without cards go to the first server with room.
func packing(s *server, k *kind) (float64, gpu.Set) {
	const tier = 1e6
	cards, idle := s.usualCards(k), s.idle()
	switch {
	case k.cards == 0:
		return 0, 0
	case k.fractional() && cards&idle == 0:
		return float64(s.left(cards.First())), cards
	case idle.Len() < s.cards():
		return tier + float64(idle.Len()), cards
	default:
		return 2*tier + float64(s.cards()), cards
	}
}

// clustering puts pods of one size together, on the fullest server that has
// one. Pods without cards go to the first server with room.
func clustering(s *server, k *kind) (float64, gpu.Set) {
	const tier = 1e9
	if k.cards == 0 {
		return 0, 0
	}
	cost := float64(s.free)
	if s.holds[k.size] == 0 {
		cost += tier
	}
	return cost, s.usualCards(k)
}
