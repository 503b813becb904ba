package nodelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

func bindTo(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = node }
}

func run(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// theirs is for another scheduler to bind.
func theirs(p *corev1.Pod) { p.Spec.SchedulerName = "hami" }

// TestTurns: pods get the lock in the order in which they came, each when the
// plugin has taken off the one before.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		var got []<-chan error
		var want []string
		for i := range 5 {
			name := fmt.Sprintf("p%d", i)
			got = append(got, w.acquire("n", name))
			want = append(want, "2026-01-02T12:00:00Z,ns,"+name)
		}
		for i := range got {
			w.granted(got[i])
			if i+1 < len(got) {
				w.stillWaits(got[i+1])
			}
			w.setPod(fmt.Sprintf("p%d", i), bindTo("n"))
			w.release("n", fmt.Sprintf("p%d", i))
			w.unlock("n")
		}
		if diff := cmp.Diff(want, w.written()); diff != "" {
			t.Errorf("locks written (-want +got):\n%s", diff)
		}
		w.forgotten()
		if n := w.asked(); n > 0 {
			t.Errorf("the API server was asked for pods %d times; informers know them all", n)
		}
	})
}

// TestOwnerComesLate: the lock of an earlier process names a pod that comes
// after others. It goes first, since all others wait for it.
func TestOwnerComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.setPod("a", nil)
		w.mu.Lock()
		w.binding[owner.UID] = "n"
		w.mu.Unlock()
		w.addNode("n", "2026-01-02T12:00:00Z,ns,a")
		other := w.acquire("n", "b")
		w.stillWaits(other)
		w.granted(w.acquire("n", "a"))
		w.stillWaits(other)
		w.setPod("a", bindTo("n"))
		w.release("n", "a")
		w.unlock("n")
		w.granted(other)
	})
}

// TestNodesAreApart: a lock that is stuck on one node is nothing to another.
func TestNodesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n1", "2026-01-02T12:00:00Z")
		w.addNode("n2", "")
		stuck := w.acquire("n1", "a")
		w.granted(w.acquire("n2", "b"))
		w.stillWaits(stuck)
	})
}

func TestLocksThatAreThere(t *testing.T) {
	tests := map[string]struct {
		lock string
		// owner makes the pod a, which the lock names; nil for none.
		owner func(*corev1.Pod)
		// after is how long the waiting pod waits; 0 means it does not.
		after time.Duration
	}{
		"of another scheduler's pod": {lock: "2026-01-02T12:00:00Z,ns,a", owner: theirs, after: expiry},
		"of a pod on this node":      {lock: "2026-01-02T12:00:00Z,ns,a", owner: bindTo("n"), after: expiry},
		"of a pod on another node":   {lock: "2026-01-02T12:00:00Z,ns,a", owner: bindTo("m")},
		"of a pod of ours that is not being bound": {
			lock: "2026-01-02T12:00:00Z,ns,a", owner: func(*corev1.Pod) {},
		},
		"of a pod that has failed": {
			lock:  "2026-01-02T12:00:00Z,ns,a",
			owner: func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", corev1.PodFailed },
		},
		"of a pod that has succeeded": {
			lock:  "2026-01-02T12:00:00Z,ns,a",
			owner: func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", corev1.PodSucceeded },
		},
		"of a pod that runs": {
			lock:  "2026-01-02T12:00:00Z,ns,a",
			owner: func(p *corev1.Pod) { p.Spec.NodeName = "n"; run(p) }, after: servedGrace,
		},
		"of a pod that is not there":     {lock: "2026-01-02T12:00:00Z,ns,a"},
		"of no pod":                      {lock: "2026-01-02T12:00:00Z", after: expiry},
		"expired":                        {lock: "2026-01-02T11:55:00Z,ns,a", owner: bindTo("n")},
		"not expired yet":                {lock: "2026-01-02T11:56:00Z,ns,a", owner: bindTo("n"), after: time.Minute},
		"that can't be read":             {lock: "locked!", after: expiry},
		"from the future":                {lock: "2030-01-01T00:00:00Z,ns,a", owner: theirs, after: expiry},
		"from the future of no pod":      {lock: "2030-01-01T00:00:00Z", after: expiry},
		"of a pod with the waiting name": {lock: "2026-01-02T11:59:00Z,ns,b"},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			if tt.owner != nil {
				w.setPod("a", tt.owner)
			}
			w.addNode("n", tt.lock)
			got := make(chan error, 1)
			pod := w.setPod("b", nil)
			w.mu.Lock()
			w.binding[pod.UID] = "n"
			w.mu.Unlock()
			go func() { got <- w.Acquire(t.Context(), "n", pod, time.Hour) }()
			if tt.after > 0 {
				w.stillWaits(got)
				w.clock.Step(tt.after - time.Second)
				w.stillWaits(got)
				w.clock.Step(time.Second)
			}
			w.granted(got)
			if lock := w.lock("n"); !strings.HasSuffix(lock, ",ns,b") || strings.HasPrefix(lock, "2026-01-02T11") {
				t.Errorf("the lock is %q, want one of now for ns/b", lock)
			}
		})
	}
}

// TestLeftBehind: a lock that is over is taken off also when no pod waits, on
// nodes with MetaX slices.
func TestLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPod("a", theirs)
		w.addNode("held", "2026-01-02T12:00:00Z,ns,a")
		w.addNode("gone", "2026-01-02T12:00:00Z,ns,x")
		w.setNode("other", func(n *corev1.Node) {
			n.Annotations = map[string]string{wire.AnnotationLock: "2026-01-02T12:00:00Z,ns,x"}
		})
		w.eventually("taken off", func() bool { return w.lock("gone") == "" })
		if w.lock("held") == "" || w.lock("other") == "" {
			t.Error("a lock that is held, or that is on a node without MetaX slices, was taken off")
		}
		w.deletePod("a")
		w.eventually("taken off when its pod goes", func() bool { return w.lock("held") == "" })
		w.setPod("c", theirs)
		w.addNode("held", "2026-01-02T12:00:00Z,ns,c")
		synctest.Wait()
		w.clock.Step(expiry)
		w.eventually("taken off when it expires", func() bool { return w.lock("held") == "" })
	})
}

// TestGivenUp: a pod that got the lock and is not bound leaves it to the next.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		w.granted(w.acquire("n", "a"))
		next := w.acquire("n", "b")
		w.clock.Step(10 * time.Second) // Bind takes its time
		w.stillWaits(next)
		w.release("n", "a")
		w.granted(next)
		w.release("n", "b")
		w.eventually("taken off", func() bool { return w.lock("n") == "" })
		w.forgotten()
	})
}

// TestUnsure: while a Binding may come through the lock stays, past its expiry
// too.
func TestUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		w.granted(w.acquire("n", "a"))
		got := make(chan error, 1)
		pod := w.setPod("b", nil)
		go func() { got <- w.Acquire(t.Context(), "n", pod, time.Hour) }()
		w.eventually("in the queue", func() bool { return w.waiting("n") == 1 })
		w.clock.Step(2 * expiry)
		w.Check("n")
		w.stillWaits(got)
		// It was bound after all, and the plugin has not served it: now it counts
		// that the lock is old.
		w.release("n", "a")
		w.setPod("a", bindTo("n"))
		w.granted(got)
	})
}

// TestOwnerOfTheSameName: a pod that was deleted and made again does not own the
// lock of the one before.
func TestOwnerOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPod("a", func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "n", "hami" })
		w.addNode("n", "2026-01-02T12:00:00Z,ns,a")
		next := w.acquire("n", "b")
		w.stillWaits(next)
		w.setPod("a", func(p *corev1.Pod) { p.UID, p.Spec.NodeName = "another", "" })
		w.granted(next)
	})
}

// TestInformerIsLate: a pod that the pod informer does not show yet is looked
// for, and its lock respected.
func TestInformerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pod := w.setPod("a", theirs)
		if err := w.podStore.Delete(pod); err != nil {
			t.Fatal(err)
		}
		w.addNode("n", "2026-01-02T12:00:00Z,ns,a")
		next := w.acquire("n", "b")
		w.stillWaits(next)
		w.Check("n")
		w.stillWaits(next)
		if w.asked() == 0 {
			t.Error("the API server was not asked for the pod")
		}
		w.deletePod("a")
		w.Check("n")
		w.granted(next)
	})
}

// TestSomeoneElseWrites: what the node informer has not come to yet is not
// overwritten.
func TestSomeoneElseWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		w.mu.Lock()
		w.late = true
		w.mu.Unlock()
		w.setPod("a", theirs)
		w.setNode("n", func(n *corev1.Node) { n.Annotations[wire.AnnotationLock] = "2026-01-02T12:00:00Z,ns,a" })
		next := w.acquire("n", "b") // sees no lock
		w.stillWaits(next)
		if got := w.lock("n"); got != "2026-01-02T12:00:00Z,ns,a" {
			t.Fatalf("the lock is %q, want the other scheduler's", got)
		}
		w.show("n")
		w.stillWaits(next)
		w.mu.Lock()
		w.late = false
		w.mu.Unlock()
		w.unlock("n")
		w.granted(next)
	})
}

// TestOwnWriteIsNotForgotten: the lock that was just written counts although
// the informer does not show it.
func TestOwnWriteIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		w.mu.Lock()
		w.late = true
		w.mu.Unlock()
		w.granted(w.acquire("n", "a"))
		next := w.acquire("n", "b")
		w.Check("n")
		w.stillWaits(next)
		w.release("n", "a")
		w.granted(next)
		if got := len(w.written()); got != 2 {
			t.Errorf("%d writes, want 2: %q", got, w.written())
		}
	})
}

func TestWriteErrors(t *testing.T) {
	refused := apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New("no"))
	tests := map[string]struct {
		answers []answer
		want    string
		writes  int
	}{
		"the API server is away for a while": {answers: []answer{{err: errors.New("refused")}, {err: apierrors.NewInternalError(errors.New("x"))}}, writes: 1},
		"an answer is lost":                  {answers: []answer{{err: errors.New("reset"), lost: true}}, writes: 2},
		"this scheduler may not":             {answers: []answer{{err: refused}}, want: `write hami.io/mutex.lock on node n: nodes "n" is forbidden: no; give this scheduler's account the verb patch on nodes`},
	}
	for name, tt := range tests {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.answers = tt.answers
			w.addNode("n", "")
			got := w.acquire("n", "a")
			for w.clockMoves(got) {
			}
			if tt.want != "" {
				if said := w.failed(got); said != tt.want {
					t.Errorf("Acquire() says %q, want %q", said, tt.want)
				}
				return
			}
			w.granted(got)
			if n := len(w.written()); n != tt.writes {
				t.Errorf("%d writes, want %d: %q", n, tt.writes, w.written())
			}
		})
	}
}

// clockMoves lets backoffs pass until there is an answer.
func (w *world) clockMoves(got <-chan error) bool {
	time.Sleep(5 * time.Millisecond)
	if len(got) > 0 {
		return false
	}
	w.clock.Step(10 * time.Millisecond)
	return true
}

// TestStaleLeader: a process that may no longer lead writes nothing.
func TestStaleLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stale = errors.New("stale")
		w.addNode("n", "")
		w.addNode("m", "2026-01-02T11:00:00Z,ns,x")
		got := w.acquire("n", "a")
		w.stillWaits(got)
		if len(w.written()) > 0 {
			t.Fatalf("written: %q", w.written())
		}
		w.mu.Lock()
		w.stale = nil
		w.mu.Unlock()
		for w.clockMoves(got) {
		}
		w.granted(got)
		w.eventually("the old lock is taken off", func() bool { w.clock.Step(time.Second); return w.lock("m") == "" })
	})
}

func TestGivingUp(t *testing.T) {
	inBubble(t, "the lock does not change", func(t *testing.T) {
		w := newWorld(t)
		w.setPod("a", theirs)
		w.addNode("n", "2026-01-02T12:00:00Z,ns,a")
		got := w.acquire("n", "b")
		w.clock.Step(timeout - time.Second)
		w.stillWaits(got)
		if w.Stuck("n") {
			t.Error("the node is stuck before anyone gave up")
		}
		w.clock.Step(time.Second)
		want := `node n: waited 1m0s for hami.io/mutex.lock, which another pod holds since 2026-01-02T12:00:00Z and which does not change; ` +
			`it is taken over when its pod is gone, or 5m0s after it was put on`
		if said := w.failed(got); said != want {
			t.Errorf("Acquire() says\n%s\nwant\n%s", said, want)
		}
		if !w.Stuck("n") {
			t.Error("the node is not stuck")
		}
		w.addNode("n", "2026-01-02T12:01:00Z,ns,a") // it changes hands
		w.eventually("no longer stuck", func() bool { return !w.Stuck("n") })
	})
	inBubble(t, "the queue moves, so the last one waits longer", func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		var got []<-chan error
		for i := range 4 {
			got = append(got, w.acquire("n", fmt.Sprintf("p%d", i)))
		}
		for i := range got {
			w.granted(got[i])
			w.clock.Step(timeout - time.Second)
			for k := i + 1; k < len(got); k++ {
				w.stillWaits(got[k])
			}
			w.setPod(fmt.Sprintf("p%d", i), bindTo("n"))
			w.release("n", fmt.Sprintf("p%d", i))
			w.unlock("n")
		}
	})
	inBubble(t, "the context ends", func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "2026-01-02T12:00:00Z")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := w.acquireWith(ctx, "n", w.setPod("a", nil))
		cancel(errors.New("preempted"))
		if said := w.failed(got); said != "preempted" {
			t.Errorf("Acquire() says %q, want the cause", said)
		}
		if w.waiting("n") != 0 {
			t.Error("it is still in the queue")
		}
	})
	inBubble(t, "the pod is deleted", func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "2026-01-02T12:00:00Z")
		got, other := w.acquire("n", "a"), w.acquire("n", "b")
		w.deletePod("a")
		if said := w.failed(got); said != errPodGone.Error() {
			t.Errorf("Acquire() says %q", said)
		}
		w.stillWaits(other)
	})
	inBubble(t, "the node goes away", func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "2026-01-02T12:00:00Z")
		got := []<-chan error{w.acquire("n", "a"), w.acquire("n", "b")}
		w.mu.Lock()
		node := w.nodes["n"]
		w.mu.Unlock()
		if err := w.nodeStore.Delete(node); err != nil {
			t.Fatal(err)
		}
		w.Check("n")
		for _, g := range got {
			if said := w.failed(g); said != errNodeGone.Error() {
				t.Errorf("Acquire() says %q", said)
			}
		}
		w.forgotten()
	})
	inBubble(t, "the agent takes over from the plugin", func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "2026-01-02T12:00:00Z")
		got := []<-chan error{w.acquire("n", "a"), w.acquire("n", "b")}
		w.setNode("n", func(n *corev1.Node) { n.Annotations[wire.AnnotationServedBy] = wire.ServedByDaybreak })
		for _, g := range got {
			w.granted(g)
		}
		if len(w.written()) > 0 {
			t.Errorf("written: %q", w.written())
		}
	})
}

// TestManyAtOnce: many pods on many nodes, with a plugin that answers at once:
// each pod has the lock exactly once and never two at a time.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const nodes, pods = 5, 20
		all := make(chan error, nodes*pods)
		for n := range nodes {
			node := fmt.Sprintf("n%d", n)
			w.addNode(node, "")
			for p := range pods {
				pod := w.setPod(fmt.Sprintf("%s-p%d", node, p), nil)
				w.mu.Lock()
				w.binding[pod.UID] = node
				w.mu.Unlock()
				go func() {
					err := w.Acquire(t.Context(), node, pod, timeout)
					if lock, _ := allocation.ParseLock(w.lock(node)); err == nil && !lock.Names(pod) {
						err = fmt.Errorf("%s was granted the lock, which is of %s", pod.Name, lock.Name)
					}
					w.setPod(pod.Name, bindTo(node))
					w.release(node, pod.Name)
					w.unlock(node)
					all <- err
				}()
			}
		}
		for range nodes * pods {
			if err := <-all; err != nil {
				t.Fatal(err)
			}
		}
		got := w.written()
		slices.Sort(got)
		if n := len(slices.Compact(slices.Clone(got))); n != nodes*pods || len(got) != n {
			t.Errorf("%d locks written for %d pods, want one each", len(got), n)
		}
		w.forgotten()
	})
}

// TestLateCancel: a pod that gives up just when the lock was written for it
// leaves no lock behind.
func TestLateCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addNode("n", "")
		for i := range 200 {
			name := fmt.Sprintf("p%d", i)
			pod := w.setPod(name, nil)
			w.mu.Lock()
			w.binding[pod.UID] = "n"
			w.mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_ = w.Acquire(ctx, "n", pod, timeout)
			w.mu.Lock()
			delete(w.binding, types.UID("uid-"+name))
			w.mu.Unlock()
			w.Check("n")
		}
		w.eventually("unlocked", func() bool { return w.lock("n") == "" })
		w.forgotten()
	})
}
