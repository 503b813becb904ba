package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
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
	return n.filteringPlugin.PreFilter(ctx, cs, pod, infos)
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
// woken when another pod is bound of which the plugin's own hint says that it
// may help.
//
// kube-scheduler notes a binding in its cache at the same time, and maybe later than we
// try the pod again. Its own bindings it has noted before; for those of others
// everyone is woken twice.
type waitingPods struct {
	handle fwk.Handle
	hint   fwk.QueueingHintFn
	clock  clock.WithDelayedExecution
	logger klog.Logger

	mu   sync.Mutex
	pods map[types.UID]*waitingPod
}

// waitingPod is one pod.
type waitingPod struct {
	pod *corev1.Pod
	// next is when it may be woken again, and backoff how long after that: as long
	// as kube-scheduler's own.
	next    time.Time
	backoff wait.Backoff
	// planned is true when it is about to be woken, and again when it is then to
	// be woken once more.
	planned, again bool
}

func newWaitingPods(ctx context.Context, h fwk.Handle, c clock.WithDelayedExecution, plugin fwk.EnqueueExtensions) (*waitingPods, error) {
	events, err := plugin.EventsToRegister(ctx)
	if err != nil {
		return nil, err
	}
	s := &waitingPods{handle: h, clock: c, logger: klog.FromContext(ctx), pods: map[types.UID]*waitingPod{}}
	for _, e := range events {
		if e.Event.Resource == fwk.Pod && e.Event.ActionType&fwk.Add != 0 {
			s.hint = e.QueueingHintFn
		}
	}
	if s.hint == nil {
		return nil, fmt.Errorf("%T does not declare which other pods it depends on", plugin)
	}
	return s, watch(h.SharedInformerFactory().Core().V1().Pods().Informer(), "pods", func(before, after *corev1.Pod) {
		if (before == nil || before.Spec.NodeName == "") && after.Spec.NodeName != "" {
			s.bound(after)
		}
	}, s.drop)
}

// note keeps a pod in mind that is refused. It is called for many nodes at once.
func (s *waitingPods) note(pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	if status.IsSuccess() {
		return status
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.pods[pod.UID]; known != nil {
		known.pod = pod
	} else {
		s.pods[pod.UID] = &waitingPod{pod: pod, backoff: wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 10 * time.Second}}
	}
	return status
}

func (s *waitingPods) drop(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
}

// bound plans to wake the pods that may be helped by one that now has a node.
func (s *waitingPods) bound(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
	for uid, other := range s.pods {
		if other.planned && other.again {
			continue
		}
		// An error means that nothing is known, and then trying is right.
		if hint, err := s.hint(s.logger, other.pod, nil, pod); err != nil || hint == fwk.Queue {
			other.again = true
			s.plan(uid, other)
		}
	}
}

// plan has the pod woken, soon or after its back-off.
func (s *waitingPods) plan(uid types.UID, pod *waitingPod) {
	if pod.planned {
		return
	}
	pod.planned = true
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
	if pod.again {
		pod.again = false
		s.plan(uid, pod)
	}
	asleep := pod.pod
	s.mu.Unlock()
	s.handle.Activate(s.logger, map[string]*corev1.Pod{asleep.Namespace + "/" + asleep.Name: asleep})
}
