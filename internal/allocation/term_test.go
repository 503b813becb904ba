package allocation

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestTerm(t *testing.T) {
	pod := &corev1.Pod{}
	pod.UID, pod.ResourceVersion = "u", "7"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node x"}}
	gputest.Equal(t, "TermOf() of an untouched pod", "", TermOf(pod))
	for _, touch := range []struct{ version, note, want string }{
		{want: `{"metadata":{"uid":"u"},"status":{"conditions":[{"message":"host_1","reason":"Touched","status":"True","type":"daybreak-gpu.io/Term"}]}}`},
		{version: "7", note: "after version 7", want: `{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[{"message":"host_1 after version 7","reason":"Touched","status":"True","type":"daybreak-gpu.io/Term"}]}}`},
	} {
		patch, err := TermPatch(pod, touch.version, "host_1", touch.note)
		if err != nil || string(patch) != touch.want {
			t.Fatalf("TermPatch() = %s, %v\nwant %s", patch, err, touch.want)
		}
		before, err := json.Marshal(pod)
		gputest.Must(t, err)
		after, err := strategicpatch.StrategicMergePatch(before, patch, pod)
		gputest.Must(t, err)
		pod = &corev1.Pod{}
		gputest.Must(t, json.Unmarshal(after, pod))
		if got := TermOf(pod); got != "host_1" || len(pod.Status.Conditions) != 2 {
			t.Errorf("TermOf() = %q of %+v, want host_1 and the other condition kept", got, pod.Status.Conditions)
		}
	}
}
