package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// EventsToRegister tells when a pod that this plugin refused is worth another
// try.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	gvr := deviceResource
	resource := fwk.EventResource(fmt.Sprintf("%s.%s.%s", gvr.Resource, gvr.Version, gvr.Group))
	return []fwk.ClusterEventWithHint{
		// A pod that ends frees its cards.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodDelete},
		// The pod's own annotations may ask for something else.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: p.afterPodUpdate},
		// Cards come, go, or become healthy.
		{Event: fwk.ClusterEvent{Resource: resource, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: p.afterDevice},
		// A node brings cards, or it becomes known who serves it.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation | fwk.UpdateNodeTaint}, QueueingHintFn: p.afterNode},
	}, nil
}

// afterPodDelete wakes the pod if it fits where the other one was.
func (p *Plugin) afterPodDelete(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	deleted, ok := oldObj.(*corev1.Pod)
	if !ok {
		return fwk.Queue, fmt.Errorf("deleted object is a %T, want a Pod", oldObj)
	}
	if !wire.Asks(deleted) {
		return fwk.QueueSkip, nil
	}
	// Of a pod that was never bound it is not known where room became free;
	// it was promised some, or assumed on a node.
	if deleted.Spec.NodeName == "" {
		return fwk.Queue, nil
	}
	e := p.shared.nodes.without(deleted)
	if e == nil {
		return fwk.Queue, nil
	}
	return p.hint(pod, e.node), nil
}

// afterPodUpdate wakes the pod when it asks for something else than before.
func (p *Plugin) afterPodUpdate(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, ok := oldObj.(*corev1.Pod)
	after, ok2 := newObj.(*corev1.Pod)
	if !ok || !ok2 {
		return fwk.Queue, fmt.Errorf("updated objects are a %T and a %T, want Pods", oldObj, newObj)
	}
	if after.UID == pod.UID && !sameAsk(before, after) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func (p *Plugin) afterDevice(_ klog.Logger, pod *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	dev, ok := newObj.(*device)
	if !ok {
		return fwk.Queue, fmt.Errorf("updated object is a %T, want a Device", newObj)
	}
	p.shared.devices.touch()
	return p.afterInventory(pod, dev.Name), nil
}

func (p *Plugin) afterNode(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	node, ok := newObj.(*corev1.Node)
	if !ok {
		return fwk.Queue, fmt.Errorf("updated object is a %T, want a Node", newObj)
	}
	dev := p.shared.devices.get(node.Name)
	if before, ok := oldObj.(*corev1.Node); ok && factsOf(before, dev) == factsOf(node, dev) &&
		before.Spec.Unschedulable == node.Spec.Unschedulable && len(before.Spec.Taints) == len(node.Spec.Taints) {
		return fwk.QueueSkip, nil
	}
	return p.afterInventory(pod, node.Name), nil
}

// afterInventory wakes the pod if the cards the node has now, with the pods
// last seen there, could take it.
func (p *Plugin) afterInventory(pod *corev1.Pod, name string) fwk.QueueingHint {
	node, err := p.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return fwk.QueueSkip // its own Add will come
	}
	inventory := readInventory(node, p.shared.devices.get(name))
	now := inventory.Open()
	if e := p.shared.nodes.last(name); e != nil && e.inventory.Topology != nil && inventory.Topology != nil {
		for _, h := range e.node.Holdings() {
			now.Book(moved(h, e.inventory.Topology, inventory.Topology))
		}
	}
	return p.hint(pod, now)
}

// hint asks whether the pod fits on the node.
func (p *Plugin) hint(pod *corev1.Pod, node *ledger.Node) fwk.QueueingHint {
	ask, _ := p.shared.asks.admit(pod)
	if ask == nil {
		return fwk.Queue
	}
	ask = standIn(ask, p.policy)
	if _, refusal := place.Fit(node, &ask.Request, &ask.Prefer); refusal.Code != place.Fits {
		return fwk.QueueSkip
	}
	return fwk.Queue
}
