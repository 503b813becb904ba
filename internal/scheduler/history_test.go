package scheduler

// Histories: what may happen to schedulers, played many thousand times, every
// choice drawn from one seed.
//
// Real is the code of the product and of kube-scheduler: the whole profile of the
// built-in configuration with its search, overlay, index, hints and quotas, fence,
// term and binder, made by [scheduler.New] with its scheduling and binding cycles,
// queue, cache, snapshot, event handlers, framework and preemption. The audit's own
// rules say whether a card was given twice.
//
// Modelled is everything around it:
//   - the API server: one store with versions, preconditions, Bindings, status
//     patches, deletions, consistent lists and a lease (history_api_test.go). A
//     request waits until the driver carries it out, answers it, turns it away with
//     a code, loses the answer, or lets it arrive after its sender gave up. Requests
//     of the election are answered at once: it is disturbed by suspending, cutting
//     off and killing schedulers.
//   - watches: each kind comes in order, as late as the driver wants; the informer's
//     store first, then each handler by itself. Bookmarks come once a minute. A watch
//     that was cut off is followed by a list, which shows less than the changes did.
//   - the elector, which is client-go's without its random waits.
//   - schedulers that come, go, are cut off or suspended: a suspended one's monotonic
//     clock stands still, and nothing of it reaches the API server.
//   - another scheduler, kubelet, agents and people, as steps of the driver. The
//     vendor's node lock is not used, since nodes without Devices have whole cards only.
//
// A history runs in a bubble of testing/synctest. One goroutine drives it: it lets
// one thing happen, waits until every other goroutine waits, and looks at what the
// API server has. Goroutines that wake together do not depend on each other's
// order; no two steps are at the same time, so no two timers end together; waits of
// random length are cut to a fixed one. TestHistoriesReplay plays histories twice.
//
// Not drawn, on purpose: a pod that can't be touched together with a scheduler that
// is suspended for longer than the fence waits (the agent's rule settles it there),
// webhooks that keep preemption from patching its victims, and a list that shows
// another pod under the name of one that was known: kube-scheduler takes that for an
// update and ends. There are two nodes at most, and pods without cards name theirs:
// kube-scheduler picks one of several that are equally good by chance.

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

var (
	historySeed  = flag.Uint64("history.seed", 0, "play the history of this seed alone")
	historyN     = flag.Int("history.n", 3500, "how many histories are played")
	historyBrief = flag.Bool("history.brief", false, "of a history that goes wrong report only which and how")
	historyAll   = flag.Bool("history.all", false, "play all histories and list those that go wrong, without their steps")
)

// prepareHistories does what must be done once, outside of all histories, and returns
// the profiles of all schedulers.
func prepareHistories(t *testing.T) []config.KubeSchedulerProfile {
	t.Helper()
	// kube-scheduler listens for a signal; what listens for all of them must not
	// be part of a history.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	t.Cleanup(func() { signal.Stop(c) })
	// After an error others wait for a moment, all histories together.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil                            //nolint:reassign // it is how client-go lets them be replaced
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers }) //nolint:reassign // as above
	return modelProfiles(t)
}

// outcome is what came of a history.
type outcome struct {
	profiles []config.KubeSchedulerProfile
	slots    int
	steps    []step
	problem  string
}

func (w *world) outcome() outcome {
	return outcome{profiles: w.profiles, slots: len(w.slots), steps: w.trace, problem: w.problem}
}

// playSeed plays the history of a seed.
func playSeed(t *testing.T, profiles []config.KubeSchedulerProfile, seed uint64) (out outcome) {
	t.Helper()
	watchdog := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("history %d does not end", seed)) })
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) {
		w := drawHistory(profiles, seed)
		out = w.outcome()
		w.end()
	})
	return out
}

// TestHistories plays many histories, each from its own seed.
func TestHistories(t *testing.T) {
	profiles := prepareHistories(t)
	if *historySeed != 0 {
		out := playSeed(t, profiles, *historySeed)
		if out.problem != "" {
			out = shrink(t, out)
		}
		logHistory(t, *historySeed, out)
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
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1); seed <= uint64(n) && (*historyAll || failed.Load() == 0); seed = next.Add(1) {
					if out := playSeed(t, profiles, seed); out.problem != "" {
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

// reportHistory reports a history that went wrong, as short as it can be made.
func reportHistory(t *testing.T, seed uint64, out outcome) {
	t.Helper()
	switch {
	case *historyAll:
		t.Errorf("history %d: %s", seed, out.problem)
		return
	case *historyBrief:
		t.Errorf("history %d found: %s", seed, out.class())
		return
	}
	logHistory(t, seed, shrink(t, out))
}

// logHistory writes a history down.
func logHistory(t *testing.T, seed uint64, out outcome) {
	t.Helper()
	if out.problem == "" {
		return
	}
	lines := make([]string, len(out.steps))
	for i, s := range out.steps {
		lines[i] = fmt.Sprintf("%3d. %v", i+1, s)
	}
	t.Errorf("history %d: %s\nplaces for %d schedulers\n%s", seed, out.problem, out.slots, strings.Join(lines, "\n"))
}

// TestHistoriesReplay plays histories twice: every step must be the same.
func TestHistoriesReplay(t *testing.T) {
	profiles := prepareHistories(t)
	for seed := range uint64(50) {
		first, second := playSeed(t, profiles, seed+1), playSeed(t, profiles, seed+1)
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
