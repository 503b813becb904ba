// Package webhook answers the API server for pods that ask for MetaX cards. In
// one pass it fills in defaults and rejects invalid requests: a validating webhook
// would come after the API server's own validation, whose messages would hide
// these.
//
// The answer is a function of the request and, for amounts of memory that depend on
// the card, of the cards that the cluster has ([Rules.LargestCard]). The API server
// is asked for nothing and no request is kept, so every replica answers, and
// admitting twice is admitting once.
//
// For API servers that have no policies of their own it also evaluates those of
// package policy ([Policies]).
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Rules is what an installation decides about pods.
type Rules struct {
	// Schedulers are the names of Daybreak's scheduler. The first is given to pods
	// that name none; pods that name another scheduler keep it.
	Schedulers []string
	// Taint is that of nodes with cards, which pods with cards tolerate.
	Taint Taint
	// DirectBinders are users whose pods may come bound.
	DirectBinders []string
	// LargestCard returns the memory of the largest card that the pod could get, or
	// false while no such card is known; nil knows none. A card then counts as
	// CardMemory, or as [DefaultCardMemory] where that is 0.
	LargestCard func(*corev1.Pod, *gpu.PodRequest) (gpu.MiB, bool)
	CardMemory  gpu.MiB
	// Privileged lets privileged containers have cards. [Handler] sets it.
	Privileged bool
}

// Handler returns what the API server calls, with the paths that the configuration
// of package policy names: one for Jobs, and two for pods, of which the path determines
// whether the pod's namespace lets privileged containers have cards.
//
// With policies, which may be nil, requests are also validated by them.
func Handler(rules Rules, policies *Policies, registry prometheus.Registerer) http.Handler {
	m := newMetrics(registry)
	mux := http.NewServeMux()
	if policies != nil {
		policies.metrics = m
		mux.Handle(policy.PathValidate, promhttp.InstrumentHandlerDuration(m.duration, &admission.Webhook{Handler: policies}))
	}
	mux.Handle(policy.PathJobs, promhttp.InstrumentHandlerDuration(m.duration, &admission.Webhook{Handler: &jobs{rules}}))
	for path, privileged := range map[string]bool{policy.Path: false, policy.PathPrivileged: true} {
		rules.Privileged = privileged
		mux.Handle(path, promhttp.InstrumentHandlerDuration(m.duration, &admission.Webhook{Handler: &handler{rules: rules, metrics: m}}))
	}
	return mux
}

// handler answers for one kind of namespace.
type handler struct {
	rules   Rules
	metrics *metrics
}

// Handle answers one request.
func (h *handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	result, response := h.answer(ctx, req)
	h.metrics.requests.WithLabelValues(result).Inc()
	return response
}

func (h *handler) answer(ctx context.Context, req admission.Request) (result string, response admission.Response) {
	if len(req.Object.Raw) > 0 && !mentionsCards(req.Object.Raw) {
		return resultUntouched, admission.Allowed("") // an API server below 1.28 asks about every pod
	}
	if problems := checkSize(req.Object.Raw); len(problems) > 0 {
		return resultRefused, refuse(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: req.Name}}, Verdict{Problems: problems})
	}
	// The API server has read the pod before it asks; no other client may keep
	// this process busy.
	pod, err := wire.Decode[corev1.Pod](req.Object.Raw)
	if err != nil {
		return resultError, admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod: %w", err))
	}
	if req.SubResource != "" || req.Operation != admissionv1.Create {
		return resultUntouched, admission.Allowed("") // the configuration was changed
	}
	before := completed(pod).DeepCopy()
	verdict := h.rules.Admit(pod, &req.UserInfo)
	logger := klog.FromContext(ctx).WithValues("namespace", req.Namespace, "pod", podName(pod), "user", req.UserInfo.Username)
	if len(verdict.Problems) > 0 {
		logger.V(2).Info("Pod rejected", "problems", len(verdict.Problems))
		return resultRefused, refuse(pod, verdict)
	}
	response = patchFrom(before, completed(pod))
	if !response.Allowed {
		return resultError, response
	}
	response.Warnings = verdict.Warnings
	if len(response.Patches) == 0 {
		return resultUntouched, response
	}
	logger.V(4).Info("Pod completed", "patches", len(response.Patches))
	return resultCompleted, response
}

// mentionsCards reports whether the JSON of a pod contains how the names of the
// resources begin. Most pods are not decoded for it.
func mentionsCards(raw []byte) bool {
	return slices.ContainsFunc(wire.ResourcePrefixes(), func(prefix string) bool { return bytes.Contains(raw, []byte(prefix)) })
}

// maxValues bounds the values of a pod's JSON: more than a sensible pod has, as large as
// the API server takes it.
const maxValues = 128 << 10

// checkSize returns why the JSON of a pod is too large to be decoded, which takes a
// hundred times its bytes. Containers come first, since users meet that limit; a client
// other than the API server may also write a list twice.
func checkSize(raw []byte) field.ErrorList {
	if problems := request.CheckContainers(countContainers(raw)); len(problems) > 0 {
		return problems
	}
	if n := countValues(raw); n > maxValues {
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("a pod with GPUs has at most %d values, and this one has %d: leave some out", maxValues, n))}
	}
	return nil
}

// countContainers counts the containers of the JSON of a pod, init containers included.
func countContainers(raw []byte) int {
	var pod struct {
		Spec struct {
			Containers, InitContainers, EphemeralContainers []struct{}
		}
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return 0 // reported by the decoder of pods
	}
	return len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
}

// countValues returns how many values follow another one in the same object or list of
// the JSON, by the commas outside of its strings.
func countValues(raw []byte) (n int) {
	text := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			text = !text
		case c == '\\' && text:
			i++
		case c == ',' && !text:
			n++
		}
	}
	return n
}

// podName returns the name of a pod that may not have one yet.
func podName(pod *corev1.Pod) string { return cmp.Or(pod.Name, pod.GenerateName) }

// refuse returns the refusal: one line with all that is wrong, as "daybreak
// place" prints it, and each problem by itself for tools that list them.
func refuse(pod *corev1.Pod, v Verdict) admission.Response {
	details := &metav1.StatusDetails{Kind: "Pod", Name: podName(pod)}
	for _, p := range v.Problems[:min(len(v.Problems), maxProblems)] {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseType(p.Type), Field: p.Field, Message: p.ErrorBody()})
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: strings.Join(sentences(v.Problems), "; "), Details: details,
		},
		Warnings: v.Warnings,
	}}
}

// maxProblems bounds the problems that an answer lists: a pod may have thousands.
const maxProblems = 16

// sentences returns the problems as the user reads them.
func sentences(problems field.ErrorList) []string {
	var list []string
	for _, p := range problems[:min(len(problems), maxProblems)] {
		list = append(list, p.Error())
	}
	if more := len(problems) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more problems", more))
	}
	return list
}

// completed returns the parts of a pod that admission writes. Comparing all of it
// would take most of the time and the memory of an answer.
func completed(pod *corev1.Pod) *corev1.Pod {
	resources := func(containers []corev1.Container) []corev1.Container {
		parts := make([]corev1.Container, len(containers))
		for i := range containers {
			parts[i].Resources = containers[i].Resources
		}
		return parts
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
		Spec: corev1.PodSpec{
			InitContainers: resources(pod.Spec.InitContainers), Containers: resources(pod.Spec.Containers),
			SchedulerName: pod.Spec.SchedulerName, Tolerations: pod.Spec.Tolerations,
		},
	}
}

// patchFrom returns the changes, in a fixed order. Both sides are encoded here, so
// that a field of a newer Kubernetes, which this program does not know, stays.
func patchFrom(before, after *corev1.Pod) admission.Response {
	original, err := json.Marshal(before)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	current, err := json.Marshal(after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	response := admission.PatchResponseFromRaw(original, current)
	slices.SortStableFunc(response.Patches, func(a, b jsonpatch.Operation) int { return strings.Compare(a.Path, b.Path) })
	return response
}

// problemsOf is what a pod that asks for cards may not be, whatever it asks.
func (r *Rules) problemsOf(pod *corev1.Pod, user *authenticationv1.UserInfo) field.ErrorList {
	var problems field.ErrorList
	spec := field.NewPath("spec")
	if pod.Spec.NodeName != "" && !slices.Contains(r.DirectBinders, user.Username) {
		problems = append(problems, request.ComesBound(pod))
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

// warnings lists what the user should know about the pod.
func warnings(ask *request.PodRequest, stripped []string) []string {
	var list []string
	for _, key := range stripped {
		list = append(list, fmt.Sprintf("metadata.annotations[%s] was taken off: the scheduler alone writes which cards a pod holds", key))
	}
	if ask != nil {
		list = append(list, ask.Warnings...)
	}
	return list
}
