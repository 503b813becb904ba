package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestOffered: a node whose cards would do, but whose kubelet has no devices to
// hand out, is refused by us, and so it is our hint that wakes the pod.
func TestOffered(t *testing.T) {
	tests := map[string]struct {
		sgpu, gpu  string
		onNode     []*corev1.Pod
		pod        *corev1.Pod
		wantCode   fwk.Code
		wantReason string
	}{
		"enough":            {sgpu: "32", pod: makePod("p", slice(10, 8))},
		"none yet":          {sgpu: "0", pod: makePod("p", slice(10, 8)), wantCode: fwk.UnschedulableAndUnresolvable, wantReason: "Insufficient metax-tech.com/sgpu"},
		"the other kind":    {sgpu: "32", gpu: "0", pod: makePod("p", whole(1)), wantCode: fwk.UnschedulableAndUnresolvable, wantReason: "Insufficient metax-tech.com/gpu"},
		"others have them":  {sgpu: "1", onNode: []*corev1.Pod{makePod("q", slice(10, 8), holds(0))}, pod: makePod("p", slice(10, 8)), wantCode: fwk.Unschedulable, wantReason: "Insufficient metax-tech.com/sgpu"},
		"others have a few": {sgpu: "2", onNode: []*corev1.Pod{makePod("q", slice(10, 8), holds(0))}, pod: makePod("p", slice(10, 8))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, p := range append(tt.onNode, tt.pod) { // as the API server does
				p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
			}
			r, node := newRig(t), makeNode("n1")
			r.setDevice(t, makeDevice("n1", 2))
			node.Status.Allocatable = corev1.ResourceList{}
			for name, amount := range map[corev1.ResourceName]string{wire.ResourceSGPU: tt.sgpu, wire.ResourceGPU: tt.gpu} {
				if amount != "" {
					node.Status.Allocatable[name] = resource.MustParse(amount)
				}
			}
			status := r.filter(t, tt.pod, nodeInfo(node, tt.onNode...))
			if status.Code() != tt.wantCode || status.Message() != tt.wantReason {
				t.Errorf("Filter() = %v, want %v %s", status, tt.wantCode, tt.wantReason)
			}
			r.addNode(t, makeNode("n1"))
			if hint, err := r.afterNode(testLogger(t), tt.pod, node, makeNode("n1")); err != nil || hint != fwk.Queue {
				t.Errorf("when devices come: %v, %v; want that the pod is tried again", hint, err)
			}
		})
	}
}

// TestNotOfferedIsLeftOut: PreFilter leaves out nodes whose kubelet has too few
// devices, and PostFilter reports them as Filter would have.
func TestNotOfferedIsLeftOut(t *testing.T) {
	r := newRig(t)
	pod, other := makePod("p", requesting(wire.ResourceGPU, "1")), makePod("q", requesting(wire.ResourceGPU, "1"), holds(0))
	var infos []fwk.NodeInfo
	for name, devices := range map[string]string{"n0": "2", "n1": "1", "n2": "0"} {
		node := makeNode(name)
		node.Status.Allocatable[wire.ResourceGPU] = resource.MustParse(devices)
		r.setDevice(t, makeDevice(name, 2))
		ni := nodeInfo(node)
		if name == "n1" {
			ni = nodeInfo(node, other)
		}
		infos = append(infos, ni)
	}
	cs := framework.NewCycleState()
	narrowed, status := r.PreFilter(t.Context(), cs, pod, infos)
	if !status.IsSuccess() || narrowed.AllNodes() || !narrowed.NodeNames.Equal(sets.New("n0")) {
		t.Fatalf("PreFilter() = %v, %v; want n0 alone", narrowed, status)
	}
	statuses := framework.NewDefaultNodeToStatus()
	r.PostFilter(t.Context(), cs, pod, statuses)
	for name, want := range map[string]fwk.Code{"n1": fwk.Unschedulable, "n2": fwk.UnschedulableAndUnresolvable} {
		if got := statuses.Get(name); got.Code() != want || got.Message() != "Insufficient metax-tech.com/gpu" {
			t.Errorf("%s: %v %v, want %v for too few devices", name, got.Code(), got, want)
		}
	}
}
