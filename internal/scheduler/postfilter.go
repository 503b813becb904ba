package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PostFilter says in one sentence why no node took the pod, and makes room by
// preemption where that can help. Pods without cards are preempted for as
// kube-scheduler always does.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c, err := readState(cs)
	if err != nil {
		return p.DefaultPreemption.PostFilter(ctx, cs, pod, m)
	}
	defer func() { p.shared.figures.refuse(c, p.shared.clock.Since(c.start)) }()
	m = p.showLeftOut(c, m)
	if !p.shared.index.outranks(corev1helpers.PodPriority(pod)) {
		return nil, fwk.NewStatus(fwk.Unschedulable, c.summary())
	}
	result, status := p.evaluator.Preempt(ctx, cs, pod, m)
	if status.IsSuccess() {
		p.promise(c, pod, result.NominatedNodeName)
	}
	if status.IsSuccess() || status.Code() == fwk.Error {
		return result, status
	}
	return result, fwk.NewStatus(status.Code(), c.summary())
}

// promise reserves cards on the node for the pod, as they are once the victims
// are gone and the pods nominated to the node before it have theirs.
func (p *Plugin) promise(c *cycle, pod *corev1.Pod, nodeName string) {
	p.shared.overlay.dropHold(pod.UID)
	ni, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return // the node is gone, and with it the room
	}
	node := p.shared.nodes.of(ni, false).Clone()
	c.mu.Lock()
	for _, v := range c.victims[nodeName] {
		node.Release(v)
	}
	c.mu.Unlock()
	for _, other := range nominatedBefore(pod, p.handle.NominatedPodsForNode(nodeName)) {
		p.shared.nodes.placeNominated(node, other)
	}
	if offer, refusal := place.Fit(node, &c.ask.Request, &c.ask.Prefer); refusal.Code == place.Fits {
		p.shared.overlay.putHold(pod.UID, preemptorHold{node: nodeName, placed: placed{
			topology: node.Topology(), holding: node.Holding(&offer, wire.HolderOf(pod), &c.ask.Request),
		}})
	}
}

// showLeftOut adds what the nodes that PreFilter left out would have answered. To
// preemption they would be hopeless otherwise, and nobody would be told of them.
func (p *Plugin) showLeftOut(c *cycle, m fwk.NodeToStatusReader) fwk.NodeToStatusReader {
	statuses, ok := m.(*framework.NodeToStatus)
	if !ok || c.kept == nil {
		return m
	}
	for i := range p.shared.index.rows {
		if c.kept.has(i) {
			continue
		}
		e := p.shared.index.rows[i].entry
		if _, v := c.judge(e, &c.ask.Prefer); !v.fits() {
			c.note(e.node.Name, v.refusal)
			statuses.Set(e.node.Name, v.status())
		}
	}
	return statuses
}
