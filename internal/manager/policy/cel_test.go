package policy

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func bufioReader(text []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(text)) }

func matches(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}

// compile compiles a policy as the oldest API server that has policies would: new
// expressions are those of the version before it.
func compile(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	env := environment.MustBaseEnvSet(version.MajorMinor(1, 29))
	compiler, err := cel.NewCompositedCompiler(env)
	if err != nil {
		t.Fatal(err)
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	check := func(expression cel.ExpressionAccessor, text string) {
		t.Helper()
		if result := compiler.CompileCELExpression(expression, options, environment.NewExpressions); result.Error != nil {
			t.Errorf("policy %s: %v in\n%s", p.Name, result.Error, text)
		}
	}
	for _, c := range p.Spec.MatchConditions {
		check(&validating.ValidationCondition{Expression: c.Expression}, c.Expression)
	}
	for i := range p.Spec.Variables {
		v := &validating.Variable{Name: p.Spec.Variables[i].Name, Expression: p.Spec.Variables[i].Expression}
		if result := compiler.CompileAndStoreVariable(v, options, environment.NewExpressions); result.Error != nil {
			t.Errorf("policy %s: %v in\n%s", p.Name, result.Error, v.Expression)
		}
	}
	for _, v := range p.Spec.Validations {
		check(&validating.ValidationCondition{Expression: v.Expression}, v.Expression)
		if v.MessageExpression != "" {
			check(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, v.MessageExpression)
		}
	}
}

// matchersOf returns what decides about which pods the API server asks, and last
// about which Jobs.
func matchersOf(t *testing.T) []matchconditions.Matcher {
	t.Helper()
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 27)))
	var matchers []matchconditions.Matcher
	p := params()
	p.Jobs = true
	hooks := read(t, p).webhooks.Webhooks
	for i := range hooks {
		matchers = append(matchers, webhook.NewMutatingWebhookAccessor("uid", Name, &hooks[i]).GetCompiledMatcher(compiler))
	}
	return matchers
}

// TestMatch: the API server asks about exactly the pods that ask for cards, or
// seem to, and Jobs of such pods, whatever else they have or lack.
func TestMatch(t *testing.T) {
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
	asked := 0
	for range 3000 {
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
		for i, m := range matchers {
			result := m.Match(t.Context(), attributes(pod, i == 2), nil, nil)
			if result.Error != nil || result.Matches != want {
				t.Fatalf("asked about: %v (%v), want %v: %+v", result.Matches, result.Error, want, pod.Spec)
			}
		}
	}
	if asked < 500 || asked > 2500 {
		t.Errorf("%d of 3000 pods ask for cards: too few for the test", asked)
	}
}

// TestMatchLarge: a pod of any size is decided about within the API server's
// budget for an expression.
func TestMatchLarge(t *testing.T) {
	for name, limits := range map[string]string{"no cards": "cpu: 1, memory: 1Gi, nvidia.com/gpu: 1", "cards at the end": "cpu: 1"} {
		b := gputest.MakePod("p")
		for range 5000 {
			b.AppWith(limits, limits)
		}
		want := name == "cards at the end"
		if want {
			b.Init("sgpu: 1")
		}
		for i, m := range matchersOf(t) {
			if result := m.Match(t.Context(), attributes(b.Obj(), i == 2), nil, nil); result.Error != nil || result.Matches != want {
				t.Errorf("%s: asked about: %v (%v), want %v", name, result.Matches, result.Error, want)
			}
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
