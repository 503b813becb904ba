package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/daybreak-gpu/daybreak/internal/gputest"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestBriefPod: a pod in the cache asks for, holds and says the same as the pod
// in the cluster.
func TestBriefPod(t *testing.T) {
	full := gputest.MakePod("p").Init("sgpu: 1").Sidecar("sgpu: 1, vcore: 5").App("gpu-core: 10, gpu-memory: 1Gi").On("n1").
		Phase(corev1.PodRunning).Annotate(wire.AnnotationQoS, "fixed-share").Annotate(corev1.LastAppliedConfigAnnotation, "{}").Obj()
	full.UID, full.ResourceVersion, full.ManagedFields = "u", "1", []metav1.ManagedFieldsEntry{{Manager: "m"}}
	full.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	full.Spec.SchedulerName = "daybreak"
	full.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	full.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E"}}
	full.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled}}
	full.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}

	obj, err := briefPod(full.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	brief, ok := obj.(*corev1.Pod)
	if !ok {
		t.Fatalf("got a %T", obj)
	}
	if brief.ManagedFields != nil || brief.Spec.Volumes != nil || brief.Spec.Containers[0].Env != nil || brief.Status.ContainerStatuses != nil || brief.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("it is not brief: %+v", brief)
	}
	requests := func(pod *corev1.Pod) corev1.ResourceList {
		return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	}
	if diff := cmp.Diff(requests(full), requests(brief)); diff != "" {
		t.Errorf("requests (-full +brief):\n%s", diff)
	}
	parts := func(pod *corev1.Pod) []any {
		ask, errs := wire.Admit(pod)
		return []any{pod.UID, pod.ResourceVersion, pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Status.Phase, pod.Status.Conditions, pod.Annotations[wire.AnnotationQoS], ask, errs}
	}
	if diff := cmp.Diff(parts(full), parts(brief)); diff != "" {
		t.Errorf("(-full +brief):\n%s", diff)
	}
}

func TestBriefLeavesOthersAlone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "k"}
	for name, transform := range map[string]func(any) (any, error){"pod": briefPod, "node": briefNode} {
		if got, err := transform(tombstone); err != nil || got != any(tombstone) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	if _, err := briefNode(node); err != nil || node.Status.Images != nil || node.Name != "n1" {
		t.Errorf("got %+v, %v", node, err)
	}
}
