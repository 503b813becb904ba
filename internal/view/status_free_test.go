package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// nodesOf returns the nodes of a status by name.
func nodesOf(st *Status) map[string]*NodeStatus {
	nodes := map[string]*NodeStatus{}
	for i := range st.Nodes {
		nodes[st.Nodes[i].Name] = &st.Nodes[i]
	}
	return nodes
}

// TestOutOfSlices: a card with 16 slices of 1 % has 84 % of its compute left, and
// none of it can be given. Nor can a card whose memory is all booked.
func TestOutOfSlices(t *testing.T) {
	docs := []string{device("n1", 3, "64Gi"), node("n1")}
	for i := range 16 {
		docs = append(docs, slice("n1", fmt.Sprintf("tiny-%d", i), 0, 1, 1))
	}
	docs = append(docs, slice("n1", "deep", 1, 10, 64))
	n := nodesOf(NewStatus(snapshot(t, docs...), ""))["n1"]
	if c := &n.Cards[0]; !c.OutOfSlices() || c.ComputeFreePercent != 84 || c.Free != (Amounts{}) {
		t.Errorf("card 0 is out of slices: %v, %d%% not booked, %+v free", c.OutOfSlices(), c.ComputeFreePercent, c.Free)
	}
	if c := &n.Cards[1]; c.OutOfSlices() || c.Free != (Amounts{}) {
		t.Errorf("card 1 is out of slices: %v, %+v free", c.OutOfSlices(), c.Free)
	}
	want := Free{Amounts: Amounts{100, 64 << 10}, WholeCards: 1, LargestSlice: Amounts{100, 64 << 10}}
	gputest.Equal(t, "free", want, n.Free)
}

// TestFreeAddsUp: what a node has free is what its cards have, whatever is wrong
// with them.
func TestFreeAddsUp(t *testing.T) {
	st := NewStatus(snapshot(t,
		device("n1", 4, "64Gi"), node("n1"), slice("n1", "a", 0, 30, 16), podOn("n1", "w", "gpu: 1", `metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-n1-1","compute":100,"vRam":65536}]]'`),
		strings.ReplaceAll(device("n2", 2, "64Gi"), "health: true", "health: false"), node("n2"),
		device("n3", 2, "64Gi"), node("n3"), podOn("n3", "unknown", "gpu: 1")), "")
	for _, n := range st.Nodes {
		var sum Amounts
		for _, c := range n.Cards {
			sum.ComputePercent += c.Free.ComputePercent
			sum.MemoryMiB += c.Free.MemoryMiB
		}
		if sum != n.Free.Amounts {
			t.Errorf("node %s has %+v free, its cards %+v", n.Name, n.Free.Amounts, sum)
		}
	}
	if got := nodesOf(st)["n1"].Free.ComputePercent; got != 270 {
		t.Errorf("%d%% free on n1, want 270%%", got)
	}
}

const gpuTaint = "spec: {taints: [{key: metax-tech.com/gpu, effect: NoSchedule}]}"

// TestTaintedNodes: a node with a taint that pods with cards do not tolerate does
// not count as free. Which taint they tolerate is a setting of the manager.
func TestTaintedNodes(t *testing.T) {
	cases := map[string]struct {
		node, manager string
		want          string
	}{
		"no taint":                              {node: node("n1")},
		"another team's taint":                  {node: node("n1", tainted), want: "team=a:NoSchedule"},
		"a taint that evicts":                   {node: node("n1", strings.ReplaceAll(tainted, "NoSchedule", "NoExecute")), want: "team=a:NoExecute"},
		"a taint that only discourages":         {node: node("n1", discouraged)},
		"the taint of nodes with cards":         {node: node("n1", gpuTaint)},
		"the same with another effect":          {node: node("n1", strings.ReplaceAll(gpuTaint, "NoSchedule", "NoExecute")), want: "metax-tech.com/gpu:NoExecute"},
		"the taint that the manager tolerates":  {node: node("n1", tainted), manager: `"toleratedTaint":"team:NoSchedule"`},
		"the manager tolerates another":         {node: node("n1", gpuTaint), manager: `"toleratedTaint":"team:NoSchedule"`, want: "metax-tech.com/gpu:NoSchedule"},
		"the manager is to tolerate none":       {node: node("n1", gpuTaint), manager: `"toleratedTaint":""`, want: "metax-tech.com/gpu:NoSchedule"},
		"a cordoned node, as Kubernetes has it": {node: node("n1", "spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}"), want: "node.kubernetes.io/unschedulable:NoSchedule"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			docs := []string{device("n1", 2, "64Gi"), tc.node}
			if tc.manager != "" {
				docs = append(docs, lease("manager", tc.manager))
			}
			st := NewStatus(snapshot(t, docs...), "")
			gputest.Equal(t, "taint", tc.want, st.Nodes[0].Taint)
			want := 2
			if tc.want != "" {
				want = 0
			}
			if got := st.Cluster.Free.WholeCards; got != want || st.Nodes[0].TakesPods() != (want > 0) {
				t.Errorf("%d whole cards are free, want %d; takes pods: %v", got, want, st.Nodes[0].TakesPods())
			}
		})
	}
}

// vendorNode is a node of the vendor's plugin with four linked cards.
func vendorNode(name, resource string) string {
	card := func(i int) string {
		return fmt.Sprintf(`{"uuid":"GPU-%s-%d","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,"linkZone":1}`, name, i)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata:
  name: %s
  labels: {metax-tech.com/gpu.product: MXC550}
  annotations: {daybreak-gpu.io/served-by: vendor, metax-tech.com/node-gpu-devices: '[%s,%s,%s,%s]'}
status: {capacity: {metax-tech.com/%s: 64}}
`, name, card(0), card(1), card(2), card(3), resource)
}

// TestVendorNodes: a node that serves slices alone has no whole cards to give, and
// the model of its cards is the one that the node's label has.
func TestVendorNodes(t *testing.T) {
	st := NewStatus(snapshot(t, vendorNode("sliced", "sgpu"), vendorNode("whole", "gpu"),
		"apiVersion: v1\nkind: Node\nmetadata: {name: counted, labels: {metax-tech.com/gpu.product: MXC500}, annotations: {daybreak-gpu.io/served-by: vendor}}\nstatus: {capacity: {metax-tech.com/gpu: 2}}\n",
		device("plain", 1, "64Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: plain, labels: {metax-tech.com/gpu.product: MXN260}}\n"), "")
	nodes := nodesOf(st)
	if f := nodes["sliced"].Free; f.WholeCards != 0 || f.LinkedCards != 0 || f.LargestSlice != (Amounts{100, 64 << 10}) || f.ComputePercent != 400 {
		t.Errorf("free on the node with slices: %+v", f)
	}
	if f := nodes["whole"].Free; f.WholeCards != 4 || f.LinkedCards != 4 {
		t.Errorf("free on the node with whole cards: %+v", f)
	}
	want := map[string]int{"C550": 8, "C500": 2, "N260": 1}
	gputest.Equal(t, "models", want, st.Cluster.Models)
}

// TestFragmentationNeedsPods: with fewer than 32 pods nothing is known of it, and it
// is not 0.
func TestFragmentationNeedsPods(t *testing.T) {
	docs := []string{device("n1", 8, "64Gi"), node("n1")}
	for i := range 31 {
		docs = append(docs, slice("n1", fmt.Sprintf("s-%d", i), i%8, 20, 8))
	}
	c := &NewStatus(snapshot(t, docs...), "").Cluster
	if c.FragmentationPercent != nil || c.FragmentationUnknown != TooFewPods {
		t.Errorf("with 31 pods %v, %q", c.FragmentationPercent, c.FragmentationUnknown)
	}
	docs = append(docs, slice("n1", "s-31", 7, 20, 8))
	c = &NewStatus(snapshot(t, docs...), "").Cluster
	if c.FragmentationPercent == nil || c.FragmentationUnknown != "" {
		t.Errorf("with 32 pods %v, %q", c.FragmentationPercent, c.FragmentationUnknown)
	}
	docs = []string{device("n1", 32, "64Gi"), node("n1")}
	for i := range 32 {
		docs = append(docs, podOn("n1", fmt.Sprintf("w-%d", i), "gpu: 1", fmt.Sprintf(`metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-n1-%d","compute":100,"vRam":65536}]]'`, i)))
	}
	c = &NewStatus(snapshot(t, docs...), "").Cluster
	if c.FragmentationPercent != nil || c.FragmentationUnknown != NothingFree {
		t.Errorf("with nothing free %v, %q", c.FragmentationPercent, c.FragmentationUnknown)
	}
}

// TestMark: what an audit found is on the cards and counted.
func TestMark(t *testing.T) {
	s := snapshot(t, device("n1", 3, "64Gi"), node("n1"), slice("n1", "a", 1, 60, 40), slice("n1", "b", 1, 60, 40), slice("n1", "c", 2, 10, 4),
		podOn("gone", "stray", "gpu: 1"))
	st := NewStatus(s, "")
	if st.Cluster.Violations != nil {
		t.Error("violations are counted without an audit")
	}
	st.Mark(audit.Check(s, noon()))
	if n := st.Cluster.Violations; n == nil || *n != 3 {
		t.Errorf("%v violations, want 3: memory, compute, a node that is missing", n)
	}
	want := [][]audit.Rule{nil, {audit.MemoryOverbooked, audit.ComputeOverbooked}, nil}
	var got [][]audit.Rule
	for _, c := range st.Nodes[0].Cards {
		got = append(got, c.Violations)
	}
	gputest.Equal(t, "rules by card", want, got)
}

// TestMissingDevice: a node that Daybreak serves and that has no Device has no free
// card, is not passed over, and the reason is the definition where that is missing.
func TestMissingDevice(t *testing.T) {
	served := "apiVersion: v1\nkind: Node\nmetadata: {name: n1, annotations: {daybreak-gpu.io/served-by: daybreak}}\nstatus: {capacity: {metax-tech.com/gpu: 8, metax-tech.com/sgpu: 128}}\n"
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(served, device("n2", 1, "64Gi"), node("n2"))))
	gputest.Must(t, err)
	for undefined, want := range map[bool]string{
		false: "it has no Device: its agent has not published its cards",
		true:  "the definition of Devices (devices.scheduling.koordinator.sh) is missing from the cluster",
	} {
		objects.Undefined = undefined
		s := objects.Snapshot()
		st := NewStatus(s, "")
		n := nodesOf(st)["n1"]
		if n.MissingDevice != want || n.ServedBy != "daybreak" || !n.HasCards() || n.Free != (Free{}) || st.Cluster.NodesWithCards != 2 || st.Cluster.Free.WholeCards != 1 {
			t.Errorf("undefined is %v: %q, want %q; has cards: %v, free %+v, in the cluster %+v", undefined, n.MissingDevice, want, n.HasCards(), n.Free, st.Cluster)
		}
		gputest.Equal(t, "n2", "", nodesOf(st)["n2"].MissingDevice)
		notes := audit.Check(s, noon()).Notes
		if len(notes) != 1 || notes[0].Rule != audit.DeviceMissing || notes[0].Message != "no card of node n1 is known: "+want {
			t.Errorf("undefined is %v: the audit notes %+v", undefined, notes)
		}
	}
}
