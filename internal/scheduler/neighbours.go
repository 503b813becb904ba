package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Names of the plugins that stand in for the two of kube-scheduler's own that
// look at a pod's neighbours. They are these plugins, but wake pods themselves.
//
// Where a plugin asks for an event of every pod that is bound, kube-scheduler asks
// all pending pods after every binding whether that helps them, whichever plugin refused
// them: three microseconds each, so that a thousand of them halve its speed.
// Here only those are asked that one of these two refused.
const (
	AffinityName = "DaybreakAffinity"
	SpreadName   = "DaybreakSpread"
)

// neighbours is one of the two plugins.
type neighbours struct {
	filteringPlugin
	name        string
	waitingPods *waitingPods
	// skips reports whether the plugin has nothing to do for the pod.
	skips func(*corev1.Pod) bool
}

// newNeighbours returns what makes the plugin that stands in for the wrapped one.
func (s *State) newNeighbours(name, wrapped string, factory frameworkruntime.PluginFactoryWithFts[fwk.Plugin], skips func(*corev1.Pod) bool) frameworkruntime.PluginFactory {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		plugin, err := newWrapped[filteringPlugin](ctx, name, wrapped, factory, obj, h)
		if err != nil {
			return nil, err
		}
		waiting, err := newWaitingPods(ctx, h, s.clock, plugin)
		if err == nil {
			s.waiting = append(s.waiting, waiting)
		}
		return &neighbours{filteringPlugin: plugin, name: name, waitingPods: waiting, skips: skips}, err
	}
}

// isSpreadByDefault reports whether only PodTopologySpread's default constraints,
// which are for pods without cards, would spread a pod with cards.
func isSpreadByDefault(pod *corev1.Pod) bool {
	return len(pod.Spec.TopologySpreadConstraints) == 0 && wire.Asks(pod)
}

// Name returns the plugin's name.
func (n *neighbours) Name() string { return n.name }

// PreFilter is the plugin's own, for pods that it does not skip.
func (n *neighbours) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if n.skips(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	n.waitingPods.begin()
	result, status := n.filteringPlugin.PreFilter(ctx, cs, pod, infos)
	return result, n.waitingPods.note(pod, status)
}

// PreScore is the plugin's own, for pods that it does not skip.
func (n *neighbours) PreScore(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	if n.skips(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	return n.filteringPlugin.PreScore(ctx, cs, pod, infos)
}

// Filter is the plugin's own, and notes the pods that it rejects.
func (n *neighbours) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	return n.waitingPods.note(pod, n.filteringPlugin.Filter(ctx, cs, pod, ni))
}

// EventsToRegister is the plugin's own without the binding of other pods.
func (n *neighbours) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := n.filteringPlugin.EventsToRegister(ctx)
	for i := range events {
		if events[i].Event.Resource == fwk.Pod {
			events[i].Event.ActionType &^= fwk.Add
		}
	}
	return events, err
}

// gather is how long pods that are bound one after the other count as one reason
// to wake a pod.
const gather = 50 * time.Millisecond

// waitingPods are the pods that a plugin refused for their neighbours. They are
// woken when another pod is bound, or gets other labels, of which the plugin's own
// hint says that it may help.
//
// kube-scheduler learns of such a change at the same time and tries the pod on
// snapshots from before and after. So changes are remembered until a snapshot shows
// them: a pod that is refused on one that does not is tried again.
type waitingPods struct {
	handle fwk.Handle
	hint   fwk.QueueingHintFn
	clock  clock.WithDelayedExecution
	logger klog.Logger
	lister corelisters.PodLister

	mu   sync.Mutex
	pods map[types.UID]*waitingPod
	// changed are the pods that were bound or got other labels, the last ones, which
	// the snapshot of the present cycle may not show. Cycles are counted.
	changed []podKey
	cycle   uint64
	// tried are the pods without nodes that any profile tried, as they were then. A pod
	// that is assumed is a neighbour with the labels that it had when it was tried,
	// whatever labels it gets until it is bound.
	tried map[types.UID]*corev1.Pod
}

// maxChanged bounds the changes that are remembered while no pod is tried.
const maxChanged = 4096

// podKey is a pod, whichever version of it.
type podKey struct {
	namespace, name string
	uid             types.UID
}

func keyOfPod(pod *corev1.Pod) podKey { return podKey{pod.Namespace, pod.Name, pod.UID} }

// waitingPod is one pod.
type waitingPod struct {
	pod *corev1.Pod
	// cycle is the last in which it was refused.
	cycle uint64
	// next is when it may be woken again, and backoff how long after that: as long
	// as kube-scheduler's own.
	next    time.Time
	backoff wait.Backoff
	// planned is true when it is about to be woken.
	planned bool
}

func newWaitingPods(ctx context.Context, h fwk.Handle, c clock.WithDelayedExecution, plugin fwk.EnqueueExtensions) (*waitingPods, error) {
	events, err := plugin.EventsToRegister(ctx)
	if err != nil {
		return nil, err
	}
	pods := h.SharedInformerFactory().Core().V1().Pods()
	s := &waitingPods{handle: h, clock: c, logger: klog.FromContext(ctx), lister: pods.Lister(), pods: map[types.UID]*waitingPod{}, tried: map[types.UID]*corev1.Pod{}}
	for _, e := range events {
		if e.Event.Resource == fwk.Pod && e.Event.ActionType&fwk.Add != 0 {
			s.hint = e.QueueingHintFn
		}
	}
	if s.hint == nil {
		return nil, fmt.Errorf("%T does not declare which other pods it depends on", plugin)
	}
	return s, watch(pods.Informer(), "pods", func(before, after *corev1.Pod) {
		if before != nil && before.Spec.NodeName == "" {
			before = nil // it was no neighbour
		}
		if after.Spec.NodeName != "" && (before == nil || !maps.Equal(before.Labels, after.Labels)) {
			s.change(before, after)
		}
	}, s.drop)
}

// try keeps in mind how the pod is tried, until it is heard that it is bound or gone.
func (s *waitingPods) try(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.lister.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" && slices.Contains(s.changed, keyOfPod(pod)) {
		return // that was heard already, or drop is about to be called
	}
	s.tried[pod.UID] = pod
}

// begin begins a cycle, and forgets the changes that its snapshot shows.
func (s *waitingPods) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycle++
	s.changed = slices.DeleteFunc(s.changed, func(key podKey) bool {
		_, _, unseen := s.unseen(key)
		return !unseen
	})
}

// unseen reports whether the snapshot does not show the pod as it is now, and returns
// both versions; nil: the snapshot does not have it.
func (s *waitingPods) unseen(key podKey) (shown, now *corev1.Pod, unseen bool) {
	now, err := s.lister.Pods(key.namespace).Get(key.name)
	if err != nil || now.UID != key.uid {
		return nil, nil, false
	}
	info, err := s.handle.SnapshotSharedLister().NodeInfos().Get(now.Spec.NodeName)
	if err != nil {
		return nil, now, true
	}
	for _, pi := range info.GetPods() {
		if shown = pi.GetPod(); shown.UID == key.uid {
			return shown, now, !maps.Equal(shown.Labels, now.Labels)
		}
	}
	return nil, now, true
}

// note keeps a pod in mind that is refused, as long as it waits. It is called for many
// nodes at once.
func (s *waitingPods) note(pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	if !status.IsRejected() {
		return status
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pods[pod.UID]
	switch {
	case known != nil && known.cycle == s.cycle:
		return status
	case known == nil:
		// The store forgets a pod before drop is called, which waits for the lock.
		if now, err := s.lister.Pods(pod.Namespace).Get(pod.Name); err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
			return status
		}
		known = &waitingPod{backoff: wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 10 * time.Second}}
		s.pods[pod.UID] = known
	}
	known.pod, known.cycle = pod, s.cycle
	for _, key := range s.changed {
		if shown, now, unseen := s.unseen(key); unseen {
			s.consider(known, shown, now)
		}
	}
	return status
}

func (s *waitingPods) drop(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
	delete(s.tried, pod.UID)
}

// change plans to wake the pods that may be helped by one that now has a node, or
// other labels; before is nil in the first case.
func (s *waitingPods) change(before, after *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, after.UID)
	if len(s.changed) == maxChanged {
		s.changed = slices.Delete(s.changed, 0, maxChanged/2)
	}
	s.changed = append(s.changed, keyOfPod(after))
	var assumed *corev1.Pod
	if was := s.tried[after.UID]; before == nil && was != nil && !maps.Equal(was.Labels, after.Labels) {
		assumed = was.DeepCopy()
		assumed.Spec.NodeName = after.Spec.NodeName
	}
	delete(s.tried, after.UID)
	for _, other := range s.pods {
		s.consider(other, before, after)
		if assumed != nil {
			s.consider(other, assumed, after)
		}
	}
}

// consider plans to wake the pod if the change of another may help it, soon or after its
// back-off.
func (s *waitingPods) consider(pod *waitingPod, before, after *corev1.Pod) {
	if pod.planned {
		return
	}
	var old any
	if before != nil {
		old = before
	}
	// An error means that nothing is known, and then trying is right.
	if hint, err := s.hint(s.logger, pod.pod, old, after); err == nil && hint != fwk.Queue {
		return
	}
	pod.planned = true
	uid := pod.pod.UID
	s.clock.AfterFunc(max(gather, pod.next.Sub(s.clock.Now())), func() { s.wake(uid) })
}

// wake has kube-scheduler try the pod. One that is being tried right now is
// tried once more if it is refused.
func (s *waitingPods) wake(uid types.UID) {
	s.mu.Lock()
	pod := s.pods[uid]
	if pod == nil {
		s.mu.Unlock()
		return // it is bound, or gone
	}
	pod.planned = false
	pod.next = s.clock.Now().Add(pod.backoff.Step())
	asleep := pod.pod
	s.mu.Unlock()
	activate(s.handle, asleep)
}
