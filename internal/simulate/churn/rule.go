package churn

import (
	"math/rand/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// world is what a rule may look at: the servers as they are now, and, for rules
// that are told in advance, what jobs to expect.
type world struct {
	shape   Shape
	servers []*ledger.Node
	kinds   []kind
	// random breaks the ties that a rule leaves open; nil gives them to the
	// first server.
	random *rand.Rand
}

// ties decides between candidates that a rule likes alike. It is made anew for
// every choice.
type ties struct {
	random *rand.Rand
	equals int
}

// replaces tells whether a candidate takes the place of the best so far, given
// how it compares: above zero is better, zero is as good. The first does.
func (t *ties) replaces(compared int) bool {
	switch {
	case compared > 0 || t.equals == 0:
		t.equals = 1
		return true
	case compared < 0 || t.random == nil:
		return false
	}
	t.equals++
	return t.random.IntN(t.equals) == 0
}

// rule is one way to pick a server and cards.
type rule interface {
	// pick returns where a job of the kind goes; ok is false when it fits
	// nowhere. It books nothing.
	pick(k *kind) (server int, cards gpu.Set, ok bool)
}

// watcher is a rule that wants to hear of every job that arrives, whether or
// not it can start at once.
type watcher interface {
	arrived(k *kind)
}

// ruleDef names a rule.
type ruleDef struct {
	name string
	make func(*world) rule
}

var rules = []ruleDef{
	{"daybreak", newDaybreak},
	{"hami-topology", func(w *world) rule { return &hami{world: w, zones: true, weighNodes: true} }},
	{"hami", func(w *world) rule { return &hami{world: w, zones: true} }},
	{"hami-greedy", func(w *world) rule { return &hami{world: w} }},
	{"fgd", func(w *world) rule { return &fgd{world: w} }},
}

// Rules returns the names of the rules, ours first.
func Rules() []string {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].name
	}
	return names
}

// daybreak asks the core as the scheduler does, for a pod that names no policy.
// Of the jobs to come it knows what it has seen arrive.
type daybreak struct {
	*world
	learner *place.Learner
}

func newDaybreak(w *world) rule {
	return &daybreak{world: w, learner: place.NewLearner()}
}

func (d *daybreak) arrived(k *kind) { d.learner.Observe(&k.request) }

func (d *daybreak) pick(k *kind) (server int, cards gpu.Set, ok bool) {
	server, offer, _, ok := place.Choose(d.servers, &k.request, &place.Preference{Demand: d.learner.Demand()})
	if !ok {
		return 0, 0, false
	}
	return server, offer.Cards(0), true
}

// idle returns the cards of a server that nobody uses.
func idle(n *ledger.Node) gpu.Set {
	var s gpu.Set
	usage := n.Now().Usage
	for i := range usage {
		if usage[i].Idle() {
			s |= gpu.SetOf(i)
		}
	}
	return s
}

// roomy returns the cards of a server that can take one share of the kind. It
// is what all rules of others call feasible.
func roomy(n *ledger.Node, k *kind) gpu.Set {
	if !k.fractional() {
		return idle(n)
	}
	var s gpu.Set
	usage := n.Now().Usage
	for i := range usage {
		u := &usage[i]
		if !u.Exclusive && u.Slots < gpu.MaxSlices && u.Compute+k.share <= gpu.FullCompute {
			s |= gpu.SetOf(i)
		}
	}
	return s
}
