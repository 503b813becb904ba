package webhook

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// jobOf returns the JSON of a Job with pods like this one.
func jobOf(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	text, err := json.Marshal(&batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}})
	gputest.Must(t, err)
	return text
}

// TestJobs: the template of a Job gets the amounts that its pods get, and nothing else.
func TestJobs(t *testing.T) {
	h, _ := newHandler()
	other := gputest.MakePod("").App("sgpu: 1")
	other.Obj().Spec.SchedulerName = "koord-scheduler"
	for name, c := range map[string]struct {
		pod         *gputest.PodBuilder
		want        *ledger.Amounts // nil: none
		wantWarning string
	}{
		"a slice":                     {pod: gputest.MakePod("").App("sgpu: 1, vcore: 60, vmemory: 4"), want: &ledger.Amounts{Compute: 60, Memory: 4096}},
		"whole cards":                 {pod: gputest.MakePod("").App("cpu: 1").App("gpu: 2"), want: &ledger.Amounts{Compute: 200, Memory: 128 << 10, Cards: 2}},
		"Koordinator's names":         {pod: gputest.MakePod("").App("koordinator.sh/gpu: 50"), want: &ledger.Amounts{Compute: 50, Memory: 32 << 10}},
		"an init container with most": {pod: gputest.MakePod("").Init("sgpu: 1, vcore: 80, vmemory: 1").App("sgpu: 1, vcore: 10, vmemory: 8"), want: &ledger.Amounts{Compute: 80, Memory: 8192}},
		"amounts of its own":          {pod: gputest.MakePod("").App("sgpu: 1, vcore: 60, vmemory: 4, daybreak-gpu.io/compute: 1"), want: &ledger.Amounts{Compute: 60, Memory: 4096}},
		"no cards":                    {pod: gputest.MakePod("").App("cpu: 1")},
		"0 cards":                     {pod: gputest.MakePod("").App("sgpu: 0")},
		"another scheduler":           {pod: other},
		"bound to a node":             {pod: gputest.MakePod("").App("sgpu: 1").On("metax-1")},
		"what its pods will be rejected for": {
			pod:         gputest.MakePod("").App("sgpu: 1, vcore: 120"),
			wantWarning: `spec.template.spec.containers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": is in percent: write a whole number from 0 to 100`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := jobOf(t, c.pod.Obj())
			answer := review(t, h, policy.PathJobs, job)
			gputest.Equal(t, "warnings", c.wantWarning, strings.Join(answer.Warnings, "\n"))
			text := patched(t, job, answer)
			var before, after batchv1.Job
			gputest.Must(t, errors.Join(json.Unmarshal(job, &before), json.Unmarshal(text, &after)))
			got, metered := request.ReadAmounts(&after.Spec.Template.Spec)
			if metered != (c.want != nil) || c.want != nil && got != *c.want {
				t.Errorf("amounts %+v (%v), want %+v", got, metered, c.want)
			}
			for _, j := range []*batchv1.Job{&before, &after} {
				if c.want != nil {
					request.WriteAmounts(&j.Spec.Template.Spec, ledger.Amounts{})
				}
			}
			gputest.Equal(t, "more than the amounts was changed", before, after)
			if c.want == nil {
				return
			}
			if again := review(t, h, policy.PathJobs, text); len(again.Patch) != 0 {
				t.Errorf("patched a second time: %s", again.Patch)
			}
			pod, err := wire.Decode[corev1.Pod](patched(t, encode(t, c.pod.Obj()), review(t, h, policy.Path, encode(t, c.pod.Obj()))))
			gputest.Must(t, err)
			if own, _ := request.ReadAmounts(&pod.Spec); own != got {
				t.Errorf("its pods amount to %+v, the template to %+v", own, got)
			}
		})
	}
}

// TestJobsPass: what is no new Job that can be read is left to the API server and to the
// webhook for pods.
func TestJobsPass(t *testing.T) {
	slice := jobOf(t, gputest.MakePod("").App("sgpu: 1").Obj())
	request := func(operation admissionv1.Operation, subResource string, job []byte) admission.Request {
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, SubResource: subResource, Object: runtime.RawExtension{Raw: job}}}
	}
	for name, req := range map[string]admission.Request{
		"an update":       request(admissionv1.Update, "", slice),
		"a status":        request(admissionv1.Create, "status", slice),
		"nothing":         request(admissionv1.Create, "", nil),
		"no Job":          request(admissionv1.Create, "", []byte(`["metax-tech.com/sgpu"]`)),
		"no template":     request(admissionv1.Create, "", []byte(`{"metadata":{"name":"metax-tech.com/sgpu"}}`)),
		"a null template": request(admissionv1.Create, "", []byte(`{"spec":{"template":null},"x":"metax-tech.com/sgpu"}`)),
		"no containers":   request(admissionv1.Create, "", []byte(`{"spec":{"template":{"spec":{"containers":7,"x":"metax-tech.com/sgpu"}}}}`)),
		"a huge number":   request(admissionv1.Create, "", []byte(`{"spec":{"template":{"spec":{"containers":[{"resources":{"limits":{"metax-tech.com/sgpu":"1e-999999999"}}}]}}}}`)),
	} {
		h := jobs{Rules{Schedulers: []string{"daybreak"}}}
		if r := h.Handle(t.Context(), req); !r.Allowed || len(r.Patches) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
