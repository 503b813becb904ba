package request_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestCensusKinds: what a bound pod counts depends on what it asks for alone.
func TestCensusKinds(t *testing.T) {
	of := func(limits, cpu string) *corev1.Pod {
		pod := gputest.MakePod("p").App(limits).On("n1").Obj()
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return pod
	}
	first := request.CensusKinds(of("sgpu: 1", "2"))
	if len(first) != 1 || !slices.Equal(first, request.CensusKinds(of("sgpu: 1", "2"))) {
		t.Errorf("two pods that ask for the same count as %v and %v", first, request.CensusKinds(of("sgpu: 1", "2")))
	}
	for name, other := range map[string]*corev1.Pod{"whole cards": of("gpu: 1", "2"), "more CPU": of("sgpu: 1", "8")} {
		if slices.Equal(first, request.CensusKinds(other)) {
			t.Errorf("%s make no difference", name)
		}
	}
	if kinds := request.CensusKinds(of("cpu: 1", "2")); len(kinds) > 0 {
		t.Errorf("a pod without cards counts as %v", kinds)
	}
}

func TestDescribe(t *testing.T) {
	pod := gputest.MakePod("p").App("sgpu: 1").Obj()
	pod.Spec.NodeSelector = map[string]string{wire.LabelModel: "C550"}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	var r gpu.PodRequest
	request.Describe(pod, &r)
	if want := gpu.MilliCPU(1750).Coarse(place.CPUDigits); r.CPU != want || len(r.Models) != 1 || r.Models[0] != "C550" {
		t.Errorf("the pod takes %d of CPU on %v, want %d on C550", r.CPU, r.Models, want)
	}
}

// TestCPUOnNode: a pod that is being made smaller still takes what it has.
func TestCPUOnNode(t *testing.T) {
	pod := gputest.MakePod("p").App("sgpu: 1").On("n1").Obj()
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	gputest.Equal(t, "CPU", gpu.MilliCPU(1000), request.CPUOnNode(pod))
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, AllocatedResources: has, Resources: &corev1.ResourceRequirements{Requests: has},
	}}
	if got := request.CPUOnNode(pod); got != 3000 {
		t.Errorf("CPU %d while it is being made smaller, want 3000", got)
	}
}
