package request

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ArrivalsLimit is how many pods [Arrivals] returns at most, the newest. A
// learner forgets: what older ones would add is less than one part in a hundred,
// and a hundred thousand of them would keep the first pod waiting for seconds.
const ArrivalsLimit = 1 << 14

// Arrivals returns the pods that ask for cards in the order in which they came,
// with their requests: what a scheduler learns from when it starts. Pods with
// an invalid request are left out.
func Arrivals(pods []*corev1.Pod) iter.Seq2[*corev1.Pod, *gpu.PodRequest] {
	var asking []*corev1.Pod
	for _, p := range pods {
		if wire.Asks(p) {
			asking = append(asking, p)
		}
	}
	slices.SortFunc(asking, ByArrival)
	return func(yield func(*corev1.Pod, *gpu.PodRequest) bool) {
		for _, p := range asking[max(0, len(asking)-ArrivalsLimit):] {
			ask, _ := Read(p)
			if ask == nil {
				continue
			}
			Describe(p, &ask.Request)
			if !yield(p, &ask.Request) {
				return
			}
		}
	}
}

// ByArrival orders pods by the time at which they were created, then by name.
func ByArrival(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
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
