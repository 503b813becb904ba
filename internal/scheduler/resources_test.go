package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// noClasses is a cluster in which no resource is served by DRA.
type noClasses struct{ fwk.SharedDRAManager }

func (noClasses) DeviceClassResolver() fwk.DeviceClassResolver { return noClasses{} }

func (noClasses) GetDeviceClass(corev1.ResourceName) *resourcev1.DeviceClass { return nil }

// makeStandIn makes one of the plugins that stand in for kube-scheduler's own.
func makeStandIn(t *testing.T, name string) fwk.Plugin {
	t.Helper()
	p, err := NewState(clocktesting.NewFakeClock(start)).standIns()[name](t.Context(), nil, newHandle())
	if err != nil {
		t.Fatal(err)
	}
	if p.Name() != name {
		t.Fatalf("%s is called %s", name, p.Name())
	}
	return p
}

// offering is a node that advertises resources.
func offering(amounts map[corev1.ResourceName]string) *corev1.Node {
	node := makeNode("n1")
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	for name, amount := range amounts {
		node.Status.Allocatable[name] = resource.MustParse(amount)
	}
	return node
}

// requesting returns a change that makes the first container ask for more.
func requesting(name corev1.ResourceName, amount string) podOption {
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests, r.Limits = r.Requests.DeepCopy(), r.Limits.DeepCopy()
		for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(amount)
		}
	}
}

func TestResources(t *testing.T) {
	node := map[corev1.ResourceName]string{corev1.ResourceCPU: "4", wire.ResourceGPU: "2", wire.ResourceSGPU: "32", wire.KoordCore: "200"}
	slice := func(more ...podOption) *corev1.Pod {
		return makePod("p", append([]podOption{requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "10"), requesting(wire.ResourceVMemory, "4")}, more...)...)
	}
	tests := map[string]struct {
		pod    *corev1.Pod
		onNode []*corev1.Pod
		want   fwk.Code
		reason string
	}{
		"a slice, whose bounds no node counts": {pod: slice()},
		"what is ours alone is not counted":    {pod: slice(requesting("daybreak-gpu.io/x", "1"))},
		"all cards":                            {pod: makePod("p", requesting(wire.ResourceGPU, "2"))},
		"more cards than there are":            {pod: makePod("p", requesting(wire.ResourceGPU, "3")), want: fwk.UnschedulableAndUnresolvable, reason: "Insufficient metax-tech.com/gpu"},
		"more cards than are free": {
			pod: makePod("p", requesting(wire.ResourceGPU, "2")), onNode: []*corev1.Pod{makePod("q", requesting(wire.ResourceGPU, "1"))},
			want: fwk.Unschedulable, reason: "Insufficient metax-tech.com/gpu",
		},
		"more of Koordinator's than there is": {pod: makePod("p", requesting(wire.KoordCore, "300")), want: fwk.UnschedulableAndUnresolvable, reason: "Insufficient koordinator.sh/gpu-core"},
		"too little CPU for a slice":          {pod: slice(requesting(corev1.ResourceCPU, "5")), want: fwk.UnschedulableAndUnresolvable, reason: "Insufficient cpu"},
		"too little CPU without cards": {
			pod: makePod("p", requesting(corev1.ResourceCPU, "3")), onNode: []*corev1.Pod{makePod("q", requesting(corev1.ResourceCPU, "2"))},
			want: fwk.Unschedulable, reason: "Insufficient cpu",
		},
		"someone else's resource next to cards": {pod: slice(requesting("example.com/nic", "1")), want: fwk.UnschedulableAndUnresolvable, reason: "Insufficient example.com/nic"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, ok := makeStandIn(t, ResourcesName).(*resources)
			if !ok {
				t.Fatal("not the plugin")
			}
			cs, before := framework.NewCycleState(), tt.pod.DeepCopy()
			if _, status := r.PreFilter(t.Context(), cs, tt.pod, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			status := r.Filter(t.Context(), cs, tt.pod, nodeInfo(offering(node), tt.onNode...))
			if status.Code() != tt.want || status.Message() != tt.reason {
				t.Errorf("Filter() = %v %q, want %v %q", status.Code(), status.Message(), tt.want, tt.reason)
			}
			if before.String() != tt.pod.String() {
				t.Error("the pod was changed")
			}
		})
	}
}

// TestResourcesWake: a pod with a slice that lacked CPU or devices of kubelet's is
// queued when a node with enough of both comes, which NodeResourcesFit by itself
// would not see.
func TestResourcesWake(t *testing.T) {
	r, ok := makeStandIn(t, ResourcesName).(*resources)
	if !ok {
		t.Fatal("not the plugin")
	}
	events, err := r.EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod := makePod("p", requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "10"), requesting(corev1.ResourceCPU, "4"))
	for _, tt := range []struct {
		cpu, slices string
		want        fwk.QueueingHint
	}{{"2", "16", fwk.QueueSkip}, {"8", "0", fwk.QueueSkip}, {"8", "16", fwk.Queue}} {
		node, asked := offering(map[corev1.ResourceName]string{corev1.ResourceCPU: tt.cpu, wire.ResourceSGPU: tt.slices}), false
		for _, e := range events {
			if e.Event.Resource != fwk.Node || e.Event.ActionType&fwk.Add == 0 {
				continue
			}
			asked = true
			wantHint(t, tt.want)(e.QueueingHintFn(klog.Background(), pod, nil, node))
		}
		if !asked {
			t.Error("new nodes are not asked about")
		}
	}
}

// TestOrdinaryPodsOnly: what ranks nodes by CPU, memory and images is for pods
// without cards, and signs them for batching.
func TestOrdinaryPodsOnly(t *testing.T) {
	for _, name := range []string{ResourcesName, BalanceName, ImagesName} {
		t.Run(name, func(t *testing.T) {
			p := makeStandIn(t, name)
			score, ok := p.(fwk.PreScorePlugin)
			if !ok {
				t.Fatalf("%T has no PreScore", p)
			}
			if got := score.PreScore(t.Context(), framework.NewCycleState(), makePod("p", whole(1)), nil); !got.IsSkip() {
				t.Errorf("PreScore() of a pod with cards = %v, want that it is skipped", got)
			}
			pod := makePod("p", requesting(corev1.ResourceCPU, "1"))
			if got := score.PreScore(t.Context(), framework.NewCycleState(), pod, nil); !got.IsSuccess() {
				t.Errorf("PreScore() of a pod without cards = %v", got)
			}
			sign, ok := p.(fwk.SignPlugin)
			if !ok {
				t.Fatalf("%T signs nothing: that turns batching off", p)
			}
			if _, got := sign.SignPod(t.Context(), pod); !got.IsSuccess() {
				t.Errorf("SignPod() = %v", got)
			}
		})
	}
}
