package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPodsThatCanNotBeBound: a pod whose allocation would not fit in its annotations
// is no pod that fits, and the advice is about what is too large.
func TestPodsThatCanNotBeBound(t *testing.T) {
	var inits []string
	for i := range 2000 {
		inits = append(inits, fmt.Sprintf("{name: i%d, resources: {limits: {metax-tech.com/sgpu: 1, metax-tech.com/vcore: 1, metax-tech.com/vmemory: 1}}}", i))
	}
	const slice = "sgpu: 1, vcore: 10, vmemory: 1"
	for name, tc := range map[string]struct{ pod, want, reported string }{
		"an annotation that leaves no room": {pod("p", slice, "note: "+strings.Repeat("x", 262_000)), "shorten the pod's own by", "is pending and can never be bound"},
		"more containers than are listed":   {with(pod("p", slice), "initContainers: ["+strings.Join(inits, ", ")+"]"), "a pod with GPUs has at most 1024 containers, init containers included, and this one has 2001: split it into several pods", "a pod with GPUs has at most 1024 containers"},
		"a large annotation that fits":      {pod("p", slice, "note: "+strings.Repeat("x", 200_000)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, device("n1", 8, "64Gi"), tc.pod)
			ok := (&Explanations{Pods: []Explanation{*e}}).OK()
			if tc.want == "" {
				if !ok || e.Fits != "n1" {
					t.Errorf("OK is %v, fits %q, want n1; %q", ok, e.Fits, e.Error)
				}
				return
			}
			if ok || e.Fits != "" || !strings.Contains(e.Error, tc.reported) || !strings.Contains(strings.Join(e.Problems, ""), tc.want) {
				t.Errorf("OK is %v, fits %q, error %q, problems %q; want %q", ok, e.Fits, e.Error, e.Problems, tc.want)
			}
		})
	}
}

// TestLiveNodesWithoutDevices: on a live cluster a node that Daybreak serves has no
// cards while its Device is missing, whatever kubelet advertises, as for the
// scheduler; one of which it is not known who serves it takes no pods.
func TestLiveNodesWithoutDevices(t *testing.T) {
	for servedBy, want := range map[string]string{wire.ServedByDaybreak: "NoCards", "": "Unhealthy", wire.ServedByVendor: ""} {
		t.Run(servedBy, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{}},
				Status:     corev1.NodeStatus{Capacity: gputest.MakeResources("gpu: 8"), Allocatable: gputest.MakeResources("gpu: 8")},
			}
			if servedBy != "" {
				node.Annotations[wire.AnnotationServedBy] = servedBy
			}
			objects := &cluster.Objects{Live: true, Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{gputest.MakePod("p").App("gpu: 1").Obj()}}
			s := objects.Snapshot()
			e := Explain(s, s.Pending[0], place.Default)
			got := ""
			if len(e.Refusals) > 0 {
				got = e.Refusals[0].Code
			}
			if diff := cmp.Diff(want, got); diff != "" || (e.Fits == "n1") != (want == "") {
				t.Errorf("fits %q, refusals %+v, want %q", e.Fits, e.Refusals, want)
			}
			if free := NewStatus(s, "").Cluster.Free.WholeCards; (free == 8) != (want == "") {
				t.Errorf("status counts %d free cards", free)
			}
		})
	}
}
