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

// EventsToRegister lists the events after which a pod that this plugin rejected
// may fit.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	gvr := deviceResource
	resource := fwk.EventResource(fmt.Sprintf("%s.%s.%s", gvr.Resource, gvr.Version, gvr.Group))
	return []fwk.ClusterEventWithHint{
		// A pod that ends frees its cards.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodDelete},
		// The pod's own annotations may ask for something else; those of others may
		// say which cards they hold, where nothing said so before.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: p.afterPodUpdate},
		// Cards come, go, or become healthy.
		{Event: fwk.ClusterEvent{Resource: resource, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: p.afterDevice},
		// A node brings cards, or it becomes known which plugin serves it.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation | fwk.UpdateNodeTaint}, QueueingHintFn: p.afterNode},
	}, nil
}

// afterPodDelete wakes the pod if it fits where the other one was.
func (p *Plugin) afterPodDelete(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	deleted, ok := oldObj.(*corev1.Pod)
	if !ok {
		return fwk.Queue, fmt.Errorf("deleted object is a %T, want a Pod", oldObj)
	}
	if p.showsPlugin(deleted) {
		return p.hintOn(pod, deleted.Spec.NodeName), nil
	}
	if !wire.Asks(deleted) {
		return fwk.QueueSkip, nil
	}
	// Of a pod that was never bound it is not known where room became free: it
	// was nominated or assumed. Nor is it on a node that was never seen.
	name := deleted.Spec.NodeName
	known := name != "" && p.shared.nodes.last(name) != nil
	p.releaseEnded(deleted)
	if known {
		p.shared.hints.ended(deleted)
	}
	switch {
	case p.freesQuota(pod, deleted):
		return fwk.Queue, nil
	case !known:
		return p.hint(pod, nil), nil
	}
	return p.hintOn(pod, name), nil
}

// releaseEnded drops the reservation of a pod that no longer exists. The informer
// event that does so as well may be delivered after the waiting pods have been
// tried again. Pods that kube-scheduler has only forgotten keep theirs: their
// Bindings may still succeed.
func (p *Plugin) releaseEnded(pod *corev1.Pod) {
	if p.shared.pods.reservedOn(pod.UID, pod.Spec.NodeName) && p.isGone(pod) {
		p.shared.pods.dropReservation(pod.UID)
	}
}

// isGone reports whether the informer shows that the pod does not exist.
func (p *Plugin) isGone(pod *corev1.Pod) bool {
	now, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	return err != nil || now.UID != pod.UID
}

// showsPlugin reports whether the pod shows which plugin serves its node.
func (p *Plugin) showsPlugin(pod *corev1.Pod) bool { return p.shared.nodes.vendor.ServesNode(pod) }

// afterPodUpdate wakes the pod when it asks for something else than before, and
// when another pod's update says which cards that pod holds, or who serves its
// node.
func (p *Plugin) afterPodUpdate(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, ok := oldObj.(*corev1.Pod)
	after, ok2 := newObj.(*corev1.Pod)
	switch {
	case !ok || !ok2:
		return fwk.Queue, fmt.Errorf("updated objects are a %T and a %T, want Pods", oldObj, newObj)
	case after.UID == pod.UID && p.shared.pods.requestChanged(before, after):
		return fwk.Queue, nil
	case before.Status.Phase != after.Status.Phase && p.showsPlugin(before) != p.showsPlugin(after):
		return p.hintOn(pod, after.Spec.NodeName), nil
	case after.UID == pod.UID || after.Spec.NodeName == "" || !p.shared.hints.updated(before, after):
		return fwk.QueueSkip, nil
	case p.freesQuota(pod, after):
		return fwk.Queue, nil
	default:
		return p.hintOn(pod, after.Spec.NodeName), nil
	}
}

func (p *Plugin) afterDevice(_ klog.Logger, pod *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	dev, ok := newObj.(*device)
	if !ok {
		return fwk.Queue, fmt.Errorf("updated object is a %T, want a Device", newObj)
	}
	p.shared.devices.touch(dev.Name)
	return p.hintOn(pod, dev.Name), nil
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
	return p.hintOn(pod, node.Name), nil
}

// hintOn wakes the pod if it fits on the node with the cards that the node has now
// and the pods last seen there. A pod that cards are kept for there is woken even if
// it does not fit: then its nomination is cleared, and the cards are for others.
func (p *Plugin) hintOn(pod *corev1.Pod, name string) fwk.QueueingHint {
	if pod.Status.NominatedNodeName == name || p.shared.pods.heldOn(pod.UID, name) {
		return p.hint(pod, nil)
	}
	node, err := p.nodeLister.Get(name)
	if err != nil {
		return fwk.QueueSkip // its own Add will come
	}
	return p.hint(pod, p.shared.hints.of(node))
}

// hint wakes the pod if it fits on the node, or if it is not known which node has
// changed. Only a change of its own helps a pod that is rejected whatever the nodes
// have, and none of a node one that waits for the budget of its namespace.
func (p *Plugin) hint(pod *corev1.Pod, node *ledger.Node) fwk.QueueingHint {
	ask, problems := p.shared.pods.request(pod)
	switch {
	case len(problems) > 0 || p.podGroups && pod.Spec.SchedulingGroup != nil || p.shared.pods.peek(pod.UID).overQuota != nil:
		return fwk.QueueSkip
	case ask == nil || node == nil:
		return fwk.Queue
	}
	ask = withDefaultPolicy(ask, p.policy)
	if _, refusal := p.shared.pods.calls.fit(node, &ask.Request, &ask.Prefer); refusal.Code != place.Fits {
		return fwk.QueueSkip
	}
	return fwk.Queue
}
