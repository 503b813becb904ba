package churn

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// engine plays one run: the same jobs, one rule.
type engine struct {
	world
	rule     rule
	backfill int
	jobs     []job
	meter    *meter

	now     float64
	waiting []int // jobs in the order of arrival
	running departures
	failed  []bool // by kind: did not fit in this pass
}

// newEngine prepares a run.
func newEngine(c scenario, o *Options) (*engine, error) {
	topology, err := c.shape.topology()
	if err != nil {
		return nil, err
	}
	kinds := c.mix.kinds()
	e := &engine{
		world: world{
			shape: c.shape, kinds: kinds, servers: make([]*ledger.Node, o.Servers),
		},
		backfill: o.Backfill,
		jobs:     jobs(kinds, o.Jobs, float64(o.Servers*serverCards), c.load, c.seed),
		failed:   make([]bool, len(kinds)),
	}
	if o.RandomTies {
		e.random = rand.New(rand.NewPCG(c.seed, 0x7ee5))
	}
	for i := range e.servers {
		e.servers[i] = ledger.NewNode(fmt.Sprintf("server-%05d", i), topology, ledger.Serves{Whole: true, Slices: true})
	}
	e.meter = newMeter(&e.world, o.Jobs/10)
	e.rule = c.rule.make(&e.world)
	return e, nil
}

// run plays all jobs until the last has started. It reports how many have
// arrived now and then.
func (e *engine) run(ctx context.Context, arrived func(jobs int)) error {
	const step = 500
	for next := 0; next < len(e.jobs) || len(e.waiting) > 0; {
		if next < len(e.jobs) && (len(e.running) == 0 || e.jobs[next].arrives < e.running[0].at) {
			e.passTo(e.jobs[next].arrives)
			if err := e.arrive(next); err != nil {
				return err
			}
			next++
			if next == len(e.jobs) {
				e.meter.close()
			}
			if next%step == 0 || next == len(e.jobs) {
				arrived((next-1)%step + 1)
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			continue
		}
		if len(e.running) == 0 {
			return fmt.Errorf("%d jobs wait and none runs: the rule refuses what would fit an empty server", len(e.waiting))
		}
		if err := e.depart(); err != nil {
			return err
		}
	}
	return nil
}

// passTo lets time pass.
func (e *engine) passTo(t float64) {
	e.meter.pass(t - e.now)
	e.now = t
}

// arrive takes a job in. Nothing came free, so only the new job can start.
func (e *engine) arrive(j int) error {
	k := &e.kinds[e.jobs[j].kind]
	if w, ok := e.rule.(watcher); ok {
		w.arrived(k)
	}
	if j == e.meter.warmup {
		e.meter.open()
	}
	if len(e.waiting) < e.backfill {
		started, err := e.start(j)
		if err != nil || started {
			return err
		}
	}
	e.waiting = append(e.waiting, j)
	return nil
}

// depart ends the job that is over first and lets others start in its place.
func (e *engine) depart() error {
	d, ok := heap.Pop(&e.running).(departure)
	if !ok {
		return errors.New("the list of running jobs holds something else")
	}
	e.passTo(d.at)
	e.servers[d.server].Release(holder(d.job))
	e.meter.booked -= e.kinds[e.jobs[d.job].kind].demand()

	// What did not fit before a job started does not fit after it.
	clear(e.failed)
	left := e.waiting[:0]
	for i, j := range e.waiting {
		if i >= e.backfill {
			left = append(left, e.waiting[i:]...)
			break
		}
		started, err := e.start(j)
		if err != nil {
			return err
		}
		if !started {
			left = append(left, j)
		}
	}
	e.waiting = left
	return nil
}

// start books the job if it fits somewhere.
func (e *engine) start(j int) (bool, error) {
	job := &e.jobs[j]
	if e.failed[job.kind] {
		return false, nil
	}
	k := &e.kinds[job.kind]
	server, cards, ok := e.rule.pick(k)
	if !ok {
		e.failed[job.kind] = true
		return false, nil
	}
	n := e.servers[server]
	if cards.Len() != k.cards || cards&^roomy(n, k) != 0 {
		return false, fmt.Errorf("job %d asks for %d cards with %d%% of each, and was given cards %v of %s, where %v have room",
			j, k.cards, k.share, cards.Indices(), n.Name, roomy(n, k).Indices())
	}
	e.meter.start(j, job.arrives, e.now, k, server, cards)
	offer := n.NewOffer(1)
	offer.SetCards(0, cards)
	if _, err := n.Commit(offer, holder(j), &k.request); err != nil {
		return false, err
	}
	e.meter.booked += k.demand()
	heap.Push(&e.running, departure{at: e.now + job.lasts, job: j, server: server})
	return true, nil
}

func holder(j int) ledger.Holder { return ledger.Holder(strconv.Itoa(j)) }

// departure is a job that runs, and when it ends.
type departure struct {
	at          float64
	job, server int
}

// departures is a heap of running jobs, the next to end first.
type departures []departure

// Len, like the other methods, is for container/heap.
func (d *departures) Len() int { return len(*d) }

// Less puts the earlier end first.
func (d *departures) Less(i, j int) bool {
	a, b := &(*d)[i], &(*d)[j]
	return a.at < b.at || a.at == b.at && a.job < b.job
}

// Swap exchanges two entries.
func (d *departures) Swap(i, j int) { (*d)[i], (*d)[j] = (*d)[j], (*d)[i] }

// Push adds a departure.
func (d *departures) Push(x any) {
	if x, ok := x.(departure); ok {
		*d = append(*d, x)
	}
}

// Pop takes the last entry away.
func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = slices.Delete(*d, last, last+1)
	return x
}
