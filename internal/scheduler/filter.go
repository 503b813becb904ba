package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// Filter asks whether the node can take the pod.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	c, err := readState(cs)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if c.shape != nil {
		if i, ok := p.shared.index.row(ni); ok && c.shape.fits.has(i) {
			return nil
		}
	}
	node := p.shared.index.of(ni, c.whatIf)
	_, refusal := place.Fit(node, &c.ask.Request, &c.ask.Prefer)
	c.note(node.Name, refusal)
	if refusal.Code != place.Fits {
		return status(&refusal)
	}
	return offered(ni, c.wants)
}

// status translates a refusal. The reason is the same for all nodes with one
// code, since kube-scheduler groups nodes by it; the numbers are told once, by
// PostFilter.
func status(r *place.Refusal) *fwk.Status {
	switch {
	case r.Code == place.Fits:
		return nil
	case r.Permanent:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.Code.Reason())
	default:
		return fwk.NewStatus(fwk.Unschedulable, r.Code.Reason())
	}
}
