package scheduler

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestReadOnce: from PreFilter to the last event after its binding, the request and
// the allocation of a pod are read once, and once its node has answered whether it can
// take the pod, Filter and Score do not ask it again. What was read bears a mark, which
// would be lost if it were read again, and the node's answer would be another one.
func TestReadOnce(t *testing.T) {
	r, pod, waiting := newRig(t), makePod("p", slice(30, 8)), makePod("waiting", whole(2))
	node := makeNode("n1")
	r.setDevice(t, makeDevice("n1", 2))
	r.addNode(t, node)
	infos := []fwk.NodeInfo{nodeInfo(node)}
	r.fakes.snapshot = snapshotOf(infos[0])
	cs := r.cycleOver(t, pod, infos)
	const mark = 31 // percent, where the pod asks for 30
	r.shared.pods.peek(pod.UID).request.ask.Request.Requests[0].Compute = mark
	answered := r.shared.index.rows[0].entry
	free := answered.node.Clone()
	answered.node.BookAll(nil, []ledger.Holder{"ns/other"})
	succeeds(t, r.Filter(t.Context(), cs, pod, infos[0]))
	if _, got := r.Score(t.Context(), cs, pod, infos[0]); !got.IsSuccess() {
		t.Fatalf("Score() = %v", got)
	}
	if c, err := readState(cs); err != nil || len(c.ranks) > 0 {
		t.Errorf("Score() finds out again what the node is worth: %v, %v", c.ranks, err)
	}
	answered.node = free
	succeeds(t, r.Reserve(t.Context(), cs, pod, "n1"))
	annotations := r.shared.pods.claimOf(pod.UID, reservedClaim).annotations
	onBind(r.fakes.client)
	succeeds(t, r.bind(t.Context(), pod))

	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	bound := assumed.DeepCopy()
	maps.Copy(bound.Annotations, annotations)
	versions := []*corev1.Pod{pod, assumed, bound}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodPending, corev1.PodRunning} { // kubelet's updates
		next := bound.DeepCopy()
		next.Status.Phase = phase
		versions = append(versions, next)
	}
	var first *ledger.Part
	for i, now := range versions[1:] {
		if _, err := r.afterPodUpdate(testLogger(t), waiting, versions[i], now); err != nil {
			t.Fatal(err)
		}
		r.hintOn(waiting, "n1")
		r.cycleOver(t, waiting, []fwk.NodeInfo{nodeInfo(node, now)})
		reading := &r.shared.nodes.last("n1").read[0]
		if reading.amounts.Compute != mark {
			t.Errorf("version %d counts %v of compute, want the marked %d: the request was read again", i+1, reading.amounts.Compute, mark)
		}
		if now == assumed {
			continue // it has what is reserved
		}
		if part := &reading.holding.Parts[0]; first == nil {
			first = part
		} else if part != first {
			t.Errorf("the allocation of version %d was read again", i+1)
		}
	}
	if n := len(r.shared.pods.claimsOf(reservedClaim)); n != 0 {
		t.Errorf("%d reservations are left", n)
	}
	r.shared.pods.takeBindNote(pod.UID)
	if record := r.shared.pods.byUID[pod.UID]; record != nil {
		t.Errorf("the record of a bound pod is kept: %+v", record)
	}
}

// TestUnreserveForgets: a pod that was deleted while its Binding was under way
// leaves no record; one that is tried again is not read again.
func TestUnreserveForgets(t *testing.T) {
	for name, there := range map[string]bool{"deleted": false, "tried again": true} {
		t.Run(name, func(t *testing.T) {
			r, pod := reserved(t)
			if there {
				gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
			}
			r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
			if record := r.shared.pods.peek(pod.UID); r.shared.pods.claimOf(pod.UID, reservedClaim) != nil || (record.request.ask != nil) != there {
				t.Errorf("kept is %+v, want a request: %v", record, there)
			}
		})
	}
}

// TestReservationIsFor: what the Binding adds does not change what a pod asks for,
// and other annotations do.
func TestReservationIsFor(t *testing.T) {
	res := claim{pod: makePod("p", slice(10, 8)), annotations: map[string]string{wire.AnnotationQoS: "best-effort"}}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"bound":                   {makePod("p", slice(10, 8), boundTo("n1"), annotated(wire.AnnotationQoS, "best-effort")), true},
		"asks for other cards":    {makePod("p", slice(10, 8), boundTo("n1"), annotated(wire.AnnotationUseCards, "GPU-1")), false},
		"with another annotation": {makePod("p", slice(10, 8), boundTo("n1"), annotated("a", "b")), true},
	} {
		if got := res.isFor(tt.pod); got != tt.want {
			t.Errorf("%s: isFor() = %v, want %v", name, got, tt.want)
		}
	}
}

// TestRecordsEnd: whatever is asked about a pod after it has ended, nothing is kept.
func TestRecordsEnd(t *testing.T) {
	r := newRig(t)
	r.shared.pods.lister = r.fakes.informers.Core().V1().Pods().Lister()
	r.setDevice(t, makeDevice("n1", 2))
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitGPU: "1"}))
	node, running := makeNode("n1"), makePod("running", whole(2), holds(0, 1), inNamespace("other"))
	r.addNode(t, node)
	info := nodeInfo(node, running)
	r.fakes.snapshot = snapshotOf(info)
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	for name, ask := range map[string]func(*corev1.Pod){
		"tried": func(pod *corev1.Pod) { r.cycleOver(t, pod, []fwk.NodeInfo{info}) },
		"over its quota": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits[wire.ResourceGPU] = resource.MustParse("2")
			if r.preFilter(t, pod, info).IsSuccess() {
				t.Error("a pod over its quota passes")
			}
		},
		"asked whether an event helps": func(pod *corev1.Pod) {
			if _, err := r.afterPodDelete(testLogger(t), pod, running, nil); err != nil {
				t.Error(err)
			}
		},
		"nominated":            func(pod *corev1.Pod) { r.shared.nodes.placeNominated(ledger.NewNode("n1", nil, ledger.Serves{}), pod) },
		"promised to":          func(pod *corev1.Pod) { r.shared.pods.putClaim(claim{kind: heldClaim, pod: pod, node: "n1"}) },
		"too large":            func(pod *corev1.Pod) { r.shared.pods.reject(pod, nil, nil) },
		"reserved, not bound":  func(pod *corev1.Pod) { reserveAndFail(t, r, pod) },
		"bound, and noted":     func(pod *corev1.Pod) { r.shared.pods.putBindNote(pod.UID, "a"); r.shared.pods.takeBindNote(pod.UID) },
		"warned for its quota": func(pod *corev1.Pod) { r.shared.pods.warnQuota(pod.UID) },
	} {
		for _, there := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/there=%v", name, there), func(t *testing.T) {
				pod := makePod("p", whole(1))
				if there {
					gputest.Must(t, store.Add(pod))
					ask(pod)
					gputest.Must(t, store.Delete(pod))
				}
				r.shared.pods.drop(pod.UID)
				if !there {
					ask(pod)
				}
				p := r.shared.pods
				if len(p.byUID) > 0 || len(p.claims) > 0 || len(p.nodes["n1"].claimed()) > 0 {
					t.Errorf("%d records, %d claims, and %v on the node are kept", len(p.byUID), len(p.claims), p.nodes["n1"].claimed())
				}
				clear(p.byUID)
			})
		}
	}
}

// claimed returns what is promised of the node, which the overlay may not know.
func (n *nodeOverlay) claimed() []*claim {
	if n == nil {
		return nil
	}
	return n.claims
}

// reserveAndFail reserves cards for the pod, which is not bound.
func reserveAndFail(t *testing.T, r *rig, pod *corev1.Pod) {
	t.Helper()
	r.shared.pods.putClaim(claim{node: "n1", pod: pod})
	if len(r.shared.pods.claimsOf(reservedClaim)) != 1 {
		t.Error("nothing is reserved")
	}
	r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
	if err := r.fakes.informers.Core().V1().Pods().Informer().GetStore().Delete(pod); err != nil {
		t.Error(err)
	}
	r.shared.pods.drop(pod.UID)
}

// TestDropIsWhole: cards that are reserved while the end of the pod is heard are
// released with its record, or kept with one that Unreserve finds.
func TestDropIsWhole(t *testing.T) {
	p, done := newPods(), make(chan struct{})
	var dropping sync.WaitGroup
	defer dropping.Wait()
	defer close(done)
	dropping.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				p.drop("uid-a")
			}
		}
	})
	pod := makePod("a")
	for i := range 300_000 {
		p.putClaim(claim{pod: pod, node: "n1"})
		p.dropClaim("uid-a", reservedClaim)
		if n := len(p.claimsOf(reservedClaim)); n > 0 {
			t.Fatalf("after %d tries %d reservations are kept that nothing can release", i+1, n)
		}
	}
}
