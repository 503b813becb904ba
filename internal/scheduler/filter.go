package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// Filter asks whether the node can take the pod.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	c, err := readState(cs)
	if err != nil {
		return fwk.AsStatus(err)
	}
	x := p.shared.index
	if i, ok := x.row(ni); ok && c.shape.fits.has(i) && x.fresh(i) {
		return nil
	}
	_, v := c.judge(x.entryOf(ni, c.whatIf), &c.ask.Prefer)
	return v.status()
}

// verdict is a node's answer to a pod.
type verdict struct {
	refusal place.Refusal
	// short is the resource of which kubelet has too few devices left, and always
	// tells that this would be so on an empty node.
	short  corev1.ResourceName
	always bool
}

// judge asks whether the node can take the pod: whether its cards can, and then
// whether its kubelet can.
func (c *cycle) judge(e *entry, prefer *place.Preference) (offer ledger.Offer, v verdict) {
	if offer, v.refusal = place.Fit(e.node, &c.ask.Request, prefer); v.refusal.Code == place.Fits {
		v.short, v.always = e.lacks(c.wants)
	}
	return offer, v
}

// fits reports whether the node can take the pod.
func (v *verdict) fits() bool { return v.refusal.Code == place.Fits && v.short == "" }

// permanent reports whether evicting pods would not help.
func (v *verdict) permanent() bool { return v.always || v.refusal.Permanent }

// status translates the verdict.
func (v *verdict) status() *fwk.Status {
	switch {
	case v.short == "":
		return status(&v.refusal)
	case v.always:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Insufficient "+string(v.short))
	default:
		return fwk.NewStatus(fwk.Unschedulable, "Insufficient "+string(v.short))
	}
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
