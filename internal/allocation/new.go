package allocation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/request"
)

// CheckNew returns what keeps a pod from being created although its request is
// valid: names that are typing errors ([request.CheckKeys]), and an allocation
// that could not be written ([CheckSize]). ask is what [request.Read] returned, nil
// for none. A pod that exists is not checked: it is placed as it is.
func CheckNew(pod *corev1.Pod, ask *request.PodRequest) (problems field.ErrorList, warnings []string) {
	problems, warnings = request.CheckKeys(pod)
	if ask != nil {
		problems = append(problems, CheckSize(pod, ask)...)
	}
	return problems, warnings
}
