package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"of a pod without cards nobody asks where it is": {
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
		"notes tell the node": {
			docs: []string{on("n1"), device},
			want: state{Nodes: []string{"n1"}, Notes: []string{"pod default/p1 on n1: no annotation tells its cards"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := ReadFiles([]string{"-"}, strings.NewReader(strings.Join(tc.docs, "---\n")))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, stateOf(t, objects.Snapshot())); diff != "" {
				t.Errorf("snapshot (-want +got):\n%s", diff)
			}
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
