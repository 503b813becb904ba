package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHAMiQuota: 60 pods that 12 clients create at once never exceed a quota with
// HAMi's keys, a larger quota wakes those that wait within 2 seconds, and so does
// the end of a pod.
func TestHAMiQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(2)
	quotas := w.Client.CoreV1().ResourceQuotas("default")
	budget := func(amount string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "team"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"limits.metax-tech.com/vcore": resource.MustParse(amount)}},
		}
	}
	for _, amount := range []string{"-1", "1500m"} {
		if _, err := quotas.Create(w.Ctx, budget(amount), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("the API server takes a quota of %s: %v", amount, err)
		}
	}
	_, err := quotas.Create(w.Ctx, budget("200"), metav1.CreateOptions{})
	w.Must(err)
	s := w.Scheduler("scheduler", "-v=3")

	// Every version of every pod is looked at, so that no moment is missed.
	var allowed, most, bound atomic.Int64
	allowed.Store(200)
	watch, err := w.Client.CoreV1().Pods("default").Watch(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	t.Cleanup(watch.Stop)
	go func() {
		on := map[string]bool{}
		for e := range watch.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name != "ordinary" {
				delete(on, p.Name)
				if p.Spec.NodeName != "" && e.Type != "DELETED" {
					on[p.Name] = true
				}
			}
			bound.Store(int64(len(on)))
			used := int64(30 * len(on))
			most.Store(max(most.Load(), used))
			if used > allowed.Load() {
				t.Errorf("%d%% are used, %d%% allowed", used, allowed.Load())
			}
		}
	}()
	var clients sync.WaitGroup
	for c := range 12 {
		clients.Go(func() {
			for i := range 5 {
				p := pod(fmt.Sprintf("p%d-%d", c, i), "sgpu=1", "vcore=30", "vmemory=4")
				if _, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	has := func(n int64) func() error {
		return func() error {
			if got := bound.Load(); got != n {
				return fmt.Errorf("%d pods are bound, want %d", got, n)
			}
			return nil
		}
	}
	w.Eventually("six pods bound", time.Minute, has(6))
	var waiting []string
	for _, p := range w.Pods() {
		if p.Spec.NodeName == "" {
			waiting = append(waiting, p.Name)
		}
	}
	w.settle(s, waiting)
	w.Must(has(6)())
	const want = "0/2 nodes are available: wants 30%, ResourceQuota team has 20% of 200% left (limits.metax-tech.com/vcore)."
	if said := w.Refusals(waiting[0]); len(said) == 0 || said[0] != want {
		t.Errorf("events of %s: %q, want %q", waiting[0], said, want)
	}

	wakes := func(what string, n int64, change func()) {
		t.Helper()
		began := time.Now()
		change()
		w.Eventually(what, 20*time.Second, has(n))
		took := time.Since(began)
		t.Logf("%s: %d pods bound after %s", what, n, took)
		if took > 2*time.Second {
			t.Errorf("%s: pods are bound after %s, want 2 seconds", what, took)
		}
	}
	wakes("a larger quota", 13, func() {
		allowed.Store(400)
		_, err := quotas.Update(w.Ctx, budget("400"), metav1.UpdateOptions{})
		w.Must(err)
	})
	ended := w.Pods()[0].Name
	for _, p := range w.Pods() {
		if p.Spec.NodeName != "" {
			ended = p.Name
		}
	}
	wakes("a pod ends", 13, func() {
		w.Delete(ended)
		time.Sleep(50 * time.Millisecond) // its end is seen
	})

	// More than the whole budget is reported as such, and a pod without cards is
	// none of the quota's business.
	w.Create(pod("large", "gpu=5"), pod("ordinary"))
	w.Bound("ordinary")
	w.Refused("large", "wants 500%, ResourceQuota team allows 400% in all")
	t.Logf("at most %d%% were used of 400%%", most.Load())
	w.Audit()
}
