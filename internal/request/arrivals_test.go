package request_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestArrivals: pods come in the order of their creation, those of one second by
// name. Pods without cards and invalid ones are left out.
func TestArrivals(t *testing.T) {
	at := func(seconds int, name, limits string) *corev1.Pod {
		pod := gputest.MakePod(name).App(limits).Obj()
		pod.CreationTimestamp = metav1.NewTime(time.Unix(int64(seconds), 0))
		return pod
	}
	pods := []*corev1.Pod{at(9, "last", "gpu: 1"), at(5, "b", "gpu: 2"), at(5, "a", "sgpu: 1"), at(1, "invalid", "sgpu: 65"), at(2, "plain", "cpu: 1"), at(3, "first", "gpu: 4")}
	before := append([]*corev1.Pod(nil), pods...)
	var got []string
	for pod, request := range request.Arrivals(pods) {
		got = append(got, fmt.Sprint(pod.Name, " ", request.Cards()))
	}
	if diff := cmp.Diff([]string{"first 4", "a 1", "b 2", "last 1"}, got); diff != "" {
		t.Errorf("arrivals (-want +got):\n%s", diff)
	}
	for i := range pods {
		if pods[i] != before[i] {
			t.Fatal("the list of pods was changed")
		}
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
	if got := request.CPUOnNode(pod); got != 1000 {
		t.Errorf("CPU %d, want 1000", got)
	}
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, AllocatedResources: has, Resources: &corev1.ResourceRequirements{Requests: has},
	}}
	if got := request.CPUOnNode(pod); got != 3000 {
		t.Errorf("CPU %d while it is being made smaller, want 3000", got)
	}
}
