package scheduler

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	historySeed = flag.Uint64("history.seed", 0, "play the history of this seed alone")
	historyN    = flag.Int("history.n", 10000, "how many histories are played")
	historyAll  = flag.Bool("history.all", false, "play all histories and list those that go wrong, without their steps")
)

// prepareHistories does what must be done once, outside of all histories.
func prepareHistories(t *testing.T) {
	t.Helper()
	// kube-scheduler listens for a signal; what listens for all of them must not
	// be part of a history.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	t.Cleanup(func() { signal.Stop(c) })
	// After an error others wait for a moment, all histories together.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// outcome is what came of a history.
type outcome struct {
	slots      int
	noElection bool
	steps      []step
	problem    string
	binds      int
}

func (w *world) outcome() outcome {
	return outcome{slots: len(w.slots), noElection: w.noElection, steps: w.trace, problem: w.problem, binds: w.api.started}
}

// playSeed plays the history of a seed.
func playSeed(t *testing.T, seed uint64) (out outcome) {
	t.Helper()
	watchdog := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("history %d does not end", seed)) })
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) {
		w := drawHistory(seed)
		out = w.outcome()
		w.end()
	})
	return out
}

// TestHistories plays many histories, each from its own seed.
func TestHistories(t *testing.T) {
	prepareHistories(t)
	if *historySeed != 0 {
		out := playSeed(t, *historySeed)
		if out.problem != "" {
			out = shrink(t, out)
		}
		tell(t, *historySeed, out)
		return
	}
	n := *historyN
	if testing.Short() {
		n /= 20
	}
	began := time.Now()
	var next, failed atomic.Uint64
	t.Run("group", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1); seed <= uint64(n) && (*historyAll || failed.Load() == 0); seed = next.Add(1) {
					if out := playSeed(t, seed); out.problem != "" {
						failed.Add(1)
						reportHistory(t, seed, out)
					}
				}
			})
		}
	})
	played := min(next.Load(), uint64(n))
	t.Logf("%d histories, %d went wrong, %.0f a second", played, failed.Load(), float64(played)/time.Since(began).Seconds())
}

// reportHistory tells of a history that went wrong, as short as it can be made.
func reportHistory(t *testing.T, seed uint64, out outcome) {
	t.Helper()
	if *historyAll {
		t.Errorf("history %d: %s", seed, out.problem)
		return
	}
	tell(t, seed, shrink(t, out))
}

// tell writes a history down.
func tell(t *testing.T, seed uint64, out outcome) {
	t.Helper()
	if out.problem == "" {
		return
	}
	election := "with an election"
	if out.noElection {
		election = "without an election"
	}
	lines := make([]string, len(out.steps))
	for i, s := range out.steps {
		lines[i] = fmt.Sprintf("%3d. %v", i+1, s)
	}
	t.Errorf("history %d: %s\nplaces for %d schedulers, %s\n%s", seed, out.problem, out.slots, election, strings.Join(lines, "\n"))
}

// TestHistoriesReplay plays histories twice: every step must be the same.
func TestHistoriesReplay(t *testing.T) {
	prepareHistories(t)
	for seed := range uint64(100) {
		first, second := playSeed(t, seed+1), playSeed(t, seed+1)
		if first.problem != second.problem || !slices.Equal(first.steps, second.steps) {
			at := 0
			for at < min(len(first.steps), len(second.steps)) && first.steps[at] == second.steps[at] {
				at++
			}
			t.Errorf("history %d differs from step %d on: %v and %v (%q and %q)", seed+1, at+1,
				first.steps[at:min(at+3, len(first.steps))], second.steps[at:min(at+3, len(second.steps))], first.problem, second.problem)
		}
	}
}
