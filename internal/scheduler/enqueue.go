package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
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
		{Event: fwk.ClusterEvent{Resource: resource, ActionType: fwk.Add | fwk.Update | fwk.Delete}, QueueingHintFn: p.afterDevice},
		// A node brings cards, or it becomes known which plugin serves it. Where the
		// largest cards go, pods count less memory in budgets; a cordon is heard of
		// by its taint.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation | fwk.UpdateNodeTaint}, QueueingHintFn: p.afterNode},
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
		if p.awaitsVictims(pod, deleted.Spec.NodeName) { // this may have been the last one
			return p.hint(pod, nil), nil
		}
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
		p.budgetFreed(pod, oldObj, nil)
		return fwk.QueueSkip, nil
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
	if p.shared.pods.hasReserved(pod.UID, pod.Spec.NodeName) && p.isGone(pod) {
		p.shared.pods.dropClaim(pod.UID, reservedClaim)
	}
}

// isGone reports whether the informer shows that the pod does not exist.
func (p *Plugin) isGone(pod *corev1.Pod) bool {
	return isGone(p.handle.SharedInformerFactory().Core().V1().Pods().Lister(), pod)
}

// showsPlugin reports whether the pod shows which plugin serves its node.
func (p *Plugin) showsPlugin(pod *corev1.Pod) bool { return p.shared.nodes.vendor.ServesNode(pod) }

// afterPodUpdate wakes the pod when it asks for something else than before or other
// quotas cover it, and when another pod's update says which cards that pod holds, or
// who serves its node.
func (p *Plugin) afterPodUpdate(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, ok := oldObj.(*corev1.Pod)
	after, ok2 := newObj.(*corev1.Pod)
	switch {
	case !ok || !ok2:
		return fwk.Queue, fmt.Errorf("updated objects are a %T and a %T, want Pods", oldObj, newObj)
	case after.UID == pod.UID && (p.shared.pods.requestChanged(before, after) || quota.ClassOf(before) != quota.ClassOf(after)):
		return fwk.Queue, nil
	case before.Status.Phase != after.Status.Phase && p.showsPlugin(before) != p.showsPlugin(after):
		return p.hintOn(pod, after.Spec.NodeName), nil
	case after.UID == pod.UID || after.Spec.NodeName == "":
		return fwk.QueueSkip, nil
	}
	return p.afterHolderUpdate(pod, before, after), nil
}

// afterHolderUpdate wakes the pod after the update of one with a node.
func (p *Plugin) afterHolderUpdate(pod, before, after *corev1.Pod) fwk.QueueingHint {
	changed := p.shared.hints.updated(before, after)
	if p.freesQuota(pod, after) {
		if changed || wire.Asks(after) && quota.ClassOf(before) != quota.ClassOf(after) {
			p.budgetFreed(pod, before, after)
		}
		return fwk.QueueSkip
	}
	if !changed {
		return fwk.QueueSkip
	}
	return p.hintOn(pod, after.Spec.NodeName)
}

func (p *Plugin) afterDevice(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	_, dev, err := changed[*device](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	p.shared.devices.touch(dev.Name)
	if p.dependsOnCards(pod) {
		p.budgetFreed(pod, oldObj, newObj)
	}
	return p.hintOn(pod, dev.Name), nil
}

// changed returns the objects of an event: the one that there was before, if any, and
// the one that there is now, or that is gone.
func changed[T any](oldObj, newObj any) (before, now T, err error) {
	before, had := unwrapTombstone(oldObj).(T)
	now, has := newObj.(T)
	switch {
	case newObj == nil && had:
		now = before
	case !has:
		err = fmt.Errorf("changed object is a %T, want a %T", newObj, now)
	}
	return before, now, err
}

func (p *Plugin) afterNode(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, node, err := changed[*corev1.Node](oldObj, newObj)
	switch {
	case err != nil:
		return fwk.Queue, err
	case before != nil && newObj != nil:
		dev, same := p.shared.devices.get(node.Name), apiequality.Semantic.DeepEqual
		if factsOf(before, dev) == factsOf(node, dev) && before.Spec.Unschedulable == node.Spec.Unschedulable && same(before.Spec.Taints, node.Spec.Taints) &&
			(same(before.Labels, node.Labels) || !p.dependsOnCards(pod)) {
			return fwk.QueueSkip, nil
		}
	}
	if p.dependsOnCards(pod) {
		p.budgetFreed(pod, oldObj, newObj)
	}
	return p.hintOn(pod, node.Name), nil
}

// hintOn wakes the pod if it fits on the node with the cards that the node has now
// and the pods last seen there. A pod that cards are kept for there is woken even if
// it does not fit: then its nomination is cleared, and the cards are for others.
func (p *Plugin) hintOn(pod *corev1.Pod, name string) fwk.QueueingHint {
	if p.awaitsVictims(pod, name) {
		return p.hint(pod, nil)
	}
	node, err := p.nodeLister.Get(name)
	if err != nil {
		return fwk.QueueSkip // its own Add will come
	}
	return p.hint(pod, p.shared.hints.of(node))
}

// awaitsVictims reports whether the node was promised to the pod once others are gone.
func (p *Plugin) awaitsVictims(pod *corev1.Pod, node string) bool {
	return node != "" && pod.Status.NominatedNodeName == node || p.shared.pods.claimOf(pod.UID, heldClaim).isOn(node)
}

// wakeOn has the waiting pods tried that fit on the node. It is called when a pod has
// taken other cards than those that were kept for it, which others were refused:
// kube-scheduler reports that a promise ends only of pods that are not placed.
func (p *Plugin) wakeOn(name string) {
	var fitting []*corev1.Pod
	for _, pod := range p.shared.pods.waiting() {
		if p.hintOn(pod, name) == fwk.Queue {
			fitting = append(fitting, pod)
		}
	}
	activate(p.handle, fitting...)
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
	if _, refusal := place.Fit(node, &ask.Request, &ask.Prefer); refusal.Code != place.Fits {
		return fwk.QueueSkip
	}
	return fwk.Queue
}
