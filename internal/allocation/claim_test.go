package allocation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// claimNode is a node with two cards of 64 GiB.
func claimNode(t *testing.T, serves ledger.Serves) *ledger.Node {
	t.Helper()
	topology, err := gpu.NewTopology([]gpu.Card{
		{ID: "GPU-a", Minor: 0, Memory: 64 << 10, Slots: gpu.MaxSlices, Healthy: true},
		{ID: "GPU-b", Minor: 1, Memory: 64 << 10, Slots: gpu.MaxSlices, Healthy: true},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.NewNode("n1", topology, serves)
}

func claimPod(allocation string, limits map[corev1.ResourceName]string) *corev1.Pod {
	list := corev1.ResourceList{}
	for name, amount := range limits {
		list[name] = resource.MustParse(amount)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{wire.AnnotationAllocated: allocation}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list}}}},
	}
}

func TestClaimOf(t *testing.T) {
	slices := ledger.Serves{Whole: true, Slices: true}
	part := map[corev1.ResourceName]string{wire.ResourceSGPU: "1", wire.ResourceVCore: "30", wire.ResourceVMemory: "4"}
	cases := map[string]struct {
		serves     ledger.Serves
		allocation string
		limits     map[corev1.ResourceName]string
		change     func(*corev1.Pod)
		container  string
		want       []ledger.Share
		wantSeats  bool
		wantErr    string
	}{
		"a slice": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":4096}]]`, limits: part,
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 4096}},
		},
		"all memory of a card that has less by now": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":66560}]]`, limits: map[corev1.ResourceName]string{wire.ResourceSGPU: "1", wire.ResourceVCore: "30"},
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 64 << 10}},
		},
		"two whole cards": {
			allocation: `[[{"uuid":"GPU-a","compute":100,"vRam":65536},{"uuid":"GPU-b","compute":100,"vRam":65536}]]`, limits: map[corev1.ResourceName]string{wire.ResourceGPU: "2"},
			want: []ledger.Share{{Card: 0, Compute: 100, Memory: 64 << 10, Exclusive: true}, {Card: 1, Compute: 100, Memory: 64 << 10, Exclusive: true}},
		},
		"a seat": {
			serves: ledger.Serves{Seats: true}, allocation: `[[{"uuid":"GPU-b"}]]`, limits: map[corev1.ResourceName]string{wire.ResourceGPU: "1"},
			want: []ledger.Share{{Card: 1}}, wantSeats: true,
		},
		"more than the limits are cut to them": {
			allocation: `[[{"uuid":"GPU-b","compute":100,"vRam":65536}]]`, limits: part,
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 4096}},
		},
		"less compute than asked for": {
			allocation: `[[{"uuid":"GPU-b","compute":29,"vRam":4096}]]`, limits: part, wantErr: "its allocation has 29% of card GPU-b, it asks for 30%",
		},
		"less memory than asked for": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":128}]]`, limits: part, wantErr: "its allocation has 128 MiB of card GPU-b, it asks for 4 GiB",
		},
		"one card twice": {
			allocation: `[[{"uuid":"GPU-a","compute":100,"vRam":65536},{"uuid":"GPU-a","compute":100,"vRam":65536}]]`, limits: map[corev1.ResourceName]string{wire.ResourceGPU: "2"},
			wantErr: "a container names card GPU-a twice",
		},
		"a card that the pod leaves out": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":4096}]]`, limits: part,
			change:  func(p *corev1.Pod) { p.Annotations[wire.AnnotationNoUseCards] = "GPU-b" },
			wantErr: "its allocation names card GPU-b, which its own lists leave out",
		},
		"another node": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":4096}]]`, limits: part,
			change:  func(p *corev1.Pod) { p.Spec.NodeName = "n2" },
			wantErr: `the pod is on node "n2", not on n1`,
		},
		"another container": {
			allocation: `[[{"uuid":"GPU-b","compute":30,"vRam":4096}]]`, limits: part, container: "x", wantErr: `the pod has no container "x"`,
		},
		"a pod without cards": {
			limits: map[corev1.ResourceName]string{"cpu": "1"}, wantErr: "the pod asks for no MetaX cards",
		},
		"an invalid request": {
			limits: map[corev1.ResourceName]string{wire.ResourceSGPU: "1", wire.ResourceVCore: "120"}, wantErr: "the pod's request is invalid",
		},
		"no allocation that can be read": {
			allocation: "x", limits: part, wantErr: "no annotation names its cards",
		},
		"no allocation": {
			limits: map[corev1.ResourceName]string{wire.ResourceGPU: "1"}, serves: ledger.Serves{Whole: true}, wantErr: "no annotation names its cards",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			serves := tc.serves
			if serves == (ledger.Serves{}) {
				serves = slices
			}
			pod := claimPod(tc.allocation, tc.limits)
			if tc.change != nil {
				tc.change(pod)
			}
			container := tc.container
			if container == "" {
				container = "main"
			}
			claim, err := ClaimOf(claimNode(t, serves), pod, container)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, claim.Shares); diff != "" || claim.Seats != tc.wantSeats {
				t.Errorf("seats %t, shares (-want +got):\n%s", claim.Seats, diff)
			}
		})
	}
}

// What the agent says of slices of others is booked, and a node whose agent
// does not serve is paused.
func TestWhatTheAgentSays(t *testing.T) {
	topology := claimNode(t, ledger.Serves{}).Topology()
	status := make([]inventory.CardStatus, 2)
	status[0].Conditions = []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionFalse, Message: "the agent is about to end"}}
	device, err := inventory.EncodeDevice(&inventory.Publication{
		Node: "n1", Mode: gpu.ModeSGPU, Topology: topology, Cards: status,
		ForeignSlices: map[gpu.CardID]inventory.ForeignSlice{"GPU-b": {Slices: 2, Compute: 30, Memory: 1000, QoS: gpu.BurstShare}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := inventory.ReadInventory(nil, device).NewNode()
	if n.Paused != "the agent is about to end" {
		t.Errorf("paused: %q", n.Paused)
	}
	want := []ledger.Usage{{}, {Slots: 2, Compute: 30, Memory: 1024, QoS: gpu.BurstShare.Set()}}
	if diff := cmp.Diff(want, n.WithoutPods().Usage); diff != "" {
		t.Errorf("foreign usage (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{`, `[{"card":"GPU-b","slices":17}]`, `[{"card":"GPU-b","compute":-1}]`, `[{"card":"GPU-b","memoryMiB":-1}]`, `[{"card":"GPU-b","qosPolicy":"x"}]`} {
		device.Annotations[wire.AnnotationForeignSlices] = bad
		if inv := inventory.ReadInventory(nil, device); inv.Problem == nil {
			t.Errorf("%s was believed", bad)
		}
	}
}
