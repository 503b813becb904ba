package request

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// CensusKinds returns what a bound pod counts in a [place.Census].
func CensusKinds(pod *corev1.Pod) []place.Kind {
	ask, asks := ReadBound(pod)
	if !asks || ask == nil {
		return nil
	}
	Describe(pod, &ask.Request)
	return place.KindsOf(&ask.Request)
}

// Describe adds what a pod asks for in addition to cards. CPU is coarse: only the
// comparison of nodes depends on it, and kube-scheduler counts the exact amount.
func Describe(pod *corev1.Pod, r *gpu.PodRequest) {
	list := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	r.CPU = gpu.MilliCPU(list.Cpu().MilliValue()).Coarse(place.CPUDigits)
	r.Models = Models(pod)
}

// CPUOnNode returns the CPU that a pod takes on its node, as kube-scheduler
// counts it: for a pod that is being resized, the larger of both sizes.
func CPUOnNode(pod *corev1.Pod) gpu.MilliCPU {
	list := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	return gpu.MilliCPU(list.Cpu().MilliValue())
}
