package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
			placements := placeAll(t, snapshot(t, append([]string{tc.pod}, running...)...), PlaceOptions{})
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
			placements := placeAll(t, snapshot(t, device("n1", 1, "64Gi"), counted("n2", 2), tc.pod), PlaceOptions{})
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
