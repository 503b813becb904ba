package allocation

import (
	"cmp"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// claimNode is a node with two cards of 64 GiB, GPU-0 and GPU-1.
func claimNode(serves ledger.Serves) *ledger.Node {
	return ledger.NewNode("n1", gputest.Zones(1, 1), serves)
}

func TestClaimOf(t *testing.T) {
	slices := ledger.Serves{Whole: true, Slices: true}
	const part = "sgpu: 1, vcore: 30, vmemory: 4"
	cases := map[string]struct {
		serves     ledger.Serves
		allocation string
		limits     string
		change     func(*corev1.Pod)
		container  string
		want       []ledger.Share
		wantSeats  bool
		wantErr    string
	}{
		"a slice": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":4096}]]`, limits: part,
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 4096}},
		},
		"all memory of a card that has less by now": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":66560}]]`, limits: "sgpu: 1, vcore: 30",
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 64 << 10}},
		},
		"two whole cards": {
			allocation: `[[{"uuid":"GPU-0","compute":100,"vRam":65536},{"uuid":"GPU-1","compute":100,"vRam":65536}]]`, limits: "gpu: 2",
			want: []ledger.Share{{Card: 0, Compute: 100, Memory: 64 << 10, Exclusive: true}, {Card: 1, Compute: 100, Memory: 64 << 10, Exclusive: true}},
		},
		"a seat": {
			serves: ledger.Serves{Seats: true}, allocation: `[[{"uuid":"GPU-1"}]]`, limits: "gpu: 1",
			want: []ledger.Share{{Card: 1}}, wantSeats: true,
		},
		"more than the limits are cut to them": {
			allocation: `[[{"uuid":"GPU-1","compute":100,"vRam":65536}]]`, limits: part,
			want: []ledger.Share{{Card: 1, Compute: 30, Memory: 4096}},
		},
		"less compute than asked for": {
			allocation: `[[{"uuid":"GPU-1","compute":29,"vRam":4096}]]`, limits: part, wantErr: "its allocation has 29% of card GPU-1, it asks for 30%",
		},
		"less memory than asked for": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":128}]]`, limits: part, wantErr: "its allocation has 128 MiB of card GPU-1, it asks for 4 GiB",
		},
		"one card twice": {
			allocation: `[[{"uuid":"GPU-0","compute":100,"vRam":65536},{"uuid":"GPU-0","compute":100,"vRam":65536}]]`, limits: "gpu: 2",
			wantErr: "a container names card GPU-0 twice",
		},
		"a card that the pod leaves out": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":4096}]]`, limits: part,
			change:  func(p *corev1.Pod) { p.Annotations[wire.AnnotationNoUseCards] = "GPU-1" },
			wantErr: "its allocation names card GPU-1, which its own lists leave out",
		},
		"a card of another node": {
			allocation: `[[{"uuid":"GPU-z","compute":30,"vRam":4096}]]`, limits: part, wantErr: "its allocation has 0 cards of this node, it asks for 1",
		},
		"another node": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":4096}]]`, limits: part,
			change:  func(p *corev1.Pod) { p.Spec.NodeName = "n2" },
			wantErr: `the pod is on node "n2", not on n1`,
		},
		"another container": {
			allocation: `[[{"uuid":"GPU-1","compute":30,"vRam":4096}]]`, limits: part, container: "x", wantErr: `the pod has no container "x"`,
		},
		"a pod without cards": {
			limits: "cpu: 1", wantErr: "the pod asks for no MetaX cards",
		},
		"an invalid request": {
			limits: "sgpu: 1, vcore: 120", wantErr: "the pod's request is invalid",
		},
		"no allocation that can be read": {
			allocation: "x", limits: part, wantErr: "no annotation names its cards",
		},
		"no allocation": {
			limits: "gpu: 1", serves: ledger.Serves{Whole: true}, wantErr: "no annotation names its cards",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := app(tc.limits).On("n1").Annotate(wire.AnnotationAllocated, tc.allocation).Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			claim, err := ClaimOf(claimNode(cmp.Or(tc.serves, slices)), pod, cmp.Or(tc.container, "c0"))
			if tc.wantErr != "" {
				gputest.ErrorHas(t, "ClaimOf", tc.wantErr, err)
				return
			}
			gputest.Must(t, err)
			if diff := gocmp.Diff(tc.want, claim.Shares); diff != "" || claim.Seats != tc.wantSeats {
				t.Errorf("seats %t, shares (-want +got):\n%s", claim.Seats, diff)
			}
		})
	}
}

// What the agent says of slices of others is booked, and a node whose agent
// does not serve is paused.
func TestWhatTheAgentSays(t *testing.T) {
	topology := claimNode(ledger.Serves{}).Topology()
	status := make([]inventory.CardStatus, 2)
	status[0].Conditions = []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionFalse, Message: "the agent is about to end"}}
	device, err := inventory.EncodeDevice(&inventory.Publication{
		Node: "n1", Mode: gpu.ModeSGPU, Topology: topology, Cards: status,
		ForeignSlices: map[gpu.CardID]inventory.ForeignSlice{"GPU-1": {Slices: 2, Compute: 30, Memory: 1000, QoS: gpu.BurstShare}},
	})
	gputest.Must(t, err)
	n := inventory.ReadInventory(nil, device).NewNode()
	gputest.Equal(t, "paused", "the agent is about to end", n.Paused)
	want := []ledger.Usage{{}, {Slots: 2, Compute: 30, Memory: 1024, QoS: gpu.BurstShare.Set()}}
	gputest.Equal(t, "foreign usage", want, n.WithoutPods().Usage)
	for _, bad := range []string{`{`, `[{"card":"GPU-1","slices":17}]`, `[{"card":"GPU-1","compute":-1}]`, `[{"card":"GPU-1","memoryMiB":-1}]`, `[{"card":"GPU-1","qosPolicy":"x"}]`} {
		device.Annotations[wire.AnnotationForeignSlices] = bad
		if inv := inventory.ReadInventory(nil, device); inv.Problem == nil {
			t.Errorf("%s was believed", bad)
		}
	}
}
