package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// requestTimeout is how long an API server works on a request at most.
	requestTimeout = time.Minute
	// fencePoll is how often the fence looks whether the informer has caught up.
	fencePoll = 10 * time.Millisecond
	// touchWorkers is how many pods are touched at a time.
	touchWorkers = 16
	// listPage is how many pods the API server returns at a time.
	listPage = 2000

	pendingPods = "spec.nodeName="
	boundPods   = "spec.nodeName!="
)

// fencer shuts out what an earlier leader still has in flight. A Binding holds
// for one version of its pod, so it fails for a pod that was touched since. When
// all pending pods are touched and kube-scheduler's cache shows every pod that
// was bound by then, this process has seen all that an earlier leader did and
// ever will do: the fence opens, and pods are placed.
//
// A pod that can't be touched is held back alone. The others are placed when no
// Binding that an earlier leader sent can still be under way.
type fencer struct {
	client     kubernetes.Interface
	term       *term
	clock      clock.Clock
	schedulers sets.Set[string]
	// pods is the content of the pod informer, and seen returns its version; nil
	// where client-go does not know it.
	pods corelisters.PodLister
	seen func() string
	// cache is kube-scheduler's.
	cache interface {
		GetPod(*corev1.Pod) (*corev1.Pod, error)
	}
	// activate makes kube-scheduler try pods again that PreEnqueue rejected.
	activate func(klog.Logger, map[string]*corev1.Pod)
	// report writes an event about a pod that is held back.
	report func(*corev1.Pod, error)
	// grace is how long after the beginning of the term a Binding of an earlier
	// leader may still be carried out.
	grace time.Duration
	// workers is how many pods are touched at a time.
	workers int

	// last is the version that the informer has to come to; 0: nothing was
	// listed yet. It is final when it is from after the grace.
	last  uint64
	final bool
	// untouched are the pods that are yet to be touched, at the time next, and
	// touched those of them that were touched after the fence opened.
	untouched []untouchedPod
	next      time.Time
	backoff   wait.Backoff
	touched   []*corev1.Pod
	// behind are the bound pods that kube-scheduler's cache does not show yet;
	// nil: it was not asked yet.
	behind []*corev1.Pod
}

// untouchedPod is a pod with the error of the last try to touch it.
type untouchedPod struct {
	pod *corev1.Pod
	err error
}

// run opens the fence, and stays until no pod is held back.
func (f *fencer) run(ctx context.Context) error {
	for {
		pause, done := f.step(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.clock.After(pause):
		}
	}
}

// step does what can be done without waiting. It returns how long to wait before
// the next step, or that nothing is left to do.
func (f *fencer) step(ctx context.Context) (pause time.Duration, done bool) {
	if f.term.isOpen() {
		return f.stepOpen(ctx)
	}
	pause, err := f.stepClosed(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods with cards are not placed yet: trying again")
		return time.Second, false
	}
	return pause, f.term.isOpen() && len(f.untouched) == 0
}

// stepClosed is a step with the fence closed.
func (f *fencer) stepClosed(ctx context.Context) (pause time.Duration, err error) {
	if f.last == 0 {
		if err := f.begin(ctx); err != nil {
			return 0, err
		}
	}
	f.retry(ctx)
	if len(f.untouched) > 0 && !f.final {
		if rest := f.grace - f.term.age(); rest > 0 {
			return min(rest, f.next.Sub(f.clock.Now())), nil
		}
		// What was bound in the meantime is to be seen before the first decision.
		version, _, err := f.list(ctx, pendingPods)
		if err != nil {
			return 0, err
		}
		f.last, f.final = max(f.last, version), true
	}
	if f.behind == nil {
		if !f.informed() {
			return fencePoll, nil
		}
		if f.behind, err = f.bound(ctx); err != nil {
			return 0, err
		}
	}
	for n := len(f.behind); n > 0; n-- {
		if !f.isShown(ctx, f.behind[n-1]) {
			return fencePoll, nil
		}
		f.behind = f.behind[:n-1]
	}
	return 0, f.open(ctx)
}

// stepOpen is a step with the fence open: pods that were held back are released
// when they were touched.
func (f *fencer) stepOpen(ctx context.Context) (pause time.Duration, done bool) {
	f.untouched = slices.DeleteFunc(f.untouched, func(u untouchedPod) bool {
		now, err := f.pods.Pods(u.pod.Namespace).Get(u.pod.Name)
		return err == nil && now.UID == u.pod.UID && now.Spec.NodeName != ""
	})
	f.retry(ctx)
	pause = f.next.Sub(f.clock.Now())
	var released []*corev1.Pod
	if f.informed() {
		released, f.touched = f.touched, nil
	} else {
		pause = fencePoll
	}
	f.hold()
	f.release(ctx, released)
	return pause, len(f.untouched) == 0 && len(f.touched) == 0
}

// begin lists the pods to touch.
func (f *fencer) begin(ctx context.Context) error {
	version, pending, err := f.list(ctx, pendingPods)
	if err != nil {
		return err
	}
	f.last = version
	for _, pod := range pending {
		if f.places(pod) {
			f.untouched = append(f.untouched, untouchedPod{pod: pod})
		}
	}
	f.next = f.clock.Now()
	f.backoff = wait.Backoff{Duration: time.Second, Factor: 2, Steps: math.MaxInt32, Cap: time.Minute}
	return nil
}

// list returns the selected pods that ask for cards, and the version of the
// list.
func (f *fencer) list(ctx context.Context, selector string) (version uint64, pods []*corev1.Pod, err error) {
	// Without a resourceVersion the answer is from etcd, not from a cache.
	options := metav1.ListOptions{FieldSelector: selector, Limit: listPage}
	for {
		list, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return 0, nil, fmt.Errorf("list pods with %s: %w", selector, err)
		}
		for i := range list.Items {
			if wire.Asks(&list.Items[i]) {
				pods = append(pods, list.Items[i].DeepCopy())
			}
		}
		if list.Continue == "" {
			version, err = parseVersion(list.ResourceVersion)
			return version, pods, err
		}
		options.Continue = list.Continue
	}
}

// places reports whether this scheduler is to place the pod and give it cards.
func (f *fencer) places(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && f.schedulers.Has(pod.Spec.SchedulerName) && wire.Asks(pod)
}

// retry touches the pods that are yet to be touched, when it is time.
func (f *fencer) retry(ctx context.Context) {
	if len(f.untouched) == 0 || f.clock.Now().Before(f.next) {
		return
	}
	versions := make([]uint64, len(f.untouched))
	workqueue.ParallelizeUntil(ctx, f.workers, len(f.untouched), func(i int) {
		versions[i], f.untouched[i].err = f.touch(ctx, f.untouched[i].pod)
	})
	if ctx.Err() != nil {
		return
	}
	f.behind = nil
	var rest []untouchedPod
	for i, u := range f.untouched {
		if u.err != nil {
			klog.FromContext(ctx).Error(u.err, "Pod is held back: it could not be touched", "pod", klog.KObj(u.pod))
			rest = append(rest, u)
			continue
		}
		f.last = max(f.last, versions[i])
		if f.term.isOpen() {
			f.touched = append(f.touched, u.pod)
		}
	}
	f.untouched = rest
	f.next = f.clock.Now().Add(f.backoff.Step())
}

// touch writes the term condition; the version is 0 when the pod is gone.
func (f *fencer) touch(ctx context.Context, pod *corev1.Pod) (version uint64, err error) {
	patch, err := allocation.TermPatch(pod, "", f.term.identity, "")
	if err != nil {
		return 0, err
	}
	pods := f.client.CoreV1().Pods(pod.Namespace)
	now, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) {
		// Another pod of this name, or a write that came between too often.
		if now, getErr := pods.Get(ctx, pod.Name, metav1.GetOptions{}); getErr == nil && now.UID != pod.UID || apierrors.IsNotFound(getErr) {
			return 0, nil
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return parseVersion(now.ResourceVersion)
}

// informed reports whether the informer has come to the last version.
func (f *fencer) informed() bool {
	if f.seen == nil {
		return true // the API server is asked instead
	}
	seen, err := parseVersion(f.seen())
	return err == nil && seen >= f.last
}

// bound returns the pods that hold cards.
func (f *fencer) bound(ctx context.Context) (bound []*corev1.Pod, err error) {
	var all []*corev1.Pod
	if f.seen == nil {
		_, all, err = f.list(ctx, boundPods)
	} else {
		all, err = f.pods.List(labels.Everything())
	}
	if err != nil {
		return nil, err
	}
	bound = []*corev1.Pod{}
	for _, pod := range all {
		if wire.Holds(pod) && wire.Asks(pod) {
			bound = append(bound, pod)
		}
	}
	return bound, nil
}

// isShown reports whether kube-scheduler's cache shows that the pod holds cards,
// or the pod has ended.
func (f *fencer) isShown(ctx context.Context, pod *corev1.Pod) bool {
	if shown, err := f.cache.GetPod(pod); err == nil && shown.Spec.NodeName == pod.Spec.NodeName {
		return true
	}
	var now *corev1.Pod
	var err error
	if f.seen == nil {
		now, err = f.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	} else {
		now, err = f.pods.Pods(pod.Namespace).Get(pod.Name)
	}
	return apierrors.IsNotFound(err) || err == nil && (now.UID != pod.UID || wire.HasEnded(now))
}

// open opens the fence, but for the pods that could not be touched.
func (f *fencer) open(ctx context.Context) error {
	held := f.hold()
	f.term.open()
	// A pod that came just now may have been rejected by PreEnqueue: the informer has
	// shown it by then.
	pending, err := f.pending(held)
	if err != nil {
		return err
	}
	f.release(ctx, pending)
	for _, u := range f.untouched {
		f.report(u.pod, u.err)
	}
	klog.FromContext(ctx).Info("Earlier schedulers are fenced off", "took", f.term.age(), "heldBack", held.Len())
	return nil
}

// pending returns the pods that wait to be placed, but for those that are held back.
func (f *fencer) pending(held sets.Set[types.UID]) ([]*corev1.Pod, error) {
	all, err := f.pods.List(labels.Everything())
	return slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return !f.places(pod) || held.Has(pod.UID) }), err
}

// hold makes the term hold back the pods that an earlier leader may still bind.
func (f *fencer) hold() sets.Set[types.UID] {
	held := sets.New[types.UID]()
	for _, u := range f.untouched {
		held.Insert(u.pod.UID)
	}
	for _, pod := range f.touched {
		held.Insert(pod.UID)
	}
	f.term.hold(held)
	return held
}

// release makes kube-scheduler try the pods.
func (f *fencer) release(ctx context.Context, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byName[klog.KObj(pod).String()] = pod
	}
	f.activate(klog.FromContext(ctx), byName)
}

// parseVersion reads a resourceVersion, which the API promises to be a number.
func parseVersion(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is no number", v)
	}
	return n, nil
}
