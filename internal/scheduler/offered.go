package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// deviceCounts is how many devices of each resource of [cardResources].
type deviceCounts [2]int64

// cardResources lists the resources of which kubelet hands out devices.
func cardResources() [len(deviceCounts{})]corev1.ResourceName {
	return [...]corev1.ResourceName{wire.ResourceGPU, wire.ResourceSGPU}
}

// wantedOf returns what kubelet has to hand out to the pod.
func wantedOf(pod *corev1.Pod) deviceCounts {
	requests := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	var out deviceCounts
	for i, name := range cardResources() {
		q := requests[name]
		out[i] = q.Value()
	}
	return out
}

// offeredBy returns how many devices the node's kubelet has, and how many of them
// no pod has asked for.
func offeredBy(ni fwk.NodeInfo) (all, left deviceCounts) {
	allocatable, requested := ni.GetAllocatable().GetScalarResources(), ni.GetRequested().GetScalarResources()
	for i, name := range cardResources() {
		all[i] = allocatable[name]
		left[i] = all[i] - requested[name]
	}
	return all, left
}

// lacks returns the first resource of which the node's kubelet has too few devices
// left, or none yet because the agent has only just started; and whether that
// would be so on an empty node. NodeResourcesFit would reject the node too, but
// then its hints decide when the pod is tried again, and they forget which
// resources are ignored: a pod with metax-tech.com/vcore, which no node
// advertises, would not be woken when the devices come.
func (e *entry) lacks(wants deviceCounts) (short corev1.ResourceName, always bool) {
	for i, n := range wants {
		if e.devicesLeft[i] < n {
			return cardResources()[i], e.devices[i] < n
		}
	}
	return "", false
}
