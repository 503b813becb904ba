package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// example is the example cluster with further documents.
func example(t *testing.T, docs ...string) *cluster.Snapshot {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{"../../examples/cluster.yaml", "-"}, strings.NewReader(documents(docs...)))
	gputest.Must(t, err)
	return objects.Snapshot()
}

// onCard3 is a pod of team-b with a slice of card 3 of metax-a.
func onCard3(name, metadata string) string {
	return `apiVersion: v1
kind: Pod
metadata:
  namespace: team-b
  name: ` + name + metadata + `
spec: {nodeName: metax-a, containers: [{name: main, resources: {limits: {metax-tech.com/sgpu: 1, metax-tech.com/vcore: 20, metax-tech.com/vmemory: 4}}}]}
`
}

const (
	holds3    = `metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-000000a3-c500-0000-0000-000000000000","compute":20,"vRam":4096}]]'`
	elevenUTC = "\n  creationTimestamp: \"2026-03-15T11:00:00Z\""
)

// TestUse: the sums of the example cluster, computed by hand. Card 6 of metax-b is
// unhealthy; two whole cards and two slices are in use on metax-a.
func TestUse(t *testing.T) {
	c := NewStatus(example(t), "").Cluster
	// Zone 1 of metax-a is in use, zone 2 of metax-b has the unhealthy card.
	got, want := []int{c.InUse, c.Zones, c.WholeZones}, []int{4, 5, 3}
	if diff := cmp.Diff(want, got); diff != "" || c.Allocated != (Amounts{ComputePercent: 100 + 100 + 30 + 20, MemoryMiB: (64 + 64 + 16 + 16) << 10}) {
		t.Errorf("%+v is allocated; cards in use, zones and whole zones (-want +got):\n%s", c.Allocated, diff)
	}
}

// TestForPage: a card lists its pods with their containers in place of shares.
func TestForPage(t *testing.T) {
	s := example(t, onCard3("second", elevenUTC+"\n  annotations: {"+holds3+"}"))
	st := NewStatus(s, "")
	st.ForPage(s)
	a := st.Nodes[0]
	wantLinks := [][2]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}, {4, 5}, {4, 6}, {4, 7}, {5, 6}, {5, 7}, {6, 7}}
	gputest.Equal(t, "links", wantLinks, a.Links)
	want := []HolderStatus{
		{Namespace: "team-a", Pod: "notebook", ComputePercent: 20, MemoryMiB: 16 << 10, QoS: "best-effort", Containers: []HolderContainer{{Name: "main", ComputePercent: 20, MemoryMiB: 16 << 10}}},
		{
			Namespace: "team-b", Pod: "second", ComputePercent: 20, MemoryMiB: 4 << 10, QoS: "best-effort", Created: new(time.Date(2026, time.March, 15, 11, 0, 0, 0, time.UTC)),
			Containers: []HolderContainer{{Name: "main", ComputePercent: 20, MemoryMiB: 4 << 10}},
		},
	}
	if c := a.Cards[3]; c.Shares != nil || cmp.Diff(want, c.Holders) != "" {
		t.Errorf("card 3 has shares %v, holders (-want +got):\n%s", c.Shares, cmp.Diff(want, c.Holders))
	}
}

// TestOrigin: a pod is explained with since when it is there, who owns it and when it
// was placed.
func TestOrigin(t *testing.T) {
	const conditions = "status: {conditions: [{type: PodScheduled, status: \"True\", lastTransitionTime: \"2026-03-15T11:00:02Z\"}]}\n"
	at := func(second int) *time.Time { return new(time.Date(2026, time.March, 15, 11, 0, second, 0, time.UTC)) }
	for name, tc := range map[string]struct {
		pod  string
		want Explanation
	}{
		"owned": {
			onCard3("p", elevenUTC+"\n  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: serve-7d9f, uid: u, controller: true}, {apiVersion: v1, kind: Other, name: other, uid: v}]\n  annotations: {"+holds3+"}") + conditions,
			Explanation{Created: at(0), Placed: at(2), Owner: &Owner{Kind: "ReplicaSet", Name: "serve-7d9f"}},
		},
		"decided": {onCard3("p", "\n  annotations: {"+holds3+`, metax-tech.com/predicate-time: "1773572401000000000"}`) + conditions, Explanation{Placed: at(1)}},
		"waiting": {strings.Replace(onCard3("p", ""), "nodeName: metax-a, ", "", 1), Explanation{}},
	} {
		s := example(t, tc.pod)
		var pod *corev1.Pod
		for _, p := range append(s.Facts[0].Pods, s.Pending...) {
			if p.Name == "p" {
				pod = p
			}
		}
		got := Explain(s, pod, place.Default)
		gputest.Equal(t, name, []any{tc.want.Created, tc.want.Placed, tc.want.Owner}, []any{got.Created, got.Placed, got.Owner})
	}
}

func TestAsked(t *testing.T) {
	s := snapshot(t, device("n1", 2, "64Gi"), pod("big", "gpu: 16"))
	want := []Request{{Container: "main", Cards: 16, Exclusive: true, ComputePercent: 100, MemoryPercent: 100}}
	if got := NewStatus(s, "").Pending[0]; got.Code != "TooFewCards" || cmp.Diff(want, got.Request) != "" {
		t.Errorf("code %s, asked (-want +got):\n%s", got.Code, cmp.Diff(want, got.Request))
	}
}
