package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PreBindPreFlight skips PreBind for pods that need no lock, which then cost
// nothing more.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	needs, err := p.needsLock(pod, nodeName)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if !needs {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind takes the lock of a node that the vendor's plugin serves, for a pod
// with slices. It waits for its turn, in a goroutine of the pod's own: neither
// the scheduling of other pods nor other nodes wait for it.
func (p *Plugin) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	// As an older version kube-scheduler asks PreBindPreFlight nothing.
	needs, err := p.needsLock(pod, nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if !needs {
		return nil
	}
	if err := p.shared.locks.acquire(ctx, nodeName, pod, p.lockWait); err != nil {
		return fwk.AsStatus(err)
	}
	return nil
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
	return wire.UsesLock(node), nil
}

// isStuck reports whether the pod would have to wait for a lock that others have
// given up on: another node is better then, whatever its cards.
func (p *Plugin) isStuck(pod *corev1.Pod, node *corev1.Node) bool {
	return p.shared.locks.stuck(node.Name) && wire.HasSlices(pod) && wire.UsesLock(node)
}
