package request

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestApplyDefaults(t *testing.T) {
	cases := map[string]struct {
		pod *gputest.PodBuilder
		// wantQoS is the annotation afterwards, wantLimits and wantRequests the
		// resources of the first app container.
		wantQoS                  string
		wantLimits, wantRequests string
	}{
		"a slice with limits only": {
			pod: app("sgpu: 1, vcore: 60, vmemory: 4"), wantQoS: "best-effort",
			wantLimits: "sgpu: 1, vcore: 60, vmemory: 4", wantRequests: "sgpu: 1, vcore: 60, vmemory: 4",
		},
		"a slice with requests only": {
			pod: gputest.MakePod("p").AppWith("", "sgpu: 1, vcore: 60"), wantQoS: "best-effort",
			wantLimits: "sgpu: 1, vcore: 60", wantRequests: "sgpu: 1, vcore: 60",
		},
		"one in limits, the other in requests": {
			pod: gputest.MakePod("p").AppWith("sgpu: 1", "vcore: 60"), wantQoS: "best-effort",
			wantLimits: "sgpu: 1, vcore: 60", wantRequests: "sgpu: 1, vcore: 60",
		},
		"other resources stay": {
			pod: gputest.MakePod("p").AppWith("sgpu: 1, cpu: 4", "memory: 1Gi"), wantQoS: "best-effort",
			wantLimits: "sgpu: 1, cpu: 4", wantRequests: "sgpu: 1, memory: 1Gi",
		},
		"a QoS that was written stays": {
			pod: app("sgpu: 1").Annotate(qosName, "fixed-share"), wantQoS: "fixed-share", wantLimits: "sgpu: 1", wantRequests: "sgpu: 1",
		},
		"online pods get no QoS": {pod: app("sgpu: 1").Annotate(className, "online"), wantLimits: "sgpu: 1", wantRequests: "sgpu: 1"},
		"offline pods get a QoS": {pod: app("sgpu: 1").Annotate(className, "offline"), wantQoS: "best-effort", wantLimits: "sgpu: 1", wantRequests: "sgpu: 1"},
		"whole cards get no QoS": {pod: app("gpu: 2"), wantLimits: "gpu: 2", wantRequests: "gpu: 2"},
		"none, with one that is": {pod: app("sgpu: 0").App("sgpu: 1"), wantQoS: "best-effort", wantLimits: "sgpu: 0", wantRequests: "sgpu: 0"},
		"Koordinator, neither number of cards": {
			pod: app("gpu-core: 10, gpu-memory: 1Gi"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi, sgpu: 1",
			wantRequests: "gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi, sgpu: 1",
		},
		"Koordinator, without sgpu": {
			pod: app("gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20, sgpu: 1",
			wantRequests: "gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20, sgpu: 1",
		},
		"Koordinator, without gpu.shared": {
			pod: app("gpu-core: 10, gpu-memory-ratio: 20, sgpu: 1"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20, sgpu: 1",
			wantRequests: "gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20, sgpu: 1",
		},
		"Koordinator, two whole cards": {
			pod: app("gpu-core: 200, gpu-memory-ratio: 200"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2",
			wantRequests: "gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2",
		},
		"Koordinator, memory of whole cards alone": {
			pod: app("gpu-memory-ratio: 300"), wantQoS: "best-effort",
			wantLimits: "gpu.shared: 3, gpu-memory-ratio: 300, sgpu: 3", wantRequests: "gpu.shared: 3, gpu-memory-ratio: 300, sgpu: 3",
		},
		"Koordinator's gpu is compute and memory": {
			pod: app("koordinator.sh/gpu: 200"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2",
			wantRequests: "gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2",
		},
		"Koordinator's gpu, in limits and in requests": {
			pod: gputest.MakePod("p").AppWith("koordinator.sh/gpu: 50", "koordinator.sh/gpu: 50"), wantQoS: "best-effort",
			wantLimits:   "gpu.shared: 1, gpu-core: 50, gpu-memory-ratio: 50, sgpu: 1",
			wantRequests: "gpu.shared: 1, gpu-core: 50, gpu-memory-ratio: 50, sgpu: 1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			completeTwice(t, pod)
			c := pod.Spec.Containers[0].Resources
			gputest.Equal(t, "limits", gputest.MakeResources(tc.wantLimits), c.Limits)
			gputest.Equal(t, "requests", gputest.MakeResources(tc.wantRequests), c.Requests)
			if qos, ok := pod.Annotations[qosName]; qos != tc.wantQoS || ok != (tc.wantQoS != "") {
				t.Errorf("QoS %q, want %q", qos, tc.wantQoS)
			}
		})
	}
}

// completeTwice completes the pod and checks what holds for every pod: it asks
// for the same as before, a second time changes nothing, and a copy that shares
// its maps is left alone.
func completeTwice(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := pod.DeepCopy()
	shallow := *pod
	shallow.Spec.Containers = append([]corev1.Container(nil), pod.Spec.Containers...)
	shallow.Spec.InitContainers = append([]corev1.Container(nil), pod.Spec.InitContainers...)
	ask, problems := Read(pod)
	if ask == nil {
		t.Fatalf("not admitted: %v", problems)
	}
	ApplyDefaults(pod, ask)
	gputest.Equal(t, "another pod's annotations changed", before.Annotations, shallow.Annotations)
	for i := range before.Spec.Containers {
		gputest.Equal(t, "another pod's resources changed", before.Spec.Containers[i].Resources, shallow.Spec.Containers[i].Resources)
	}
	again, problems := Read(pod)
	if again == nil {
		t.Fatalf("not admitted once complete: %v", problems)
	}
	gputest.Equal(t, "request before and after completion", ask, again)
	once := pod.DeepCopy()
	ApplyDefaults(pod, again)
	gputest.Equal(t, "completed once and twice", once, pod)
	for _, c := range Containers(pod) {
		for _, name := range wire.Resources() {
			limit, limited := c.resources.Limits[name]
			request, requested := c.resources.Requests[name]
			if limited != requested || limit.Cmp(request) != 0 {
				t.Errorf("%s: limit %v, request %v", name, limit, request)
			}
		}
	}
}

// TestApplyDefaultsToAnything: whatever mixture of resources is admitted is completed
// to one that asks for the same, once and for all.
func TestApplyDefaultsToAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	admitted := 0
	amounts := []string{"0", "1", "2", "4", "50", "100", "200", "1Gi", "64Gi", "128Gi"}
	for range 60_000 {
		b := gputest.MakePod("p")
		for range 1 + random.IntN(2) {
			b.AppWith(anything(random, amounts), anything(random, amounts))
		}
		if random.IntN(3) == 0 {
			b.Sidecar(anything(random, amounts))
		}
		switch random.IntN(4) {
		case 0:
			b.Annotate(className, []string{"online", "offline"}[random.IntN(2)])
		case 1:
			b.Annotate(qosName, "fixed-share")
		}
		pod := b.Obj()
		if ask, _ := Read(pod); ask == nil {
			continue
		}
		admitted++
		completeTwice(t, pod)
		if t.Failed() {
			t.Fatalf("pod %+v", pod.Spec)
		}
	}
	if admitted < 500 {
		t.Fatalf("only %d pods were admitted: the test says little", admitted)
	}
}

// anything returns up to three resources with amounts that may make sense.
func anything(random *rand.Rand, amounts []string) string {
	text := ""
	for _, i := range random.Perm(len(wire.Resources()))[:random.IntN(4)] {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s: %s", wire.Resources()[i], amounts[random.IntN(len(amounts))])
	}
	return text
}
