package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// line is the pods that wait for the budget of a namespace. When some of it may have
// come free, kube-scheduler is made to try the first of them alone. Each decision
// about a pod of the namespace then goes on: it has the first one tried that would
// pass, and passes over those before it, until none is left that would pass. So the
// end of one pod costs a few tries, however many wait.
//
// At any time one of these holds: none of the pods would pass, or the one that was
// made to be tried last is yet to be decided about. If that one can't be any more,
// it leaves the line and another one is tried in its place.
type line struct {
	waiting []*overBudget // in the order of [overBudget.compare]
	// next is the first that the present round has not passed over, and began the
	// refresh at which the round began.
	next  int
	began uint64
	// freed is the first refresh that surely shows everything that has come free: see
	// [hintAccounts].
	freed uint64
	// woken was made to be tried last and is not decided about.
	woken types.UID
	// cause is the event that was last heard of: all waiting pods are asked about it.
	cause event
}

// event is the objects of an event of kube-scheduler, and the version of the overlays
// when it was heard of: the same objects may be those of two events, before and after
// a reservation is dropped.
type event struct {
	before, after any
	overlays      uint64
}

// overBudget is a pod that waits for the budget of its namespace.
type overBudget struct {
	place.Refusal
	pod *corev1.Pod
	ask *gpu.PodRequest
}

// compare puts the most important pods first, then the oldest. Those that want more
// than all of the budget come last.
func (o *overBudget) compare(other *overBudget) int {
	last := func(o *overBudget) int {
		if o.Permanent {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(last(o), last(other)),
		cmp.Compare(corev1helpers.PodPriority(other.pod), corev1helpers.PodPriority(o.pod)),
		o.pod.CreationTimestamp.Compare(other.pod.CreationTimestamp.Time),
		cmp.Compare(o.pod.UID, other.pod.UID),
	)
}

// awaitBudget puts the pod in the line of its namespace, and returns what to report:
// while the same amount is too much for the same limit, that is what was reported
// first. Nothing is written about a pod when only the use of others has changed.
func (p *pods) awaitBudget(now *overBudget) place.Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, l := p.record(now.pod), p.lines[now.pod.Namespace]
	if p.byUID[now.pod.UID] != r { // it has ended, and no event would take it out of the line
		if l != nil {
			l.decided(now.pod.UID)
		}
		return now.Refusal
	}
	if l == nil {
		l = &line{}
		p.lines[now.pod.Namespace] = l
	}
	l.decided(now.pod.UID)
	if was := r.overQuota; was != nil {
		if *was.Budget == *now.Budget && was.Want == now.Want {
			now.Refusal = was.Refusal
		}
		l.remove(was)
	}
	l.insert(now)
	r.overQuota = now
	return now.Refusal
}

func (l *line) insert(o *overBudget) {
	i, _ := slices.BinarySearchFunc(l.waiting, o, (*overBudget).compare)
	l.waiting = slices.Insert(l.waiting, i, o)
	if i < l.next {
		l.next++
	}
}

func (l *line) remove(o *overBudget) {
	i, _ := slices.BinarySearchFunc(l.waiting, o, (*overBudget).compare)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if i < l.next {
		l.next--
	}
}

// decided notes that the pod was decided about.
func (l *line) decided(uid types.UID) {
	if l.woken == uid {
		l.woken = ""
	}
}

// leaveLine takes the pod out of its line, if it is in one, and returns the pod to be
// tried in its place; nil when none is. The lock is held.
func (p *pods) leaveLine(uid types.UID) (instead *corev1.Pod) {
	r := p.byUID[uid]
	if r == nil || r.overQuota == nil {
		return nil
	}
	namespace := r.overQuota.pod.Namespace
	l := p.lines[namespace]
	l.remove(r.overQuota)
	r.overQuota = nil
	if len(l.waiting) == 0 {
		delete(p.lines, namespace)
		return nil
	}
	if l.woken != uid {
		return nil
	}
	return l.wake()
}

// wake returns the pod to be tried next; nil when the present round is over and
// nothing has come free since it began. The lock is held.
func (l *line) wake() *corev1.Pod {
	l.woken = ""
	switch {
	case l.next < len(l.waiting):
		l.woken = l.waiting[l.next].pod.UID
		return l.waiting[l.next].pod
	case l.began < l.freed:
		l.woken = l.waiting[0].pod.UID
		return l.waiting[0].pod
	}
	return nil
}

// passesBudget notes that the pod does not wait for its namespace's budget, or not any
// more.
func (p *pods) passesBudget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byUID[uid]; r != nil && r.overQuota != nil {
		p.lines[r.overQuota.pod.Namespace].decided(uid)
		p.leaveLine(uid)
	}
}

// freeBudget notes that some of the namespace's budget may have come free since the
// given refresh, and returns the pod to be tried; nil when none waits, or when the
// event is known.
func (p *pods) freeBudget(namespace string, epoch uint64, cause event) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[namespace]
	if l == nil || cause != (event{}) && l.cause == cause {
		return nil
	}
	l.cause, l.freed = cause, epoch+2
	first := l.waiting[0].pod
	l.woken = first.UID
	return first
}

// look returns the pod of the line to look at next, and whether to look at it before it
// is tried; nil when there is none. Now is the pod that is decided about, and passed the
// one that was looked at last and would not pass, or nil.
func (p *pods) look(now *corev1.Pod, epoch uint64, passed *overBudget) (next *overBudget, blindly bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[now.Namespace]
	if l == nil {
		return nil, false
	}
	if l.next < len(l.waiting) && l.waiting[l.next] == passed {
		l.next++
	}
	if l.next == len(l.waiting) {
		switch {
		case l.began >= l.freed:
			return nil, false
		case l.began == epoch && len(l.waiting) > 1 && l.waiting[0].pod.UID == now.UID:
			return l.waiting[1], true // not this one: it would have to wait for its back-off
		case l.began == epoch: // what has come free may be newer than this cycle's snapshot
			return l.waiting[0], true
		}
		l.began, l.next = epoch, 0
	}
	return l.waiting[l.next], false
}

// setWoken notes that the pod is made to be tried.
func (p *pods) setWoken(w *overBudget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[w.pod.Namespace]; l != nil {
		l.woken = w.pod.UID
	}
}

// quitLine takes a pod out of its line that is not decided about any more, and has
// another one tried in its place. Unless it is gone for good, that is only done if
// the line waits for it.
func (s *State) quitLine(h activator, pod *corev1.Pod, gone bool) {
	s.pods.mu.Lock()
	var instead *corev1.Pod
	if r := s.pods.byUID[pod.UID]; r != nil && r.overQuota != nil && (gone || s.pods.lines[pod.Namespace].woken == pod.UID) {
		instead = s.pods.leaveLine(pod.UID)
	}
	s.pods.mu.Unlock()
	if instead != nil {
		activate(h, instead)
	}
}

// activator makes kube-scheduler try pods, whatever their back-off.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*corev1.Pod)
}

func activate(h activator, pods ...*corev1.Pod) {
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	if len(byName) > 0 {
		h.Activate(klog.Background(), byName)
	}
}

// maxLooks bounds the pods of a line that one decision looks at, times the quotas that
// each is compared with and the nodes that it may use. The next one is then tried
// without a look.
const maxLooks = 1024

// callNext has the first pod of the line tried that would pass.
func (p *Plugin) callNext(now *corev1.Pod, b *budgetCheck) {
	pods, epoch := p.shared.pods, p.shared.index.epoch
	var passed *overBudget
	b.nodes = 0
	for cost := 0; ; cost += 1 + len(b.quotas) {
		w, blindly := pods.look(now, epoch, passed)
		if w == nil {
			return
		}
		if passed = nil; !blindly && cost+b.nodes < maxLooks && b.refusal(w.pod, w.ask).Code != place.Fits {
			passed = w
			continue
		}
		if now, err := p.shared.index.usage.pods.Pods(now.Namespace).Get(w.pod.Name); err != nil || now.UID != w.pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
			pods.passesBudget(w.pod.UID) // kube-scheduler would not try it
			continue
		}
		pods.setWoken(w)
		activate(p.handle, w.pod)
		return
	}
}

// budgetFreed has the first pod tried that waits for the budget of this pod's namespace,
// of which the event may have freed some.
func (p *Plugin) budgetFreed(pod *corev1.Pod, before, after any) {
	if first := p.shared.pods.freeBudget(pod.Namespace, p.shared.hints.now(), event{before, after, p.shared.pods.version.Load()}); first != nil {
		go activate(p.handle, first) // kube-scheduler's queue is locked while it asks for hints
	}
}

// undecided makes the failure handler care for pods that were to be tried since there
// is room in a budget, and failed before that was looked at.
func (s *State) undecided(next scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		next(ctx, profile, pod, status, nominating, start)
		s.quitLine(profile, pod.Pod, false)
	}
}
