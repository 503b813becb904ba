package webhook

import (
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Verdict is what becomes of a pod: refused if there are problems.
type Verdict struct {
	Problems field.ErrorList
	Warnings []string
}

// Admit completes the pod in place, or returns everything that is wrong with it;
// then the pod must not be used. Three kinds of pods pass as they are: those
// that ask for no card, unless that is a typing error, those of kubelet's static
// pods, which run whatever the API server answers, and those that use Koordinator's
// resources alone and name another scheduler, since they mean another vendor's
// cards.
func (r *Rules) Admit(pod *corev1.Pod, user *authenticationv1.UserInfo) Verdict {
	ours := r.isOurs(pod)
	if !wire.SeemsToAsk(pod) || isMirror(pod, user) || !ours && !wire.NamesMetaX(pod) {
		return Verdict{}
	}
	var stripped []string
	if wire.Asks(pod) {
		stripped = allocation.Strip(pod)
	}
	ask, problems := request.Read(pod)
	v := Verdict{Problems: problems, Warnings: warnings(ask, stripped)}
	if ours && pod.Spec.NodeName == "" { // Daybreak schedules it
		wrong, odd := allocation.CheckNew(pod, ask)
		v.Problems, v.Warnings = append(v.Problems, wrong...), append(v.Warnings, odd...)
	}
	if ask == nil && len(problems) == 0 {
		return v // it asks for no card, or for 0 cards
	}
	v.Problems = append(v.Problems, r.problemsOf(pod, user)...)
	if len(v.Problems) > 0 {
		return v
	}
	request.ApplyDefaults(pod, ask)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, wire.LabelAdmitted, "true")
	if len(r.Schedulers) > 0 && pod.Spec.NodeName == "" && (pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName) {
		pod.Spec.SchedulerName = r.Schedulers[0]
	}
	r.tolerate(pod)
	return v
}

// isOurs reports whether the pod names Daybreak's scheduler, or none.
func (r *Rules) isOurs(pod *corev1.Pod) bool {
	name := pod.Spec.SchedulerName
	return name == "" || name == corev1.DefaultSchedulerName || slices.Contains(r.Schedulers, name)
}

// isMirror reports whether a kubelet shows one of its static pods. Those are bound
// when they are created and run whether they are shown or not, so that refusing
// them would only hide them. Only the kubelet of the node may do so.
func isMirror(pod *corev1.Pod, user *authenticationv1.UserInfo) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	node, isNode := strings.CutPrefix(user.Username, "system:node:")
	return mirror && isNode && slices.Contains(user.Groups, "system:nodes") && node == pod.Spec.NodeName
}
