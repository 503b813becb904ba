package view

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPolicyStandsIn: on n1, the fuller node, card 1 is the fuller; on n2 card 0
// is. So node and card show which policy chose each.
func TestPolicyStandsIn(t *testing.T) {
	nodes := documents(
		device("n1", 2, "64Gi"), slice("n1", "half", 1, 50, 32),
		device("n2", 2, "64Gi"), slice("n2", "quarter", 0, 25, 16))
	const (
		node        = "hami.io/node-scheduler-policy: "
		card        = "hami.io/gpu-scheduler-policy: "
		aSlice      = "sgpu: 1, vcore: 10, vmemory: 1"
		aWhole      = "gpu: 1"
		fullFull    = "n1 1"
		fullEmpty   = "n1 0"
		emptyFull   = "n2 0"
		emptyEmpty  = "n2 1"
		wholeOnFull = fullEmpty // its only idle card
		wholeOnFree = emptyEmpty
	)
	cases := map[string]struct {
		limits      string
		annotations []string
		policy      place.Policy
		want        string
	}{
		"nothing is said":                                {limits: aSlice, want: fullFull},
		"binpack stands in for both":                     {limits: aSlice, policy: place.Binpack, want: fullFull},
		"spread stands in for both":                      {limits: aSlice, policy: place.Spread, want: emptyEmpty},
		"the node's is given, nothing stands in":         {limits: aSlice, annotations: []string{node + "spread"}, want: emptyFull},
		"spread nodes are given, binpack stands in":      {limits: aSlice, annotations: []string{node + "spread"}, policy: place.Binpack, want: emptyFull},
		"binpack nodes are given, spread stands in":      {limits: aSlice, annotations: []string{node + "binpack"}, policy: place.Spread, want: fullEmpty},
		"spread cards are given, binpack stands in":      {limits: aSlice, annotations: []string{card + "spread"}, policy: place.Binpack, want: fullEmpty},
		"binpack cards are given, spread stands in":      {limits: aSlice, annotations: []string{card + "binpack"}, policy: place.Spread, want: emptyFull},
		"both are given as spread, binpack is ignored":   {limits: aSlice, annotations: []string{node + "spread", card + "spread"}, policy: place.Binpack, want: emptyEmpty},
		"both are given as binpack, spread is ignored":   {limits: aSlice, annotations: []string{node + "binpack", card + "binpack"}, policy: place.Spread, want: fullFull},
		"an empty annotation is none":                    {limits: aSlice, annotations: []string{node + `""`, card + `""`}, policy: place.Spread, want: emptyEmpty},
		"whole cards, nothing is said":                   {limits: aWhole, want: wholeOnFull},
		"whole cards, spread stands in":                  {limits: aWhole, policy: place.Spread, want: wholeOnFree},
		"whole cards, binpack is given":                  {limits: aWhole, annotations: []string{node + "binpack"}, policy: place.Spread, want: wholeOnFull},
		"whole cards don't follow the policy for slices": {limits: aWhole, annotations: []string{card + "spread"}, policy: place.Binpack, want: wholeOnFull},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, nodes, pod("p", tc.limits, tc.annotations...))
			if got := placed(t, s, tc.policy); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("placed on %q, want %q", got, tc.want)
			}
		})
	}
}

// placed places the pending pods and says of each on which node it is and on
// which cards, or that it is refused.
func placed(t *testing.T, s *cluster.Snapshot, policy place.Policy) []string {
	t.Helper()
	placements := placeAll(t, s, PlaceOptions{Policy: policy})
	var out []string
	for i := range placements.Pods {
		p := &placements.Pods[i]
		words := []string{p.Node}
		for _, card := range slices.Concat(p.cards()...) {
			words = append(words, strconv.Itoa(card.Index))
		}
		if len(p.Refusals) > 0 {
			words = []string{"refused:", p.Refusals[0].Code}
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func TestPlaceBooksOneAfterAnother(t *testing.T) {
	s := snapshot(t,
		pod("first", "gpu: 1"), pod("second", "sgpu: 1, vcore: 60, vmemory: 4"), pod("third", "sgpu: 1, vcore: 40, vmemory: 4"),
		pod("fourth", "sgpu: 1, vcore: 1, vmemory: 1"), pod("fifth", "gpu: 1"),
		device("n1", 2, "64Gi"))
	want := []string{"n1 0", "n1 1", "n1 1", "refused: ComputeShort", "refused: ExclusiveConflict"}
	gputest.Equal(t, "placed", want, placed(t, s, place.Default))
	gputest.Equal(t, "booked", []string{"default/first", "default/second", "default/third"}, holders(s))
}

func holders(s *cluster.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		for _, h := range n.Holdings() {
			names = append(names, string(h.Holder))
		}
	}
	return names
}

func TestPlaceOnCountedCards(t *testing.T) {
	s := snapshot(t, counted("n1", 4), pod("two", "gpu: 2"), pod("slice", "sgpu: 1, vcore: 1, vmemory: 1"))
	placements := placeAll(t, s, PlaceOptions{})
	want := []Container{{Name: "main", Cards: []Card{
		{UUID: "", Index: 0, ComputePercent: 100, MemoryMiB: 65536},
		{UUID: "", Index: 1, ComputePercent: 100, MemoryMiB: 65536},
	}}}
	two, slice := placements.Pods[0], placements.Pods[1]
	gputest.Equal(t, "cards", want, two.Containers)
	if text, ok := two.Annotations["metax-tech.com/gpu-devices-allocated"]; ok {
		t.Errorf("the annotation names unknown cards: %s", text)
	}
	if len(slice.Refusals) != 1 || slice.Refusals[0].Code != "ModeConflict" {
		t.Errorf("the slice is refused for %+v, want ModeConflict", slice.Refusals)
	}
}

// TestPlaceNewPod: a pod that no API server has seen is judged as admission would
// judge it, typing errors included. One that exists is placed as the scheduler does.
func TestPlaceNewPod(t *testing.T) {
	const (
		typed   = "sgpu: 1, vcore: 10, vmemory: 1, vcores: 60"
		mistake = `spec.containers[0].resources.limits[metax-tech.com/vcores]: Invalid value: "60": there is no such resource: did you mean metax-tech.com/vcore?`
		warning = "metax-tech.com/use-gpuuid has no effect: Daybreak does not know this annotation: did you mean metax-tech.com/use-gpuuuid?"
	)
	place := func(uid types.UID, limits string) Placement {
		t.Helper()
		s := snapshot(t, device("n1", 2, "64Gi"), pod("p", limits, "metax-tech.com/use-gpuuid: GPU-1"))
		s.Pending[0].UID = uid
		out, err := Place(s, PlaceOptions{Now: noon})
		if err != nil || len(out.Pods) != 1 {
			t.Fatalf("placed %+v: %v", out, err)
		}
		return out.Pods[0]
	}
	if got := place("", typed); got.Error != mistake || got.Node != "" {
		t.Errorf("a mistyped resource: placed on %q, error %q, want %q", got.Node, got.Error, mistake)
	}
	if got := place("u", typed); got.Node != "n1" || len(got.Warnings) != 0 {
		t.Errorf("on a pod that exists: placed on %q, error %q, warnings %q", got.Node, got.Error, got.Warnings)
	}
	if got := place("", "sgpu: 1"); got.Node != "n1" || !slices.Equal(got.Warnings, []string{warning}) {
		t.Errorf("a mistyped annotation: placed on %q, warnings %q, want %q", got.Node, got.Warnings, warning)
	}
}

// TestRefusalsByName: nodes are listed as people count them.
func TestRefusalsByName(t *testing.T) {
	s := snapshot(t, documents(device("metax-10", 2, "64Gi"), device("metax-9", 2, "64Gi"), device("metax-1", 2, "64Gi")), pod("p", "gpu: 9"))
	placements := placeAll(t, s, PlaceOptions{})
	var names []string
	for _, r := range placements.Pods[0].Refusals {
		names = append(names, r.Node)
	}
	gputest.Equal(t, "nodes of the refusals", []string{"metax-1", "metax-9", "metax-10"}, names)
}
