package request_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestTrimPod: a trimmed pod asks for, holds and says the same as the full one.
func TestTrimPod(t *testing.T) {
	full := gputest.MakePod("p").Init("sgpu: 1").Sidecar("sgpu: 1, vcore: 5").App("gpu-core: 10, gpu-memory: 1Gi").On("n1").
		Phase(corev1.PodRunning).Annotate(wire.AnnotationQoS, "fixed-share").Annotate(corev1.LastAppliedConfigAnnotation, "{}").Obj()
	full.UID, full.ResourceVersion, full.ManagedFields = "u", "1", []metav1.ManagedFieldsEntry{{Manager: "m"}}
	full.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	full.Spec.SchedulerName = "daybreak"
	full.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	full.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E"}}
	full.Spec.NodeSelector = map[string]string{"pool": "train"}
	full.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"1"}}}}},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{},
	}
	full.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	full.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled}}
	full.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}

	obj, err := request.Trim(full.DeepCopy())
	gputest.Must(t, err)
	trimmed, ok := obj.(*corev1.Pod)
	if !ok {
		t.Fatalf("got a %T", obj)
	}
	if trimmed.ManagedFields != nil || trimmed.Spec.Volumes != nil || trimmed.Spec.Containers[0].Env != nil || trimmed.Status.ContainerStatuses != nil || trimmed.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("it is not trimmed: %+v", trimmed)
	}
	requests := func(pod *corev1.Pod) corev1.ResourceList {
		return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	}
	gputest.Equal(t, "requests of the full and the trimmed pod", requests(full), requests(trimmed))
	for name, node := range map[string]*corev1.Node{
		"all is well":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "train", "rack": "1"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}}},
		"another pool":    {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "serve", "rack": "1"}}},
		"another rack":    {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "train", "rack": "2"}}},
		"another taint":   {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "train", "rack": "1"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoExecute}}}},
		"a cordoned node": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "train", "rack": "1"}}, Spec: corev1.NodeSpec{Unschedulable: true}},
	} {
		facts := &cluster.Facts{Node: node}
		want := cluster.NewNodeFilter(full).Exclusion(facts)
		if got := cluster.NewNodeFilter(trimmed).Exclusion(facts); got != want || (want.Kind == 0) != (name == "all is well") {
			t.Errorf("%s: the trimmed pod is excluded for %q, the full one for %q", name, got.Message, want.Message)
		}
	}
	parts := func(pod *corev1.Pod) []any {
		ask, errs := request.Read(pod)
		return []any{pod.UID, pod.ResourceVersion, pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Status.Phase, pod.Status.Conditions, pod.Annotations[wire.AnnotationQoS], ask, errs}
	}
	gputest.Equal(t, "what is read of the full and the trimmed pod", parts(full), parts(trimmed))
}

func TestTrimLeavesOthersAlone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "k"}
	if got, err := request.Trim(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("got %v, %v", got, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	if _, err := request.Trim(node); err != nil || node.Status.Images != nil || node.Name != "n1" {
		t.Errorf("got %+v, %v", node, err)
	}
}

// TestTrimResized: a pod that is being resized takes the larger of both sizes,
// trimmed or not.
func TestTrimResized(t *testing.T) {
	pod := gputest.MakePod("p").App("cpu: 1").On("n1").Obj()
	pod.Spec.Containers[0].Resources.Requests = gputest.MakeResources("cpu: 1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, AllocatedResources: gputest.MakeResources("cpu: 3"),
		Resources: &corev1.ResourceRequirements{Requests: gputest.MakeResources("cpu: 3")},
	}}
	if _, err := request.Trim(pod); err != nil || request.CPUOnNode(pod) != 3000 {
		t.Errorf("%d of CPU, error %v, want 3000", request.CPUOnNode(pod), err)
	}
}

// TestTrimOthers: of a pod without cards little is kept, however large it is: any
// user may create thousands. [TestCost] has what else such a pod may have.
func TestTrimOthers(t *testing.T) {
	words := strings.Fields(strings.Repeat("word ", 20_000))
	for name, grow := range map[string]func(pod *corev1.Pod){
		"finalizers": func(pod *corev1.Pod) { pod.Finalizers = words },
		"arguments of a scheduler": func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": "scheduler"}
			pod.Spec.Containers[0].Args = append([]string{"scheduler"}, words...)
		},
	} {
		pod := gputest.MakePod("p").App("cpu: 1").On("n1").Obj()
		pod.Spec.Containers[0].Resources.Requests = gputest.MakeResources("cpu: 1")
		grow(pod)
		if _, err := request.Trim(pod); err != nil || request.CPUOnNode(pod) != 1000 || !wire.Holds(pod) || pod.Size() > 1<<10 {
			t.Errorf("%s: %d of CPU on node %q, %d bytes are kept, error %v", name, request.CPUOnNode(pod), pod.Spec.NodeName, pod.Size(), err)
		}
	}
}

// TestTrimKeepsWhatIsRead: what has a meaning is kept however many other annotations
// come before it, those of others' and those that resemble ours.
func TestTrimKeepsWhatIsRead(t *testing.T) {
	for _, prefix := range []string{"example.com/", "hami.io/unknown-"} {
		pod := gputest.MakePod("p").App("gpu: 1").Annotate(wire.AnnotationAllocated, "[]").Annotate(wire.AnnotationUseCards, strings.Repeat("GPU-1,", 2000)).Obj()
		for i := range 100 {
			pod.Annotations[fmt.Sprint(prefix, i)] = "x"
		}
		full := request.AnnotationBytes(pod, nil)
		_, err := request.Trim(pod)
		gputest.Must(t, err)
		if pod.Annotations[wire.AnnotationAllocated] == "" || pod.Annotations[wire.AnnotationUseCards] == "" {
			t.Errorf("next to %s…: kept are %v", prefix, slices.Sorted(maps.Keys(pod.Annotations)))
		}
		if got := request.AnnotationBytes(pod, nil); got != full || len(pod.Annotations) > 19 {
			t.Errorf("next to %s…: %d bytes in %d annotations, want %d", prefix, got, len(pod.Annotations), full)
		}
	}
}
