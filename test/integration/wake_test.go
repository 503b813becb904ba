package integration

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

// TestWake: a card that becomes free wakes the pods that it helps, and no
// others. Attempts are counted in the scheduler's own log.
func TestWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoCards()
	s := w.Scheduler("scheduler", "-v=3")
	// Card 0: 40 + 20 GiB, card 1: 30 + 30 GiB; 4 GiB are left on each.
	for name, memory := range map[string]string{"a40": "40", "a20": "20"} {
		w.Create(pod(name, "sgpu=1", "vcore=20", "vmemory="+memory))
		w.Bound(name)
	}
	for _, name := range []string{"b30", "b31"} {
		w.Create(pod(name, "sgpu=1", "vcore=20", "vmemory=30"))
		w.Bound(name)
	}
	w.Create(pod("wants24", "sgpu=1", "vcore=10", "vmemory=24"), pod("wants60", "sgpu=1", "vcore=10", "vmemory=60"), pod("whole", "gpu=1"))
	waiting := []string{"wants24", "wants60", "whole"}
	for _, name := range waiting {
		w.Refused(name, "")
	}
	// Let what their creation stirred up settle.
	w.settle(s, waiting)
	before := w.attempts(s, waiting)

	// 20 GiB more make 24 free on card 0: that helps one of the three.
	w.Delete("a20")
	w.Bound("wants24")
	w.settle(s, waiting)
	after := w.attempts(s, waiting)
	for i, want := range []int{1, 0, 0} {
		if got := after[i] - before[i]; got != want {
			t.Errorf("%s was tried %d more times, want %d", waiting[i], got, want)
		}
	}

	// Card 1 becomes free in two steps; only the second helps, and both.
	w.Delete("b30")
	w.settle(s, waiting)
	if again := w.attempts(s, waiting); again[1] != after[1] || again[2] != after[2] {
		t.Errorf("after half a card became free: attempts went from %v to %v, want no more", after, again)
	}
	w.Delete("b31")
	w.Eventually("one of the two bound", time.Minute, func() error {
		for _, p := range w.Pods() {
			if (p.Name == "wants60" || p.Name == "whole") && p.Spec.NodeName != "" {
				return nil
			}
		}
		return errors.New("none")
	})
	t.Logf("attempts of %v: %v, then %v, then %v", waiting, before, after, w.attempts(s, waiting))
	w.Audit()
}

// TestWakeByNeighbours: a pod that wants to be where another one is wakes when
// that one gets a node, from us or from someone else, and only then.
func TestWakeByNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoCards()
	s := w.Scheduler("scheduler", "-v=3")
	waiting := []string{"near-a", "near-b"}
	w.Create(near("a"), near("b"))
	for _, name := range waiting {
		w.Eventually("refusal of "+name, time.Minute, func() error {
			const want = "0/1 nodes are available: 1 didn't match pod affinity rules."
			if said := w.Refusals(name); !slices.Equal(said, []string{want}) {
				return fmt.Errorf("events so far: %q, want %q", said, want)
			}
			return nil
		})
	}
	w.settle(s, waiting)
	before := w.attempts(s, waiting)

	// The scheduler binds this one itself.
	a := pod("a")
	a.Labels = map[string]string{"app": "a"}
	w.Create(a)
	w.Bound("near-a")
	w.settle(s, waiting)
	if after := w.attempts(s, waiting); after[1] != before[1] {
		t.Errorf("near-b was tried %d more times after a pod that it does not look for", after[1]-before[1])
	}
	// No scheduler takes this one.
	b := pod("b")
	b.Labels, b.Spec.NodeName = map[string]string{"app": "b"}, "metax-1"
	w.Create(b)
	w.Bound("near-b")
	w.Audit()
}

// near is a pod with a slice that wants to be where a pod of the app is.
func near(app string) *corev1.Pod {
	p := pod("near-"+app, "sgpu=1", "vcore=10", "vmemory=4")
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: corev1.LabelHostname,
	}}}}
	return p
}

// attempts counts how often the scheduler tried each pod.
func (w *world) attempts(s *local.Process, names []string) []int {
	w.Helper()
	text, err := os.ReadFile(s.Log())
	w.Must(err)
	counts := make([]int, len(names))
	for i, name := range names {
		counts[i] = strings.Count(string(text), fmt.Sprintf(`"Attempting to schedule pod" pod="default/%s"`, name))
	}
	return counts
}

// settle waits until nothing has been tried for a while, longer than the
// backoff of a pod that was refused once or twice.
func (w *world) settle(s *local.Process, names []string) {
	w.Helper()
	last, since := w.attempts(s, names), time.Now()
	for time.Since(since) < 4*time.Second {
		time.Sleep(100 * time.Millisecond)
		if now := w.attempts(s, names); fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		}
	}
}
