package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// halves are 40 running pods that hold half of a card each, on nodes that are
// full with them.
func halves() []string {
	var docs []string
	for i := range 20 {
		name := fmt.Sprintf("full-%02d", i)
		docs = append(docs, device(name, 1, "64Gi"), slice(name, "a-"+name, 0, 50, 32), slice(name, "b-"+name, 0, 50, 32))
	}
	return docs
}

// TestPlaceExpects: like the scheduler, place expects more of the pods that are
// there. The emptier card still has room for one of them afterwards, the fuller one
// would not.
func TestPlaceExpects(t *testing.T) {
	there := []string{device("n1", 2, "64Gi"), slice("n1", "x", 0, 20, 4), slice("n1", "yy", 1, 50, 4)}
	p := pod("p", "sgpu: 1, vcore: 30, vmemory: 4")
	want := func(name, card string, s *cluster.Snapshot) {
		t.Helper()
		e := Explain(s, s.Pending[0], place.Default)
		placements := placeAll(t, s, PlaceOptions{})
		got := placements.Pods[0]
		if cards := slices.Concat(got.cards()...); len(cards) != 1 || cards[0].UUID != card {
			t.Errorf("%s: on %+v, want %s", name, cards, card)
		}
		if len(got.Estimate) > 0 || len(e.Estimate) > 0 {
			t.Errorf("%s: estimates %q and %q, want none", name, got.Estimate, e.Estimate)
		}
	}
	want("nothing is known", "GPU-n1-1", snapshot(t, append(there, p)...))
	want("halves run", "GPU-n1-0", snapshot(t, slices.Concat(there, halves(), []string{p})...))

	// Pods that wait do not count: one tenant could steer the cluster with them.
	live := snapshot(t, append(there, p)...)
	for i := range 40 {
		waits := snapshot(t, pod(fmt.Sprintf("waits-%02d", i), "sgpu: 1, vcore: 50, vmemory: 4")).Pending[0]
		live.Waiting = append(live.Waiting, waits)
	}
	want("halves wait", "GPU-n1-1", live)
}

// TestPlaceKnowsCPU: cards of a node whose CPU is gone are of no use to the pods
// that are expected, so a pod that needs no CPU is given those.
func TestPlaceKnowsCPU(t *testing.T) {
	needs := func(pod, cpu string) string { return strings.Replace(pod, "limits: {", "limits: {cpu: "+cpu+", ", 1) }
	withCPU := func(name, cpu string) string { return node(name, "status: {allocatable: {cpu: "+cpu+"}}") }
	docs := func(cpu string) []string {
		docs := []string{device("n1", 1, "64Gi"), withCPU("n1", cpu), device("n2", 1, "64Gi"), withCPU("n2", "64"), slice("n2", "x", 0, 50, 32), needs(podOn("n1", "plain", "nothing: 1"), "60")}
		for i, doc := range halves() {
			if i%3 > 0 {
				doc = needs(doc, "4")
			}
			docs = append(docs, doc)
		}
		return append(docs, pod("p", "sgpu: 1, vcore: 50, vmemory: 32"))
	}
	if got := placed(t, snapshot(t, docs("640")...), place.Default); got[0] != "n2 0" {
		t.Errorf("with CPU on both nodes placed on %s, want the fuller n2", got[0])
	}
	if got := placed(t, snapshot(t, docs("61")...), place.Default); got[0] != "n1 0" {
		t.Errorf("with no CPU left on n1 placed on %s, want n1", got[0])
	}
}

// TestPlaceKnowsPolicy: without a flag and an annotation the scheduler's policy
// counts. On a live cluster that does not show it, the answer is an estimate.
func TestPlaceKnowsPolicy(t *testing.T) {
	cases := map[string]struct {
		args   []string
		live   bool
		policy place.Policy
		want   string
		assume bool
	}{
		"files without a scheduler":        {want: "n2 0"},
		"a live cluster, nothing is known": {live: true, want: "n2 0", assume: true},
		"the scheduler's own":              {live: true, args: []string{lease("scheduler", `"profiles":{"daybreak":{"policy":"spread"}}`)}, want: "n1 0"},
		"a scheduler without":              {live: true, args: []string{lease("scheduler", `"profiles":{"daybreak":{}}`)}, want: "n2 0"},
		"the flag goes first":              {live: true, args: []string{lease("scheduler", `"profiles":{"daybreak":{"policy":"spread"}}`)}, policy: place.Binpack, want: "n2 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, append(tc.args, device("n1", 1, "64Gi"), device("n2", 1, "64Gi"), slice("n2", "x", 0, 10, 1), pod("p", "sgpu: 1, vcore: 10, vmemory: 1"))...)
			s.Live = tc.live
			e := Explain(s, s.Pending[0], tc.policy)
			placements := placeAll(t, s, PlaceOptions{Policy: tc.policy})
			got := placements.Pods[0]
			if got.Node+" 0" != tc.want || e.Fits+" 0" != tc.want {
				t.Errorf("placed on %s, explained on %s, want %s", got.Node, e.Fits, tc.want)
			}
			if assumed := slices.Contains(got.Estimate, assumedPolicy); assumed != tc.assume || slices.Contains(e.Estimate, assumedPolicy) != tc.assume {
				t.Errorf("estimates %q and %q, want the policy assumed: %v", got.Estimate, e.Estimate, tc.assume)
			}
		})
	}
}

// TestWhyThereExpects: what spoke for a pod's node is computed with the demand of
// the pods that came before it, on the nodes that it may use.
func TestWhyThereExpects(t *testing.T) {
	there := []string{device("n1", 1, "64Gi"), device("n2", 1, "64Gi"), slice("n1", "x", 0, 20, 4), slice("n2", "yy", 0, 50, 4)}
	s := snapshot(t, slices.Concat(there, halves(), []string{slice("n1", "z", 0, 30, 4)})...)
	find := func(s *cluster.Snapshot, name string) *corev1.Pod {
		for i := range s.Facts {
			for _, p := range s.Facts[i].Pods {
				if p.Name == name {
					return p
				}
			}
		}
		t.Fatalf("no pod %s", name)
		return nil
	}
	e := Explain(s, find(s, "z"), place.Default)
	if want := "it leaves cards there that are of more use to the pods that are expected than on n2"; e.Why == nil || e.Why.Message != want {
		t.Errorf("why is %+v, want %q", e.Why, want)
	}
	s = snapshot(t, slices.Concat(there, []string{with(slice("n1", "z", 0, 30, 4), "nodeSelector: {pool: n1}"), node("n1")})...)
	if e := Explain(s, find(s, "z"), place.Default); e.Why.RunnerUp != "" || e.Why.NodesWithRoom != 1 {
		t.Errorf("the runner-up is %s of %d nodes, want none: the pod is kept to n1", e.Why.RunnerUp, e.Why.NodesWithRoom)
	}
}
