package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// fencing is a fencer among fakes: an API server whose list has version 100 and
// whose touches get the versions 101, 102, ..., an informer and kube-scheduler's
// cache, each with what it has been given, and a clock.
type fencing struct {
	*fencer
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	store  cache.Indexer
	seen   string
	shown  podCache
	// errs are the answers to touches of a pod.
	errs map[string]error

	mu        sync.Mutex
	version   int
	touched   []string
	patches   []string
	activated [][]string
	reported  []string
}

// podCache is kube-scheduler's cache, as far as the fence looks at it.
type podCache map[string]*corev1.Pod

func (c podCache) GetPod(pod *corev1.Pod) (*corev1.Pod, error) {
	if shown, ok := c[string(pod.UID)]; ok {
		return shown, nil
	}
	return nil, errors.New("no such pod")
}

func newFencing(t *testing.T, pods ...*corev1.Pod) *fencing {
	t.Helper()
	var objects []runtime.Object
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	f := &fencing{
		client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(start), version: 100, seen: "1000",
		store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		shown: podCache{}, errs: map[string]error{},
	}
	f.fencer = &fencer{
		client: f.client, term: newTerm(func() time.Duration { return f.clock.Since(start) }), clock: f.clock,
		schedulers: sets.New("daybreak", "second"), pods: corelisters.NewPodLister(f.store), seen: func() string { return f.seen },
		cache: f.shown, grace: 90 * time.Second, workers: 1,
		activate: func(_ klog.Logger, pods map[string]*corev1.Pod) {
			var names []string
			for _, pod := range pods {
				if !f.term.admits(pod) {
					t.Errorf("%s is tried again while PreEnqueue rejects it", pod.Name)
				}
				names = append(names, pod.Name)
			}
			slices.Sort(names)
			f.activated = append(f.activated, names)
		},
		report: func(pod *corev1.Pod, err error) { f.reported = append(f.reported, pod.Name+": "+err.Error()) },
	}
	leads(f.term)
	for _, pod := range pods {
		f.informed(t, pod)
	}
	f.client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListAction)
		if !ok {
			return true, nil, fmt.Errorf("a %T", action)
		}
		obj, err := f.client.Tracker().List(action.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		all, ok := obj.(*corev1.PodList)
		if !ok {
			return true, nil, fmt.Errorf("a list of %T", obj)
		}
		out := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
		bound := list.GetListRestrictions().Fields.String() == boundPods
		for i := range all.Items {
			if pod := &all.Items[i]; (pod.Spec.NodeName != "") == bound {
				out.Items = append(out.Items, *pod)
			}
		}
		return true, out, nil
	})
	f.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || action.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("a %T of %q", action, action.GetSubresource())
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.errs[patch.GetName()]; err != nil {
			return true, nil, err
		}
		f.version++
		f.touched = append(f.touched, patch.GetName())
		f.patches = append(f.patches, string(patch.GetPatch()))
		pod := makePod(patch.GetName())
		pod.ResourceVersion = strconv.Itoa(f.version)
		return true, pod, nil
	})
	return f
}

// informed makes the informer show the pod.
func (f *fencing) informed(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := f.store.Update(pod); err != nil {
		t.Fatal(err)
	}
}

// steps goes on until a step has to wait for more than a poll, or for good.
func (f *fencing) steps(t *testing.T) (pause time.Duration, done bool) {
	t.Helper()
	for range 100 {
		if pause, done = f.step(t.Context()); done || pause > fencePoll {
			return pause, done
		}
		f.clock.Step(pause)
	}
	return pause, false
}

func of(scheduler string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.SchedulerName = scheduler }
}

func touchedBy(identity string) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: wire.ConditionTerm, Status: corev1.ConditionTrue, Message: identity}}
	}
}

func inPhase(phase corev1.PodPhase) podOption {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// TestANewLeaderTouchesEveryPendingPod is a sentence of docs/scheduler.md.
func TestANewLeaderTouchesEveryPendingPod(t *testing.T) {
	tests := map[string]struct {
		pods []*corev1.Pod
		errs map[string]error
		want []string
	}{
		"nothing is pending": {},
		"pods with cards, of its own schedulers": {
			pods: []*corev1.Pod{makePod("a", whole(1)), makePod("b", slice(10, 8), of("second")), makePod("c", whole(1), of("default-scheduler")), makePod("d"), makePod("e", whole(1), holds(0))},
			want: []string{"a", "b"},
		},
		"one is gone": {
			pods: []*corev1.Pod{makePod("a", whole(1)), makePod("c", whole(1))},
			errs: map[string]error{"a": apierrors.NewNotFound(podResource, "a")},
			want: []string{"c"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFencing(t, tt.pods...)
			f.errs = tt.errs
			f.shown["uid-e"] = makePod("e", whole(1), holds(0))
			if _, done := f.steps(t); !done || !f.term.isOpen() {
				t.Fatalf("open: %v, done: %v", f.term.isOpen(), done)
			}
			slices.Sort(f.touched)
			if diff := cmp.Diff(tt.want, f.touched); diff != "" {
				t.Errorf("touched (-want +got):\n%s", diff)
			}
			if want := uint64(100 + len(tt.want)); f.last != want {
				t.Errorf("the informer has to come to version %d, want %d", f.last, want)
			}
		})
	}
}

// TestFenceReads: only a list without a resourceVersion is sure to be from
// etcd, and a bound pod needs no touch.
func TestFenceReads(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)))
	f.steps(t)
	list, ok := f.client.Actions()[0].(clienttesting.ListActionImpl)
	if !ok {
		t.Fatalf("first request is a %T, want a list", f.client.Actions()[0])
	}
	if got := list.ListRestrictions.Fields.String(); got != pendingPods || list.ListOptions.ResourceVersion != "" {
		t.Errorf("list with %q and %+v, want all pending pods, consistently", got, list.ListOptions)
	}
	want := `{"metadata":{"uid":"uid-a"},"status":{"conditions":[{"message":"me","reason":"Touched","status":"True","type":"daybreak-gpu.io/Term"}]}}`
	if f.patches[0] != want {
		t.Errorf("patch is\n%s\nwant\n%s", f.patches[0], want)
	}
}

// TestTheFenceWaitsForTheListsVersion: also with nothing pending, what an
// earlier leader has bound may not have come to this process yet.
func TestTheFenceWaitsForTheListsVersion(t *testing.T) {
	f := newFencing(t)
	for _, f.seen = range []string{"", "none", "99"} {
		f.steps(t)
		if f.term.isOpen() {
			t.Fatalf("open with an informer at version %q, want 100", f.seen)
		}
	}
	f.seen = "100"
	if _, done := f.steps(t); !done || !f.term.isOpen() {
		t.Error("closed with an informer that has caught up")
	}
}

// TestTheFenceWaitsForTheCache: a decision reads kube-scheduler's cache, which
// is behind the informer.
func TestTheFenceWaitsForTheCache(t *testing.T) {
	tests := map[string]struct {
		pods  []*corev1.Pod
		shown []*corev1.Pod
		want  bool
	}{
		"not shown":                    {pods: []*corev1.Pod{makePod("a", whole(1), holds(0))}},
		"one of two is shown":          {pods: []*corev1.Pod{makePod("a", whole(1), holds(0)), makePod("b", whole(1), holds(1))}, shown: []*corev1.Pod{makePod("a", whole(1), holds(0))}},
		"shown on another node":        {pods: []*corev1.Pod{makePod("a", whole(1), holds(0))}, shown: []*corev1.Pod{makePod("a", boundTo("n2"))}},
		"shown":                        {pods: []*corev1.Pod{makePod("a", whole(1), holds(0))}, shown: []*corev1.Pod{makePod("a", whole(1), holds(0))}, want: true},
		"a pod without cards":          {pods: []*corev1.Pod{makePod("a", boundTo("n1"))}, want: true},
		"a pod that has ended":         {pods: []*corev1.Pod{makePod("a", whole(1), holds(0), inPhase(corev1.PodFailed))}, want: true},
		"a pod of another scheduler's": {pods: []*corev1.Pod{makePod("a", whole(1), holds(0), of("default-scheduler"))}},
	}
	for name, tt := range tests {
		for _, knowsVersion := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, version known: %v", name, knowsVersion), func(t *testing.T) {
				f := newFencing(t, tt.pods...)
				if !knowsVersion {
					f.fencer.seen = nil
					if err := f.store.Replace(nil, "0"); err != nil { // it may be behind
						t.Fatal(err)
					}
				}
				for _, pod := range tt.shown {
					f.shown[string(pod.UID)] = pod
				}
				f.steps(t)
				if f.term.isOpen() != tt.want {
					t.Fatalf("open: %v, want %v", f.term.isOpen(), tt.want)
				}
				// Nothing is waited for that is gone meanwhile.
				for _, pod := range tt.pods {
					if err := f.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.store.Replace(nil, "0"); err != nil {
					t.Fatal(err)
				}
				f.steps(t)
				if !f.term.isOpen() {
					t.Error("closed although the pods are gone")
				}
			})
		}
	}
}

// TestOpeningTriesAllPodsAgain: in one call, those of other schedulers and those
// that hold cards left alone.
func TestOpeningTriesAllPodsAgain(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)), makePod("b", slice(10, 8), of("second")), makePod("c", whole(1), of("default-scheduler")), makePod("d"), makePod("e", whole(1), holds(0)))
	f.shown["uid-e"] = makePod("e", whole(1), holds(0))
	f.informed(t, makePod("new", whole(1))) // it came after the list
	f.steps(t)
	if diff := cmp.Diff([][]string{{"a", "b", "new"}}, f.activated); diff != "" {
		t.Errorf("tried again (-want +got):\n%s", diff)
	}
}

// newcomers is an informer that shows one more pod each time after it was listed.
type newcomers struct {
	corelisters.PodLister
	add func()
}

func (n *newcomers) List(selector labels.Selector) ([]*corev1.Pod, error) {
	pods, err := n.PodLister.List(selector)
	n.add()
	return pods, err
}

// TestPodsThatComeWhileTheFenceOpens: PreEnqueue rejects a pod that comes a moment
// before the fence is open, and nothing else would make kube-scheduler try it again.
func TestPodsThatComeWhileTheFenceOpens(t *testing.T) {
	f := newFencing(t)
	var rejected []string
	f.pods = &newcomers{PodLister: f.pods, add: func() {
		pod := makePod(fmt.Sprintf("late-%d", len(f.store.List())), whole(1))
		f.informed(t, pod)
		if !f.term.admits(pod) {
			rejected = append(rejected, pod.Name)
		}
	}}
	f.steps(t)
	if len(rejected) == 0 || len(f.activated) != 1 {
		t.Fatalf("rejected %v, tried again %v", rejected, f.activated)
	}
	for _, name := range rejected {
		if !slices.Contains(f.activated[0], name) {
			t.Errorf("%s came before the fence was open and is not tried again: %v", name, f.activated[0])
		}
	}
}

// TestAFailingListIsRetried: without a list nothing is known.
func TestAFailingListIsRetried(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)))
	lists := 0
	f.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return lists <= 2, nil, errForbidden
	})
	for range 2 {
		if pause, done := f.step(t.Context()); pause != time.Second || done || f.term.isOpen() {
			t.Fatalf("after %d failed lists: pause %v, done %v, open %v", lists, pause, done, f.term.isOpen())
		}
		f.clock.Step(time.Hour)
	}
	if _, done := f.steps(t); !done || !f.term.isOpen() || len(f.touched) != 1 {
		t.Errorf("open: %v with %v touched", f.term.isOpen(), f.touched)
	}
}

// TestOnePodThatCannotBeTouched: it is held back alone, and reported; the others
// wait until no Binding of an earlier leader can be under way.
func TestOnePodThatCannotBeTouched(t *testing.T) {
	bad, good, late := makePod("bad", whole(1)), makePod("good", whole(1)), makePod("late", whole(1))
	f := newFencing(t, bad, good)
	f.errs["bad"] = errInternal
	for !f.term.isOpen() {
		pause, done := f.step(t.Context())
		if done || f.clock.Since(start) > 2*time.Minute {
			t.Fatalf("closed after %v", f.clock.Since(start))
		}
		if f.term.isOpen() {
			break
		}
		if f.clock.Since(start) == 85*time.Second {
			f.version = 500 // an earlier leader's last Binding
		}
		f.clock.Step(min(max(pause, time.Nanosecond), 5*time.Second-f.clock.Since(start)%(5*time.Second)))
		f.informed(t, late)
	}
	if waited := f.clock.Since(start); waited < f.grace {
		t.Errorf("open after %v, want no sooner than %v", waited, f.grace)
	}
	if f.last < 500 {
		t.Errorf("open at version %d, want that of a list from after the grace", f.last)
	}
	if f.term.admits(bad) || !f.term.admits(good) || !f.term.admits(late) || f.term.holding() != 1 {
		t.Errorf("admitted: bad %v, good %v, late %v; %d held back", f.term.admits(bad), f.term.admits(good), f.term.admits(late), f.term.holding())
	}
	if diff := cmp.Diff([]string{"bad: " + errInternal.Error()}, f.reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	f.stepUntilReleased(t, bad)
	if diff := cmp.Diff([][]string{{"good", "late"}, {"bad"}}, f.activated); diff != "" {
		t.Errorf("tried again (-want +got):\n%s", diff)
	}
}

// stepUntilReleased tries the pod with exponential back-off, then lets it be
// touched: it is admitted when the informer has seen that.
func (f *fencing) stepUntilReleased(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	var pauses []time.Duration
	for range 3 {
		pause, done := f.steps(t)
		if done || f.term.admits(pod) {
			t.Fatalf("done: %v", done)
		}
		f.clock.Step(pause)
		pauses = append(pauses, pause)
	}
	if pauses[2] != time.Minute {
		t.Errorf("tried again after %v, want back-off up to a minute", pauses)
	}
	delete(f.errs, pod.Name)
	f.seen = "100"
	f.steps(t)
	if f.term.admits(pod) {
		t.Error("released before the informer has seen the touch")
	}
	f.seen = "1000"
	if _, done := f.steps(t); !done || !f.term.admits(pod) || f.term.holding() != 0 {
		t.Errorf("done: %v with %d held back", done, f.term.holding())
	}
}

// TestAPodThatIsTouchedLate: a failure that passes costs the others no more than
// the time it takes to pass.
func TestAPodThatIsTouchedLate(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)), makePod("b", whole(1)))
	f.errs["a"] = errTimeout
	pause, _ := f.steps(t)
	delete(f.errs, "a")
	f.clock.Step(pause)
	if _, done := f.steps(t); !done || !f.term.isOpen() || f.clock.Since(start) > 2*time.Second {
		t.Errorf("open: %v after %v", f.term.isOpen(), f.clock.Since(start))
	}
}

// TestAHeldPodThatIsBoundIsForgotten: an earlier leader's Binding came through.
func TestAHeldPodThatIsBoundIsForgotten(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)))
	f.errs["a"] = errInternal
	f.clock.Step(f.grace)
	f.steps(t)
	if !f.term.isOpen() || f.term.holding() != 1 {
		t.Fatalf("open: %v, %d held back", f.term.isOpen(), f.term.holding())
	}
	f.informed(t, makePod("a", whole(1), holds(0)))
	if _, done := f.steps(t); !done || f.term.holding() != 0 {
		t.Errorf("done: %v, %d held back", done, f.term.holding())
	}
}

// TestAConflictIsNoTouch: an API server answers 409 for another pod of the name,
// and also when other writes came between too often.
func TestAConflictIsNoTouch(t *testing.T) {
	pod := makePod("a", whole(1))
	f := newFencing(t, pod)
	f.errs["a"] = errConflict
	f.steps(t)
	if f.term.isOpen() || len(f.untouched) != 1 {
		t.Fatalf("open: %v after a conflict over the same pod", f.term.isOpen())
	}
	other := makePod("a", whole(1))
	other.UID = "other"
	if err := f.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), other, "ns"); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(time.Minute)
	f.steps(t)
	if !f.term.isOpen() || len(f.untouched) != 0 {
		t.Errorf("open: %v after a conflict over another pod of the name", f.term.isOpen())
	}
}

// TestFence: nothing is asked before this process leads.
func TestFence(t *testing.T) {
	f := newFencing(t, makePod("a", whole(1)))
	shared := NewState(f.clock)
	f.term = shared.term
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	shared.fence(ctx, f.fencer)
	if n := len(f.client.Actions()); n != 0 || shared.term.isOpen() {
		t.Errorf("%d requests before this process leads, want none", n)
	}
	leads(shared.term)
	shared.fence(t.Context(), f.fencer)
	if !shared.term.isOpen() || strings.Join(f.touched, "") != "a" {
		t.Errorf("open: %v with %v touched, want a", shared.term.isOpen(), f.touched)
	}
}
