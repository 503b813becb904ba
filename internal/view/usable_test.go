package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// node is a Node to go with a Device of the same name. The parts are lines below
// metadata, spec and status in YAML's flow form, such as "spec: {unschedulable:
// true}".
func node(name string, parts ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {pool: %s}}\n%s\n", name, name, strings.Join(parts, "\n"))
}

const (
	cordoned    = "spec: {unschedulable: true}"
	tainted     = "spec: {taints: [{key: team, value: a, effect: NoSchedule}]}"
	discouraged = "spec: {taints: [{key: team, value: a, effect: PreferNoSchedule}]}"
	notReady    = `status: {conditions: [{type: Ready, status: "False"}]}`
	unreachable = "status: {conditions: [{type: Ready, status: Unknown}]}"
)

// with adds lines to a pod's spec.
func with(pod string, lines ...string) string {
	return pod + "  " + strings.Join(lines, "\n  ") + "\n"
}

func tolerates(key string) string {
	return fmt.Sprintf("tolerations: [{key: %s, operator: Exists}]", key)
}

func affineTo(pool string) string {
	return fmt.Sprintf("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [%s]}]}]}}}", pool)
}

// TestPlaceOnUsableNodes: a pod goes to nodes that it may use, and to no others.
// The node n1 is the better one in every case: it is fuller.
func TestPlaceOnUsableNodes(t *testing.T) {
	ask := pod("p", "sgpu: 1, vcore: 20, vmemory: 4")
	cases := map[string]struct {
		node, pod string
		want      string // where it goes
		message   string // what n1 says where it is the only node
		kind      place.Exclusion
	}{
		"a node like others":                      {node: node("n1"), pod: ask, want: "n1"},
		"a cordoned node":                         {node: node("n1", cordoned), pod: ask, want: "n2", message: "the node is cordoned", kind: place.Cordoned},
		"a node that is not ready":                {node: node("n1", notReady), pod: ask, want: "n2", message: "the node is not ready", kind: place.NotReady},
		"a node that does not report":             {node: node("n1", unreachable), pod: ask, want: "n2", message: "the node is not ready", kind: place.NotReady},
		"a tainted node":                          {node: node("n1", tainted), pod: ask, want: "n2", message: "the pod does not tolerate the node's taint team=a:NoSchedule", kind: place.Tainted},
		"a taint that only discourages":           {node: node("n1", discouraged), pod: ask, want: "n2"},
		"discouraged, and nowhere else":           {node: node("n1", discouraged), pod: with(ask, "nodeSelector: {pool: n1}"), want: "n1"},
		"discouraged, which the pod tolerates":    {node: node("n1", discouraged), pod: with(ask, tolerates("team")), want: "n1"},
		"a taint that the pod tolerates":          {node: node("n1", tainted), pod: with(ask, tolerates("team")), want: "n1"},
		"a cordon that the pod tolerates":         {node: node("n1", cordoned), pod: with(ask, tolerates("node.kubernetes.io/unschedulable")), want: "n1"},
		"not ready, which the pod tolerates":      {node: node("n1", notReady), pod: with(ask, tolerates("node.kubernetes.io/not-ready")), want: "n1"},
		"another toleration than the one needed":  {node: node("n1", unreachable), pod: with(ask, tolerates("node.kubernetes.io/not-ready")), want: "n2", message: "the node is not ready", kind: place.NotReady},
		"a node selector that matches the other":  {node: node("n1"), pod: with(ask, "nodeSelector: {pool: n2}"), want: "n2"},
		"an affinity that matches the other":      {node: node("n1"), pod: with(ask, affineTo("n2")), want: "n2"},
		"a node selector that matches":            {node: node("n1"), pod: with(ask, "nodeSelector: {pool: n1}"), want: "n1"},
		"a Device without a Node has no labels":   {node: "", pod: with(ask, "nodeSelector: {pool: n2}"), want: "n2"},
		"a Device without a Node counts as ready": {node: "", pod: ask, want: "n1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			docs := []string{device("n1", 1, "64Gi"), slice("n1", "a", 0, 10, 4), device("n2", 1, "64Gi"), node("n2"), tc.pod}
			if tc.node != "" {
				docs = append(docs, tc.node)
			}
			if got := placed(t, snapshot(t, docs...), place.Default); len(got) != 1 || !strings.HasPrefix(got[0], tc.want+" ") {
				t.Errorf("placed %q, want on %s", got, tc.want)
			}
			if tc.message == "" {
				return
			}
			// With n1 as the only node, the answer is no.
			s := snapshot(t, device("n1", 1, "64Gi"), tc.node, tc.pod)
			placements := placeAll(t, s, PlaceOptions{})
			want := []Refusal{{Node: "n1", Code: "NodeExcluded", Permanent: true, Cards: map[string]int{}, Message: tc.message, Exclusion: tc.kind.String(), Cause: place.NodeExcluded}}
			if diff := cmp.Diff(want, placements.Pods[0].Refusals); diff != "" || placements.OK() {
				t.Errorf("OK is %v, refusals (-want +got):\n%s", placements.OK(), diff)
			}
			ignoring, err := Place(snapshot(t, device("n1", 1, "64Gi"), tc.node, tc.pod), PlaceOptions{Now: noon, IgnoreNodeState: true})
			if err != nil || ignoring.Pods[0].Node != "n1" {
				t.Errorf("with the nodes' state ignored it is on %q (%v), want n1", ignoring.Pods[0].Node, err)
			}
		})
	}
}

// TestSelectorOfNoNode: a selector that matches no node is named as the reason.
func TestSelectorOfNoNode(t *testing.T) {
	e := explained(t, device("n1", 1, "64Gi"), node("n1"), device("n2", 1, "64Gi"), node("n2", cordoned), with(pod("p", "gpu: 1"), "nodeSelector: {pool: n9}"))
	gputest.Equal(t, "summary", "0/2 nodes: 2 do not match the pod's nodeSelector; no node has the label pool=n9", e.Summary)
	want := []string{"the pod's nodeSelector wants pool=n9, the node has pool=n1", "the pod's nodeSelector wants pool=n9, the node has pool=n2"}
	var got []string
	for _, r := range e.Refusals {
		got = append(got, r.Message)
	}
	gputest.Equal(t, "messages", want, got)
	if e.Help != nil {
		t.Errorf("help is %+v, want none: nothing on these nodes helps", e.Help)
	}
}

// TestOnlyExcludedNodesFit: explain and status say so in a sentence, and explain's
// answer is no.
func TestOnlyExcludedNodesFit(t *testing.T) {
	s := snapshot(t, device("n1", 1, "64Gi"), node("n1"), slice("n1", "a", 0, 90, 4), device("n2", 1, "64Gi"), node("n2", cordoned),
		device("n3", 1, "64Gi"), node("n3", notReady), device("n4", 1, "64Gi"), node("n4", tainted), pod("p", "sgpu: 1, vcore: 20, vmemory: 4"))
	const want = "0/4 nodes: 1 needs 10% more card compute (best has 10% free), 1 is cordoned, 1 is not ready, 1 has a taint that the pod does not tolerate; n2 has room, but the node is cordoned"
	e := Explain(s, s.Pending[0], place.Default)
	if e.Summary != want || e.Fits != "" {
		t.Errorf("fits %q, summary %q, want %q", e.Fits, e.Summary, want)
	}
	if (&Explanations{Pods: []Explanation{*e}}).OK() {
		t.Error("the answer is yes")
	}
	if e.Help == nil || e.Help.Smaller == nil || e.Help.Smaller.Node != "n1" || e.Help.Room == nil || e.Help.Room.Node != "n1" || e.Help.Freed == nil || e.Help.Freed.Node != "n1" {
		t.Errorf("help is %+v, want all of it on n1", e.Help)
	}
	st := NewStatus(s, "")
	if got := st.Pending[0]; got.Message != want || got.Code != "ComputeShort" {
		t.Errorf("status says %s: %q, want ComputeShort: %q", got.Code, got.Message, want)
	}
	placements := placeAll(t, s, PlaceOptions{})
	if got := placements.Pods[0].Summary; got != want || placements.OK() {
		t.Errorf("place says %q (OK is %v), want %q", got, placements.OK(), want)
	}
}

// TestAdviceOnUsableNodes: no advice names a node that the pod may not use.
func TestAdviceOnUsableNodes(t *testing.T) {
	full := func(name string) []string {
		return []string{device(name, 2, "64Gi"), slice(name, "a-"+name, 0, 90, 4), slice(name, "b-"+name, 1, 90, 60)}
	}
	for name, tc := range map[string]struct{ off, pod string }{
		"cordoned":      {cordoned, ""},
		"not ready":     {notReady, ""},
		"tainted":       {tainted, ""},
		"not selected":  {"", "nodeSelector: {pool: n9}"},
		"not of affine": {"", affineTo("n9")},
	} {
		for _, limits := range []string{"gpu: 1", "gpu: 2", "sgpu: 1, vcore: 20, vmemory: 4"} {
			t.Run(name+" "+limits, func(t *testing.T) {
				p := pod("p", limits)
				if tc.pod != "" {
					p = with(p, tc.pod)
				}
				// Without n9 none of n1 is of use; with it, advice is about n9 alone.
				s := snapshot(t, slices.Concat([]string{p, node("n1", tc.off)}, full("n1"))...)
				if e := Explain(s, s.Pending[0], place.Default); e.Help != nil || e.Fits != "" {
					t.Errorf("fits %q, help %+v, want none", e.Fits, e.Help)
				}
				e := explained(t, slices.Concat([]string{p, node("n1", tc.off), node("n9")}, full("n1"), full("n9"))...)
				if e.Help == nil || e.Help.Room == nil || e.Help.Freed == nil {
					t.Fatalf("help is %+v, want some on n9", e.Help)
				}
				if e.Help.Room.Node != "n9" || e.Help.Freed.Node != "n9" || e.Help.Smaller != nil && e.Help.Smaller.Node != "n9" {
					t.Errorf("room on %s, freed on %s, smaller %+v: want n9 in all", e.Help.Room.Node, e.Help.Freed.Node, e.Help.Smaller)
				}
			})
		}
	}
}
