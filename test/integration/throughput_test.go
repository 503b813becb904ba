package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// BenchmarkThroughput compares how fast the scheduler is with the default
// policy, which looks ahead, and with plain packing, in the same cluster: the
// same pods are pending when each starts, and the time from the first binding
// to the last counts. The two take turns.
//
//	go test -run '^$' -bench Throughput -benchtime 3x ./test/integration
func BenchmarkThroughput(b *testing.B) {
	const nodes, pods = 200, 1000
	w := newWorld(b)
	w.AddNodes(nodes)
	w.bindAll("binpack", pods) // so that nothing is done for the first time
	took := map[string]time.Duration{}
	for range b.N {
		for _, policy := range []string{"", "binpack"} {
			took[policy] += w.bindAll(policy, pods)
		}
	}
	perSecond := func(policy string) float64 { return float64((pods-1)*b.N) / took[policy].Seconds() }
	b.ReportMetric(perSecond(""), "ahead-pods/s")
	b.ReportMetric(perSecond("binpack"), "packing-pods/s")
	b.ReportMetric(perSecond("")/perSecond("binpack"), "ratio")
	b.ReportMetric(0, "ns/op")
}

// bindAll creates pods, lets a scheduler bind them, and returns the time from
// the first binding to the last. It leaves none behind.
func (w *world) bindAll(policy string, pods int) time.Duration {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range pods {
		group.Go(func() error {
			_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, usualPod(i), metav1.CreateOptions{})
			return err
		})
	}
	w.Must(group.Wait())
	bindings := w.bindings()
	args := []string{"--profile=default-scheduler"}
	if policy != "" {
		args = append(args, "--policy="+policy)
	}
	s := w.NewScheduler("scheduler-"+policy, args...)
	w.Must(s.Start())
	defer s.Stop()
	first, last := w.countBindings(bindings, pods)
	w.Audit()

	w.Must(w.Client.CoreV1().Pods("default").DeleteCollection(w.Ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}))
	w.Eventually("all pods gone", 2*time.Minute, func() error {
		if n := len(w.Pods()); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	return last.Sub(first)
}

// bindings reports of each pod when it was seen to have a node.
func (w *world) bindings() <-chan string {
	w.Helper()
	ctx, stop := context.WithCancel(w.Ctx)
	w.Cleanup(stop)
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	bound := make(chan string, 100_000)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, ok := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if ok && ok2 && old.Spec.NodeName == "" && pod.Spec.NodeName != "" {
				bound <- pod.Name
			}
		},
	})
	w.Must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return bound
}

// countBindings waits until so many pods have a node.
func (w *world) countBindings(bound <-chan string, pods int) (first, last time.Time) {
	w.Helper()
	patience := time.After(10 * time.Minute)
	for n := range pods {
		select {
		case <-patience:
			w.Fatalf("%d of %d pods are bound after ten minutes", n, pods)
		case <-bound:
			last = time.Now()
			if n == 0 {
				first = last
			}
		}
	}
	return first, last
}

// usualPod is one of a mix of slices, whole cards and jobs of several cards.
func usualPod(i int) *corev1.Pod {
	name := fmt.Sprintf("pod-%04d", i)
	switch i % 20 {
	case 0:
		return pod(name, "gpu=4")
	case 1, 2:
		return pod(name, "gpu=2")
	case 3, 4, 5, 6, 7:
		return pod(name, "gpu=1")
	default:
		percent := []int{23, 32, 47, 65, 81}[i%5]
		return pod(name, "sgpu=1", fmt.Sprintf("vcore=%d", percent), fmt.Sprintf("vmemory=%dMi", percent*640))
	}
}
