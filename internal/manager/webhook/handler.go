// Package webhook answers the API server for pods that ask for MetaX cards. In
// one pass it fills in what a pod leaves unsaid and refuses what can't be meant:
// refusals belong here and not into a validating webhook, because the API
// server's own validation comes before those and would speak first, in words
// that help nobody.
//
// The answer is a function of the request alone. Nothing is looked up and
// nothing is kept, so every replica answers, whoever leads, and admitting twice
// is admitting once.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Rules is what an installation decides about pods.
type Rules struct {
	// Schedulers are the names under which our scheduler places pods. The first
	// is given to pods that name none; pods that name another than these keep
	// it.
	Schedulers []string
	// Taint is that of nodes with cards, which pods with cards tolerate.
	Taint Taint
	// DirectBinders are users whose pods may come bound.
	DirectBinders []string
	// Privileged lets privileged containers have cards.
	Privileged bool
}

// handler answers for one kind of namespace.
type handler struct {
	rules   Rules
	metrics *metrics
}

// Handle answers one request.
func (h *handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	// The API server has read the pod before it asks; no other client may keep
	// this process busy.
	pod, err := wire.DecodePod(req.Object.Raw)
	if err != nil {
		h.metrics.count(resultError)
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod: %w", err))
	}
	if req.SubResource != "" || req.Operation != admissionv1.Create {
		h.metrics.count(resultUntouched)
		return admission.Allowed("") // someone changed the configuration: nothing to say
	}
	before := pod.DeepCopy()
	verdict := h.rules.Admit(pod, &req.UserInfo)
	logger := klog.FromContext(ctx).WithValues("namespace", req.Namespace, "pod", podName(pod), "user", req.UserInfo.Username)
	if len(verdict.Problems) > 0 {
		logger.V(2).Info("Pod refused", "problems", len(verdict.Problems))
		h.metrics.count(resultRefused)
		return refuse(pod, verdict)
	}
	patches, err := diff(before, pod)
	if err != nil {
		h.metrics.count(resultError)
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(patches) == 0 {
		h.metrics.count(resultUntouched)
		return admission.Allowed("").WithWarnings(verdict.Warnings...)
	}
	logger.V(4).Info("Pod completed", "patches", len(patches))
	h.metrics.count(resultCompleted)
	return admission.Patched("", patches...).WithWarnings(verdict.Warnings...)
}

// podName returns the name to tell a pod by, which may not have one yet.
func podName(pod *corev1.Pod) string {
	if pod.Name == "" {
		return pod.GenerateName
	}
	return pod.Name
}

// refuse returns the refusal: one line with all that is wrong, as "daybreak
// place" tells it, and each problem by itself for tools that list them.
func refuse(pod *corev1.Pod, v Verdict) admission.Response {
	details := &metav1.StatusDetails{Kind: "Pod", Name: podName(pod)}
	sentences := make([]string, len(v.Problems))
	for i, p := range v.Problems {
		sentences[i] = p.Error()
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseType(p.Type), Field: p.Field, Message: p.ErrorBody()})
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: strings.Join(sentences, "; "), Details: details,
		},
		Warnings: v.Warnings,
	}}
}

// diff returns what changed. Both sides are written by us, so that a field of a
// newer Kubernetes, which we can't see, is not taken off.
func diff(before, after *corev1.Pod) ([]jsonpatch.Operation, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("write the pod as it was: %w", err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("write the pod as it is: %w", err)
	}
	patches, err := jsonpatch.CreatePatch(was, is)
	if err != nil {
		return nil, fmt.Errorf("compare the two: %w", err)
	}
	slices.SortStableFunc(patches, func(a, b jsonpatch.Operation) int { return strings.Compare(a.Path, b.Path) })
	return patches, nil
}

// problemsOf is what a pod that asks for cards may not be, whatever it asks.
func (r *Rules) problemsOf(pod *corev1.Pod, user *authenticationv1.UserInfo) field.ErrorList {
	var problems field.ErrorList
	spec := field.NewPath("spec")
	if node := pod.Spec.NodeName; node != "" && !slices.Contains(r.DirectBinders, user.Username) {
		problems = append(problems, field.Invalid(spec.Child("nodeName"), node, fmt.Sprintf(
			"the scheduler chooses the cards together with the node: leave it out, and to choose the node write nodeSelector: {%s: %s}", corev1.LabelHostname, node)))
	}
	if r.Privileged {
		return problems
	}
	for _, list := range []struct {
		path       *field.Path
		containers []corev1.Container
	}{{spec.Child("initContainers"), pod.Spec.InitContainers}, {spec.Child("containers"), pod.Spec.Containers}} {
		for i := range list.containers {
			if s := list.containers[i].SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
				problems = append(problems, field.Invalid(list.path.Index(i).Child("securityContext", "privileged"), true, fmt.Sprintf(
					"a privileged container sees every card of its node: write false, or let an administrator label the namespace %s: \"true\"", wire.LabelPrivileged)))
			}
		}
	}
	return problems
}

// warnings joins what is worth telling about the pod.
func warnings(ask *wire.Ask, stripped []string) []string {
	var list []string
	for _, key := range stripped {
		list = append(list, fmt.Sprintf("metadata.annotations[%s] was taken off: the scheduler alone writes which cards a pod holds", key))
	}
	if ask != nil {
		list = append(list, ask.Warnings...)
	}
	return list
}
