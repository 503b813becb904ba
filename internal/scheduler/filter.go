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
	x := p.shared.index
	if id, ok := x.row(ni); ok && x.fresh(id) {
		if _, fits, _ := c.ranking.At(id); fits {
			return nil
		}
	}
	_, refusal := place.Fit(x.entryOf(ni, c.whatIf).node, &c.ask.Request, &c.ask.Prefer)
	return status(&refusal)
}

// refusalError is a refusal as the error of a status.
type refusalError struct{ place.Refusal }

// Error returns the reason, which is the same for all nodes with one code.
func (r refusalError) Error() string { return r.Code.Reason() }

// status returns the status that carries the refusal.
func status(r *place.Refusal) *fwk.Status {
	switch {
	case r.Code == place.Fits:
		return nil
	case r.Permanent:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(refusalError{*r})
	default:
		return fwk.NewStatus(fwk.Unschedulable).WithError(refusalError{*r})
	}
}
