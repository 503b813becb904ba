package allocation

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// A pod holds no more than it asked for, whatever its annotations say.
func TestBookAtMostTheLimits(t *testing.T) {
	vendorAll := "[[" + repeat(4, ",", `{"uuid":"GPU-%d","compute":100,"vRam":65536}`) + "]]"
	hamiAll := repeat(4, "", "GPU-%d,Metax-SGPU,65536,100:") + ";"
	koordAll := `{"gpu":[` + repeat(4, ",", `{"id":"GPU-%d","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"64Gi"}}`) + "]}"
	pod := func(ask, key, text string) *gputest.PodBuilder { return app(ask).On("n1").Annotate(key, text) }
	small := used{0: shareOf(60, 4096)}
	runBook(t, map[string]bookCase{
		"the vendor's: all cards, all of them":  {pod: pod(askSlice, wire.AnnotationAllocated, vendorAll), want: small},
		"HAMi's: all cards, all of them":        {pod: pod(askSlice, wire.AnnotationHAMiSGPU, hamiAll), want: small},
		"Koordinator's: all cards, all of them": {pod: pod(askKoord, wire.AnnotationKoordAllocated, koordAll), want: small},
		"no compute asked": {
			pod: pod("sgpu: 1, vcore: 0, vmemory: 1", wire.AnnotationAllocated, vendorAll), want: used{0: shareOf(0, 1024)},
		},
		"alone on one card, not on four":         {pod: pod("sgpu: 1", wire.AnnotationAllocated, vendorAll), want: used{0: aloneOn(65536)}},
		"one whole card, not four":               {pod: pod("gpu: 1", wire.AnnotationAllocated, vendorAll), want: used{0: aloneOn(65536)}},
		"as many as asked":                       {pod: pod("gpu: 3", wire.AnnotationAllocated, vendorAll), want: used{0: aloneOn(65536), 1: aloneOn(65536), 2: aloneOn(65536)}},
		"alone, but with the memory asked":       {pod: pod("sgpu: 1, vmemory: 4", wire.AnnotationAllocated, vendorAll), want: used{0: aloneOn(4096)}},
		"online is never alone":                  {pod: pod(askSlice, wire.AnnotationAllocated, vendorAll).Annotate(wire.AnnotationClass, "online"), want: used{0: {Slots: 1, Online: 1, Memory: 4096}}},
		"memory by ratio":                        {pod: pod("koordinator.sh/gpu: 25", wire.AnnotationKoordAllocated, koordAll), want: used{0: shareOf(25, 16384)}},
		"less than asked stays less":             {pod: pod(askSlice, wire.AnnotationAllocated, `[[{"uuid":"GPU-1","compute":5,"vRam":128}]]`), want: used{1: shareOf(5, 128)}},
		"a container that asks nothing has none": {pod: app(askSlice).App("").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-1","compute":60,"vRam":4096}],[{"uuid":"GPU-2","compute":60,"vRam":4096}]]`), want: used{1: shareOf(60, 4096)}},
		"two containers' limits are not those of each card": {
			pod:  app(askKoord).App("gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi").On("n1").Annotate(wire.AnnotationKoordAllocated, koordAll),
			want: used{0: shareOf(70, 5120), 1: shareOf(0, 0)},
		},
		"two containers that fill a card are not alone on it": {
			pod:  app(askKoord).App("gpu.shared: 1, gpu-core: 40, gpu-memory: 1Gi").On("n1").Annotate(wire.AnnotationKoordAllocated, koordOf(`{"minor":10,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"5Gi"}}`)),
			want: used{0: shareOf(100, 5120)},
		},
		"one container alone does not make the others so": {
			pod:  app("koordinator.sh/gpu: 100").App("gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi").On("n1").Annotate(wire.AnnotationKoordAllocated, koordAll),
			want: used{0: aloneOn(65536), 1: shareOf(10, 1024)},
		},
	})
}

func TestBookListsOfContainers(t *testing.T) {
	const (
		onOne = `{"uuid":"GPU-1","compute":10,"vRam":1024}`
		onTwo = `{"uuid":"GPU-2","compute":20,"vRam":2048}`
		small = "sgpu: 1, vcore: 10, vmemory: 1"
		large = "sgpu: 1, vcore: 20, vmemory: 2"
	)
	pod := func(b *gputest.PodBuilder, lists string) *gputest.PodBuilder {
		return b.On("n1").Annotate(wire.AnnotationAllocated, lists)
	}
	both := shareOf(30, 3072)
	both.Slots = 2
	runBook(t, map[string]bookCase{
		"one for each": {pod: pod(app(small).App(large), "[["+onOne+"],["+onTwo+"]]"), want: used{1: shareOf(10, 1024), 2: shareOf(20, 2048)}},
		"two on one card": {
			pod:  pod(app(small).App(large), `[[{"uuid":"GPU-1","compute":10,"vRam":1024}],[{"uuid":"GPU-1","compute":20,"vRam":2048}]]`),
			want: used{1: both},
		},
		"an init container takes from what its pod holds": {
			pod:  pod(gputest.MakePod("p").Init(large).App(small), `[[{"uuid":"GPU-1","compute":20,"vRam":2048}],[`+onOne+`]]`),
			want: used{1: shareOf(20, 2048)},
		},
		"a sidecar adds up": {
			pod:  pod(gputest.MakePod("p").Sidecar(large).App(small), `[[{"uuid":"GPU-1","compute":20,"vRam":2048}],[`+onOne+`]]`),
			want: used{1: both},
		},
		"of a writer that knows no init containers": {
			pod:  pod(gputest.MakePod("p").Init("").Init("cpu: 1").App(small).App(large), "[["+onOne+"],["+onTwo+"]]"),
			want: used{1: shareOf(10, 1024), 2: shareOf(20, 2048)},
		},
		"one for the whole pod goes to the one that asks": {
			pod: pod(app("").App("").App(small), "[["+onOne+"]]"), want: used{1: shareOf(10, 1024)},
		},
		"one for the whole pod, of which two ask": {
			pod: pod(app(small).App(large), "[["+onOne+","+onTwo+"]]"), want: used{1: shareOf(10, 1024), 2: shareOf(20, 2048)},
		},
		"one for the whole pod, of which an init container asks more": {
			pod:  pod(gputest.MakePod("p").Init(large).App(small), "[["+onTwo+"]]"),
			want: used{2: shareOf(20, 2048)},
		},
		"an init container that is not listed uses what its pod holds": {
			pod:  pod(gputest.MakePod("p").Init(large).App(small).App(""), "[["+onOne+"],[]]"),
			want: used{1: shareOf(10, 1024)},
		},
		"Koordinator's two words for the same": {
			pod: pod(app(askKoord).App("").App(askKoord), `[[{"uuid":"GPU-1","compute":60,"vRam":4096},{"uuid":"GPU-2","compute":60,"vRam":4096}]]`).
				Annotate(wire.AnnotationKoordAllocated, `{"gpu":[{"id":"GPU-1","resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"}},`+
					`{"id":"GPU-2","resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"}}]}`),
			want: used{1: shareOf(60, 4096), 2: shareOf(60, 4096)},
		},
	})
}

func TestBookLostCards(t *testing.T) {
	runBook(t, map[string]bookCase{
		"one of two": {
			pod:  app("gpu: 2").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536},{"uuid":"GPU-9","compute":100,"vRam":65536}]]`),
			want: used{0: aloneOn(65536)}, wantNotes: []string{wire.AnnotationAllocated + " names card GPU-9, which the node does not have"},
		},
		"the only one": {
			pod:       app(askSlice).On("n1").Annotate(wire.AnnotationHAMiSGPU, "GPU-9,Metax-SGPU,4096,60:;"),
			wantNotes: []string{wire.AnnotationHAMiSGPU + " names card GPU-9, which the node does not have"},
		},
		"in Koordinator's words, by ratio": {
			pod:       app("koordinator.sh/gpu: 50").On("n1").Annotate(wire.AnnotationKoordAllocated, koordOf(`{"id":"GPU-9","resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}}`)),
			wantNotes: []string{wire.AnnotationKoordAllocated + " names card GPU-9, which the node does not have"},
		},
	})
}

// A pod that would not be admitted today, but runs, holds what it was given.
func TestBookInadmissiblePods(t *testing.T) {
	runBook(t, map[string]bookCase{
		"the vendor's annotation": {
			pod:  app("sgpu: 1, vcore: 120").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536}]]`),
			want: used{0: aloneOn(65536)},
		},
		"a QoS that Koordinator did not look at": {
			pod:  app(askKoord).On("n1").Annotate(wire.AnnotationQoS, "guaranteed").Annotate(wire.AnnotationKoordAllocated, koordOf(`{"minor":10,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"}}`)),
			want: used{0: shareOf(60, 4096)},
		},
		"one list, several containers": {
			pod:  gputest.MakePod("p").Init("").App("vcore: 10").App("").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":10,"vRam":1024}]]`),
			want: used{0: shareOf(10, 1024)},
		},
		"an annotation that names no card": {
			pod: app("sgpu: 1, vcore: 120").On("n1").Annotate(wire.AnnotationAllocated, `[[]]`), wantUnknown: true,
			wantNotes: []string{wire.AnnotationAllocated + ": names no card", wantsUnknown},
		},
		"no annotation": {pod: app("sgpu: 1, vcore: 120").On("n1"), wantUnknown: true, wantNotes: []string{wantsUnknown}},
		"no annotation, and nothing that kubelet calls a plugin for": {pod: app("vcore: 10").On("n1")},
	})
}

// TestBookUnreadablePreferences: an annotation of a bound pod that can't be read
// discards nothing but itself.
func TestBookUnreadablePreferences(t *testing.T) {
	made := func(qos, class string) *gputest.PodBuilder {
		b := app("sgpu: 1, vcore: 30, vmemory: 4").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536}]]`)
		for key, value := range map[string]string{wire.AnnotationQoS: qos, wire.AnnotationClass: class} {
			if value != "" {
				b.Annotate(key, value)
			}
		}
		return b
	}
	cases := map[string]bookCase{
		"the class of the slice can't be read": {pod: made("guaranteed", "offline"), want: used{0: {Slots: 1, Offline: 1, Compute: 30, Memory: 4096, QoS: gpu.BestEffort.Set()}}},
		"the class of the pod can't be read":   {pod: made("fixed-share", "urgent"), want: used{0: {Slots: 1, Compute: 30, Memory: 4096, QoS: gpu.FixedShare.Set()}}},
	}
	for _, key := range wire.AskAnnotations() {
		if key == wire.AnnotationQoS || key == wire.AnnotationClass {
			continue
		}
		cases[key] = bookCase{
			pod:  made("fixed-share", "offline").Annotate(key, strings.Repeat("x,", 1025)),
			want: used{0: {Slots: 1, Offline: 1, Compute: 30, Memory: 4096, QoS: gpu.FixedShare.Set()}},
		}
		if _, problems := request.Read(cases[key].pod.Obj()); len(problems) == 0 {
			t.Errorf("%s was read", key)
		}
	}
	runBook(t, cases)
}

func TestBookOnCountedCards(t *testing.T) {
	inv := inventory.ReadInventory(gputest.MakeNode("gpu: 4"), nil)
	counted := aloneOn(64 << 10)
	cases := map[string]bookCase{
		"by number":                         {pod: app("gpu: 2").On("n1"), want: used{0: counted, 1: counted}},
		"whatever the annotations say":      {pod: app("gpu: 1").On("n1").Annotate(wire.AnnotationHAMiGPU, "n1-metax-3,Metax-GPU,65536,100:;"), want: used{0: counted}},
		"even when it names cards it wants": {pod: app("gpu: 1").On("n1").Annotate(wire.AnnotationUseCards, "GPU-7"), want: used{0: counted}},
		"even when it names cards to avoid": {pod: app("gpu: 1").On("n1").Annotate(wire.AnnotationNoUseCards, "GPU-7"), want: used{0: counted}},
		"an init container takes from what its pod holds": {
			pod: gputest.MakePod("p").Init("gpu: 2").App("gpu: 1").On("n1"), want: used{0: counted, 1: counted},
		},
		"more than there are":                        {pod: app("gpu: 5").On("n1"), wantUnknown: true},
		"slices, which can't be there":               {pod: app(askSlice).On("n1"), wantUnknown: true},
		"a request that makes no sense":              {pod: app("gpu: 65").On("n1"), wantUnknown: true},
		"two cards that kubelet calls no plugin for": {pod: app("gpu-core: 200, gpu-memory-ratio: 200").On("n1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if n := checkBookedOnly(t, inv, tc.pod.Obj(), tc.want); len(n.Unknown()) > 0 != tc.wantUnknown {
				t.Errorf("unknown %q, want some: %t", n.Unknown(), tc.wantUnknown)
			}
		})
	}
}

// Seats have no amounts, whatever the annotation says.
func TestBookSeats(t *testing.T) {
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(4)...), wire.AnnotationMode, "shared"))
	checkBookedOnly(t, inv, app("gpu: 1").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-2","compute":100,"vRam":65536}]]`).Obj(),
		used{2: {Slots: 1}})
}

// checkBookedOnly opens the node with the pod on it and compares what is booked.
func checkBookedOnly(t *testing.T, inv *inventory.Inventory, pod *corev1.Pod, want used) *ledger.Node {
	t.Helper()
	n, notes := NewNode(inv, podList(pod))
	for i, got := range n.Now().Usage {
		gputest.Equal(t, fmt.Sprintf("card %d", i), want[i], got)
	}
	if len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
	return n
}

// One pod whose cards are not known closes the node to all others.
func TestNewNodeSeveralPods(t *testing.T) {
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfos(2)...))
	a, b, lost := app(askSlice).On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`).Obj(),
		app(askSlice).On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`).Obj(),
		app(askSlice).On("n1").Obj()
	a.Name, b.Name, lost.Name = "a", "b", "lost"

	// Reality may break the rules: the card is booked at 120 percent.
	n, notes := NewNode(inv, podList(a, b))
	want := ledger.Usage{Slots: 2, Compute: 120, Memory: 8192, QoS: gpu.BestEffort.Set()}
	if got := n.Now().Usage[0]; got != want || len(notes) > 0 {
		t.Errorf("got %+v, %q, want %+v", got, notes, want)
	}

	n, _ = NewNode(inv, podList(a, lost, b))
	gputest.Equal(t, "with a lost pod", want, n.Now().Usage[0])
	if _, refusal := place.Fit(n, gputest.AskSlice(1, 128), &place.Preference{}); refusal.Code != place.Unaccounted {
		t.Errorf("refusal is %s, want Unaccounted", refusal.Code)
	}
	n.Release(HolderOf(lost))
	if _, refusal := place.Fit(n, gputest.AskSlice(1, 128), &place.Preference{}); refusal.Code != place.Fits {
		t.Errorf("refusal is %s once the lost pod is gone", refusal.Code)
	}
}
