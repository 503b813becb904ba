package allocation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// holding binds a pod to n1 with shares of cards as the vendor writes them.
func holding(name, limits, allocated string) *corev1.Pod {
	return gputest.MakePod(name).App(limits).On("n1").Annotate(wire.AnnotationAllocated, allocated).Obj()
}

// TestOurAnnotationIsNotCounted: the scheduler folds the same account whether
// or not the node carries the annotation that the agent wrote.
func TestOurAnnotationIsNotCounted(t *testing.T) {
	p := &inventory.Publication{Node: "n1", Mode: gpu.ModeSGPU, Topology: gputest.Zones(2, 2), Cards: make([]inventory.CardStatus, 4)}
	d, err := inventory.EncodeDevice(p)
	gputest.Must(t, err)
	pods := podList(
		holding("slices", "sgpu: 1, vcore: 30, vmemory: 16", `[[{"uuid":"GPU-0","compute":30,"vRam":16384}]]`),
		holding("more", "sgpu: 1, vcore: 20, vmemory: 8", `[[{"uuid":"GPU-0","compute":20,"vRam":8192}]]`),
		holding("whole", "gpu: 1", `[[{"uuid":"GPU-3","compute":100,"vRam":65536}]]`),
	)
	account := func(node ...string) *ledger.Node {
		n, notes := NewNode(inventory.ReadInventory(gputest.MakeNode("sgpu: 64", append(node, wire.AnnotationServedBy, wire.ServedByDaybreak)...), d), pods)
		if len(notes) > 0 || n.Problem != nil {
			t.Fatalf("notes %v, problem %v", notes, n.Problem)
		}
		return n
	}
	plain := account()
	text, err := inventory.EncodeNodeCards(inventory.NodeCards(p, plain))
	gputest.Must(t, err)
	scores, losses := inventory.Tables(plain)
	tables := make([]string, 2)
	for i, table := range [][]int64{scores, losses} {
		tables[i], err = inventory.EncodeTable(table)
		gputest.Must(t, err)
	}
	ours := account(wire.AnnotationNodeCards, text, wire.AnnotationScores, tables[0], wire.AnnotationLosses, tables[1])
	// And a stale one, of before the pods came, or after some have gone.
	empty, err := inventory.EncodeNodeCards(inventory.NodeCards(p, gputest.Node(p.Topology)))
	gputest.Must(t, err)
	for name, n := range map[string]*ledger.Node{"a current one": ours, "a stale one": account(wire.AnnotationNodeCards, empty)} {
		gputest.Equal(t, "usage with "+name, plain.Now().Usage, n.Now().Usage)
		gputest.Equal(t, "foreign usage with "+name, plain.WithoutPods().Usage, n.WithoutPods().Usage)
	}
}

// TestBookingsOfPausedNode: pods keep their cards while nothing is known of the
// plugin that gave them.
func TestBookingsOfPausedNode(t *testing.T) {
	node := gputest.MakeNode("gpu: 2")
	pod := app("gpu: 1").On("n1").Obj()
	objects := inventory.NodeObjects{Name: "n1", Node: node}
	n, notes := NewNode(objects.Inventory(), podList(pod))
	if n.Paused == "" || len(n.Unknown()) > 0 || len(n.Holdings()) != 1 || len(notes) > 0 {
		t.Errorf("paused %q, unknown %v, holdings %v, notes %q", n.Paused, n.Unknown(), n.Holdings(), notes)
	}
}
