package webhook

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// TestCountValues: commas in strings separate nothing.
func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		`{}`: 0, `{"a":1}`: 0, `{"a":[1,2],"b":"c,d"}`: 2, `{"a\",":"\\","b":[",","\",",""]}`: 3, `"open, \`: 0,
	} {
		if got := countValues([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestHostilePods: what a pod makes the manager answer is bounded, and what is too
// large to be compared with the nodes is not. What it costs is [TestCost] of the manager.
func TestHostilePods(t *testing.T) {
	const tooMany = "spec: Forbidden: a pod with GPUs has at most 1024 containers, init containers included, and this one has %d: split it into several pods"
	containers := func(n int, resource string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"name":"%d","resources":{"limits":{"metax-tech.com/%s":"64"}}}`, i, resource)
		}
		return `[` + strings.Join(list, ",") + `]`
	}
	mistyped := make([]string, 60_000)
	for i := range mistyped {
		mistyped[i] = fmt.Sprintf(`"metax-tech.com/vmemor%d":"1"`, i)
	}
	for name, tc := range map[string]struct {
		spec, want string // of the refusal or the first warning
		podsOnly   bool   // of Jobs it is not checked
	}{
		"33 000 containers":           {spec: `"containers":` + containers(33_000, "gpu"), want: fmt.Sprintf(tooMany, 33_000)},
		"33 000 init containers":      {spec: `"containers":` + containers(1, "gpu") + `,"initContainers":` + containers(33_000, "gpu"), want: fmt.Sprintf(tooMany, 33_001)},
		"33 000 ephemeral containers": {spec: `"containers":` + containers(1, "gpu") + `,"ephemeralContainers":` + containers(33_000, "gpu"), want: fmt.Sprintf(tooMany, 33_001)},
		"containers twice": {
			spec: `"containers":[` + strings.Repeat("{},", 2_000_000) + `{}],"containers":` + containers(1, "gpu"),
			want: "spec: Forbidden: a pod with GPUs has at most 131072 values, and this one has 2000002: leave some out",
		},
		"1 024 containers with 64 GPUs each": {
			spec: `"containers":` + containers(1024, "gpu"), podsOnly: true,
			want: "metadata.annotations: Forbidden: the allocation needs more than 262144 bytes of annotations, the most that an object has: request GPUs in fewer containers",
		},
		"1 024 containers with errors": {spec: `"containers":` + containers(1024, "vcore"), want: "spec.containers[0].resources.limits[metax-tech.com/vcore]"},
		"60 000 mistyped resources": {
			spec: `"containers":[{"name":"c","resources":{"limits":{"metax-tech.com/gpu":"1",` + strings.Join(mistyped, ",") + `}}}]`, podsOnly: true,
			want: "spec.containers[0].resources.limits[metax-tech.com/vmemor0]: Invalid value: \"1\": there is no such resource: did you mean",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Schedulers: []string{"daybreak"}, LargestCard: func(*corev1.Pod, *gpu.PodRequest) (gpu.MiB, bool) {
				if strings.HasPrefix(tc.want, "spec: Forbidden") {
					t.Error("compared with the nodes")
				}
				return 0, false
			}}
			request := func(raw string) admission.Request {
				return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)}}}
			}
			template := `{"spec":{` + tc.spec + `}}`
			pod := (&handler{rules: rules, metrics: newMetrics(prometheus.NewRegistry())}).Handle(t.Context(), request(template))
			if r := pod.Result; pod.Allowed || !strings.HasPrefix(r.Message, tc.want) || len(r.Message) > 16<<10 || len(r.Details.Causes) > maxProblems {
				t.Errorf("pod: %.300s with %d causes, want %s", r.Message, len(r.Details.Causes), tc.want)
			}
			job := (&jobs{rules}).Handle(t.Context(), request(`{"spec":{"template":`+template+`}}`))
			text := strings.Join(job.Warnings, "\n")
			if !strings.HasPrefix(text, "spec.template."+tc.want) && !tc.podsOnly || len(text) > 16<<10 || len(job.Warnings) > maxProblems+1 {
				t.Errorf("job: %.300s in %d warnings, want %s", text, len(job.Warnings), tc.want)
			}
		})
	}
}
