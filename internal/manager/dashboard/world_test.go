package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestFindings: a violation is shown when a second audit confirms it.
func TestFindings(t *testing.T) {
	broken := read(t, running("team-b", "intruder", card("0"))) // which team-a/training has to itself
	first := newWorld(broken, 1, nil, noon())
	if len(first.findings) != 0 || !first.unconfirmed {
		t.Errorf("after one audit: %+v", first.findings)
	}
	second := newWorld(broken, 2, first.audited, noon())
	rules := make([]string, len(second.findings))
	for i := range second.findings {
		rules[i] = string(second.findings[i].Rule)
	}
	if !slices.Contains(rules, "ExclusiveShared") || second.unconfirmed {
		t.Errorf("after two audits: %v", rules)
	}
}

// TestHidden: a user without rights gets every amount, and no name of pods that the
// user may not see.
func TestHidden(t *testing.T) {
	lost := strings.Replace(running("covert", "covert-lost", "GPU-none"), "metax-a", "metax-b", 1)
	dated := strings.Replace(running("covert", "covert-runner", card("3")), "  name: covert-runner\n", "  name: covert-runner\n  creationTimestamp: \"2026-03-15T11:00:00Z\"\n", 1)
	objects := read(t,
		dated, running("covert", "covert-intruder", card("0")), waiting("covert", "covert-waiter", "8"),
		waiting("team-a", "seen", "8"), lost)
	first := newWorld(objects, 1, nil, noon())
	w := newWorld(objects, 2, first.audited, noon())
	sees := &sight{namespaces: map[string]bool{"team-a": true}}
	p, err := w.see(sees)
	gputest.Must(t, err)
	pod, err := json.Marshal(w.pod(sees, "team-a", "seen"))
	gputest.Must(t, err)
	neighbour, err := json.Marshal(w.pod(sees, "team-a", "notebook"))
	gputest.Must(t, err)
	parts := slices.Concat([][]byte{p.cluster, p.pending, p.findings, pod, neighbour}, slices.Collect(maps.Values(p.nodes)))
	everythingSent := string(bytes.Join(parts, nil))
	if i := strings.Index(everythingSent, "covert"); i >= 0 {
		t.Errorf("a name that must not be seen is sent: …%s…", everythingSent[max(0, i-60):min(len(everythingSent), i+60)])
	}
	if !strings.Contains(everythingSent, "team-a") || !strings.Contains(everythingSent, `"seen"`) {
		t.Error("names that may be seen are not sent")
	}
	if w.pod(sees, "covert", "covert-runner") != nil {
		t.Error("the page of a pod that must not be seen is there")
	}
	var summary Summary
	gputest.Must(t, json.Unmarshal(p.cluster, &summary))
	if summary.HiddenPending != 1 || summary.Pending != 2 || summary.Allocated != w.status.Cluster.Allocated {
		t.Errorf("summary %+v", summary)
	}
	var node Node
	gputest.Must(t, json.Unmarshal(p.nodes["metax-a"], &node))
	want := view.HolderStatus{ComputePercent: 20, MemoryMiB: 4 << 10, QoS: "best-effort", Hidden: true}
	gputest.Equal(t, "the hidden holder", want, node.Cards[3].Holders[0])
}

// TestNamespaces: a viewer sees the budgets of namespaces whose pods the viewer may
// list, those without pods too.
func TestNamespaces(t *testing.T) {
	quota := func(namespace string) string {
		return "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: " + namespace + "}\nspec: {hard: {requests.daybreak-gpu.io/compute: 500}}\n"
	}
	w := newWorld(read(t, quota("team-a"), quota("team-b"), running("team-c", "p", card("4"))), 1, nil, noon())
	gputest.Equal(t, "rights are asked for in", []string{"team-a", "team-b", "team-c"}, w.namespaces)
	for name, tc := range map[string]struct {
		sight *sight
		want  []string
	}{
		"everything":          {everything, []string{"team-a", "team-b", "team-c"}},
		"one without pods":    {&sight{namespaces: map[string]bool{"team-b": true}}, []string{"team-b"}},
		"nothing of interest": {&sight{namespaces: map[string]bool{"other": true}}, nil},
	} {
		p, err := w.see(tc.sight)
		gputest.Must(t, err)
		var list []view.NamespaceStatus
		gputest.Must(t, json.Unmarshal(p.since(nil).Namespaces, &list))
		var got []string
		for _, n := range list {
			got = append(got, n.Name)
		}
		gputest.Equal(t, name, tc.want, got)
	}
	before, _ := w.see(everything)
	after, err := newWorld(read(t, quota("team-a"), running("team-c", "p", card("4"))), 2, nil, noon()).see(everything)
	gputest.Must(t, err)
	if st := after.since(before); st.empty() || st.Namespaces == nil || st.Pending != nil {
		t.Errorf("after a quota is gone: %+v, want the namespaces alone", st)
	}
}

// TestSince: only what changed is sent.
func TestSince(t *testing.T) {
	see := func(revision uint64, documents ...string) *projection {
		p, err := newWorld(read(t, documents...), revision, nil, noon()).see(everything)
		gputest.Must(t, err)
		return p
	}
	before := see(1)
	if st := see(2).since(before); !st.empty() {
		t.Errorf("nothing changed, sent %+v", st)
	}
	bound := see(3, running("team-b", "new", card("3"))).since(before)
	if len(bound.Nodes) != 1 || !strings.Contains(string(bound.Nodes[0]), `"metax-a"`) || bound.Cluster == nil || bound.Pending != nil || bound.Findings != nil || bound.Full {
		t.Errorf("a pod was bound, sent %+v", bound)
	}
	gone := before.since(see(4, "apiVersion: v1\nkind: Node\nmetadata: {name: other}\n"))
	gputest.Equal(t, "gone", []string{"other"}, gone.Gone)
	if full := before.since(nil); !full.Full || len(full.Nodes) != 3 {
		t.Errorf("at first, sent %d nodes, full is %v", len(full.Nodes), full.Full)
	}
}
