package simulate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// job is one arrival. Jobs of a trace last for ever.
type job struct {
	*kind
	arrives, lasts float64
}

// meter measures a run.
type meter interface {
	// pass is called for each span of time, with the cards booked meanwhile.
	pass(from, to, booked float64)
	// start is called for a job that is about to be booked.
	start(j int, k *kind, wait float64, s *server, cards gpu.Set)
	// refuse is called for a job that found no place and does not wait.
	refuse(k *kind)
}

// engine plays one run: the same jobs, one policy.
type engine struct {
	*world
	policy policy
	jobs   []job
	meter  meter
	// queue is how many of the waiting jobs are tried when cards come free; 1
	// lets none overtake. At 0 no job waits: one that does not fit is refused.
	queue int

	now     float64
	booked  float64
	waiting []int       // jobs in the order of arrival
	running []departure // the next to end last
	failed  []bool      // by kind: did not fit since cards came free last
}

func newEngine(w *world, p policy, jobs []job, queue int, m meter) *engine {
	return &engine{world: w, policy: p, jobs: jobs, queue: queue, meter: m, failed: make([]bool, len(w.kinds))}
}

// departure is a job that runs, and when it ends.
type departure struct {
	at          float64
	job, server int
}

// step is the number of jobs after which progress is reported.
const step = 500

// run plays all jobs until the last has started. It reports how many have
// arrived now and then.
func (e *engine) run(ctx context.Context, arrived func(jobs int)) error {
	for next := 0; next < len(e.jobs) || len(e.waiting) > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ends := len(e.running) - 1
		if next < len(e.jobs) && (ends < 0 || e.jobs[next].arrives < e.running[ends].at) {
			if err := e.arrive(next); err != nil {
				return err
			}
			next++
			if next%step == 0 || next == len(e.jobs) {
				arrived((next-1)%step + 1)
			}
			continue
		}
		if ends < 0 {
			return fmt.Errorf("%d jobs wait and none runs: the policy rejects jobs that fit an empty server", len(e.waiting))
		}
		if err := e.depart(); err != nil {
			return err
		}
	}
	return nil
}

// passTo lets time pass.
func (e *engine) passTo(t float64) {
	e.meter.pass(e.now, t, e.booked)
	e.now = t
}

// arrive takes a job in. Nothing came free, so only the new job can start.
func (e *engine) arrive(j int) error {
	e.passTo(e.jobs[j].arrives)
	if e.queue == 0 || len(e.waiting) < e.queue {
		started, err := e.start(j)
		if err != nil || started {
			return err
		}
	}
	if e.queue == 0 {
		e.meter.refuse(e.jobs[j].kind)
		return nil
	}
	e.waiting = append(e.waiting, j)
	return nil
}

func (e *engine) count(k *kind, jobs int) {
	if p, ok := e.policy.(counting); ok {
		p.count(k, jobs)
	}
}

// depart ends the job that is over first and lets others start in its place.
func (e *engine) depart() error {
	ends := len(e.running) - 1
	d := e.running[ends]
	e.running = e.running[:ends]
	e.passTo(d.at)
	k := e.jobs[d.job].kind
	e.servers[d.server].release(holder(d.job), k)
	e.booked -= cardsOf(k)
	e.count(k, -1)

	// What did not fit before a job started does not fit after it.
	clear(e.failed)
	left := e.waiting[:0]
	for i, j := range e.waiting {
		if i >= e.queue {
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
	k := job.kind
	if e.failed[k.id] {
		return false, nil
	}
	server, cards, ok := e.policy.place(k)
	if !ok {
		e.failed[k.id] = true
		return false, nil
	}
	n := e.servers[server]
	if !n.takes(k, cards) {
		return false, fmt.Errorf("job %d asks for %d cards with %d%% of each, and was given cards %v of %s, where %v have room",
			j, k.cards, k.share, cards.Indices(), n.name, n.room(k).Indices())
	}
	e.meter.start(j, k, e.now-job.arrives, n, cards)
	if err := n.book(holder(j), k, cards); err != nil {
		return false, err
	}
	e.booked += cardsOf(k)
	e.count(k, 1)
	if math.IsInf(job.lasts, 1) {
		return true, nil
	}
	d := departure{at: e.now + job.lasts, job: j, server: server}
	at, _ := slices.BinarySearchFunc(e.running, d, func(a, b departure) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.job, a.job))
	})
	e.running = slices.Insert(e.running, at, d)
	return true, nil
}

func holder(j int) ledger.Holder { return ledger.Holder(strconv.Itoa(j)) }

// cardsOf is the number of cards that a job of the kind keeps busy.
func cardsOf(k *kind) float64 { return float64(k.demand()) / wholeCard }

// interruptedError is returned along with the runs that were completed.
type interruptedError struct {
	completed, total int
	cause            error
}

func (e *interruptedError) Error() string {
	return fmt.Sprintf("interrupted: %d of %d runs were completed", e.completed, e.total)
}

func (e *interruptedError) Unwrap() error { return e.cause }

// runAll makes n runs, as many at a time as there are processors, and returns
// their results in order. When the context ends, it returns those of the runs
// that were completed and an [interruptedError]. Progress is called from one goroutine
// at a time with the number of jobs that have arrived in all runs.
func runAll[R any](ctx context.Context, n int, total int64, progress func(done, total int64), run func(ctx context.Context, i int, arrived func(jobs int)) (R, error)) ([]R, error) {
	var mu sync.Mutex
	var done int64
	arrived := func(jobs int) {
		mu.Lock()
		defer mu.Unlock()
		done += int64(jobs)
		progress(done, total)
	}
	results := make([]*R, n)
	group, runs := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := 0; i < n && runs.Err() == nil; i++ {
		group.Go(func() error {
			r, err := run(runs, i, arrived)
			if err == nil {
				results[i] = &r
			}
			return err
		})
	}
	err := group.Wait()
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	var completed []R
	for _, r := range results {
		if r != nil {
			completed = append(completed, *r)
		}
	}
	if len(completed) < n {
		return completed, &interruptedError{completed: len(completed), total: n, cause: context.Cause(ctx)}
	}
	return completed, nil
}
