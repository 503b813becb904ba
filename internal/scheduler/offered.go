package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// wanted is how many devices of a resource a pod takes from kubelet.
type wanted struct {
	resource corev1.ResourceName
	devices  int64
}

// wantedOf returns what kubelet has to hand out to the pod.
func wantedOf(pod *corev1.Pod) []wanted {
	requests := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	var out []wanted
	for _, name := range []corev1.ResourceName{wire.ResourceGPU, wire.ResourceSGPU} {
		if q, asks := requests[name]; asks {
			out = append(out, wanted{name, q.Value()})
		}
	}
	return out
}

// offered refuses a node whose kubelet has too few devices left, or none yet
// because the agent has only just come. NodeResourcesFit would say the same right
// after, but then its hints decide when the pod is tried again, and they forget
// which resources are ignored: a pod with metax-tech.com/vcore, which no node
// advertises, would not hear of the devices when they come.
func offered(ni fwk.NodeInfo, wants []wanted) *fwk.Status {
	for _, w := range wants {
		all := ni.GetAllocatable().GetScalarResources()[w.resource]
		switch {
		case all < w.devices:
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Insufficient "+string(w.resource))
		case all-ni.GetRequested().GetScalarResources()[w.resource] < w.devices:
			return fwk.NewStatus(fwk.Unschedulable, "Insufficient "+string(w.resource))
		}
	}
	return nil
}
