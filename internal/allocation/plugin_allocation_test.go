package allocation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestPluginAllocations: a pod without an allocation is booked on the cards that
// kubelet gave it, with what it asks for.
func TestPluginAllocations(t *testing.T) {
	const text = `[{"uid":"u1","containers":{"c0":["GPU-1"],"c1":["GPU-2","GPU-3"]}},{"uid":"u2","containers":{"c0":["GPU-0"]}}]`
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(4)...), wire.AnnotationPluginAllocations, text))
	if inv.Problem != nil {
		t.Fatal(inv.Problem)
	}
	two := gputest.MakePod("p").App("sgpu: 1, vcore: 10, vmemory: 4").App("gpu: 2")
	cases := map[string]struct {
		pod  *gputest.PodBuilder
		uid  types.UID
		want string // card, compute, memory; or unknown
	}{
		"no allocation on the pod":           {two, "u1", "1:10%:4096 2:100%:65536 3:100%:65536"},
		"another pod of the same name":       {two, "u9", "unknown"},
		"kubelet knows better than the pod":  {gputest.MakePod("p").App("gpu: 1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0","compute":100,"vRam":65536}]]`), "u1", "1:100%:65536"},
		"a request that makes no sense":      {gputest.MakePod("p").App("sgpu: 1, vcore: 900"), "u1", "1:100%:65536"},
		"containers that kubelet names not":  {gputest.MakePod("p").Init("").App("gpu: 1"), "u1", "2:100%:65536"},
		"a container that asks has no cards": {gputest.MakePod("p").App("").App("").App("gpu: 1"), "u1", "unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.On("n1").Obj()
			pod.UID = tc.uid
			n, notes := NewNode(inv, podList(pod))
			var got []string
			for i, u := range n.Now().Usage {
				if u.Slots > 0 {
					got = append(got, fmt.Sprintf("%d:%d%%:%d", i, u.Compute, u.Memory))
				}
			}
			if len(n.Unknown()) > 0 {
				got = append(got, "unknown")
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("booked %v, want %s; notes %q", got, tc.want, notes)
			}
			if tc.want == "unknown" {
				if _, refusal := place.Fit(n, gputest.AskSlice(10, 1024), &place.Preference{}); refusal.Code != place.Unaccounted {
					t.Errorf("refusal is %s", refusal.Code)
				}
			}
		})
	}
}

// TestMayHold: a pod without a readable allocation takes its node out of service
// only where it may hold cards.
func TestMayHold(t *testing.T) {
	const (
		ours, vendors = wire.ServedByDaybreak, wire.ServedByVendor
		gave          = `[{"uid":"u1","containers":{"c0":["GPU-1"]}}]`
		gaveSome      = `[{"uid":"u1","containers":{"c0":[]}}]` // kubelet's ids name no card that the node has
		gaveOthers    = `[{"uid":"u2","containers":{"c0":["GPU-1"]}}]`
	)
	slice := app("sgpu: 1, vcore: 10, vmemory: 1")
	cases := map[string]struct {
		pod       *gputest.PodBuilder
		servedBy  string
		given     string // empty where the agent has said nothing
		want      string
		simulated bool // no agent says that it serves
	}{
		"Koordinator's words, Daybreak serves":                 {pod: app("gpu-core: 1"), servedBy: ours, given: "[]", want: "nothing"},
		"Koordinator's words, kubelet was not asked":           {pod: app("gpu-core: 1"), servedBy: ours, given: "", want: "nothing"},
		"Koordinator's words, the vendor's plugin serves":      {pod: app("gpu-core: 1"), servedBy: vendors, given: "", want: "nothing"},
		"amounts of no card":                                   {pod: app("vcore: 10"), servedBy: vendors, given: "", want: "nothing"},
		"no cards, in a template's way":                        {pod: app("sgpu: 0, gpu-core: 1"), servedBy: vendors, given: "", want: "nothing"},
		"a slice, Daybreak serves":                             {pod: slice, servedBy: ours, given: "[]", want: "nothing"},
		"a slice, Daybreak serves, others were given cards":    {pod: slice, servedBy: ours, given: gaveOthers, want: "nothing"},
		"a slice, Daybreak serves and has not asked kubelet":   {pod: slice, servedBy: ours, given: "", want: "unknown"},
		"a slice, a simulated node":                            {pod: slice, servedBy: ours, want: "nothing", simulated: true},
		"a slice, the vendor's plugin serves":                  {pod: slice, servedBy: vendors, given: "", want: "unknown"},
		"a slice, the vendor's plugin serves, kubelet asked":   {pod: slice, servedBy: vendors, given: "[]", want: "unknown"},
		"a slice, not known who serves":                        {pod: slice, servedBy: "", given: "[]", want: "unknown"},
		"a slice of before, kubelet knows which":               {pod: slice, servedBy: ours, given: gave, want: "card 1"},
		"a slice of before, kubelet does not know which":       {pod: slice, servedBy: ours, given: gaveSome, want: "unknown"},
		"whole cards, Daybreak serves":                         {pod: app("gpu: 1"), servedBy: ours, given: "[]", want: "nothing"},
		"an init container's, the vendor's plugin serves":      {pod: gputest.MakePod("p").Init("sgpu: 1").App("cpu: 1"), servedBy: vendors, given: "", want: "unknown"},
		"an allocation that can't be read, Daybreak serves":    {pod: app("sgpu: 1").Annotate(wire.AnnotationAllocated, "x"), servedBy: ours, given: "[]", want: "nothing"},
		"an allocation, whatever kubelet says of other pods":   {pod: app("sgpu: 1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-2","compute":100,"vRam":65536}]]`), servedBy: ours, given: gaveOthers, want: "card 2"},
		"a request that makes no sense, Daybreak serves":       {pod: app("sgpu: 1, vcore: 900"), servedBy: ours, given: "[]", want: "nothing"},
		"a request that makes no sense, the vendor's serves":   {pod: app("sgpu: 1, vcore: 900"), servedBy: vendors, given: "", want: "unknown"},
		"a request that makes no sense, kubelet does not know": {pod: app("sgpu: 1, vcore: 900"), servedBy: ours, given: gaveSome, want: "unknown"},
		"Koordinator's words with the count, Daybreak serves":  {pod: app("gpu-core: 1, sgpu: 1"), servedBy: ours, given: "[]", want: "nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := gputest.MakeDevice(gputest.CardInfos(4)...)
			if !tc.simulated {
				d.Spec.Devices[3].Conditions = []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionTrue}}
			}
			if tc.given != "" {
				gputest.Annotated(d, wire.AnnotationPluginAllocations, tc.given)
			}
			inv := inventory.ReadInventory(gputest.MakeNode("", wire.AnnotationServedBy, tc.servedBy), d)
			pod := tc.pod.On("n1").Obj()
			pod.UID = "u1"
			n, notes := NewNode(inv, podList(pod))
			got := "nothing"
			if len(n.Unknown()) > 0 {
				got = "unknown"
			}
			for i, u := range n.Now().Usage {
				if u.Slots > 0 {
					got = fmt.Sprintf("card %d", i)
				}
			}
			if got != tc.want {
				t.Errorf("booked %s, want %s; notes %q", got, tc.want, notes)
			}
			_, refusal := place.Fit(n, gputest.AskSlice(10, 1024), &place.Preference{})
			if closed := refusal.Code == place.Unaccounted; closed != (tc.want == "unknown") {
				t.Errorf("refusal %q", refusal.Code)
			}
		})
	}
}

// FuzzPluginAllocations: whatever the annotation says, no pod is booked for more than it asks
// for.
func FuzzPluginAllocations(f *testing.F) {
	for _, text := range hostile.Givens() {
		f.Add(text)
	}
	f.Add(`[{"uid":"u1","containers":{"c":["GPU-0"],"d":["GPU-1","GPU-2"]}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(3)...), wire.AnnotationPluginAllocations, text))
		pod := app("sgpu: 1, vcore: 10, vmemory: 1").On("n1").Obj()
		pod.UID = "u1"
		n, _ := NewNode(inv, podList(pod))
		for i, u := range n.Now().Usage {
			if u.Compute > 10 || u.Memory > 1024 || u.Slots > 1 || u.Exclusive {
				t.Fatalf("card %d has %+v", i, u)
			}
		}
	})
}
