package scheduler

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestReserveOfTooManyAnnotations: a pod whose annotations would become too large
// takes no cards, and is not tried again before its annotations change.
func TestReserveOfTooManyAnnotations(t *testing.T) {
	q := makePod("q", whole(1), holds(0))
	r := seen(t, 2, q)
	r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1"), q))
	small := makePod("p", whole(1))
	r.reserveOn(t, small, "n1")
	res := r.shared.pods.peek(small.UID).reservation
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
	if n := r.shared.pods.reservations(); n != 0 {
		t.Errorf("%d reservations, want none", n)
	}
	running := large.DeepCopy() // the same annotations
	running.Status.Message = "pending"
	for _, pod := range []*corev1.Pod{large, running} {
		if got, err := r.afterPodUpdate(testLogger(t), pod, large, pod); err != nil || got != fwk.QueueSkip {
			t.Errorf("afterPodUpdate() with the same annotations = %v, %v; want QueueSkip", got, err)
		}
		if got, err := r.afterPodDelete(testLogger(t), pod, q, nil); err != nil || got != fwk.QueueSkip {
			t.Errorf("afterPodDelete() = %v, %v; want QueueSkip", got, err)
		}
		if _, got := r.PreFilter(t.Context(), framework.NewCycleState(), pod, nil); got.Code() != fwk.UnschedulableAndUnresolvable || got.Message() != want {
			t.Errorf("PreFilter() = %v %v, want %s", got.Code(), got, want)
		}
	}

	fits := sized(room)
	if got, err := r.afterPodUpdate(testLogger(t), fits, running, fits); err != nil || got != fwk.Queue {
		t.Errorf("afterPodUpdate() = %v, %v; want Queue", got, err)
	}
	if got := r.Reserve(t.Context(), r.cycle(t, fits), fits, "n1"); !got.IsSuccess() {
		t.Errorf("Reserve() = %v, want success with one byte less", got)
	}
}
