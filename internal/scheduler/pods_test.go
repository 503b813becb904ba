package scheduler

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestReadOnce: from PreEnqueue to the last event after its binding, the request
// and the allocation of a pod are read once, and its node is asked twice: whether it
// can take the pod, and which cards it gets.
func TestReadOnce(t *testing.T) {
	r, pod, waiting := newRig(t), makePod("p", slice(30, 8)), makePod("waiting", whole(2))
	var requests, holdings, fits int
	isPod := func(p *corev1.Pod) int {
		if p.UID == pod.UID {
			return 1
		}
		return 0
	}
	calls, product := r.shared.pods.calls, newCalls()
	calls.readRequest = func(p *corev1.Pod) (*request.PodRequest, field.ErrorList) {
		requests += isPod(p)
		return product.readRequest(p)
	}
	calls.readBoundRequest = func(p *corev1.Pod) (*request.PodRequest, bool) {
		requests += isPod(p)
		return product.readBoundRequest(p)
	}
	calls.readHolding = func(inv *inventory.Inventory, n *ledger.Node, p *corev1.Pod, ask *request.PodRequest, asks bool) (ledger.Holding, bool, []string) {
		holdings += isPod(p)
		return product.readHolding(inv, n, p, ask, asks)
	}
	calls.fit = func(n *ledger.Node, request *gpu.PodRequest, prefer *place.Preference) (ledger.Offer, place.Refusal) {
		if n.Name == "n1" && !request.Requests[0].Whole {
			fits++
		}
		return product.fit(n, request, prefer)
	}

	node := makeNode("n1")
	r.setDevice(t, makeDevice("n1", 2))
	r.addNode(t, node)
	infos := []fwk.NodeInfo{nodeInfo(node)}
	r.fakes.snapshot = snapshotOf(infos[0])
	if got := r.PreEnqueue(t.Context(), pod); !got.IsSuccess() {
		t.Fatalf("PreEnqueue() = %v", got)
	}
	cs := r.cycleOver(t, pod, infos)
	if got := r.Filter(t.Context(), cs, pod, infos[0]); !got.IsSuccess() {
		t.Fatalf("Filter() = %v", got)
	}
	if _, got := r.Score(t.Context(), cs, pod, infos[0]); !got.IsSuccess() {
		t.Fatalf("Score() = %v", got)
	}
	if got := r.Reserve(t.Context(), cs, pod, "n1"); !got.IsSuccess() {
		t.Fatalf("Reserve() = %v", got)
	}
	annotations := r.shared.pods.peek(pod.UID).reservation.annotations
	onBind(r.client)
	if got := r.bind(t.Context(), pod); !got.IsSuccess() {
		t.Fatalf("Bind() = %v", got)
	}

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
	for i, now := range versions[1:] {
		if _, err := r.afterPodUpdate(testLogger(t), waiting, versions[i], now); err != nil {
			t.Fatal(err)
		}
		r.hintOn(waiting, "n1")
		r.cycleOver(t, waiting, []fwk.NodeInfo{nodeInfo(node, now)})
	}
	if requests != 1 || holdings != 1 || fits > 2 {
		t.Errorf("the request was read %d times, the allocation %d times, and the node asked %d times; want 1, 1 and at most 2", requests, holdings, fits)
	}
	if n := r.shared.pods.reservations(); n != 0 {
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
				if err := r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
			if record := r.shared.pods.peek(pod.UID); record.reservation != nil || (record.request.ask != nil) != there {
				t.Errorf("kept is %+v, want a request: %v", record, there)
			}
		})
	}
}

// TestReservationIsFor: what the Binding adds does not change what a pod asks for,
// and other annotations do.
func TestReservationIsFor(t *testing.T) {
	res := reservation{pod: makePod("p", slice(10, 8)), annotations: map[string]string{wire.AnnotationQoS: "best-effort"}}
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
