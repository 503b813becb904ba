package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/scheduler/nodelock"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// locks ties the nodes' locks to this process: to its informers, its
// reservations and its term as leader. A nil *locks does nothing.
type locks struct {
	shared *State
	// nodes is made with the first profile, when the informers are known.
	nodes  *nodelock.Locks
	expiry time.Duration
	// schedulers are the names that this process binds pods for.
	schedulers sets.Set[string]
}

func newLocks(s *State) *locks { return &locks{shared: s} }

// watch makes the locks follow the informers. Profiles share both.
func (l *locks) watch(h fwk.Handle, expiry time.Duration) error {
	switch {
	case l == nil:
		return nil
	case l.nodes != nil && l.expiry != expiry:
		return fmt.Errorf("args of plugin %s: lockExpirySeconds: Invalid value: %d: another profile has %d: write the same in all",
			Name, expiry/time.Second, l.expiry/time.Second)
	case l.nodes != nil:
		return nil
	}
	informers := h.SharedInformerFactory().Core().V1()
	l.expiry = expiry
	l.nodes = nodelock.New(nodelock.Config{
		Clock: l.shared.clock, Client: h.ClientSet(), Nodes: informers.Nodes().Lister(), Pods: informers.Pods().Lister(),
		Expiry: expiry, MayWrite: l.shared.term.fresh, Binding: l.shared.pods.hasReserved,
		Ours: func(name string) bool { return l.schedulers.Has(name) },
	})
	check := func(node *corev1.Node) { l.nodes.Check(node.Name) }
	if err := watch(informers.Nodes().Informer(), "nodes", func(_, node *corev1.Node) { check(node) }, check); err != nil {
		return err
	}
	return watch(informers.Pods().Informer(), "pods", func(_, pod *corev1.Pod) { l.nodes.PodChanged(pod) }, l.nodes.PodGone)
}

// begin sets for which schedulers this process binds pods, and looks after
// locks from the moment when decisions may be made.
func (l *locks) begin(ctx context.Context, schedulers sets.Set[string]) {
	if l == nil {
		return
	}
	l.schedulers = schedulers
	go func() {
		if err := l.shared.term.ready(ctx); err == nil {
			l.nodes.Run(ctx)
		}
	}()
}

// acquire waits until the node's lock is the pod's.
func (l *locks) acquire(ctx context.Context, node string, pod *corev1.Pod, wait time.Duration) error {
	start := l.shared.clock.Now()
	err := l.nodes.Acquire(ctx, node, pod, wait)
	took := l.shared.clock.Since(start)
	l.shared.metrics.lockWait.Observe(took.Seconds())
	klog.FromContext(ctx).V(4).Info("Waited for the lock", "pod", klog.KObj(pod), "node", node, "took", took, "err", err)
	return err
}

// check looks at the node's lock, which a pod may have given up.
func (l *locks) check(node string) {
	if l != nil {
		l.nodes.Check(node)
	}
}

// stuck reports whether pods with slices had better go elsewhere.
func (l *locks) stuck(node string) bool { return l != nil && l.nodes.Stuck(node) }

// takeLock takes the lock of a node that the vendor's plugin serves, for a pod
// with slices. It waits for its turn, in a goroutine of the pod's own: neither
// the scheduling of other pods nor other nodes wait for it.
//
// It is the last thing before the Binding. Volumes are bound by then, so that
// no pod waits for another pod's. In PreBind it would also cost one write more:
// kube-scheduler notes on every pod that has something to do there which node
// it is meant for.
func (p *Plugin) takeLock(ctx context.Context, pod *corev1.Pod, nodeName string) error {
	needs, err := p.needsLock(pod, nodeName)
	if err != nil || !needs {
		return err
	}
	return p.shared.locks.acquire(ctx, nodeName, pod, p.lockWait)
}

// needsLock reports whether the pod is to be served by the vendor's plugin under
// the node's lock.
func (p *Plugin) needsLock(pod *corev1.Pod, nodeName string) (bool, error) {
	if p.shared.locks == nil || !wire.HasSlices(pod) {
		return false, nil
	}
	node, err := p.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(nodeName)
	if err != nil {
		return false, fmt.Errorf("look at the node: %w", err)
	}
	return inventory.UsesLock(node), nil
}

// isStuck reports whether the pod would have to wait for a lock that others have
// given up on: another node is better then, whatever its cards.
func (p *Plugin) isStuck(pod *corev1.Pod, node *corev1.Node) bool {
	return p.shared.locks.stuck(node.Name) && wire.HasSlices(pod) && inventory.UsesLock(node)
}
