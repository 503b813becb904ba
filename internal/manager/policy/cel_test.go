package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func matches(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	gputest.Must(t, err)
	return s.Matches(labels.Set(set))
}

// matchersOf returns what decides whether the API server asks about a pod, and about a
// Job. Both webhooks for pods have the same conditions.
func matchersOf(t *testing.T) [2]matchconditions.Matcher {
	t.Helper()
	p := params()
	p.Jobs = true
	hooks := read(t, p).webhooks.Webhooks
	if diff := cmp.Diff(hooks[0].MatchConditions, hooks[1].MatchConditions); diff != "" {
		t.Fatalf("pods of privileged namespaces have other conditions:\n%s", diff)
	}
	var matchers [2]matchconditions.Matcher
	for i := range matchers {
		compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 27)))
		matchers[i] = webhook.NewMutatingWebhookAccessor("uid", Name, &hooks[1+i]).GetCompiledMatcher(compiler)
	}
	return matchers
}

// TestMatch: the API server asks about exactly the pods that ask for cards, or
// seem to, and Jobs of such pods, whatever else they have or lack.
func TestMatch(t *testing.T) {
	t.Parallel()
	matchers := matchersOf(t)
	random := rand.New(rand.NewPCG(3, 3))
	names := []string{"cpu", "memory", "nvidia.com/gpu", "metax-tech.com/sgpus", "metax-tech.com/vfio-gpu", "koordinator.sh/rdma", "koordinator.sh/batch-cpu", "koordinator.sh/gpu-else"}
	for _, name := range wire.Resources() {
		names = append(names, string(name))
	}
	some := func() string {
		if random.IntN(3) > 0 {
			return ""
		}
		return names[random.IntN(len(names))] + ": 1"
	}
	const pods = 1500
	asked := 0
	for range pods {
		b := gputest.MakePod("p")
		for range random.IntN(4) {
			b.AppWith(some(), some())
		}
		for range random.IntN(3) {
			b.Init(some())
		}
		if random.IntN(2) == 0 {
			b.Annotate(wire.AnnotationAllocated, "[]")
		}
		pod := b.Obj()
		want := wire.SeemsToAsk(pod)
		if want {
			asked++
		}
		match(t, matchers, pod, want)
	}
	if asked < pods/6 || asked > pods*5/6 {
		t.Errorf("%d of %d pods ask for cards: too few for the test", asked, pods)
	}
}

// TestMatchLarge: a pod of any size is decided about within the API server's
// budget for an expression. The time is quadratic in the containers.
func TestMatchLarge(t *testing.T) {
	t.Parallel()
	b := gputest.MakePod("p")
	for range 5000 {
		b.AppWith("cpu: 1", "cpu: 1")
	}
	match(t, matchersOf(t), b.Init("sgpu: 1").Obj(), true)
}

// match checks whether the API server asks about the pod, and about a Job of such pods.
func match(t *testing.T, matchers [2]matchconditions.Matcher, pod *corev1.Pod, want bool) {
	t.Helper()
	for i, m := range matchers {
		result := m.Match(t.Context(), attributes(pod, i == 1), nil, nil)
		if result.Error != nil || result.Matches != want {
			t.Fatalf("asked about: %v (%v), want %v: %.1000v", result.Matches, result.Error, want, pod.Spec)
		}
	}
}

// attributes is the creation of a pod, or of a Job of such pods, as the API server
// sees it.
func attributes(pod *corev1.Pod, job bool) *admission.VersionedAttributes {
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	var object runtime.Object = pod
	if job {
		kind, resource = batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithResource("jobs")
		object = &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
	}
	return &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create,
			&metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "jane"}),
		VersionedKind: kind, VersionedObject: object,
	}
}
