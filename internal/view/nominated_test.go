package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// TestNominated: while pods that were evicted are still there, the room that they leave
// is reserved for the pod that had them evicted, as in the scheduler.
func TestNominated(t *testing.T) {
	ranked := func(pod string, priority int) string { return with(pod, fmt.Sprintf("priority: %d", priority)) }
	terminating := func(pod string) string {
		return strings.Replace(pod, "metadata:\n", "metadata:\n  deletionTimestamp: 2026-03-15T11:59:00Z\n", 1)
	}
	nominated := func(pod string) string { return pod + "status: {nominatedNodeName: n1}\n" }
	// n1 has one GPU that an evicted pod leaves, and a free one; n2 has a GPU in use.
	running := []string{
		device("n1", 2, "64Gi"), terminating(ranked(slice("n1", "evicted", 0, 90, 4), 0)),
		device("n2", 1, "64Gi"), ranked(slice("n2", "busy", 0, 60, 4), 9),
	}
	two := nominated(ranked(pod("first", "gpu: 2"), 5))
	small := func(priority int) string { return ranked(pod("p", "sgpu: 1, vcore: 50, vmemory: 4"), priority) }
	for name, tc := range map[string]struct {
		docs        []string
		wantNode    string
		wantSummary string
	}{
		"no pod is nominated":                    {docs: []string{small(5)}, wantNode: "n1"},
		"as important as the nominated pod":      {docs: []string{small(5), two}, wantSummary: "n1 has room, which is reserved for default/first"},
		"more important":                         {docs: []string{small(6), two}, wantNode: "n1"},
		"less important, but it fits next to it": {docs: []string{ranked(pod("p", "gpu: 1"), 1), nominated(ranked(pod("first", "sgpu: 1, vcore: 95, vmemory: 4"), 5))}, wantNode: "n1"},
		"less important, on another node":        {docs: []string{ranked(pod("p", "sgpu: 1, vcore: 40, vmemory: 4"), 1), two}, wantNode: "n2"},
		"the nominated pod itself":               {docs: []string{two}, wantSummary: "2 need 2 idle cards"},
		"to a node that there is not":            {docs: []string{small(5), strings.Replace(two, "nominatedNodeName: n1", "nominatedNodeName: n9", 1)}, wantNode: "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, append(tc.docs, running...)...)
			e := Explain(s, s.Pending[0], place.Default)
			p := placeAll(t, s, PlaceOptions{}).Pods[0]
			if p.Node != tc.wantNode || !strings.Contains(p.Summary, tc.wantSummary) {
				t.Errorf("placed on %q, %q; want %q, %q", p.Node, p.Summary, tc.wantNode, tc.wantSummary)
			}
			if e.Fits != tc.wantNode || !strings.Contains(e.Summary, tc.wantSummary) {
				t.Errorf("explained as fitting on %q, %q; want %q, %q", e.Fits, e.Summary, tc.wantNode, tc.wantSummary)
			}
		})
	}
}
