package webhook

import (
	"cmp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
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
//
// A pod that Daybreak will schedule gets the amounts that quotas count, in place of
// what its user wrote under their names. Other pods keep what they have: those of
// other schedulers, those that come bound, and those that ask for 0 cards.
func (r *Rules) Admit(pod *corev1.Pod, user *authenticationv1.UserInfo) Verdict {
	ours := r.isOurs(pod)
	if !wire.SeemsToAsk(pod) || isMirror(pod, user) || !ours && !wire.NamesMetaX(pod) {
		return Verdict{}
	}
	var stripped []string
	if wire.Asks(pod) {
		if problems := request.CheckBounds(pod); len(problems) > 0 {
			return Verdict{Problems: problems}
		}
		stripped = allocation.Strip(pod)
	}
	ask, problems := request.Read(pod)
	v := Verdict{Problems: problems, Warnings: warnings(ask, stripped)}
	schedules := r.schedules(pod)
	if schedules {
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
	r.complete(pod, ask, schedules)
	return v
}

// complete writes defaults, and the amounts if Daybreak will schedule the pod.
func (r *Rules) complete(pod *corev1.Pod, ask *request.PodRequest, schedules bool) {
	request.ApplyDefaults(pod, ask)
	if schedules {
		request.WriteAmounts(&pod.Spec, ledger.PeakOf(&ask.Request, r.cardMemory(pod, &ask.Request)))
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, wire.LabelAdmitted, "true")
	if len(r.Schedulers) > 0 && pod.Spec.NodeName == "" && (pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName) {
		pod.Spec.SchedulerName = r.Schedulers[0]
	}
	r.tolerate(pod)
}

// DefaultCardMemory is what a card counts while none is known: a C500's.
const DefaultCardMemory gpu.MiB = 64 << 10

// cardMemory returns the memory of the cards that the pod's amounts are for. It is
// looked up only where they depend on it.
func (r *Rules) cardMemory(pod *corev1.Pod, ask *gpu.PodRequest) gpu.MiB {
	if r.LargestCard != nil && ledger.PeakVaries(ask) {
		if memory, ok := r.LargestCard(pod, ask); ok {
			return memory
		}
	}
	return cmp.Or(r.CardMemory, DefaultCardMemory)
}

// schedules reports whether Daybreak will schedule the pod.
func (r *Rules) schedules(pod *corev1.Pod) bool { return r.isOurs(pod) && pod.Spec.NodeName == "" }

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
