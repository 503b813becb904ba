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

func TestNewNodeForeignUse(t *testing.T) {
	slicePod := app("sgpu: 1, vcore: 30, vmemory: 4").On("n1").
		Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":30,"vRam":4096}]]`).Obj()
	alonePod := app("sgpu: 1, vmemory: 4").On("n1").
		Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":4096}]]`).Obj()
	const total = `[{"uuid":"GPU-0","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,`
	cases := map[string]struct {
		listed      string
		pods        []*corev1.Pod
		want        ledger.Usage // in all
		wantForeign ledger.Usage // what stays when all pods are gone
	}{
		"nothing is reported": {listed: total + `"qosPolicy":"fixed-share"}]`},
		"all is free, so the card's QoS does not count": {
			listed: total + `"availableDevCount":16,"availableCompute":100,"availableVRam":65536,"qosPolicy":"fixed-share"}]`,
		},
		"a foreign slice, and its QoS": {
			listed:      total + `"availableDevCount":15,"availableCompute":70,"availableVRam":61440,"qosPolicy":"fixed-share"}]`,
			want:        ledger.Usage{Slots: 1, Compute: 30, Memory: 4096, QoS: gpu.FixedShare.Set()},
			wantForeign: ledger.Usage{Slots: 1, Compute: 30, Memory: 4096, QoS: gpu.FixedShare.Set()},
		},
		"a slice that a pod accounts for": {
			listed: total + `"availableDevCount":15,"availableCompute":70,"availableVRam":61440,"qosPolicy":"fixed-share"}]`,
			pods:   podList(slicePod),
			want:   ledger.Usage{Slots: 1, Compute: 30, Memory: 4096, QoS: gpu.BestEffort.Set()},
		},
		"one slice more than pods account for": {
			listed:      total + `"availableDevCount":14,"availableCompute":60,"availableVRam":59392,"qosPolicy":"best-effort"}]`,
			pods:        podList(slicePod),
			want:        ledger.Usage{Slots: 2, Compute: 40, Memory: 6144, QoS: gpu.BestEffort.Set()},
			wantForeign: ledger.Usage{Slots: 1, Compute: 10, Memory: 2048, QoS: gpu.BestEffort.Set()},
		},
		"a report that lags behind": {
			listed: total + `"availableDevCount":16,"availableCompute":100,"availableVRam":65536}]`,
			pods:   podList(slicePod),
			want:   ledger.Usage{Slots: 1, Compute: 30, Memory: 4096, QoS: gpu.BestEffort.Set()},
		},
		"a card held alone is not looked at": {
			listed: total + `"availableDevCount":10,"availableCompute":1,"availableVRam":1,"qosPolicy":"fixed-share"}]`,
			pods:   podList(alonePod),
			want:   ledger.Usage{Slots: 1, Compute: 100, Memory: 4096, Exclusive: true},
		},
		"all in use, which leaves every figure out, as another card's report shows": {
			listed:      total + `"qosPolicy":"fixed-share"},{"uuid":"GPU-1","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,"availableDevCount":16}]`,
			want:        ledger.Usage{Slots: 16, Compute: 100, Memory: 65536, QoS: gpu.FixedShare.Set()},
			wantForeign: ledger.Usage{Slots: 16, Compute: 100, Memory: 65536, QoS: gpu.FixedShare.Set()},
		},
		"no compute left, which leaves the figure out": {
			listed:      total + `"availableDevCount":15,"availableVRam":61440}]`,
			want:        ledger.Usage{Slots: 1, Compute: 100, Memory: 4096},
			wantForeign: ledger.Usage{Slots: 1, Compute: 100, Memory: 4096},
		},
		"memory is counted in steps": {
			listed:      total + `"availableDevCount":15,"availableCompute":99,"availableVRam":65535}]`,
			want:        ledger.Usage{Slots: 1, Compute: 1, Memory: 128},
			wantForeign: ledger.Usage{Slots: 1, Compute: 1, Memory: 128},
		},
		"more available than there is": {
			listed: total + `"availableDevCount":99,"availableCompute":999,"availableVRam":9999999}]`,
		},
		"less than nothing available": {
			listed:      total + `"availableDevCount":-9000000000000000000,"availableCompute":-9000000000000000000,"availableVRam":-9000000000000000000}]`,
			want:        ledger.Usage{Slots: 16, Compute: 100, Memory: 65536},
			wantForeign: ledger.Usage{Slots: 16, Compute: 100, Memory: 65536},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for source, inv := range map[string]*inventory.Inventory{
				"the annotation": inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, tc.listed), nil),
				"both":           inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, tc.listed), gputest.MakeDevice(gputest.CardInfos(1)...)),
			} {
				if inv.Problem != nil {
					t.Fatal(inv.Problem)
				}
				n, _ := NewNode(inv, tc.pods)
				gputest.Equal(t, "from "+source+": in use", tc.want, n.Now().Usage[0])
				gputest.Equal(t, "from "+source+": foreign", tc.wantForeign, n.WithoutPods().Usage[0])
			}
		})
	}
}

// The figures belong to a card, wherever the Device puts it.
func TestNewNodeForeignUseByCard(t *testing.T) {
	inv := inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, `[
		{"uuid":"GPU-1","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"availableDevCount":15,"availableCompute":80,"availableVRam":65408},
		{"uuid":"GPU-9"},
		{"uuid":"GPU-0","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"availableDevCount":16,"availableCompute":100,"availableVRam":65536}]`),
		gputest.MakeDevice(gputest.CardInfos(3)...))
	n, _ := NewNode(inv, nil)
	want := []ledger.Usage{{}, {Slots: 1, Compute: 20, Memory: 128}}
	gputest.Equal(t, "in use", want, n.Now().Usage)
}

// TestBookForeignWithComingPods: a pod that the node does not know of yet hides
// foreign slice, whose report looks as if it could be the pod's.
func TestBookForeignWithComingPods(t *testing.T) {
	node := &corev1.Node{}
	node.Name = "n1"
	node.Annotations = map[string]string{wire.AnnotationNodeCards: `[{"uuid":"GPU-0","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,` +
		`"availableDevCount":15,"availableCompute":95,"availableVRam":16384,"qosPolicy":"best-effort"}]`}
	inv := inventory.ReadInventory(node, nil)
	holding := func(name string) ledger.Holding {
		return ledger.Holding{Holder: ledger.Holder(name), QoS: gpu.BestEffort, Parts: []ledger.Part{{Shares: []ledger.Share{{Compute: 10, Memory: 4096}}}}}
	}
	n := inv.NewNode()
	n.Book(holding("a"))
	n.Book(holding("b"))
	inv.BookForeign(n, holding("a"), holding("b"))
	gputest.Equal(t, "in use", ledger.Usage{Slots: 3, Compute: 25, Memory: 48<<10 + 8192, QoS: gpu.BestEffort.Set()}, n.Now().Usage[0])
	inv.BookForeign(n, holding("b")) // now the slice is a's
	gputest.Equal(t, "in use when one of them is there", ledger.Usage{Slots: 2, Compute: 20, Memory: 8192, QoS: gpu.BestEffort.Set()}, n.Now().Usage[0])
}
