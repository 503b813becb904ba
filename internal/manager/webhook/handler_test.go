package webhook

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// review asks the webhook about a new pod, as the API server would.
func review(t testing.TB, h http.Handler, path string, pod []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	return send(t, h, path, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "default", Object: runtime.RawExtension{Raw: pod}, UserInfo: authenticationv1.UserInfo{Username: "jane"},
	})
}

// send sends a request as the API server does.
func send(t testing.TB, h http.Handler, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	request.UID = "u"
	body, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
	gputest.Must(t, err)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Response.UID != "u" {
		t.Fatalf("answer %d %s: %v", rec.Code, rec.Body, err)
	}
	return answer.Response
}

func encode(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	text, err := json.Marshal(pod)
	gputest.Must(t, err)
	return text
}

// patched applies what the webhook answers.
func patched(t testing.TB, pod []byte, r *admissionv1.AdmissionResponse) []byte {
	t.Helper()
	if !r.Allowed {
		t.Fatalf("refused: %s", r.Result.Message)
	}
	if len(r.Patch) == 0 {
		return pod
	}
	patch, err := jsonpatch.DecodePatch(r.Patch)
	gputest.Must(t, err)
	out, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("apply %s: %v", r.Patch, err)
	}
	return out
}

func newHandler() (http.Handler, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	return Handler(Rules{Schedulers: []string{"daybreak"}}, nil, registry), registry
}

func TestPatch(t *testing.T) {
	h, _ := newHandler()
	// A field of a Kubernetes that is newer than this program.
	const pod = `{"metadata":{"name":"p","futureMeta":1,"annotations":{"metax-tech.com/gpu-devices-allocated":"[]"}},"spec":{"schedulerName":"default-scheduler",` +
		`"futureSpec":{"a":[1,2]},"containers":[{"name":"c","futureContainer":true,"resources":{"limits":{"koordinator.sh/gpu":"200","cpu":"4"},"requests":{"cpu":"1000m","daybreak-gpu.io/compute":"1"}}}]}}`
	const want = `{"metadata":{"name":"p","futureMeta":1,"labels":{"daybreak-gpu.io/admitted":"true"},"annotations":{"metax-tech.com/sgpu-qos-policy":"best-effort"}},"spec":{"schedulerName":"daybreak",` +
		`"futureSpec":{"a":[1,2]},"containers":[{"name":"c","futureContainer":true,"resources":{"limits":{"koordinator.sh/gpu-core":"200","koordinator.sh/gpu-memory-ratio":"200",` +
		`"koordinator.sh/gpu.shared":"2","metax-tech.com/sgpu":"2","cpu":"4","daybreak-gpu.io/compute":"200","daybreak-gpu.io/memory":"128Gi","daybreak-gpu.io/cards":"2"},"requests":{"koordinator.sh/gpu-core":"200","koordinator.sh/gpu-memory-ratio":"200",` +
		`"koordinator.sh/gpu.shared":"2","metax-tech.com/sgpu":"2","cpu":"1000m","daybreak-gpu.io/compute":"200","daybreak-gpu.io/memory":"128Gi","daybreak-gpu.io/cards":"2"}}}]}}`
	var wantObject, gotObject any
	gputest.Must(t, json.Unmarshal([]byte(want), &wantObject))
	gputest.Must(t, json.Unmarshal(patched(t, []byte(pod), review(t, h, policy.Path, []byte(pod))), &gotObject))
	gputest.Equal(t, "the patched object", wantObject, gotObject)
}

// TestTwice: admitting twice is admitting once, for all kinds of pods, and the
// same pod always gets the same answer. The patch has all that admission changes.
func TestTwice(t *testing.T) {
	rules := Rules{Schedulers: []string{"daybreak"}, Taint: Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	h := Handler(rules, nil, prometheus.NewRegistry())
	random := rand.New(rand.NewPCG(1, 2))
	limits := []string{
		"", "sgpu: 1", "sgpu: 1, vcore: 60, vmemory: 4", "gpu: 2", "gpu-core: 10, gpu-memory: 1Gi", "gpu.shared: 1, gpu-core: 10, gpu-memory-ratio: 20",
		"koordinator.sh/gpu: 200", "gpu-memory-ratio: 200", "cpu: 4", "sgpu: 0", "sgpu: 2, vcore: 30, vmemory: 512Mi",
	}
	admitted := 0
	for range 600 {
		b := gputest.MakePod("p")
		for range 1 + random.IntN(3) {
			b.App(limits[random.IntN(len(limits))])
		}
		for range random.IntN(2) {
			b.Init(limits[random.IntN(len(limits))])
		}
		for _, key := range append(allocation.Keys(), wire.AnnotationHAMiSGPU, "other") {
			if random.IntN(4) == 0 {
				b.Annotate(key, "x")
			}
		}
		if random.IntN(3) == 0 {
			b.Annotate(wire.AnnotationQoS, "fixed-share")
		}
		pod := encode(t, b.Obj())
		answer := review(t, h, policy.Path, pod)
		if diff := cmp.Diff(answer, review(t, h, policy.Path, pod)); diff != "" {
			t.Fatalf("another answer the second time:\n%s", diff)
		}
		if !answer.Allowed {
			continue
		}
		admitted++
		once := patched(t, pod, answer)
		var got corev1.Pod
		gputest.Must(t, json.Unmarshal(once, &got))
		rules.Admit(b.Obj(), user)
		if diff := cmp.Diff(gputest.Stored(t, b.Obj()), &got); diff != "" {
			t.Fatalf("pod %s: the patch differs (-admitted +patched):\n%s", pod, diff)
		}
		if again := review(t, h, policy.Path, once); len(again.Patch) != 0 {
			t.Fatalf("pod %s: patched a second time: %s", once, again.Patch)
		}
	}
	if admitted < 200 {
		t.Errorf("only %d pods were admitted", admitted)
	}
}

func TestRefusal(t *testing.T) {
	h, registry := newHandler()
	pod := gputest.MakePod("p").App("sgpu: 1, vcore: 120").Annotate(wire.AnnotationQoS, "best").Obj()
	r := review(t, h, policy.Path, encode(t, pod))
	wantCauses := []metav1.StatusCause{
		{Type: "FieldValueInvalid", Field: "spec.containers[0].resources.limits[metax-tech.com/vcore]", Message: `Invalid value: "120": is in percent: write a whole number from 0 to 100`},
		{
			Type: "FieldValueInvalid", Field: "metadata.annotations[metax-tech.com/sgpu-qos-policy]",
			Message: `Invalid value: "best": write "best-effort", "fixed-share" or "burst-share", or leave the annotation out for best-effort`,
		},
	}
	if r.Allowed || r.Result.Code != http.StatusUnprocessableEntity || r.Result.Reason != metav1.StatusReasonInvalid {
		t.Fatalf("answer %+v", r)
	}
	gputest.Equal(t, "causes", wantCauses, r.Result.Details.Causes)
	gputest.Equal(t, "message", wantCauses[0].Field+": "+wantCauses[0].Message+"; "+wantCauses[1].Field+": "+wantCauses[1].Message, r.Result.Message)

	review(t, h, policy.Path, encode(t, gputest.MakePod("p").App("sgpu: 1").Obj()))
	review(t, h, policy.Path, encode(t, gputest.MakePod("p").App("").Obj()))
	review(t, h, policy.Path, []byte(`{"spec":{"containers":7,"note":"metax-tech.com/sgpu"}}`))
	const want = `
# HELP daybreak_manager_admission_requests_total Admission requests for pods by result: untouched, completed, refused, error.
# TYPE daybreak_manager_admission_requests_total counter
daybreak_manager_admission_requests_total{result="completed"} 1
daybreak_manager_admission_requests_total{result="error"} 1
daybreak_manager_admission_requests_total{result="refused"} 1
daybreak_manager_admission_requests_total{result="untouched"} 1
`
	gputest.Check(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "daybreak_manager_admission_requests_total"))
	if n := testutil.CollectAndCount(registry, "daybreak_manager_admission_duration_seconds"); n != 1 {
		t.Errorf("%d histograms", n)
	}
}

// TestPaths: the path determines what the namespace allows.
func TestPaths(t *testing.T) {
	h, _ := newHandler()
	pod := encode(t, privileged(ask("sgpu: 1"), 0).Obj())
	if r := review(t, h, policy.Path, pod); r.Allowed {
		t.Error("a privileged container was let pass")
	}
	if r := review(t, h, policy.PathPrivileged, pod); !r.Allowed {
		t.Errorf("refused: %s", r.Result.Message)
	}
}

// FuzzHandler: whatever is sent, there is an answer, and no panic.
func FuzzHandler(f *testing.F) {
	h, _ := newHandler()
	f.Add(encode(f, gputest.MakePod("p").App("sgpu: 1").Obj()))
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"metax-tech.com/sgpu":"x"}}}]}}`))
	f.Add([]byte(`{"spec":null,"metadata":{"annotations":null}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, pod []byte) {
		if !json.Valid(pod) || len(pod) > 1<<12 {
			return
		}
		r := review(t, h, policy.Path, pod)
		if !r.Allowed && r.Result.Message == "" {
			t.Fatalf("refused without a word: %+v", r)
		}
		job := []byte(`{"spec":{"template":` + string(pod) + `}}`)
		if r := review(t, h, policy.PathJobs, job); !r.Allowed {
			t.Fatalf("a Job was refused: %+v", r)
		} else {
			patched(t, job, r)
		}
	})
}

// BenchmarkHandler is one answer without the way to and from the API server. About
// pods without cards API servers below 1.28 ask too.
func BenchmarkHandler(b *testing.B) {
	h, _ := newHandler()
	for name, limits := range map[string]string{"cards": "gpu-core: 10, gpu-memory: 1Gi", "whole cards": "gpu: 2", "no cards": "cpu: 2"} {
		pod := encode(b, gputest.MakePod("p").App(limits).App("cpu: 1").Obj())
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				review(b, h, policy.Path, pod)
			}
		})
	}
}
