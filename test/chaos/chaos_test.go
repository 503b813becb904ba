package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Time that Daybreak has to put everything right: what clients wait before they
// ask a silent API server again is most of it.
const (
	settleLimit = 2 * time.Minute
	backLimit   = 2 * time.Minute
	// longSettle is when a round logs what was waited for.
	longSettle = 20 * time.Second
)

// TestChaos: faults of all kinds while pods come and go. After each round
// everything adds up, and at the end nothing is left.
func TestChaos(t *testing.T) {
	list, err := kinds(*kindsFlag)
	gputest.Must(t, err)
	w := newWorld(t, options{machines: 3})
	p := newPlan(*seedFlag, list, *faultsFlag, *podsFlag)
	r := newRun(w, p)
	t.Cleanup(func() { fmt.Print(r.figures.String()) })
	for i := range p.rounds {
		if found := r.round(i); len(found) > 0 {
			for _, text := range found {
				t.Errorf("round %d: %s", i+1, text)
			}
			break // what is wrong now would be found again and again
		}
	}
	if err := w.empty(settleLimit); err != nil {
		t.Errorf("after the last pod: %v", err)
	}
	fmt.Printf("%d faults\n%d pods\n", r.figures.total(), w.pods.count())
	t.Logf("seed %d, %d rounds, %d pods failed by kubelet while their agent was away", p.seed, len(p.rounds), w.rejections())
}

// rejections counts the pods that kubelets have failed for good.
func (w *world) rejections() int {
	n := 0
	for _, s := range w.all() {
		n += s.Rejections()
	}
	return n
}

// run is a plan that is being carried out.
type run struct {
	world   *world
	plan    *plan
	figures *figures
	// next is the number of the next pod; random decides who leaves.
	next   int
	random *rand.Rand
	start  time.Time
	// limit is how long everything may take to settle.
	limit time.Duration
}

func newRun(w *world, p *plan) *run {
	return &run{world: w, plan: p, figures: newFigures(), random: rand.New(rand.NewPCG(p.seed, 1<<40)), start: time.Now(), limit: settleLimit}
}

// round carries one round out, waits until everything has settled, and returns
// what was wrong.
func (r *run) round(number int) []string {
	w, rd := r.world, &r.plan.rounds[number]
	start := time.Now()
	ctx, cancel := context.WithCancel(w.Ctx)
	var found []string
	var watching sync.WaitGroup
	watching.Go(func() { found = w.watchdog(ctx) })
	var work sync.WaitGroup
	struck, churned := make([]error, len(rd.faults)), error(nil)
	for i, f := range rd.faults {
		work.Go(func() { struck[i] = r.carryOut(w.Ctx, f) })
	}
	work.Go(func() { churned = r.churn(w.Ctx, rd) })
	work.Wait()
	harmed := time.Since(start)
	waited, err := w.settle(r.limit)
	cancel()
	watching.Wait()
	for _, e := range slices.Concat(struck, []error{churned, err}) {
		if e != nil {
			found = append(found, e.Error())
		}
	}
	if took := time.Since(start) - harmed; took > longSettle && err == nil {
		fmt.Printf("it took %s to settle; at the end: %v\n", took.Round(time.Second), waited)
	}
	fmt.Printf("round %d of %d: %d faults, %d pods so far; faults %s, settled after %s; %s since the start\n", number+1, len(r.plan.rounds), r.figures.total(),
		w.pods.count(), harmed.Round(100*time.Millisecond), (time.Since(start) - harmed).Round(100*time.Millisecond), time.Since(r.start).Round(time.Second))
	return found
}

// carryOut does the harm when its time has come, and measures how long it takes
// until what was harmed works again.
func (r *run) carryOut(ctx context.Context, f *fault) error {
	machine.Sleep(ctx, f.after)
	var measuring sync.WaitGroup
	var failed error
	f.struck = sync.OnceFunc(func() {
		at := time.Now()
		measuring.Go(func() {
			if failed = r.world.back(ctx, f); failed == nil {
				r.figures.add(f.kind.name, time.Since(at))
			}
		})
	})
	err := f.kind.strike(ctx, r.world, f)
	measuring.Wait()
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("fault %d, %s: %w", f.number, f.kind.name, err)
	}
	return nil
}

// back waits until what the fault has harmed works again.
func (w *world) back(ctx context.Context, f *fault) error {
	if f.kind.back == nil {
		return w.probe(ctx, backLimit)
	}
	return machine.Until(ctx, backLimit, func() error { return f.kind.back(ctx, w, f) })
}

// churn lets the round's pods come, and others leave so that as many live as
// the round wants.
func (r *run) churn(ctx context.Context, rd *round) error {
	w := r.world
	pause := r.plan.spread / time.Duration(r.plan.pods)
	var leaving sync.WaitGroup
	defer leaving.Wait()
	for range r.plan.pods {
		r.next++
		if err := w.pods.create(ctx, order(r.plan.seed, r.next)); err != nil {
			return err
		}
		live := w.pods.live()
		for n := len(live); n > rd.level; n-- {
			at := r.random.IntN(len(live))
			name, forced := live[at], r.random.IntN(100) < rd.forced
			live = append(live[:at], live[at+1:]...)
			leaving.Go(func() { w.pods.remove(ctx, name, forced) })
		}
		w.pods.replaceFailed(ctx)
		if !machine.Sleep(ctx, pause/2+time.Duration(r.random.Int64N(int64(pause)))) {
			return ctx.Err()
		}
	}
	return nil
}
