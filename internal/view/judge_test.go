package view

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestWants: compute and memory are named, and containers where there are several.
func TestWants(t *testing.T) {
	const aSlice = "sgpu: 1, vcore: 10, vmemory: 4"
	many := func(n int) *gputest.PodBuilder {
		b := gputest.MakePod("p")
		for i := range n {
			b.App(fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: 1", 1+i%4))
		}
		return b
	}
	cases := map[string]struct {
		pod  *gputest.PodBuilder
		want string
	}{
		"a slice":                      {gputest.MakePod("p").App(aSlice), "10% compute and 4 GiB memory of a card"},
		"slices of two cards":          {gputest.MakePod("p").App("sgpu: 2, vcore: 10, vmemory: 4"), "10% compute and 4 GiB memory of each of 2 cards"},
		"a part of the memory":         {gputest.MakePod("p").App("gpu.shared: 1, gpu-core: 50, gpu-memory-ratio: 50"), "50% compute and 50% memory of a card"},
		"a whole card":                 {gputest.MakePod("p").App("gpu: 1"), "1 whole card"},
		"whole cards":                  {gputest.MakePod("p").App("gpu: 3"), "3 whole cards"},
		"another QoS class":            {gputest.MakePod("p").App(aSlice).Annotate(wire.AnnotationQoS, "fixed-share"), "10% compute and 4 GiB memory of a card, fixed-share"},
		"one of two containers":        {gputest.MakePod("p").App("").App("gpu: 1"), "1 whole card"},
		"containers of different kind": {gputest.MakePod("p").App("gpu: 1").App("gpu: 2").App(aSlice), "c0: 1 whole card; c1: 2 whole cards; c2: 10% compute and 4 GiB memory of a card"},
		"containers of one kind":       {gputest.MakePod("p").App(aSlice).App(aSlice).App("gpu: 1"), "2 containers: 10% compute and 4 GiB memory of a card each; c2: 1 whole card"},
		"slices of many kinds":         {many(12), "12 slices for 12 containers"},
		"containers of many kinds":     {many(12).App("gpu: 1"), "1 whole card and 12 slices for 13 containers"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ask, problems := request.Read(tc.pod.Obj())
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			gputest.Equal(t, "wants", tc.want, wants(ask))
		})
	}
}

// TestBooked: two nodes are shown as different as they are.
func TestBooked(t *testing.T) {
	for want, of := range map[string][2]ledger.Fullness{
		"50% booked against 25%":       {ledger.MaxFullness / 2, ledger.MaxFullness / 4},
		"0.4% booked against 0.2%":     {ledger.MaxFullness / 250, ledger.MaxFullness / 500},
		"0.02% booked against 0.00%":   {ledger.MaxFullness / 5000, 0},
		"0.025% booked against 0.020%": {ledger.MaxFullness / 4000, ledger.MaxFullness / 5000},
	} {
		gputest.Equal(t, "booked", want, booked(&ledger.Offer{NodeFullness: of[0]}, &ledger.Offer{NodeFullness: of[1]}))
	}
}

// TestSummaries: explain, place and status report the same sentence.
func TestSummaries(t *testing.T) {
	cases := map[string]struct {
		there []string
		pod   string
		want  string
		code  place.Code
	}{
		"a UUID that no card has": {
			there: []string{device("n1", 1, "64Gi"), device("n2", 1, "64Gi"), node("n3")},
			pod:   pod("p", "sgpu: 1, vcore: 20, vmemory: 4", "metax-tech.com/use-gpuuuid: GPU-typo"),
			want:  "0/3 nodes: no card in the cluster has the UUID GPU-typo of use-gpuuuid, 1 has no MetaX cards",
			code:  place.CardExcluded,
		},
		"a UUID that a cordoned node may have": {
			there: []string{device("n1", 1, "64Gi"), device("n2", 1, "64Gi"), node("n2", cordoned)},
			pod:   pod("p", "sgpu: 1, vcore: 20, vmemory: 4", "metax-tech.com/use-gpuuuid: GPU-n2-0"),
			want:  "0/2 nodes: 1 has no card with the UUID GPU-n2-0 of use-gpuuuid, 1 is cordoned; n2 has room, but the node is cordoned",
			code:  place.CardExcluded,
		},
		"a label that no node has": {
			there: []string{device("n1", 1, "64Gi"), node("n1"), device("n2", 1, "64Gi"), node("n2", cordoned)},
			pod:   with(pod("p", "gpu: 1"), "nodeSelector: {pool: n9}"),
			want:  "0/2 nodes: 2 do not match the pod's nodeSelector; no node has the label pool=n9",
			code:  place.NodeExcluded,
		},
		"two labels that no node has": {
			there: []string{device("n1", 1, "64Gi"), node("n1"), device("n2", 1, "64Gi")},
			pod:   with(pod("p", "gpu: 1"), "nodeSelector: {pool: n9, disk: ssd}"),
			want:  "0/2 nodes: 2 do not match the pod's nodeSelector; no node has any of the labels disk=ssd, pool=n9",
			code:  place.NodeExcluded,
		},
		"labels that no node has together": {
			there: []string{device("n1", 1, "64Gi"), node("n1"), device("n2", 1, "64Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: n2, labels: {disk: ssd}}\n"},
			pod:   with(pod("p", "gpu: 1"), "nodeSelector: {pool: n1, disk: ssd}"),
			want:  "0/2 nodes: 2 do not match the pod's nodeSelector; no node has all of the labels disk=ssd, pool=n1",
			code:  place.NodeExcluded,
		},
		"a node of Daybreak's agent without its Device": {
			there: []string{"apiVersion: v1\nkind: Node\nmetadata: {name: n1, annotations: {daybreak-gpu.io/served-by: daybreak}}\nstatus: {capacity: {metax-tech.com/gpu: 8}}\n"},
			pod:   pod("p", "gpu: 1"),
			want:  "0/1 nodes: 1 has no MetaX cards",
			code:  place.NoCards,
		},
		"a slice on cards that are nearly free enough": {
			there: []string{device("n1", 2, "64Gi"), slice("n1", "a", 0, 70, 4), slice("n1", "b", 1, 100, 4)},
			pod:   pod("p", "sgpu: 1, vcore: 35, vmemory: 4"),
			want:  "0/1 nodes: 1 needs 5% more card compute (best has 30% free)",
			code:  place.ComputeShort,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, append(tc.there, tc.pod)...)
			gputest.Equal(t, "explain says", tc.want, Explain(s, s.Pending[0], place.Default).Summary)
			if p := NewStatus(s, "").Pending[0]; p.Message != tc.want || p.Code != tc.code.String() {
				t.Errorf("status says %s\n     %q\nwant %q", p.Code, p.Message, tc.want)
			}
			placements := placeAll(t, s, PlaceOptions{})
			gputest.Equal(t, "place says", tc.want, placements.Pods[0].Summary)
		})
	}
}
