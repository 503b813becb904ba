package scheduler

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// vendorNode is n1 when no annotation shows what serves it: the vendor's plugin.
func vendorNode() *corev1.Node {
	n := makeNode("n1")
	n.ResourceVersion = "1"
	n.Annotations = map[string]string{wire.AnnotationNodeCards: `[{"uuid":"GPU-0","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true}]`}
	return n
}

func TestNeedsLock(t *testing.T) {
	slicing := asking(map[corev1.ResourceName]string{wire.ResourceSGPU: "1"})
	inInit := func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{wire.ResourceSGPU: resource.MustParse("1")}}}}
	}
	tests := map[string]struct {
		node *corev1.Node
		pod  podOption
		off  bool
		want bool
	}{
		"a slice on a vendor's node":                   {node: vendorNode(), pod: slicing, want: true},
		"a slice in an init container alone":           {node: vendorNode(), pod: inInit, want: true},
		"a slice where Daybreak's agent serves":        {node: makeNode("n1"), pod: slicing},
		"whole cards on a vendor's node":               {node: vendorNode(), pod: whole(1)},
		"a pod without cards":                          {node: vendorNode(), pod: func(*corev1.Pod) {}},
		"a slice, and nothing is done for the plugin ": {node: vendorNode(), pod: slicing, off: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tt.off {
				r.shared.locks = nil
			}
			r.addNode(t, tt.node)
			if got, err := r.needsLock(makePod("p", tt.pod), "n1"); err != nil || got != tt.want {
				t.Errorf("needsLock() = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
	t.Run("a node that is gone", func(t *testing.T) {
		r := newRig(t)
		if _, err := r.needsLock(makePod("p", slicing), "n1"); err == nil {
			t.Error("needsLock(): want an error")
		}
	})
}

// TestBindTakesTheLock: the write is one patch that holds for the node's
// version, and comes before the Binding; after Unreserve the lock is taken off
// again.
func TestBindTakesTheLock(t *testing.T) {
	r, pod := newRig(t), makePod("p", slice(30, 8))
	node := vendorNode()
	r.addNode(t, node)
	r.fakes.snapshot = snapshotOf(nodeInfo(node))
	succeeds(t, r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"))
	patches := make(chan string, 2)
	r.fakes.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok {
			return true, nil, errors.New("no patch")
		}
		patches <- string(patch.GetPatch())
		after := node.DeepCopy()
		after.ResourceVersion = "2"
		return true, after, nil
	})
	gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
	r.shared.locks.begin(t.Context(), sets.New(DefaultProfile))
	onBind(r.fakes.client, errForbidden)
	if got := r.bind(t.Context(), pod); !strings.Contains(got.Message(), "forbidden") {
		t.Fatalf("Bind() = %v, want what the API server said to the Binding", got)
	}
	if first := r.fakes.client.Actions()[0]; !first.Matches("patch", "nodes") {
		t.Errorf("first came %s %s, want the lock", first.GetVerb(), first.GetResource().Resource)
	}
	want := `{"metadata":{"annotations":{"hami.io/mutex.lock":"2026-01-02T03:04:05Z,ns,p"},"resourceVersion":"1","uid":""}}`
	if got := <-patches; got != want {
		t.Errorf("written\n%s\nwant\n%s", got, want)
	}
	r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
	want = `{"metadata":{"annotations":{"hami.io/mutex.lock":null},"resourceVersion":"2","uid":""}}`
	if got := <-patches; got != want {
		t.Errorf("after Unreserve, written\n%s\nwant\n%s", got, want)
	}
}

// TestScoreOfStuckNode: a node whose lock others gave up on is the last resort,
// for those who need it.
func TestScoreOfStuckNode(t *testing.T) {
	r := newRig(t)
	node := vendorNode()
	node.Annotations[wire.AnnotationLock] = "2026-01-02T03:04:05Z"
	r.addNode(t, node)
	r.shared.locks.begin(t.Context(), sets.New(DefaultProfile))
	done := make(chan error)
	go func() { done <- r.takeLock(t.Context(), makePod("waits", slice(10, 4)), "n1") }()
	var got error
	for got == nil {
		select {
		case got = <-done:
		case <-time.After(time.Millisecond):
			r.clock.Step(5 * time.Second)
		}
	}
	if !strings.Contains(got.Error(), "node n1: waited 1m0s for hami.io/mutex.lock") {
		t.Fatalf("takeLock() = %v", got)
	}
	for _, tt := range []struct {
		name string
		ask  podOption
		want bool
	}{{"slice", slice(10, 4), true}, {"whole", whole(1), false}} {
		if got := r.isStuck(makePod("p", tt.ask), node); got != tt.want {
			t.Errorf("%s: stuck %v, want %v", tt.name, got, tt.want)
		}
	}
	pod := makePod("p", slice(10, 4))
	cs := r.cycle(t, pod)
	if _, status := r.Score(t.Context(), cs, pod, nodeInfo(node)); !status.IsSuccess() {
		t.Errorf("Score() = %v", status)
	}
	if ranked := rankedNodes(t, cs, node.Name); ranked[0].room {
		t.Errorf("a stuck node is ranked as one with room: %+v", ranked)
	}
	if r.isStuck(pod, makeNode("n1")) {
		t.Error("where Daybreak's agent serves no node is stuck")
	}
}

// TestWithoutAdaption: nothing is written for the vendor's plugin, and the pod's
// cards are known all the same.
func TestWithoutAdaption(t *testing.T) {
	r, pod := newRig(t), makePod("p", slice(30, 8))
	r.shared.locks = nil
	r.setDevice(t, makeDevice("n1", 1))
	r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1")))
	succeeds(t, r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"))
	res := r.shared.pods.claimOf(pod.UID, reservedClaim)
	for _, key := range []string{wire.AnnotationAllocated, wire.AnnotationPredicateTime} {
		if _, written := res.annotations[key]; written {
			t.Errorf("%s is written", key)
		}
	}
	bound := makePod("p", slice(30, 8), boundTo("n1"))
	if res, carried := r.shared.pods.reservationOf(bound, ofSnapshot); res == nil || carried {
		t.Error("the reservation was dropped before the pod carries what was reserved")
	}
	maps.Copy(bound.Annotations, res.annotations)
	if _, carried := r.shared.pods.reservationOf(bound, ofSnapshot); !carried || r.shared.pods.hasReserved(bound.UID, "n1") {
		t.Error("the reservation stays although the pod carries it")
	}
	if h, known, notes := allocation.AnnotatedHolding(r.shared.nodes.of(nodeInfo(makeNode("n1")), true), bound); !known || h.Cards().Len() != 1 {
		t.Errorf("the cards of a bound pod are not known: %v", notes)
	}
	r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1") // has no lock to look at
}

func TestExpiryOfTwoProfiles(t *testing.T) {
	r := newRig(t)
	_, err := r.shared.newPlugin(t.Context(), unknown(`{"lockExpirySeconds":10}`), r.fakes)
	const want = "args of plugin Daybreak: lockExpirySeconds: Invalid value: 10: another profile has 300: write the same in all"
	if message(err) != want {
		t.Errorf("newPlugin() says %q, want %q", message(err), want)
	}
	if _, err := r.shared.newPlugin(t.Context(), unknown(`{"lockWaitSeconds":10}`), r.fakes); err != nil {
		t.Errorf("profiles may wait differently: %v", err)
	}
}

// TestBindOfLatestVersion: the version that kube-scheduler's own notes on the
// pod's status have made is the one to bind.
func TestBindOfLatestVersion(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"only its status":     {change: func(p *corev1.Pod) { p.Status.NominatedNodeName = "n1" }, want: "8"},
		"what it asks for":    {change: annotated(wire.AnnotationQoS, "fixed-share"), want: "7"},
		"another of its name": {change: func(p *corev1.Pod) { p.UID = "other" }, want: "7"},
		"bound already":       {change: boundTo("n2"), want: "7"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, pod := reserved(t)
			now := pod.DeepCopy()
			now.ResourceVersion = "8"
			tt.change(now)
			gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(now))
			onBind(r.fakes.client)
			succeeds(t, r.bind(t.Context(), pod))
			if got := sentBindings(t, r.fakes.client)[0].ResourceVersion; got != tt.want {
				t.Errorf("bound version %s, want %s", got, tt.want)
			}
		})
	}
}
