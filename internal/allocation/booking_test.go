package allocation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// used is what is booked, by card.
type used map[int]ledger.Usage

func shareOf(compute gpu.Percent, memory gpu.MiB) ledger.Usage {
	return ledger.Usage{Slots: 1, Compute: compute, Memory: memory, QoS: gpu.BestEffort.Set()}
}

func aloneOn(memory gpu.MiB) ledger.Usage {
	return ledger.Usage{Slots: 1, Compute: 100, Memory: memory, Exclusive: true}
}

// bookCase is a pod of default/p on n1 and what is booked for it.
type bookCase struct {
	pod  *gputest.PodBuilder
	want used
	// wantNotes go without "pod default/p on n1: " in front.
	wantNotes   []string
	wantUnknown bool
}

const wantsUnknown = "no annotation names its cards"

// runBook opens node n1 with four cards of 64 GiB, GPU-0 to GPU-3, which have
// the minor numbers 10 to 13, and each pod alone on it.
func runBook(t *testing.T, cases map[string]bookCase) {
	t.Helper()
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfo("GPU-0", 10), gputest.CardInfo("GPU-1", 11), gputest.CardInfo("GPU-2", 12), gputest.CardInfo("GPU-3", 13)))
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) { checkBooked(t, inv, cases[name]) })
	}
}

func checkBooked(t *testing.T, inv *inventory.Inventory, tc bookCase) {
	t.Helper()
	n, notes := NewNode(inv, podList(tc.pod.Obj()))
	got := used{}
	for i, u := range n.Now().Usage {
		if u != (ledger.Usage{}) {
			got[i] = u
		}
	}
	gputest.Equal(t, "booked", tc.want, got, cmpopts.EquateEmpty())
	var want []string
	for _, note := range tc.wantNotes {
		want = append(want, "pod default/p on n1: "+note)
	}
	gputest.Equal(t, "notes", want, notes, cmp.Comparer(func(a, b string) bool { return matches(a, b) || matches(b, a) }))
	if unknown := len(n.Unknown()) > 0; unknown != tc.wantUnknown {
		t.Errorf("unknown holders %q, want some: %t", n.Unknown(), tc.wantUnknown)
	}
	_, refusal := place.Fit(n, gputest.AskSlice(1, 128), &place.Preference{})
	if unaccounted := refusal.Code == place.Unaccounted; unaccounted != tc.wantUnknown {
		t.Errorf("the next pod gets %q, want Unaccounted: %t", refusal.Code, tc.wantUnknown)
	}
}

const (
	askSlice = "sgpu: 1, vcore: 60, vmemory: 4"
	askKoord = "gpu.shared: 1, gpu-core: 60, gpu-memory: 4Gi"
)

// koordOf is Koordinator's annotation for one card.
func koordOf(card string) string { return `{"gpu":[` + card + `]}` }

func TestBookByOneAnnotation(t *testing.T) {
	vendor := func(ask, text string) *gputest.PodBuilder {
		return app(ask).On("n1").Annotate(wire.AnnotationAllocated, text)
	}
	hami := func(ask, text string) *gputest.PodBuilder {
		return app(ask).On("n1").Annotate(wire.AnnotationHAMiSGPU, text)
	}
	koord := func(ask, text string) *gputest.PodBuilder {
		return app(ask).On("n1").Annotate(wire.AnnotationKoordAllocated, text)
	}
	runBook(t, map[string]bookCase{
		"the vendor's":                       {pod: vendor(askSlice, `[[{"uuid":"GPU-2","compute":60,"vRam":4096}]]`), want: used{2: shareOf(60, 4096)}},
		"the vendor's, alone":                {pod: vendor("sgpu: 1", `[[{"uuid":"GPU-2","compute":100,"vRam":65536}]]`), want: used{2: aloneOn(65536)}},
		"the vendor's, memory between steps": {pod: vendor(askSlice, `[[{"uuid":"GPU-2","compute":60,"vRam":3814}]]`), want: used{2: shareOf(60, 3840)}},
		"the vendor's, with a field of a newer writer": {
			pod: vendor(askSlice, `[[{"uuid":"GPU-2","compute":60,"vRam":4096,"priority":{"a":1}}]]`), want: used{2: shareOf(60, 4096)},
		},
		"the vendor's, whole cards": {
			pod:  vendor("gpu: 2", `[[{"uuid":"GPU-3","compute":100,"vRam":65536},{"uuid":"GPU-1","compute":100,"vRam":65536}]]`),
			want: used{1: aloneOn(65536), 3: aloneOn(65536)},
		},
		"the vendor's, online": {
			pod:  vendor(askSlice, `[[{"uuid":"GPU-2","vRam":4096}]]`).Annotate(wire.AnnotationClass, "online"),
			want: used{2: {Slots: 1, Online: 1, Memory: 4096}},
		},
		"HAMi's":                              {pod: hami(askSlice, "GPU-1,Metax-SGPU,4096,60:;"), want: used{1: shareOf(60, 4096)}},
		"HAMi's, with a field of a newer one": {pod: hami(askSlice, "GPU-1,Metax-SGPU,4096,60,0,x:;"), want: used{1: shareOf(60, 4096)}},
		"HAMi's, two cards":                   {pod: hami("sgpu: 2, vcore: 5", "GPU-1,Metax-SGPU,65536,5:GPU-0,Metax-SGPU,65536,5:;"), want: used{0: shareOf(5, 65536), 1: shareOf(5, 65536)}},
		"HAMi's, fixed share": {
			pod:  hami(askSlice, "GPU-1,Metax-SGPU,4096,60:;").Annotate(wire.AnnotationQoS, "fixed-share"),
			want: used{1: {Slots: 1, Compute: 60, Memory: 4096, QoS: gpu.FixedShare.Set()}},
		},
		"HAMi's, whole cards": {
			pod:  app("gpu: 1").On("n1").Annotate(wire.AnnotationHAMiGPU, "GPU-1,Metax-GPU,65536,100:;").Annotate(wire.AnnotationHAMiSGPU, ";"),
			want: used{1: aloneOn(65536)},
		},
		"HAMi's, a kind for each container": {
			pod: app("gpu: 1").App(askSlice).On("n1").
				Annotate(wire.AnnotationHAMiGPU, "GPU-1,Metax-GPU,65536,100:;;").Annotate(wire.AnnotationHAMiSGPU, ";GPU-2,Metax-SGPU,4096,60:;"),
			want: used{1: aloneOn(65536), 2: shareOf(60, 4096)},
		},
		"Koordinator's, by id": {
			pod: koord(askKoord, koordOf(`{"minor":10,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"6"},"id":"GPU-3"}`)),
			// The id counts, not the minor number next to it.
			want: used{3: shareOf(60, 4096)},
		},
		"Koordinator's, by minor number": {
			pod:  koord(askKoord, koordOf(`{"minor":12,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"}}`)),
			want: used{2: shareOf(60, 4096)},
		},
		"Koordinator's, memory by ratio": {
			pod:  koord("koordinator.sh/gpu: 33", koordOf(`{"minor":12,"resources":{"koordinator.sh/gpu-core":33,"koordinator.sh/gpu-memory-ratio":33}}`)),
			want: used{2: shareOf(33, 21504)}, // 168 steps
		},
		"Koordinator's, two cards alone, with other devices": {
			pod: koord("koordinator.sh/gpu: 200", `{"rdma":[{"minor":0}],"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"64Gi"}},`+
				`{"id":"GPU-1","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}`),
			want: used{0: aloneOn(65536), 1: aloneOn(65536)},
		},
		"Koordinator's, of a pod with an init container": {
			pod: gputest.MakePod("p").Init("").App(askKoord).On("n1").
				Annotate(wire.AnnotationKoordAllocated, koordOf(`{"minor":11,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"}}`)),
			want: used{1: shareOf(60, 4096)},
		},
	})
}

func TestBookBySeveralAnnotations(t *testing.T) {
	const (
		vendor60 = `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`
		vendor30 = `[[{"uuid":"GPU-0","compute":30,"vRam":4096}]]`
		hami60   = "GPU-0,Metax-SGPU,4096,60:;"
		hami30   = "GPU-0,Metax-SGPU,4096,30:;"
		koord60  = `{"gpu":[{"minor":10,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"},"id":"GPU-0"}]}`
		koordOn1 = `{"gpu":[{"minor":11,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"4Gi"},"id":"GPU-1"}]}`

		hamiDiffers  = wire.AnnotationHAMiSGPU + " has other amounts than the annotations before it: booked at the larger"
		koordDiffers = wire.AnnotationKoordAllocated + " has other amounts than the annotations before it: booked at the larger"
	)
	pod := func(annotations ...string) *gputest.PodBuilder {
		b := app(askKoord).On("n1")
		for key, value := range gputest.Pairs(annotations...) {
			b.Annotate(key, value)
		}
		return b
	}
	runBook(t, map[string]bookCase{
		"all of one mind": {
			pod: pod(wire.AnnotationAllocated, vendor60, wire.AnnotationHAMiSGPU, hami60, wire.AnnotationKoordAllocated, koord60), want: used{0: shareOf(60, 4096)},
		},
		"HAMi's is the larger": {
			pod:  pod(wire.AnnotationAllocated, vendor30, wire.AnnotationHAMiSGPU, hami60),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{hamiDiffers},
		},
		"the vendor's is the larger": {
			pod:  pod(wire.AnnotationAllocated, vendor60, wire.AnnotationHAMiSGPU, hami30),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{hamiDiffers},
		},
		"more cards are the larger": {
			pod: app("sgpu: 2, vcore: 10, vmemory: 1").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":10,"vRam":1024}]]`).
				Annotate(wire.AnnotationHAMiSGPU, "GPU-0,Metax-SGPU,128,1:GPU-1,Metax-SGPU,128,1:;"),
			want: used{0: shareOf(1, 128), 1: shareOf(1, 128)}, wantNotes: []string{hamiDiffers},
		},
		"the same amounts of memory decide": {
			pod:  pod(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":60,"vRam":1024}]]`, wire.AnnotationHAMiSGPU, hami60),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{hamiDiffers},
		},
		"as large but elsewhere: the most trusted": {
			pod:  pod(wire.AnnotationAllocated, vendor60, wire.AnnotationKoordAllocated, koordOn1),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{koordDiffers},
		},
		"HAMi's before Koordinator's": {
			pod:  pod(wire.AnnotationHAMiSGPU, hami60, wire.AnnotationKoordAllocated, koordOn1),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{koordDiffers},
		},
		"one that can't be read is passed over": {
			pod:  pod(wire.AnnotationAllocated, "[[", wire.AnnotationHAMiSGPU, hami60),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{wire.AnnotationAllocated + ": unexpected end of JSON input"},
		},
		"one that names no card is passed over": {
			pod:  pod(wire.AnnotationAllocated, "[[]]", wire.AnnotationHAMiSGPU, hami60),
			want: used{0: shareOf(60, 4096)}, wantNotes: []string{wire.AnnotationAllocated + ": names no card for container c0"},
		},
	})
}

func TestBookUnreadable(t *testing.T) {
	bad := func(key, text, want string) bookCase {
		return bookCase{
			pod: app(askSlice).On("n1").Annotate(key, text), wantUnknown: true,
			wantNotes: []string{key + ": " + want, wantsUnknown},
		}
	}
	vendor := func(text, want string) bookCase { return bad(wire.AnnotationAllocated, text, want) }
	hami := func(text, want string) bookCase { return bad(wire.AnnotationHAMiSGPU, text, want) }
	koord := func(text, want string) bookCase { return bad(wire.AnnotationKoordAllocated, text, want) }
	runBook(t, map[string]bookCase{
		"no annotation":                          {pod: app(askSlice).On("n1"), wantUnknown: true, wantNotes: []string{wantsUnknown}},
		"only other annotations":                 {pod: app(askSlice).On("n1").Annotate(wire.AnnotationPredicateTime, "1"), wantUnknown: true, wantNotes: []string{wantsUnknown}},
		"vendor: nothing":                        vendor("", "unexpected end of JSON input"),
		"vendor: null":                           vendor("null", "has entries for 0 containers, the pod has 1"),
		"vendor: no list of lists":               vendor(`[{"uuid":"GPU-0"}]`, "json: cannot unmarshal object..."),
		"vendor: names no card":                  vendor(`[[]]`, "names no card for container c0"),
		"vendor: two containers too many":        vendor(`[[],[],[{"uuid":"GPU-0"}]]`, "has entries for 3 containers, the pod has 1"),
		"vendor: no uuid":                        vendor(`[[{"compute":60}]]`, `uuid "": want 1 to 96 characters`),
		"vendor: compute of 101":                 vendor(`[[{"uuid":"GPU-0","compute":101}]]`, "card GPU-0: compute 101: want percent from 0 to 100"),
		"vendor: negative compute":               vendor(`[[{"uuid":"GPU-0","compute":-1}]]`, "card GPU-0: compute -1: want percent from 0 to 100"),
		"vendor: negative memory":                vendor(`[[{"uuid":"GPU-0","vRam":-1}]]`, "card GPU-0: memory -1: want MiB from 0 to 16777216"),
		"vendor: too much memory":                vendor(`[[{"uuid":"GPU-0","vRam":16777217}]]`, "card GPU-0: memory 16777217: want MiB from 0 to 16777216"),
		"vendor: a card twice":                   vendor(`[[{"uuid":"GPU-0"},{"uuid":"GPU-0"}]]`, "a container names card GPU-0 twice"),
		"hami: no end":                           hami("GPU-0,Metax-SGPU,4096,60:", "does not end in a semicolon"),
		"hami: names no card":                    hami(";", "names no card for container c0"),
		"hami: three fields":                     hami("GPU-0,Metax-SGPU,4096:;", `share "GPU-0,Metax-SGPU,4096" has 3 fields, want uuid,type,memory,compute`),
		"hami: another vendor's":                 hami("GPU-0,NVIDIA,4096,60:;", `share "GPU-0,NVIDIA,4096,60" is of type "NVIDIA", want Metax-SGPU or Metax-GPU`),
		"hami: memory is no number":              hami("GPU-0,Metax-SGPU,4Gi,60:;", `share "GPU-0,Metax-SGPU,4Gi,60": memory "4Gi" is no number`),
		"hami: compute is no number":             hami("GPU-0,Metax-SGPU,4096,all:;", `share "GPU-0,Metax-SGPU,4096,all": compute "all" is no number`),
		"hami: compute of 101":                   hami("GPU-0,Metax-SGPU,4096,101:;", "card GPU-0: compute 101: want percent from 0 to 100"),
		"hami: a made-up name":                   hami("n1-metax-0,Metax-GPU,65536,100:;", "n1-metax-0 is a made-up name: the vendor's plugin picked the card"),
		"hami: a card twice":                     hami("GPU-0,Metax-SGPU,1,1:GPU-0,Metax-SGPU,1,1:;", "a container names card GPU-0 twice"),
		"hami: a container too many":             hami("GPU-0,Metax-SGPU,1,1:;;", "has entries for 2 containers, the pod has 1"),
		"koordinator: no JSON":                   koord("{", "unexpected end of JSON input"),
		"koordinator: no cards":                  koord(`{"rdma":[{"minor":0}]}`, "names no card"),
		"koordinator: an unknown minor":          koord(koordOf(`{"minor":3}`), "minor 3: the node has no such card"),
		"koordinator: compute of 101":            koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"101"}}`), "card GPU-0: koordinator.sh/gpu-core 101: want percent from 0 to 100"),
		"koordinator: half a percent":            koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"500m"}}`), "card GPU-0: koordinator.sh/gpu-core 500m: want percent from 0 to 100"),
		"koordinator: negative memory":           koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"-1"}}`), "card GPU-0: koordinator.sh/gpu-memory -1: want bytes, at most 16Ti"),
		"koordinator: a ratio of 101":            koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory-ratio":"101"}}`), "card GPU-0: koordinator.sh/gpu-memory-ratio 101: want percent from 0 to 100"),
		"koordinator: no quantity":               koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"4GiB"}}`), `[gpu][0].resources[koordinator.sh/gpu-memory]: "4GiB" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`),
		"koordinator: a quantity without end":    koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"1e-2147483647"}}`), `[gpu][0].resources[koordinator.sh/gpu-memory]: "1e-2147483647" is no amount of anything: write a number without an exponent`),
		"koordinator: a quantity past computing": koord(koordOf(`{"id":"GPU-0","resources":{"other":1e2147483647}}`), `[gpu][0].resources[other]: "1e2147483647" is no amount of anything: write a number without an exponent`),
		"koordinator: too many digits":           koord(koordOf(`{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"`+strings.Repeat("7", 129)+`"}}`), `[gpu][0].resources[koordinator.sh/gpu-memory]: "`+strings.Repeat("7", 40)+`" is no amount of anything: write a number without an exponent`),
		"koordinator: a card twice":              koord(koordOf(`{"id":"GPU-0"},{"minor":10}`), "a container names card GPU-0 twice"),
		"written for another node": {
			pod:         app(askSlice).On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`).Annotate(wire.AnnotationHAMiNode, "n2"),
			wantNotes:   []string{wire.AnnotationAllocated + ": was written for another node: hami.io/vgpu-node differs from spec.nodeName", wantsUnknown},
			wantUnknown: true,
		},
		"HAMi's two do not go together": {
			pod: app("gpu: 1").App(askSlice).On("n1").
				Annotate(wire.AnnotationHAMiGPU, "GPU-1,Metax-GPU,65536,100:;;").Annotate(wire.AnnotationHAMiSGPU, "GPU-2,Metax-SGPU,4096,60:;"),
			wantNotes: []string{wire.AnnotationHAMiSGPU + ": entries for 1 and for 2 containers", wantsUnknown}, wantUnknown: true,
		},
		"one of two containers has cards without a name": {
			pod:         app(askSlice).App("gpu: 1").On("n1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":60,"vRam":4096}],[]]`),
			wantNotes:   []string{wire.AnnotationAllocated + ": names no card for container c1", wantsUnknown},
			wantUnknown: true,
		},
		"an init container has cards without a name, and no other has any": {
			pod:         gputest.MakePod("p").Init("gpu: 1").App("").On("n1").Annotate(wire.AnnotationAllocated, `[[],[]]`),
			wantNotes:   []string{wire.AnnotationAllocated + ": names no card", wantsUnknown},
			wantUnknown: true,
		},
		"one list for the pod, and nothing on it": {
			pod:         app(askSlice).App("").On("n1").Annotate(wire.AnnotationAllocated, `[[]]`),
			wantNotes:   []string{wire.AnnotationAllocated + ": names no card", wantsUnknown},
			wantUnknown: true,
		},
		"a whole card that the vendor's plugin picked, with an empty list": {
			pod: app("gpu: 1").On("n1").Annotate(wire.AnnotationAllocated, "[[]]").
				Annotate(wire.AnnotationHAMiSGPU, ";").Annotate(wire.AnnotationHAMiGPU, "n1-metax-3,Metax-GPU,65536,100:;"),
			wantNotes: []string{
				wire.AnnotationAllocated + ": names no card for container c0",
				wire.AnnotationHAMiSGPU + ": n1-metax-3 is a made-up name: the vendor's plugin picked the card",
				wantsUnknown,
			},
			wantUnknown: true,
		},
	})
}

func TestBookWhoHolds(t *testing.T) {
	const allocated = `[[{"uuid":"GPU-0","compute":60,"vRam":4096}]]`
	bound := func() *gputest.PodBuilder {
		return app(askSlice).On("n1").Annotate(wire.AnnotationAllocated, allocated)
	}
	terminating := bound().Phase(corev1.PodRunning)
	terminating.Obj().DeletionTimestamp = &metav1.Time{}
	held := used{0: shareOf(60, 4096)}
	runBook(t, map[string]bookCase{
		"bound and not started":  {pod: bound(), want: held},
		"pending":                {pod: bound().Phase(corev1.PodPending), want: held},
		"running":                {pod: bound().Phase(corev1.PodRunning), want: held},
		"of unknown phase":       {pod: bound().Phase(corev1.PodUnknown), want: held},
		"being deleted":          {pod: terminating, want: held},
		"succeeded":              {pod: bound().Phase(corev1.PodSucceeded)},
		"failed":                 {pod: bound().Phase(corev1.PodFailed)},
		"failed, and unreadable": {pod: app(askSlice).On("n1").Phase(corev1.PodFailed)},
		"not bound":              {pod: app(askSlice).Annotate(wire.AnnotationAllocated, allocated)},
		"not bound, but HAMi says so": {
			pod: app(askSlice).Annotate(wire.AnnotationHAMiSGPU, "GPU-0,Metax-SGPU,4096,60:;").Annotate(wire.AnnotationHAMiNode, "n1"),
		},
		"asks nothing":        {pod: app("cpu: 1").On("n1").Annotate(wire.AnnotationAllocated, allocated)},
		"asks for none":       {pod: app("sgpu: 0").On("n1").Annotate(wire.AnnotationAllocated, allocated)},
		"asks another vendor": {pod: app("nvidia.com/gpu: 1").On("n1").Annotate(wire.AnnotationKoordAllocated, koordOf(`{"minor":10}`))},
	})
}
