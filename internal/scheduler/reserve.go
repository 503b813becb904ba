package scheduler

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Reserve decides the cards on the chosen node.
func (p *Plugin) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	c, err := readState(cs)
	if err != nil {
		return nil // a pod without cards
	}
	ni, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reserve on %s: %w", nodeName, err))
	}
	node := p.withNominated(ni, pod, p.handle.NominatedPodsForNode(nodeName))
	offer, refusal := place.Fit(node, &c.ask.Request, &c.prefer)
	if refusal.Code != place.Fits { // the node changed in this cycle, and others may have room
		activate(p.handle, pod)
		return status(&refusal)
	}
	holding := node.Holding(&offer, allocation.HolderOf(pod), &c.ask.Request)
	annotations, err := allocation.Annotations(node, c.ask, &holding, p.shared.clock.Now())
	if err != nil {
		return fwk.AsStatus(err)
	}
	if p.shared.locks == nil {
		allocation.WithoutVendor(annotations)
	}
	if problems := allocation.CheckWritten(pod, annotations); len(problems) > 0 {
		p.shared.pods.reject(pod, c.ask, problems)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problems.ToAggregate().Error())
	}
	kept, _ := p.shared.pods.heldOn(pod.UID, node)
	promised := cmp.Or(p.shared.pods.dropClaim(pod.UID, heldClaim), pod.Status.NominatedNodeName)
	p.shared.pods.putClaim(claim{
		node: nodeName, placed: placed{holding: holding, topology: node.Topology()}, pod: pod, ask: c.ask, kinds: request.CensusKinds(pod),
		annotations: annotations, candidates: c.candidates,
	})
	if promised != "" && !apiequality.Semantic.DeepEqual(kept, holding) {
		p.wakeOn(promised)
	}
	if offer.Incomplete {
		p.shared.metrics.incomplete.Inc()
	}
	p.shared.metrics.decided.Observe(p.shared.clock.Since(c.start).Seconds())
	klog.FromContext(ctx).V(2).Info("Cards chosen", "pod", klog.KObj(pod), "node", nodeName, "cards", annotations[wire.AnnotationAllocated])
	return nil
}

// Unreserve gives the cards back, and the node's lock if the pod has it. It may
// be called for pods that were never reserved. It is never called while a
// Binding may still come through (see Bind), but at the end of the process,
// when no more locks are written either.
func (p *Plugin) Unreserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, nodeName string) {
	if _, err := readState(cs); err == nil {
		p.shared.metrics.failed.Inc()
	}
	if p.isGone(pod) {
		p.shared.pods.drop(pod.UID)
	} else {
		p.shared.pods.dropClaim(pod.UID, reservedClaim)
	}
	p.shared.locks.check(nodeName)
}
