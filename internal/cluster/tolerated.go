package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// toleratedByDefault is the chart's value admission.toleratedTaint.
const toleratedByDefault = "metax-tech.com/gpu:NoSchedule"

// Tolerations returns what admission adds to pods with cards, as the arguments of
// the manager's pods show: the chart's default where no manager was read.
func (s *Snapshot) Tolerations() []corev1.Toleration {
	var taints []string
	found := false
	for i := range s.Facts {
		for _, pod := range s.Facts[i].Pods {
			if wire.IsComponent(pod, "manager") {
				taint, ok := toleratedTaint(pod)
				found = found || ok
				taints = append(taints, taint)
			}
		}
	}
	if !found {
		taints = []string{toleratedByDefault}
	}
	var tolerations []corev1.Toleration
	for _, taint := range taints {
		if key, effect, ok := strings.Cut(taint, ":"); ok {
			tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)})
		}
	}
	return tolerations
}

// toleratedTaint returns the taint that a manager's pod is given, or nothing, and
// whether the pod shows its arguments.
func toleratedTaint(pod *corev1.Pod) (taint string, shown bool) {
	for i := range pod.Spec.Containers {
		args := pod.Spec.Containers[i].Args
		if len(args) == 0 || args[0] != "manager" {
			continue
		}
		for k, arg := range args {
			flag, value, ok := strings.Cut(arg, "=")
			if !ok && k+1 < len(args) {
				value = args[k+1]
			}
			if flag == "--tolerated-taint" {
				return value, true
			}
		}
		return "", true
	}
	return "", false
}
