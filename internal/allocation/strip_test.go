package allocation

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestStripAllocation(t *testing.T) {
	pod := app("sgpu: 1").Annotate(wire.AnnotationQoS, "fixed-share").Annotate("hami.io/gpu-scheduler-policy", "spread").Obj()
	if got := Strip(pod); got != nil {
		t.Errorf("stripped %q off a pod that has none", got)
	}
	forged := []string{
		"hami.io/metax-gpu-devices-allocated", "hami.io/metax-sgpu-devices-allocated", "hami.io/metax-sgpu-devices-to-allocate", "hami.io/vgpu-node",
		"metax-tech.com/gpu-devices-allocated", "metax-tech.com/predicate-time", "scheduling.koordinator.sh/device-allocated",
	}
	want := pod.DeepCopy()
	for _, key := range forged {
		pod.Annotations[key] = "x"
	}
	other := *pod // shares the map
	gputest.Equal(t, "stripped", forged, Strip(pod))
	gputest.Equal(t, "left", want.Annotations, pod.Annotations)
	if len(other.Annotations) != len(want.Annotations)+len(forged) {
		t.Error("another pod's annotations changed")
	}
}

// TestWrittenIsAllocation: everything that binding writes is guarded, but for
// what users may write themselves.
func TestWrittenIsAllocation(t *testing.T) {
	for _, key := range []string{wire.AnnotationAllocated, wire.AnnotationPredicateTime, wire.AnnotationHAMiNode, wire.AnnotationHAMiSGPU, wire.AnnotationHAMiGPU, wire.AnnotationKoordAllocated} {
		if !IsAllocation(key) {
			t.Errorf("%s is written by the scheduler and not guarded", key)
		}
	}
	for _, key := range wire.AskAnnotations() {
		if IsAllocation(key) {
			t.Errorf("%s is written by users and taken for an allocation", key)
		}
	}
}
