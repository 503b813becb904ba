//go:build !race

package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: no pod and no Job that a tenant can send makes the webhook take more than
// some megabytes, or longer than reading it takes anyway. It comes as large as an API
// server reads it, to a cluster with nodes for which it is a question whose cards are
// the largest.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	// 3 MB of JSON are read as a review, as a pod, and some parts of it twice more for the
	// patch.
	bounds := cost.Bounds{MiB: 256, Allocs: 3_000_000, Answer: 64 << 10, Times: 10}
	for _, pod := range hostile.Pods() {
		cases["pod/"+pod.Name] = cost.Case{Size: hostile.LargestRequest, Bounds: bounds, Make: func(tb testing.TB, size int) cost.Work {
			object := pod.Make(size)
			return admit(tb, policy.Path, object)
		}}
		cases["job/"+pod.Name] = cost.Case{Size: hostile.LargestRequest, Bounds: bounds, Make: func(tb testing.TB, size int) cost.Work {
			made := pod.Make(size)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace}}
			job.Spec.Template.ObjectMeta, job.Spec.Template.Spec = made.ObjectMeta, made.Spec
			return admit(tb, policy.PathJobs, job)
		}}
	}
	return cases
}

// admit sends an object to the webhook's port.
func admit(tb testing.TB, path string, object any) cost.Work {
	tb.Helper()
	var objects []runtime.Object
	for i := range 8 {
		name := fmt.Sprintf("n%d", i)
		objects = append(objects, node(name), deviceOf(tb, name, "", "64Gi"))
	}
	rules := webhook.Rules{Schedulers: []string{"daybreak"}, LargestCard: newCards(tb, objects...).largest}
	handler := webhook.Handler(rules, nil, prometheus.NewRegistry())
	raw, err := json.Marshal(object)
	gputest.Must(tb, err)
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: "default", Object: runtime.RawExtension{Raw: raw},
			UserInfo: authenticationv1.UserInfo{Username: "jane"},
		},
	})
	gputest.Must(tb, err)
	return cost.Work{Object: object, Do: func() int {
		req := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		if rec.Code != http.StatusOK {
			tb.Fatalf("answer %d %.1000s", rec.Code, rec.Body)
		}
		return rec.Body.Len()
	}}
}
