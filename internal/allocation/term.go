package allocation

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TermOf returns the identity of the scheduler process that last touched the
// pod, or "" if none did.
func TermOf(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == wire.ConditionTerm {
			identity, _, _ := strings.Cut(c.Message, " ")
			return identity
		}
	}
	return ""
}

// TermPatch returns the strategic merge patch of a pod's status by which the
// scheduler process touches the pod. The version is that of the pod, or "" to
// touch the pod at any version. The note follows the identity in the message:
// a touch with the message that is there already changes nothing.
func TermPatch(pod *corev1.Pod, version, identity, note string) ([]byte, error) {
	metadata := map[string]string{"uid": string(pod.UID)}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	condition := map[string]string{
		"type": string(wire.ConditionTerm), "status": string(corev1.ConditionTrue), "reason": "Touched",
		"message": strings.TrimSpace(identity + " " + note),
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata, "status": map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the condition %s: %w", wire.ConditionTerm, err)
	}
	return patch, nil
}
