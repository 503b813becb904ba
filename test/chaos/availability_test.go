package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// TestRecovery: each part is killed alone, in turn, and it is measured how long
// it takes until a pod that came afterwards is bound; for an agent, until its
// node is served again.
func TestRecovery(t *testing.T) {
	t.Parallel()
	list, err := kinds(cmp.Or(*kindsFlag, "^kill "))
	gputest.Must(t, err)
	if *kindsFlag == "" {
		list = append(list, failover)
	}
	w := newWorld(t, options{machines: 1})
	r := newRun(w, newPlan(*seedFlag, list, *samplesFlag*len(list), 1))
	t.Cleanup(func() { fmt.Printf("one at a time, with leases of %s:\n%s", w.lease, r.figures) })
	for i := range r.plan.rounds {
		for _, f := range r.plan.rounds[i].faults {
			f.after = 0
			gputest.Must(t, r.carryOut(w.Ctx, f))
			w.Must(w.settled(settleLimit))
		}
	}
}

// failover kills the leading scheduler, which stays away until the other one has
// bound a pod.
var failover = &kind{
	name: "failover",
	strike: func(ctx context.Context, w *world, f *fault) error {
		old, young := leader(w.schedulers), standby(w.schedulers)
		before := young.proxy.bindingsBy()[http.StatusCreated]
		old.turn.Lock()
		defer old.turn.Unlock()
		old.process.Kill()
		f.struck()
		defer old.restart(ctx)
		return machine.Until(ctx, backLimit, func() error {
			if young.proxy.bindingsBy()[http.StatusCreated] == before {
				return fmt.Errorf("%s has bound nothing yet", young.name)
			}
			return nil
		})
	},
}

// TestSplitBrain: the leader is paused in the middle of binding, the other one
// takes over, the old one goes on. A Binding holds for one version of its pod,
// and the new leader has touched every pending pod before it decides, so that
// none of the old leader's is carried out any more: no card is given twice.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{machines: 3})
	old := leader(w.schedulers)
	young := standby(w.schedulers)

	// The old leader's Bindings get as far as the proxy.
	release, held := make(chan struct{}), atomic.Int64{}
	remove := old.proxy.around(everyPod, hook{before: func() {
		held.Add(1)
		<-release
	}})
	const pods = 100
	for i := range pods {
		w.Must(w.pods.create(w.Ctx, newPod(fmt.Sprintf("split-%03d", i), sliceOf(25, 16))))
	}
	w.AtLeast("Bindings in flight", 20, &held)
	exits := old.exits.Load()
	old.turn.Lock()
	w.Must(old.process.Signal(syscall.SIGSTOP))
	start := time.Now()
	w.Eventually("the new leader's first pod", time.Minute, func() error { return w.boundBy(young) })
	took := time.Since(start)
	before := old.proxy.bindingsBy()
	remove()
	close(release)
	w.Eventually("the old leader's Bindings are answered", time.Minute, func() error {
		if n := total(old.proxy.bindingsBy()) - total(before); int64(n) < held.Load() {
			return fmt.Errorf("%d of %d", n, held.Load())
		}
		return nil
	})
	late := old.proxy.bindingsBy()
	w.Must(old.process.Signal(syscall.SIGCONT))
	old.turn.Unlock()
	t.Logf("the new leader bound its first pod %s after the old one was paused; of %d late Bindings %v were answered with (code:count) %v",
		took.Round(time.Millisecond), held.Load(), total(late)-total(before), late)
	if late[http.StatusCreated] != before[http.StatusCreated] {
		t.Errorf("%d Bindings of the old leader were carried out after another one led", late[http.StatusCreated]-before[http.StatusCreated])
	}
	w.Eventually("the old leader ends", time.Minute, func() error {
		if old.exits.Load() == exits {
			return errors.New("it still runs")
		}
		return nil
	})
	w.Must(w.settled(settleLimit))
	text, err := os.ReadFile(young.process.Log())
	w.Must(err)
	if !strings.Contains(string(text), "Earlier schedulers are fenced off") {
		t.Error("the new leader did not fence off the old one")
	}
}

// boundBy says whether a scheduler has bound a pod.
func (*world) boundBy(p *part) error {
	if p.proxy.bindingsBy()[http.StatusCreated] == 0 {
		return errors.New("none yet")
	}
	return nil
}

func total(counts map[int]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
