package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"
)

// kind is one way in which things go wrong.
type kind struct {
	name string
	// strike does the harm, calls struck when it is done, and returns when the
	// cause is gone. What it left behind is for Daybreak to put right.
	strike func(ctx context.Context, w *world, f *fault) error
	// back, if set, says what is missing until what was harmed works again.
	// Otherwise it works again when a pod that came after the harm is bound.
	back func(ctx context.Context, w *world, f *fault) error
}

// fault is one stroke of a kind, planned by the seed.
type fault struct {
	kind   *kind
	number int
	// after is when it comes, counted from the beginning of its round.
	after  time.Duration
	random *rand.Rand
	// server is the machine that it hit, for those that hit one.
	server *server
	// struck is called when the harm is done.
	struck func()
}

// between returns a time from the one to the other.
func (f *fault) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64(most-least)+1))
}

// chance returns a number from the one to the other.
func (f *fault) chance(least, most float64) float64 { return least + f.random.Float64()*(most-least) }

// pickServer chooses the machine that is hit.
func (f *fault) pickServer(w *world) *server {
	f.server = w.servers[f.random.IntN(len(w.servers))]
	return f.server
}

// kinds returns all kinds of faults whose names match.
func kinds(names string) ([]*kind, error) {
	pattern, err := regexp.Compile(names)
	if err != nil {
		return nil, fmt.Errorf("-chaos.kinds: %w", err)
	}
	var list []*kind
	for _, k := range slices.Concat(processKinds(), apiKinds(), clockKinds(), objectKinds(), podKinds()) {
		if pattern.MatchString(k.name) {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("-chaos.kinds: nothing matches %q", names)
	}
	return list, nil
}

// plan is what a seed stands for: rounds of faults, and the number of pods that
// are to live at the end of each round.
type plan struct {
	seed   uint64
	rounds []round
	// pods is how many come in each round, and spread the time over which they
	// and the faults do.
	pods   int
	spread time.Duration
}

type round struct {
	faults []*fault
	// level is how many pods are to live, forced how many of a hundred are
	// deleted without waiting for kubelet.
	level, forced int
}

// newPlan makes the plan of a seed: all kinds equally often, in any order.
func newPlan(seed uint64, list []*kind, faults, pods int) *plan {
	r := rand.New(rand.NewPCG(seed, 0))
	perRound := *roundFlag
	p := &plan{seed: seed, spread: time.Duration(perRound) * 10 * time.Second / 27}
	var bag []*kind
	for len(bag) < faults {
		more := slices.Clone(list)
		r.Shuffle(len(more), func(i, k int) { more[i], more[k] = more[k], more[i] })
		bag = append(bag, more...)
	}
	for i, k := range bag {
		if i%perRound == 0 {
			p.rounds = append(p.rounds, round{level: 25 + r.IntN(60), forced: 5 + r.IntN(30)})
		}
		last := &p.rounds[len(p.rounds)-1]
		last.faults = append(last.faults, &fault{
			kind: k, number: i + 1, after: time.Duration(r.Int64N(int64(p.spread))), random: rand.New(rand.NewPCG(seed, uint64(i+1))),
		})
	}
	p.pods = (pods + len(p.rounds) - 1) / len(p.rounds)
	return p
}
