package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
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
	placements, err := Place(s, PlaceOptions{Policy: policy, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
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
	if diff := cmp.Diff(want, placed(t, s, place.Default)); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"default/first", "default/second", "default/third"}, holders(s)); diff != "" {
		t.Errorf("booked (-want +got):\n%s", diff)
	}
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

// TestPlaceCountsRunningPodsFirst: a pod that runs holds its card also when it
// stands after the pod to place.
func TestPlaceCountsRunningPodsFirst(t *testing.T) {
	s := snapshot(t, pod("p", "gpu: 1"), device("n1", 2, "64Gi"), slice("n1", "runs", 0, 10, 1))
	if diff := cmp.Diff([]string{"n1 1"}, placed(t, s, place.Default)); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
}

func TestPlaceOnCountedCards(t *testing.T) {
	s := snapshot(t, counted("n1", 4), pod("two", "gpu: 2"), pod("slice", "sgpu: 1, vcore: 1, vmemory: 1"))
	placements, err := Place(s, PlaceOptions{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	want := []Container{{Name: "main", Cards: []Card{
		{UUID: "", Index: 0, ComputePercent: 100, MemoryMiB: 65536},
		{UUID: "", Index: 1, ComputePercent: 100, MemoryMiB: 65536},
	}}}
	two, slice := placements.Pods[0], placements.Pods[1]
	if diff := cmp.Diff(want, two.Containers); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
	if text, ok := two.Annotations["metax-tech.com/gpu-devices-allocated"]; ok {
		t.Errorf("the annotation names unknown cards: %s", text)
	}
	if len(slice.Refusals) != 1 || slice.Refusals[0].Code != "ModeConflict" {
		t.Errorf("the slice is refused for %+v, want ModeConflict", slice.Refusals)
	}
}

// TestPlacePreempts: a pod that does not fit names the pods that the scheduler
// would evict for it: of lower priority, the cheapest, on nodes that it may use.
func TestPlacePreempts(t *testing.T) {
	ranked := func(pod string, priority int) string { return with(pod, fmt.Sprintf("priority: %d", priority)) }
	running := []string{
		device("n1", 1, "64Gi"), ranked(slice("n1", "low", 0, 60, 4), 1), ranked(slice("n1", "mid", 0, 30, 4), 5),
		device("n2", 1, "64Gi"), node("n2", tainted), ranked(slice("n2", "lowest", 0, 90, 4), 0),
	}
	ask := pod("p", "sgpu: 1, vcore: 50, vmemory: 4")
	for name, tc := range map[string]struct {
		pod  string
		want *Room
	}{
		"more important than one": {ranked(ask, 3), &Room{Node: "n1", Pods: []string{"default/low"}}},
		"as important":            {ranked(ask, 1), nil},
		"it never preempts":       {with(ranked(ask, 3), "preemptionPolicy: Never"), nil},
		"both have to go":         {ranked(pod("p", "gpu: 1"), 9), &Room{Node: "n1", Pods: []string{"default/low", "default/mid"}}},
		"one of both is too high": {ranked(pod("p", "gpu: 1"), 5), nil},
		"on the node it may use":  {with(ranked(ask, 3), tolerates("team")), &Room{Node: "n2", Pods: []string{"default/lowest"}}},
	} {
		t.Run(name, func(t *testing.T) {
			placements, err := Place(snapshot(t, append([]string{tc.pod}, running...)...), PlaceOptions{Now: noon})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, placements.Pods[0].Preempts); diff != "" || placements.OK() {
				t.Errorf("OK is %v, preempts (-want +got):\n%s", placements.OK(), diff)
			}
		})
	}
}

// TestPlaceReportsBoundPods: a pod that was written with a node and that admission
// would reject is an answer of no; running pods are none.
func TestPlaceReportsBoundPods(t *testing.T) {
	const uid = "  uid: u1\n"
	seen := func(pod string) string { return strings.Replace(pod, "metadata:\n", "metadata:\n"+uid, 1) }
	for name, tc := range map[string]struct{ pod, want string }{
		"a request that is invalid": {podOn("n1", "p", "sgpu: 1, vcore: 120"), "spec.containers[0].resources.limits[metax-tech.com/vcore]: Invalid value"},
		"a node chosen by hand":     {podOn("n1", "p", "gpu: 1"), "spec.nodeName: Invalid value: \"n1\": the scheduler chooses the cards together with the node"},
		"a pod of a cluster":        {seen(podOn("n1", "p", "sgpu: 1, vcore: 120")), ""},
		"a running pod":             {slice("n1", "p", 0, 10, 1), ""},
		"a node of the vendor's":    {podOn("n2", "p", "gpu: 1"), ""},
		"a pod without cards":       {podOn("n1", "p", "other: 1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			placements, err := Place(snapshot(t, device("n1", 1, "64Gi"), counted("n2", 2), tc.pod), PlaceOptions{Now: noon})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(placements.Pods) > 0 {
				got = placements.Pods[0].Error
			}
			if placements.OK() != (tc.want == "") || !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("OK is %v, error %q, want %q", placements.OK(), got, tc.want)
			}
		})
	}
}
