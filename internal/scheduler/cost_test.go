//go:build !race

package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: no pod and no quota that a tenant can create, and no Device or node, makes
// a decision cost more than some megabytes beyond what plain kube-scheduler takes for
// the same pod, or more than a few times its CPU time.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

// costlyNodes is how many nodes a decision is for.
const costlyNodes = 16

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	// What a decision does not read is left out: each case makes two schedulers.
	pending := []string{"expressions", "selector", "preferred-pods", "tolerations", "containers", "unknown-resources", "labels", "annotation", "listed-cards"}
	bound := []string{"containers", "preferred-pods", "labels", "annotation"}
	for _, pod := range hostile.Pods() {
		// A quarter of what is stored, and less of node affinity, which is quadratic in
		// kube-scheduler itself.
		size := pod.Stored() / 4
		if pod.Name == "expressions" {
			size /= 3
		}
		if slices.Contains(pending, pod.Name) {
			cases["pod/"+pod.Name] = decides(size, cost.Bounds{MiB: 32, Allocs: 200_000, Times: 3}, func(_ testing.TB, _ *costly, size int) *corev1.Pod {
				return pod.Make(size)
			})
		}
		if slices.Contains(bound, pod.Name) {
			cases["bound-pod/"+pod.Name] = decides(pod.Stored()/4, cost.Bounds{MiB: 32, Allocs: 200_000, Times: 5}, func(tb testing.TB, s *costly, size int) *corev1.Pod {
				tb.Helper()
				s.settle(tb, pod.Bound(size, "n0", cardName(0)))
				return gpuPod()
			})
		}
	}
	ordinary := cost.Bounds{MiB: 16, Allocs: 50_000, Times: 5}
	for name, prepare := range map[string]func(testing.TB, *costly, int){
		"quotas": func(tb testing.TB, s *costly, size int) {
			for i := range size / 1000 {
				s.addQuota(tb, makeQuota(fmt.Sprintf("q%d", i), map[corev1.ResourceName]string{quota.LimitVCore: "100000"}))
			}
		},
		"quotas-with-scopes": func(tb testing.TB, s *costly, size int) {
			for i := range size / 1000 {
				rq := makeQuota(fmt.Sprintf("q%d", i), map[corev1.ResourceName]string{quota.LimitVCore: "100000"})
				rq.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
				s.addQuota(tb, rq)
			}
		},
		"quota-with-priority-classes": func(tb testing.TB, s *costly, size int) {
			rq := makeQuota("q", map[corev1.ResourceName]string{quota.LimitVCore: "100000"})
			var names []string
			for i := range size / 12 {
				names = append(names, fmt.Sprintf("class%d", i))
			}
			rq.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpNotIn, Values: names},
			}}
			s.addQuota(tb, rq)
		},
		"quota-with-selectors": func(tb testing.TB, s *costly, size int) {
			rq := makeQuota("q", map[corev1.ResourceName]string{quota.LimitVCore: "100000"})
			rq.Spec.ScopeSelector = &corev1.ScopeSelector{}
			for range size / 60 {
				rq.Spec.ScopeSelector.MatchExpressions = append(rq.Spec.ScopeSelector.MatchExpressions, corev1.ScopedResourceSelectorRequirement{
					ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpDoesNotExist,
				})
			}
			s.addQuota(tb, rq)
		},
		"node-annotations": func(tb testing.TB, s *costly, size int) {
			node := s.node(tb, "n0").DeepCopy()
			node.Annotations["note"] = strings.Repeat("x", size)
			node.Annotations[wire.AnnotationNodeCards] = strings.Repeat("[", size)
			s.Cache.UpdateNode(klog.Background(), node, node)
		},
		"device-annotations": func(tb testing.TB, s *costly, size int) {
			d := makeDevice("n0", 8)
			for _, key := range []string{wire.AnnotationPluginAllocations, wire.AnnotationLinks, wire.AnnotationForeignSlices} {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, strings.Repeat("[", min(size, wire.MaxAnnotation)))
			}
			storeDevice(tb, s.shared, d)
		},
		"cards": func(tb testing.TB, s *costly, size int) {
			for i := range costlyNodes {
				storeDevice(tb, s.shared, makeDevice(fmt.Sprintf("n%d", i), gpu.MaxCards*size/hostile.LargestStored))
			}
		},
		"too-many-cards": func(tb testing.TB, s *costly, size int) { storeDevice(tb, s.shared, makeDevice("n0", size/300)) },
	} {
		cases[name] = decides(hostile.LargestStored, ordinary, func(tb testing.TB, s *costly, size int) *corev1.Pod {
			tb.Helper()
			prepare(tb, s, size)
			return gpuPod()
		})
	}
	return cases
}

func gpuPod() *corev1.Pod {
	return makePod("p", requesting(corev1.ResourceCPU, "100m"), requesting(wire.ResourceGPU, "1"))
}

// decides is a decision about a pod after something was prepared: the first, which
// sees it new, and a few more.
func decides(size int, bounds cost.Bounds, prepare func(tb testing.TB, s *costly, size int) *corev1.Pod) cost.Case {
	return cost.Case{Size: size, Bounds: bounds, Make: func(tb testing.TB, size int) cost.Work {
		tb.Helper()
		does := func(side string) func() int {
			s := &costly{benched: newBenched(tb, side, costlyNodes, 0)}
			s.decide(tb, gpuPod())
			pod := prepare(tb, s, size)
			return func() int {
				for range 4 {
					s.decide(tb, pod)
				}
				return 0
			}
		}
		return cost.Work{Do: does("daybreak"), Than: does("plain")}
	}}
}

// costly is a scheduler whose decisions are counted.
type costly struct {
	*benched
	decided int
}

// decide makes one decision about a pod like this.
func (s *costly) decide(tb testing.TB, like *corev1.Pod) {
	tb.Helper()
	ctx := klog.NewContext(tb.Context(), klog.Logger{})
	pod := like.DeepCopy()
	s.decided++
	pod.Name, pod.Spec.SchedulerName = fmt.Sprintf("%s-%d", like.Name, s.decided), DefaultProfile
	pod.UID = types.UID("uid-" + pod.Name)
	pod.Spec.SchedulingGates = nil // it would not be looked at
	gputest.Must(tb, s.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	binds := s.binds.Load()
	s.SchedulingQueue.Add(ctx, pod)
	if queued, found := s.SchedulingQueue.GetPod(pod.Name, pod.Namespace); found && queued.Gated() {
		return // it is not looked at
	}
	s.ScheduleOne(ctx)
	if _, found := s.SchedulingQueue.GetPod(pod.Name, pod.Namespace); found {
		return // it fits nowhere
	}
	for range 5000 {
		if s.binds.Load() > binds {
			return
		}
		time.Sleep(time.Millisecond)
	}
	tb.Fatal("neither bound nor refused")
}

func (s *costly) addQuota(tb testing.TB, rq *corev1.ResourceQuota) {
	tb.Helper()
	gputest.Must(tb, s.informers.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(rq))
}

func (s *costly) node(tb testing.TB, name string) *corev1.Node {
	tb.Helper()
	node, err := s.informers.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		tb.Fatal(err)
	}
	return node
}
