package scheduler

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestReserveOfTooManyAnnotations: a pod whose annotations would become too large
// takes no cards, and is not tried again before its annotations change.
func TestReserveOfTooManyAnnotations(t *testing.T) {
	q := makePod("q", whole(1), holds(0))
	r := seen(t, 2, q)
	small := makePod("p", whole(1))
	r.reserveOn(t, small, "n1")
	res := r.shared.pods.claimOf(small.UID, reservedClaim)
	r.Unreserve(t.Context(), framework.NewCycleState(), small, "n1")
	sized := func(n int) *corev1.Pod {
		// What is written over does not count.
		return makePod("p", whole(1), annotated("a", strings.Repeat("x", n)), annotated(wire.AnnotationAllocated, strings.Repeat("x", 1000)))
	}
	needed := 0
	for key, value := range res.annotations {
		needed += len(key) + len(value)
	}
	room := validation.TotalAnnotationSizeLimitB - needed - len("a")

	large := sized(room + 1)
	want := fmt.Sprintf("metadata.annotations: Forbidden: the pod's own annotations have %d bytes and the allocation needs %d, "+
		"and an object has at most 262144: shorten the pod's own by 1", room+2, needed)
	if got := r.Reserve(t.Context(), r.cycle(t, large), large, "n1"); got.Code() != fwk.UnschedulableAndUnresolvable || got.Message() != want {
		t.Errorf("Reserve() = %v %v, want %s", got.Code(), got, want)
	}
	if n := len(r.shared.pods.claimsOf(reservedClaim)); n != 0 {
		t.Errorf("%d reservations, want none", n)
	}
	running := large.DeepCopy() // the same annotations
	running.Status.Message = "pending"
	for _, pod := range []*corev1.Pod{large, running} {
		wantHint(t, fwk.QueueSkip)(r.afterPodUpdate(testLogger(t), pod, large, pod))
		wantHint(t, fwk.QueueSkip)(r.afterPodDelete(testLogger(t), pod, q, nil))
		if _, got := r.PreFilter(t.Context(), framework.NewCycleState(), pod, nil); got.Code() != fwk.UnschedulableAndUnresolvable || got.Message() != want {
			t.Errorf("PreFilter() = %v %v, want %s", got.Code(), got, want)
		}
	}

	fits := sized(room)
	wantHint(t, fwk.Queue)(r.afterPodUpdate(testLogger(t), fits, running, fits))
	if got := r.Reserve(t.Context(), r.cycle(t, fits), fits, "n1"); !got.IsSuccess() {
		t.Errorf("Reserve() = %v, want success with one byte less", got)
	}
}

// TestReserveOfOtherCardsThanKept: when a pod takes other cards than those that were kept
// for it, the pods are tried that fit now. If it takes the very same, none is.
func TestReserveOfOtherCardsThanKept(t *testing.T) {
	for name, tt := range map[string]struct {
		kept      int // -1: the promise was made before a restart
		nominated string
		want      string
	}{
		"the same cards":       {kept: 0, nominated: "n1"},
		"other cards":          {kept: 1, nominated: "n1", want: "w"},
		"not known which":      {kept: -1, nominated: "n1", want: "w"},
		"nothing was promised": {kept: -1},
	} {
		t.Run(name, func(t *testing.T) {
			small := makePod("a", slice(30, 8), holds(0))
			r := seen(t, 2, small)
			ni := nodeInfo(makeNode("n1"), small)
			r.fakes.snapshot = snapshotOf(ni)
			// One pod fits beside the preemptor, the other one does not.
			for _, waiting := range []*corev1.Pod{makePod("w", whole(1)), makePod("v", whole(2))} {
				r.shared.pods.request(waiting)
			}
			pod := makePod("p", slice(30, 8), priority(9))
			pod.Status.NominatedNodeName = tt.nominated
			if tt.kept >= 0 {
				node := r.shared.nodes.of(ni, false)
				offer := node.NewOffer(1)
				offer.SetCards(0, gpu.SetOf(tt.kept))
				ask, _ := request.Read(pod)
				r.shared.pods.putClaim(claim{kind: heldClaim, pod: pod,
					node: "n1", placed: placed{topology: node.Topology(), holding: node.Holding(&offer, allocation.HolderOf(pod), &ask.Request)},
				})
			}
			r.reserveOn(t, pod, "n1")
			close(r.fakes.activated)
			var got []string
			for activated := range r.fakes.activated {
				got = append(got, activated)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%v were to be tried, want %q", got, tt.want)
			}
		})
	}
}
