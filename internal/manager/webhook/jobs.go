package webhook

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// jobs answers for Jobs. It writes the amounts that quotas count on the pod template,
// so that a queue of Jobs sees them before there are pods, and nothing else: the
// pods are completed and validated when they are created. A Job whose pods will be
// rejected passes with the reason as a warning.
type jobs struct{ rules Rules }

// Handle answers one request. The pod template of a Job does not change afterwards.
func (h *jobs) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create || !mentionsCards(req.Object.Raw) {
		return admission.Allowed("")
	}
	var job struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(req.Object.Raw, &job); err != nil || len(job.Spec.Template) == 0 {
		return admission.Allowed("") // it has no pods
	}
	// The fields of a template are fields of a Pod.
	if problems := checkSize(job.Spec.Template); len(problems) > 0 {
		return willBeRejected(problems)
	}
	template, err := wire.Decode[corev1.Pod](job.Spec.Template)
	if err != nil {
		return admission.Allowed("").WithWarnings("spec.template: " + err.Error())
	}
	if !h.rules.schedules(template) {
		return admission.Allowed("")
	}
	ask, problems := request.ReadPending(template)
	if len(problems) > 0 {
		return willBeRejected(problems)
	}
	if ask == nil {
		return admission.Allowed("") // it asks for 0 cards
	}
	before := completed(template).DeepCopy()
	request.WriteAmounts(&template.Spec, ledger.PeakOf(&ask.Request, h.rules.cardMemory(template, &ask.Request)))
	response := patchFrom(before, completed(template))
	for i := range response.Patches {
		response.Patches[i].Path = "/spec/template" + response.Patches[i].Path
	}
	return response
}

// willBeRejected lets a Job pass whose pods will be rejected.
func willBeRejected(problems field.ErrorList) admission.Response {
	warnings := sentences(problems)
	for i := range warnings {
		warnings[i] = "spec.template." + warnings[i]
	}
	return admission.Allowed("").WithWarnings(warnings...)
}
