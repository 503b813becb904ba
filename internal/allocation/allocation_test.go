package allocation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var decided = time.Unix(1_700_000_000, 5)

// bind does what a scheduler does with a pod that fits: it books it and writes
// the annotations on it. It returns false when the pod does not fit.
func bind(t testing.TB, n *ledger.Node, pod *corev1.Pod) (annotations map[string]string, ok bool) {
	t.Helper()
	ask, problems := request.Read(pod)
	if len(problems) > 0 {
		t.Fatalf("refused: %v", problems)
	}
	offer, refusal := place.Fit(n, &ask.Request, &ask.Prefer)
	if refusal.Code != place.Fits {
		return nil, false
	}
	holding, err := n.Commit(offer, HolderOf(pod), &ask.Request)
	gputest.Must(t, err)
	annotations, err = Annotations(n, ask, &holding, decided)
	gputest.Must(t, err)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, annotations)
	pod.Spec.NodeName = n.Name
	return annotations, true
}

func TestAnnotations(t *testing.T) {
	plain := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfos(4)...))
	seats := inventory.ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(4)...), wire.AnnotationMode, "shared"))
	counted := inventory.ReadInventory(gputest.MakeNode("gpu: 4"), nil)
	sparse := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfo("GPU-x", 4), gputest.CardInfo("GPU-y", 9)))
	const ring = `{"cards":["GPU-0","GPU-1","GPU-2","GPU-3"],"links":["-M..","M-..","..-M","..M-"]}`
	linked := inventory.ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(4)...), wire.AnnotationLinks, ring))
	slice := func(qos, allocated, hami string) []string {
		list := []string{wire.AnnotationAllocated, allocated, wire.AnnotationHAMiSGPU, hami}
		if qos != "" {
			list = append(list, wire.AnnotationQoS, qos)
		}
		return list
	}
	cases := map[string]struct {
		inventory *inventory.Inventory
		pod       *gputest.PodBuilder
		want      []string // key, value, ...; the node and the time are in all
	}{
		"a slice": {plain, app("sgpu: 1, vcore: 60, vmemory: 4"), slice("best-effort", `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`, "GPU-0,Metax-SGPU,4096,60:;")},
		"a slice with a QoS": {
			plain, app("sgpu: 1, vcore: 60, vmemory: 4").Annotate(wire.AnnotationQoS, "fixed-share"),
			slice("fixed-share", `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`, "GPU-0,Metax-SGPU,4096,60:;"),
		},
		"an online slice has neither compute nor QoS": {
			plain, app("sgpu: 1, vcore: 60, vmemory: 4").Annotate(wire.AnnotationClass, "online"),
			slice("", `[[{"uuid":"GPU-0","vRam":4096}]]`, "GPU-0,Metax-SGPU,4096,0:;"),
		},
		"no compute reserved":                  {plain, app("sgpu: 1, vcore: 0, vmemory: 4"), slice("best-effort", `[[{"uuid":"GPU-0","vRam":4096}]]`, "GPU-0,Metax-SGPU,4096,0:;")},
		"a card alone, in the words of slices": {plain, app("sgpu: 1"), slice("best-effort", `[[{"uuid":"GPU-0","compute":100,"vRam":65536}]]`, "GPU-0,Metax-SGPU,65536,100:;")},
		"slices of two cards": {
			plain, app("sgpu: 2, vcore: 10, vmemory: 1"),
			slice("best-effort", `[[{"uuid":"GPU-0","compute":10,"vRam":1024},{"uuid":"GPU-1","compute":10,"vRam":1024}]]`, "GPU-0,Metax-SGPU,1024,10:GPU-1,Metax-SGPU,1024,10:;"),
		},
		"whole cards": {
			linked, app("gpu: 2"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536},{"uuid":"GPU-1","compute":100,"vRam":65536}]]`,
				wire.AnnotationHAMiGPU, "GPU-0,Metax-GPU,65536,100:GPU-1,Metax-GPU,65536,100:;",
			},
		},
		"several containers, one of which asks nothing": {
			plain, gputest.MakePod("p").Init("sgpu: 1, vcore: 50, vmemory: 8").App("sgpu: 1, vcore: 10, vmemory: 1").App("").App("sgpu: 1, vcore: 20, vmemory: 2"),
			slice("best-effort", `[[{"uuid":"GPU-0","compute":50,"vRam":8192}],[{"uuid":"GPU-0","compute":10,"vRam":1024}],[],[{"uuid":"GPU-0","compute":20,"vRam":2048}]]`, "GPU-0,Metax-SGPU,8192,50:;GPU-0,Metax-SGPU,1024,10:;;GPU-0,Metax-SGPU,2048,20:;"),
		},
		"whole cards and slices": {
			plain, app("gpu: 1").App("sgpu: 1, vcore: 10, vmemory: 1"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536}],[{"uuid":"GPU-1","compute":10,"vRam":1024}]]`,
				wire.AnnotationHAMiGPU, "GPU-0,Metax-GPU,65536,100:;;",
				wire.AnnotationHAMiSGPU, ";GPU-1,Metax-SGPU,1024,10:;",
				wire.AnnotationQoS, "best-effort",
			},
		},
		"Koordinator's words, and a ratio that is cut off": {
			plain, app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi, sgpu: 1"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":5,"vRam":1024}]]`,
				wire.AnnotationHAMiSGPU, "GPU-0,Metax-SGPU,1024,5:;",
				wire.AnnotationQoS, "best-effort",
				wire.AnnotationKoordAllocated, `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"5","koordinator.sh/gpu-memory":"1Gi","koordinator.sh/gpu-memory-ratio":"2"},"id":"GPU-0"}]}`,
			},
		},
		"Koordinator's words for two cards, by minor number": {
			sparse, app("koordinator.sh/gpu: 200"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-x","compute":100,"vRam":65536},{"uuid":"GPU-y","compute":100,"vRam":65536}]]`,
				wire.AnnotationHAMiSGPU, "GPU-x,Metax-SGPU,65536,100:GPU-y,Metax-SGPU,65536,100:;",
				wire.AnnotationQoS, "best-effort",
				wire.AnnotationKoordAllocated, `{"gpu":[{"minor":4,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"64Gi","koordinator.sh/gpu-memory-ratio":"100"},"id":"GPU-x"},` +
					`{"minor":9,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"64Gi","koordinator.sh/gpu-memory-ratio":"100"},"id":"GPU-y"}]}`,
			},
		},
		"Koordinator hears what the pod holds of a card in all": {
			plain, gputest.MakePod("p").Init("sgpu: 1, vcore: 50, vmemory: 1").App("gpu.shared: 1, gpu-core: 5, gpu-memory-ratio: 10").App("sgpu: 1, vcore: 20, vmemory: 2"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":50,"vRam":1024}],[{"uuid":"GPU-0","compute":5,"vRam":6528}],[{"uuid":"GPU-0","compute":20,"vRam":2048}]]`,
				wire.AnnotationHAMiSGPU, "GPU-0,Metax-SGPU,1024,50:;GPU-0,Metax-SGPU,6528,5:;GPU-0,Metax-SGPU,2048,20:;",
				wire.AnnotationQoS, "best-effort",
				wire.AnnotationKoordAllocated, `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8576Mi","koordinator.sh/gpu-memory-ratio":"14"},"id":"GPU-0"}]}`,
			},
		},
		"cards that are only counted": {
			counted, app("gpu: 2"),
			[]string{wire.AnnotationHAMiGPU, "n1-metax-0,Metax-GPU,65536,100:n1-metax-1,Metax-GPU,65536,100:;"},
		},
		"seats": {
			seats, app("gpu: 2"),
			[]string{
				wire.AnnotationAllocated, `[[{"uuid":"GPU-0"},{"uuid":"GPU-1"}]]`,
				wire.AnnotationHAMiGPU, "GPU-0,Metax-GPU,0,0:GPU-1,Metax-GPU,0,0:;",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			n := tc.inventory.NewNode()
			got, ok := bind(t, n, pod)
			if !ok {
				t.Fatal("the pod does not fit")
			}
			want := gputest.Pairs(append(tc.want, wire.AnnotationHAMiNode, "n1", wire.AnnotationPredicateTime, "1700000000000000005")...)
			gputest.Equal(t, "annotations", want, got)
			checkReadsBack(t, tc.inventory, n, podList(pod))
		})
	}
}

// checkReadsBack opens the node again from what stands on the pods: the same
// must be booked, and there must be nothing to remark on.
func checkReadsBack(t *testing.T, inv *inventory.Inventory, live *ledger.Node, pods []*corev1.Pod) {
	t.Helper()
	read, notes := NewNode(inv, pods)
	gputest.Equal(t, "what is booked, written and read", live.Now().Usage, read.Now().Usage)
	if len(notes) > 0 || len(read.Unknown()) > 0 {
		t.Errorf("notes %q, unknown %q", notes, read.Unknown())
	}
	holdings := func(n *ledger.Node) map[ledger.Holder]ledger.Holding {
		byHolder := make(map[ledger.Holder]ledger.Holding)
		for _, h := range n.Holdings() {
			byHolder[h.Holder] = h
		}
		return byHolder
	}
	gputest.Equal(t, "holdings, written and read", holdings(live), holdings(read))
}

// Whatever is placed on whatever node reads back as it was booked.
func TestAnnotationsReadBackProperty(t *testing.T) {
	placed, kinds := 0, map[string]int{}
	for seed := range uint64(600) {
		r := gputest.Rand(seed)
		inv := randomInventory(r)
		if inv.Problem != nil {
			t.Fatal(inv.Problem)
		}
		n := inv.NewNode()
		var pods []*corev1.Pod
		for i := range 1 + r.IntN(12) {
			pod := randomPod(r, fmt.Sprintf("p%d", i))
			if ask, problems := request.Read(pod); ask == nil || len(problems) > 0 {
				continue
			}
			if annotations, ok := bind(t, n, pod); ok {
				pods = append(pods, pod)
				placed++
				for key := range annotations {
					kinds[key]++
				}
			}
		}
		if !inv.Counted { // counted cards are handed out again in order
			r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		}
		checkReadsBack(t, inv, n, pods)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	// The test is worth something only while most of it is about something.
	if placed < 800 || kinds[wire.AnnotationKoordAllocated] < 100 || kinds[wire.AnnotationHAMiGPU] < 100 || kinds[wire.AnnotationHAMiSGPU] < 300 {
		t.Errorf("only %d pods were placed: %v", placed, kinds)
	}
}

// randomInventory returns the inventory of a node of 1 to 12 cards: from a
// Device in any mode, with links or without, from the vendor's annotation, or
// from a number.
func randomInventory(r *rand.Rand) *inventory.Inventory {
	n := 1 + r.IntN(12)
	if r.IntN(10) == 0 {
		return inventory.ReadInventory(gputest.MakeNode(fmt.Sprintf("gpu: %d", n)), nil)
	}
	plan := gputest.Random(r, n)
	device, listed := gputest.MakeDevice(), []inventory.NodeCard{}
	for i := range plan.Cards {
		c := &plan.Cards[i]
		c.Minor = 2*i + r.IntN(2)
		memory := []int64{64 << 10, 64<<10 - 36, 32 << 10, 40000}[r.IntN(4)]
		info := gputest.CardInfo(string(c.ID), int32(c.Minor), gputest.WithMemory(fmt.Sprintf("%dMi", memory)))
		info.Health = r.IntN(8) > 0
		device.Spec.Devices = append(device.Spec.Devices, info)
		listed = append(listed, inventory.NodeCard{UUID: string(c.ID), TotalVRam: memory, Healthy: info.Health, LinkZone: r.IntN(3), TotalDevCount: 16})
	}
	annotation, _ := inventory.EncodeNodeCards(listed)
	links, _ := inventory.EncodeLinks(plan.Topology())
	r.Shuffle(n, func(i, j int) {
		device.Spec.Devices[i], device.Spec.Devices[j] = device.Spec.Devices[j], device.Spec.Devices[i]
	})
	mode := []string{"native", "sgpu", "shared", "vgpu", "sgpu", "sgpu"}[r.IntN(6)]
	switch r.IntN(4) {
	case 0:
		return inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, annotation), nil)
	case 1:
		return inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, annotation), device)
	case 2:
		return inventory.ReadInventory(nil, gputest.Annotated(device, wire.AnnotationLinks, links))
	default:
		return inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationServedBy, "daybreak"), gputest.Annotated(device, wire.AnnotationLinks, links, wire.AnnotationMode, mode))
	}
}

// randomPod returns a pod of a few containers of any kind. Some are refused.
func randomPod(r *rand.Rand, name string) *corev1.Pod {
	b := gputest.MakePod(name)
	kind := r.IntN(5)
	for range r.IntN(3) {
		if r.IntN(2) == 0 {
			b.Init(randomLimits(r, kind))
		} else {
			b.Sidecar(randomLimits(r, kind))
		}
	}
	for range 1 + r.IntN(3) {
		b.App(randomLimits(r, kind))
	}
	if r.IntN(2) == 0 {
		b.Annotate(wire.AnnotationQoS, []string{"best-effort", "fixed-share", "burst-share"}[r.IntN(3)])
	}
	if r.IntN(4) == 0 {
		b.Annotate(wire.AnnotationClass, []string{"online", "offline"}[r.IntN(2)])
	}
	b.Annotate(wire.AnnotationCardPolicy, []string{"binpack", "spread", "mutex,numa"}[r.IntN(3)])
	return b.Obj()
}

// randomLimits returns the limits of a container that asks in a way of the
// given kind, or asks nothing.
func randomLimits(r *rand.Rand, kind int) string {
	one := func(list ...string) string { return list[r.IntN(len(list))] }
	if kind == 4 {
		kind = r.IntN(4)
	}
	switch kind {
	case 0:
		return one("gpu: 1", "gpu: 1", "gpu: 2", "gpu: 3", "")
	case 1:
		return "sgpu: " + one("1", "1", "1", "2") + one("", fmt.Sprintf(", vcore: %d", r.IntN(101)), ", vcore: 7", ", vcore: 0") +
			one("", fmt.Sprintf(", vmemory: %d", 1+r.IntN(40)), ", vmemory: 300Mi", ", vmemory: 1G")
	case 2:
		n := r.IntN(60)
		return fmt.Sprintf("gpu.shared: 1, gpu-core: %d, ", n) + one("gpu-memory: 1Gi", "gpu-memory: 700M", fmt.Sprintf("gpu-memory-ratio: %d", 1+n))
	default:
		return one("koordinator.sh/gpu: 100", "koordinator.sh/gpu: 200", "koordinator.sh/gpu: 33", "gpu-core: 200, gpu-memory: 3Gi, sgpu: 2", "")
	}
}
