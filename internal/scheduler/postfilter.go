package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PostFilter makes room by preemption where that helps. Its status is about
// preemption alone: why nodes rejected the pod is on their own statuses, and
// [explain] makes one sentence of both. Pods without cards are preempted for by
// kube-scheduler's own code.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c, err := readState(cs)
	switch {
	case err != nil && wire.Asks(pod):
		// PreFilter rejected the pod for good. The code keeps plugins that come
		// later from failing on the state that their own PreFilter did not write.
		return p.withoutPreemption(ctx, pod, m), fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	case err != nil:
		return p.DefaultPreemption.PostFilter(ctx, cs, pod, m)
	}
	m = p.complete(c, pod, m)
	refused := refusals(m)
	defer func() { p.shared.metrics.refuse(refused, p.shared.clock.Since(c.start)) }()
	if !p.shared.index.outranks(corev1helpers.PodPriority(pod)) {
		return p.withoutPreemption(ctx, pod, m), fwk.NewStatus(fwk.Unschedulable)
	}
	result, status := p.preempt(ctx, cs, c, pod, m)
	text := status.Message()
	switch {
	case status.IsSuccess():
		p.holdCards(c, pod, result.NominatedNodeName)
		text = c.evicting(result.NominatedNodeName)
	case status.Code() == fwk.Error:
		return result, fwk.AsStatus(fmt.Errorf(preemptionPrefix+"%w", status.AsError()))
	case result != nil:
		p.shared.pods.dropClaim(pod.UID, heldClaim) // the nomination is cleared
		text = "evicting pods of lower priority makes no room"
	}
	return result, fwk.NewStatus(status.Code(), preemptionPrefix+text)
}

// withoutPreemption returns the result of kube-scheduler's evaluator when no pod
// can be evicted: the pod's nomination is cleared, unless the pod never preempts.
func (p *Plugin) withoutPreemption(ctx context.Context, pod *corev1.Pod, m fwk.NodeToStatusReader) *fwk.PostFilterResult {
	if eligible, _ := p.PodEligibleToPreemptOthers(ctx, pod, m.Get(pod.Status.NominatedNodeName)); !eligible {
		return nil
	}
	p.shared.pods.dropClaim(pod.UID, heldClaim)
	return framework.NewPostFilterResultWithNominatedNode("")
}

// PodEligibleToPreemptOthers reports whether the pod may preempt, or why not.
func (p *Plugin) PodEligibleToPreemptOthers(ctx context.Context, pod *corev1.Pod, nominatedNodeStatus *fwk.Status) (eligible bool, reason string) {
	eligible, reason = p.DefaultPreemption.PodEligibleToPreemptOthers(ctx, pod, nominatedNodeStatus)
	switch policy := pod.Spec.PreemptionPolicy; {
	case eligible:
		return true, ""
	case policy != nil && *policy == corev1.PreemptNever:
		return false, "the pod's preemptionPolicy is Never"
	case pod.Status.NominatedNodeName != "":
		return false, "waiting for evicted pods on " + pod.Status.NominatedNodeName + " to terminate"
	default:
		return false, reason
	}
}

// holdCards reserves cards on the node for the pod, as they are once the victims
// are gone and the pods nominated to the node before it have theirs.
func (p *Plugin) holdCards(c *cycle, pod *corev1.Pod, nodeName string) {
	p.shared.pods.dropClaim(pod.UID, heldClaim)
	ni, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return // the node is gone, and with it the room
	}
	node := p.shared.nodes.of(ni, false).Clone()
	evicted, _ := c.victimsOn(nodeName)
	node.Release(evicted.holders()...)
	for _, other := range nominatedBefore(pod, p.handle.NominatedPodsForNode(nodeName)) {
		p.shared.nodes.placeNominated(node, other)
	}
	if offer, refusal := place.Fit(node, &c.ask.Request, &c.ask.Prefer); refusal.Code == place.Fits {
		p.shared.pods.putClaim(claim{kind: heldClaim, pod: pod, node: nodeName, ask: c.ask, placed: placed{
			topology: node.Topology(), holding: node.Holding(&offer, allocation.HolderOf(pod), &c.ask.Request),
		}})
	}
}

// tryPreemptors makes kube-scheduler try the pods again that cards are kept for.
// It does not do so itself when a victim ends that was only assumed on a node and
// whose Binding failed while the eviction was under way: at that moment the
// preemptor waited for the eviction, and there is no later event.
func (s *State) tryPreemptors(h fwk.Handle) {
	var pods []*corev1.Pod
	lister := h.SharedInformerFactory().Core().V1().Pods().Lister()
	for _, c := range s.pods.claimsOf(heldClaim) {
		if pod, err := lister.Pods(c.pod.Namespace).Get(c.pod.Name); err == nil && pod.Spec.NodeName == "" {
			pods = append(pods, pod)
		}
	}
	activate(h, pods...)
}

// complete completes the statuses of the nodes. A node that the pod may not use
// at all reports that, whatever its cards: place and explain answer the same.
// Nodes that PreFilter left out report their cards: preemption would skip these
// nodes otherwise, and the event would not mention them.
func (p *Plugin) complete(c *cycle, pod *corev1.Pod, m fwk.NodeToStatusReader) fwk.NodeToStatusReader {
	statuses, ok := m.(*framework.NodeToStatus)
	if !ok {
		return m
	}
	filter := p.nodeFilter(pod)
	for _, id := range p.shared.index.listed {
		row := &p.shared.index.rows[id]
		name := row.entry.node.Name
		if excluded := filter.Exclusion(&cluster.Facts{Name: name, Node: row.info.Node()}); excluded.Kind != 0 {
			refusal := place.Excluded(excluded.Kind)
			statuses.Set(name, status(&refusal))
			continue
		}
		if c.kept == nil || c.kept.Has(name) {
			continue
		}
		node := p.withNominated(row.info, pod, p.handle.NominatedPodsForNode(name))
		if _, refusal := place.Fit(node, &c.ask.Request, &c.ask.Prefer); refusal.Code != place.Fits {
			statuses.Set(name, status(&refusal))
		}
	}
	return statuses
}
