package cluster

import (
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestSnapshot(t *testing.T) {
	const (
		gpuPod    = "apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {nodeName: NODE, containers: [{name: main, resources: {limits: {metax-tech.com/gpu: 1}}}]}\n"
		allocated = `annotations: {metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-1","compute":100,"vRam":65536}]]'}`
	)
	on := func(node string) string { return strings.Replace(gpuPod, "NODE", node, 1) }
	holding := strings.Replace(on("n1"), "name: p1", "name: p1, "+allocated, 1)
	device := strings.Replace(deviceText, "health: true", "health: true, resources: {koordinator.sh/gpu-memory: 64Gi}", 1)
	cases := map[string]struct {
		docs []string
		want state
	}{
		"a pod that runs holds its card": {
			docs: []string{holding, device},
			want: state{Nodes: []string{"n1"}, Holders: []string{"default/p1"}},
		},
		"a pod that failed holds nothing and is not placed": {
			docs: []string{holding + "status: {phase: Failed}\n", device},
			want: state{Nodes: []string{"n1"}},
		},
		"nor is one that failed before it was bound": {
			docs: []string{on(`""`) + "status: {phase: Failed}\n", device},
			want: state{Nodes: []string{"n1"}},
		},
		"a pod that waits is to be placed": {
			docs: []string{on(`""`) + "status: {phase: Pending}\n", device},
			want: state{Nodes: []string{"n1"}, Pending: []string{"p1"}},
		},
		"a pod on a node that is not there": {
			docs: []string{on("n2"), device},
			want: state{Nodes: []string{"n1"}, Notes: []string{"pod default/p1 is on node n2, which is not there: what it holds is left out"}},
		},
		"a pod without cards on a node that is not there": {
			docs: []string{strings.Replace(podText, "spec: {", "spec: {nodeName: n2, ", 1), device},
			want: state{Nodes: []string{"n1"}},
		},
		"a node and its Device are one": {
			docs: []string{device, nodeText},
			want: state{Nodes: []string{"n1"}},
		},
		"a Device without its node counts, and so does a node without cards": {
			docs: []string{strings.ReplaceAll(nodeText, "n1", "n2"), device, strings.ReplaceAll(nodeText, "n1", "n0")},
			want: state{Nodes: []string{"n0", "n1", "n2"}},
		},
		"notes name the node": {
			docs: []string{on("n1"), device},
			want: state{Nodes: []string{"n1"}, Notes: []string{"pod default/p1 on n1: no annotation names its cards"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := readText(strings.Join(tc.docs, "---\n"))
			gputest.Must(t, err)
			gputest.Equal(t, "snapshot", tc.want, stateOf(t, objects.Snapshot()))
		})
	}
}

// state is a snapshot by names.
type state struct {
	Nodes, Holders, Pending, Notes []string
}

func stateOf(t *testing.T, s *Snapshot) state {
	t.Helper()
	got := state{Notes: s.Notes}
	for i, n := range s.Nodes {
		got.Nodes = append(got.Nodes, n.Name)
		for _, h := range n.Holdings() {
			got.Holders = append(got.Holders, string(h.Holder))
		}
		if s.Inventories[i].Name != n.Name {
			t.Errorf("inventory %d is of %s, the node is %s", i, s.Inventories[i].Name, n.Name)
		}
	}
	for _, pod := range s.Pending {
		got.Pending = append(got.Pending, pod.Name)
	}
	return got
}

// TestSnapshotReadsAsScheduler: nodes without a Device are read as the scheduler
// reads them, which depends on who serves them.
func TestSnapshotReadsAsScheduler(t *testing.T) {
	node := func(metadata string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {metax-tech.com/gpu.installed: \"true\"}, annotations: {" + metadata + "}}\nstatus: {capacity: {metax-tech.com/gpu: 4}, allocatable: {metax-tech.com/gpu: 4}}\n"
	}
	const (
		plugin  = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: metax-operator, generateName: metax-gpu-device-, labels: {app: plugin}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {phase: Running}\n"
		figures = `metax-tech.com/gpu.topology.scores: '{"1":0}'`
	)
	for name, tt := range map[string]struct {
		docs     []string
		files    bool // which need not have all pods
		selector string
		cards    int
		paused   bool
	}{
		"labels alone, in files":               {docs: []string{node("")}, files: true, cards: 4},
		"our agent's, in files":                {docs: []string{node("daybreak-gpu.io/served-by: daybreak")}, files: true},
		"labels alone":                         {docs: []string{node("")}, cards: 4, paused: true},
		"the plugin's figures":                 {docs: []string{node(figures)}, cards: 4},
		"the plugin runs":                      {docs: []string{node(""), plugin}, cards: 4},
		"the plugin runs under its labels":     {docs: []string{node(""), plugin}, selector: "app=plugin", cards: 4},
		"a tenant's pod under its name":        {docs: []string{node(""), strings.Replace(plugin, "metax-operator", "tenant", 1)}, cards: 4, paused: true},
		"a pod runs that is not the plugin":    {docs: []string{node(""), plugin}, selector: "app=other", cards: 4, paused: true},
		"our agent's, whose Device is missing": {docs: []string{node(figures + ", daybreak-gpu.io/served-by: daybreak"), plugin}},
		"the vendor's, by a word on the node":  {docs: []string{node("daybreak-gpu.io/served-by: vendor")}, cards: 4},
		"our agent's, and its Device is there": {docs: []string{node("daybreak-gpu.io/served-by: daybreak"), strings.Replace(deviceText, "health: true", "health: true, resources: {koordinator.sh/gpu-memory: 64Gi}", 1)}, cards: 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := readText(strings.Join(tt.docs, "---\n"))
			gputest.Must(t, err)
			gputest.Must(t, objects.VendorPlugin.Set(tt.selector))
			objects.Live = !tt.files
			n := objects.Snapshot().Nodes[0]
			if got := n.Topology().Len(); n.Problem != nil || got != tt.cards || (n.Paused != "") != tt.paused {
				t.Errorf("%d cards, paused %q, problem %v; want %d, paused %t", got, n.Paused, n.Problem, tt.cards, tt.paused)
			}
		})
	}
}
