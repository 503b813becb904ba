package scheduler

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// lineWorld is kube-scheduler's own queue with pods that wait for a budget.
type lineWorld struct {
	*benched
	t      *testing.T
	quota  *corev1.ResourceQuota
	oldest time.Time

	mu    sync.Mutex
	bound []string
	// attempts counts the scheduling attempts.
	attempts int
}

// newLineWorld returns a cluster of eight cards in a namespace that may have four of
// them and has.
func newLineWorld(t *testing.T) *lineWorld {
	t.Helper()
	w := &lineWorld{benched: newUnfilled(t, "daybreak"), t: t, oldest: start}
	w.benched.bound = func(b *corev1.Binding) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bound = append(w.bound, b.Name)
	}
	node := offering(map[corev1.ResourceName]string{
		corev1.ResourceCPU: "128", corev1.ResourceMemory: "1Ti", corev1.ResourcePods: "256", wire.ResourceGPU: "8", wire.ResourceSGPU: "128",
	})
	node.Name, node.Annotations = "n1", map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}
	w.addNode(t, node, makeDevice("n1", 8))
	for i := range 4 {
		pod := makePod(fmt.Sprintf("held%d", i), whole(1), holds(i))
		w.store(pod)
		gputest.Must(t, w.Cache.AddPod(klog.Background(), pod))
	}
	w.setQuota(map[corev1.ResourceName]string{quota.LimitGPU: "4"})
	return w
}

func (w *lineWorld) store(pod *corev1.Pod) {
	w.t.Helper()
	gputest.Must(w.t, w.pods().Add(pod))
}

func (w *lineWorld) pods() cache.Indexer {
	return w.informers.Core().V1().Pods().Informer().GetIndexer()
}

// setQuota sets the budget, as the informer's handler does.
func (w *lineWorld) setQuota(hard map[corev1.ResourceName]string) {
	w.t.Helper()
	w.quota = makeQuota("team", hard)
	gputest.Must(w.t, w.informers.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(w.quota))
	w.shared.quotas.forget("ns")
	if first := w.shared.pods.freeBudget("ns", w.shared.hints.now(), event{}); first != nil {
		w.SchedulingQueue.Activate(klog.Background(), map[string]*corev1.Pod{first.Name: first})
	}
}

// wait adds a pod, younger than the others, which is refused.
func (w *lineWorld) wait(name string, options ...podOption) *corev1.Pod {
	w.t.Helper()
	pod := makePod(name, append([]podOption{whole(1)}, options...)...)
	w.oldest = w.oldest.Add(time.Second)
	pod.CreationTimestamp = metav1.NewTime(w.oldest)
	w.store(pod)
	w.SchedulingQueue.Add(w.t.Context(), pod)
	w.ScheduleOne(klog.NewContext(w.t.Context(), klog.Logger{}))
	if w.shared.pods.peek(pod.UID).overQuota == nil {
		w.t.Fatalf("pod %s does not wait for the budget", name)
	}
	return pod
}

// end ends a pod that has a card.
func (w *lineWorld) end(name string) {
	w.t.Helper()
	obj, _, _ := w.pods().GetByKey("ns/" + name)
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		w.t.Fatalf("no pod %s", name)
	}
	gputest.Must(w.t, w.pods().Delete(pod))
	gputest.Must(w.t, w.Cache.RemovePod(klog.Background(), pod))
	w.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.Background(), framework.EventAssignedPodDelete, pod, nil, nil)
}

// settle lets the pods be tried that are to be, and returns those that were bound.
func (w *lineWorld) settle() []string {
	w.t.Helper()
	for quiet := 0; quiet < 20; quiet++ {
		for len(w.SchedulingQueue.PodsInActiveQ()) > 0 {
			w.attempts++
			quiet = 0
			w.ScheduleOne(klog.NewContext(w.t.Context(), klog.Logger{}))
		}
		time.Sleep(5 * time.Millisecond) // what wakes pods is about to
	}
	for _, pod := range w.SchedulingQueue.PodsInBackoffQ() {
		if pod.DeletionTimestamp == nil {
			w.t.Errorf("pod %s backs off: it is not tried at once", pod.Name)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.bound)
	return w.bound
}

// TestQuotaLine: what comes free of a budget goes to those first in line that can use
// it, and few of the others are tried.
func TestQuotaLine(t *testing.T) {
	const waiting = 200
	for name, tc := range map[string]struct {
		// first comes before the others that wait, and each frees some of the budget.
		first, each func(*lineWorld)
		want        []string
		attempts    int
	}{
		"one card comes free":         {each: func(w *lineWorld) { w.end("held0") }, want: []string{"p000"}, attempts: 4},
		"two cards come free":         {each: func(w *lineWorld) { w.end("held0"); w.end("held1") }, want: []string{"p000", "p001"}, attempts: 6},
		"the budget grows by three":   {each: func(w *lineWorld) { w.setQuota(map[corev1.ResourceName]string{quota.LimitGPU: "7"}) }, want: []string{"p000", "p001", "p002"}, attempts: 6},
		"the budget shrinks":          {each: func(w *lineWorld) { w.setQuota(map[corev1.ResourceName]string{quota.LimitGPU: "3"}) }, attempts: 2},
		"the important ones go first": {first: func(w *lineWorld) { w.wait("a"); w.wait("b", priority(5)) }, each: func(w *lineWorld) { w.end("held0") }, want: []string{"b"}, attempts: 4},
		"the first wants too much":    {first: func(w *lineWorld) { w.wait("a", whole(2)) }, each: func(w *lineWorld) { w.end("held0") }, want: []string{"p000"}, attempts: 5},
		"the first fits no node": {
			first: func(w *lineWorld) { w.wait("a", annotated(wire.AnnotationUseCards, "GPU-none")) },
			each:  func(w *lineWorld) { w.end("held0") }, want: []string{"p000"}, attempts: 5,
		},
		"the first is being deleted": {first: func(w *lineWorld) {
			pod := w.wait("a").DeepCopy()
			pod.DeletionTimestamp = new(metav1.Now())
			w.store(pod)
			w.SchedulingQueue.Update(w.t.Context(), pod, pod)
			w.shared.quitLine(w.SchedulingQueue, pod, true)
		}, each: func(w *lineWorld) { w.end("held0") }, want: []string{"p000"}, attempts: 5},
		"the first is gone before it is tried": {first: func(w *lineWorld) { w.wait("a") }, each: func(w *lineWorld) {
			w.end("held0")
			for len(w.SchedulingQueue.PodsInActiveQ()) == 0 {
				time.Sleep(time.Millisecond)
			}
			pod := w.SchedulingQueue.PodsInActiveQ()[0]
			gputest.Must(w.t, w.pods().Delete(pod))
			w.SchedulingQueue.Delete(pod)
			w.shared.quitLine(w.SchedulingQueue, pod, true)
			w.shared.pods.drop(pod.UID)
		}, want: []string{"p000"}, attempts: 5},
		"the first is invalid now": {first: func(w *lineWorld) {
			pod := w.wait("a")
			now := pod.DeepCopy()
			now.Annotations[wire.AnnotationQoS] = "nonsense"
			w.store(now)
			w.SchedulingQueue.Update(w.t.Context(), pod, now)
			w.ScheduleOne(klog.NewContext(w.t.Context(), klog.Logger{}))
		}, each: func(w *lineWorld) { w.end("held0") }, want: []string{"p000"}, attempts: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLineWorld(t)
			if tc.first != nil {
				tc.first(w)
			}
			for i := range waiting {
				w.wait(fmt.Sprintf("p%03d", i))
			}
			w.attempts = 0
			tc.each(w)
			if got := w.settle(); !slices.Equal(got, tc.want) {
				t.Errorf("pods %v have cards now, want %v", got, tc.want)
			}
			if w.attempts > tc.attempts {
				t.Errorf("%d attempts, want at most %d", w.attempts, tc.attempts)
			}
		})
	}
}

// TestQuotaRace: a decision that may not show what has come free does not end the round.
func TestQuotaRace(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 4))
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
	held, a, b := makePod("held", slice(60, 4), holds(0)), makePod("a", slice(60, 4)), makePod("b", slice(60, 4))
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	before, after := nodeInfo(makeNode("n1"), held), nodeInfo(makeNode("n1"))
	for _, pod := range []*corev1.Pod{a, b} {
		gputest.Must(t, store.Add(pod))
		if r.preFilter(t, pod, before).IsSuccess() {
			t.Fatalf("pod %s passes", pod.Name)
		}
	}
	if _, err := r.afterPodDelete(klog.Background(), a, held, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.nextActivated(10 * time.Second); got != "a" {
		t.Errorf("pod %q is tried, want a", got)
	}
	r.preFilter(t, a, before) // with a snapshot from before the event
	if got := r.nextActivated(time.Second); got != "b" {
		t.Errorf("pod %q is tried after a decision on an old snapshot, want b", got)
	}
	if status := r.preFilter(t, b, after); !status.IsSuccess() {
		t.Errorf("PreFilter(b) = %v", status)
	}
	if got := r.nextActivated(time.Second); got != "a" {
		t.Errorf("pod %q is tried, want a, which would pass if b fails later", got)
	}
	r.preFilter(t, a, nodeInfo(makeNode("n1"), held))
	if got := r.nextActivated(10 * time.Millisecond); got != "" {
		t.Errorf("pod %q is tried although nothing is free", got)
	}
}

// TestQuotaMessage: what is reported of a pod stays the same while only the use of
// others changes.
func TestQuotaMessage(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 4))
	node, pod := makeNode("n1"), makePod("p", slice(60, 4))
	a, b := makePod("a", slice(60, 4), holds(0)), makePod("b", slice(20, 4), holds(1))
	for _, tc := range []struct {
		hard string
		held []*corev1.Pod
		want string
	}{
		{"100", []*corev1.Pod{a, b}, "wants 60%, ResourceQuota team has 20% of 100% left (limits.metax-tech.com/vcore)"},
		{"100", []*corev1.Pod{a}, "wants 60%, ResourceQuota team has 20% of 100% left (limits.metax-tech.com/vcore)"},
		{"110", []*corev1.Pod{a}, "wants 60%, ResourceQuota team has 50% of 110% left (limits.metax-tech.com/vcore)"},
		{"50", nil, "wants 60%, ResourceQuota team allows 50% in all (limits.metax-tech.com/vcore)"},
	} {
		r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: tc.hard}))
		if got := r.preFilter(t, pod, nodeInfo(node, tc.held...)).Message(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// triedOfLine frees some of the budget that the pods wait for, and returns how many of
// them are tried, one after the other.
func (r *rig) triedOfLine(t *testing.T, pods map[string]*corev1.Pod, infos ...fwk.NodeInfo) (tried int) {
	t.Helper()
	for range len(r.fakes.activated) {
		<-r.fakes.activated
	}
	r.budgetFreed(pods["p00000"], nil, nil)
	for name := r.nextActivated(10 * time.Second); name != ""; name = r.nextActivated(10 * time.Millisecond) {
		tried++
		r.preFilter(t, pods[name], infos...)
	}
	return tried
}

// TestLongLine: a decision looks at a bounded part of a line, and the next goes on.
func TestLongLine(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 4))
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
	info := nodeInfo(makeNode("n1"), makePod("a", slice(60, 4), holds(0)))
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	pods := map[string]*corev1.Pod{}
	for i := range 3 * maxLooks {
		pod := makePod(fmt.Sprintf("p%05d", i), slice(50, 4))
		pods[pod.Name] = pod
		gputest.Must(t, store.Add(pod))
		r.preFilter(t, pod, info)
	}
	tried := r.triedOfLine(t, pods, info)
	if tried < 5 || tried > 15 {
		t.Errorf("%d pods are tried, want about one of %d of %d, and once more", tried, maxLooks/2, len(pods))
	}
}

// TestUnlikePods: of pods that name their nodes in different ways, a decision looks at
// few, since each is compared with the nodes that have larger GPUs than its own.
func TestUnlikePods(t *testing.T) {
	const nodes, waiting = 64, 200
	r := newRig(t)
	var infos []fwk.NodeInfo
	for i := range nodes {
		name, running := fmt.Sprintf("n%02d", i), []*corev1.Pod(nil)
		device, node := makeDevice(name, 1), makeNode(name)
		switch i {
		case 0:
			running = append(running, makePod("a", whole(1), holds(0)))
		case nodes - 1:
			device.Spec.Devices[0].Resources[wire.KoordMemory] = resource.MustParse("32Gi")
			node.Labels = map[string]string{}
			for k := range waiting {
				node.Labels[fmt.Sprintf("p%05d", k)] = ""
			}
		}
		r.setDevice(t, device)
		infos = append(infos, nodeInfo(node, running...))
	}
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVMemory: "65"}))
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	pods := map[string]*corev1.Pod{}
	for i := range waiting {
		pod := makePod(fmt.Sprintf("p%05d", i), whole(1), func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{pod.Name: ""} })
		pods[pod.Name] = pod
		gputest.Must(t, store.Add(pod))
		r.preFilter(t, pod, infos...)
	}
	tried := r.triedOfLine(t, pods, infos...)
	if each := maxLooks / (nodes + filterNodes); tried < waiting/each/2 || tried > waiting/2 {
		t.Errorf("%d of %d pods are tried, want about one of %d", tried, waiting, each)
	}
}

// TestScopedQuotaCost: what a decision costs does not depend on how many pods run, nor
// does it read ResourceQuotas again.
func TestScopedQuotaCost(t *testing.T) {
	cost := func(running, quotas int) float64 {
		r := newRig(t)
		var pods []*corev1.Pod
		for i := range running {
			pods = append(pods, makePod(fmt.Sprintf("p%d", i), slice(1, 1), holds(0)))
		}
		r.setDevice(t, makeDevice("n1", 4))
		for i := range quotas {
			rq := makeQuota(fmt.Sprintf("q%d", i), map[corev1.ResourceName]string{quota.LimitVCore: "1000000"})
			rq.Spec.Hard[quota.LimitVMemory] = resource.MustParse("100000Gi")
			rq.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpNotIn, Values: slices.Repeat([]string{"a", "b"}, 100)},
			}}
			r.setQuota(t, rq)
		}
		info, pod := nodeInfo(makeNode("n1"), pods...), makePod("p", slice(1, 1))
		return testing.AllocsPerRun(5, func() {
			if status := r.preFilter(t, pod, info); !status.IsSuccess() {
				t.Errorf("PreFilter() = %v", status)
			}
		})
	}
	few := cost(1, 1)
	if many := cost(5000, 1); many > few+10 {
		t.Errorf("%.0f allocations with 5000 pods, %.0f with one", many, few)
	}
	if many := cost(1, 1000); many > few+100 {
		t.Errorf("%.0f allocations with 1000 quotas, %.0f with one", many, few)
	}
}
