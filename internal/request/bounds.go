package request

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// maxNodeRules bounds what decides about the nodes of a pod with cards: all of it is
// compared with every node.
const maxNodeRules = 1024

// CheckBounds returns why a pod is larger than one with cards may be. It comes before
// everything whose cost grows with the pod: the API server itself bounds a pod by its
// bytes alone, and 3 MB of it would cost gigabytes or minutes.
func CheckBounds(pod *corev1.Pod) field.ErrorList {
	problems := CheckContainers(len(pod.Spec.InitContainers) + len(pod.Spec.Containers))
	if n := nodeRules(&pod.Spec); n > maxNodeRules {
		problems = append(problems, field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
			"nodeSelector, required node affinity and tolerations of a pod with GPUs have at most %d entries together, values included, and those of this one have %d: use labels that several nodes have",
			maxNodeRules, n)))
	}
	return problems
}

// CheckContainers returns why a pod with cards can't have so many containers, init
// containers included.
func CheckContainers(n int) field.ErrorList {
	if n <= wire.MaxListedContainers {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
		"a pod with GPUs has at most %d containers, init containers included, and this one has %d: split it into several pods", wire.MaxListedContainers, n))}
}

// nodeRules counts the entries of what decides about the pod's nodes.
func nodeRules(spec *corev1.PodSpec) int {
	n := len(spec.NodeSelector) + len(spec.Tolerations)
	required := wire.RequiredNodes(spec)
	if required == nil {
		return n
	}
	for _, term := range required.NodeSelectorTerms {
		for _, list := range [][]corev1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for k := range list {
				n += 1 + len(list[k].Values)
			}
		}
	}
	return n
}
