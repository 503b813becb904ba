package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func params() Params {
	return Params{
		Namespace: "daybreak-system", Schedulers: []string{ServiceAccount("daybreak-system", "daybreak-scheduler")},
		Agents: []string{ServiceAccount("daybreak-system", "daybreak-agent")}, Managers: []string{ServiceAccount("daybreak-system", "daybreak-manager")},
	}
}

// rendered is everything that is in the manifests.
type rendered struct {
	webhooks   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	policies   map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	bindings   map[string]*admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// read renders the manifests and reads them strictly: a misspelt field would be
// dropped by the API server without a word.
func read(t testing.TB, p Params) *rendered {
	t.Helper()
	text := func(render func(Params) ([]byte, error)) []byte {
		t.Helper()
		manifests, err := render(p)
		gputest.Must(t, err)
		return manifests
	}
	out := &rendered{
		webhooks: &admissionregistrationv1.MutatingWebhookConfiguration{}, validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}, bindings: map[string]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	}
	gputest.Must(t, errors.Join(yaml.UnmarshalStrict(text(Webhook), out.webhooks), yaml.UnmarshalStrict(text(Validating), out.validating)))
	policies, bindings, err := readPolicies(text(Guards))
	gputest.Must(t, err)
	for _, p := range policies {
		out.policies[p.Name] = p
	}
	for _, b := range bindings {
		out.bindings[b.Name] = b
	}
	return out
}

func TestManifests(t *testing.T) {
	r := read(t, params())
	want := []string{
		"daybreak-bindings", "daybreak-configurations", "daybreak-devices", "daybreak-events", "daybreak-nodes", "daybreak-pods", "daybreak-quota",
	}
	gputest.Equal(t, "policies", want, slices.Sorted(maps.Keys(r.policies)))
	for name, p := range r.policies {
		b := r.bindings[name]
		if b == nil || b.Spec.PolicyName != name || !slices.Equal(b.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
			t.Errorf("policy %s is not bound: %+v", name, b)
		}
		if *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("policy %s fails open", name)
		}
		for _, v := range p.Spec.Validations {
			if v.Message == "" || *v.Reason != metav1.StatusReasonForbidden {
				t.Errorf("policy %s: %s: message %q", name, v.Expression, v.Message)
			}
		}
	}
	if len(r.webhooks.Webhooks) != 2 {
		t.Fatalf("%d webhooks", len(r.webhooks.Webhooks))
	}
	for _, hook := range r.webhooks.Webhooks {
		service := hook.ClientConfig.Service
		if service == nil || service.Namespace != "daybreak-system" || service.Name != Service || *service.Port != ServicePort || hook.ClientConfig.URL != nil {
			t.Errorf("%s calls %+v", hook.Name, hook.ClientConfig)
		}
		if *hook.FailurePolicy != admissionregistrationv1.Fail || *hook.SideEffects != admissionregistrationv1.SideEffectClassNone || *hook.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("%s: %+v", hook.Name, hook)
		}
		if len(hook.MatchConditions) != 1 {
			t.Errorf("%s is asked about every pod", hook.Name)
		}
	}
}

// TestJobs: Jobs are sent to the manager where that is wanted, from every namespace,
// and nothing of them but their creation.
func TestJobs(t *testing.T) {
	p := params()
	p.Jobs = true
	hooks := read(t, p).webhooks.Webhooks
	if len(hooks) != 3 {
		t.Fatalf("%d webhooks", len(hooks))
	}
	job := hooks[2]
	want := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}, Scope: new(admissionregistrationv1.NamespacedScope)},
	}}
	if diff := cmp.Diff(want, job.Rules); diff != "" || *job.ClientConfig.Service.Path != PathJobs || job.NamespaceSelector != nil || len(job.MatchConditions) != 1 {
		t.Errorf("%+v\n%s", job, diff)
	}
	p.NoMatchConditions = true
	if job := read(t, p).webhooks.Webhooks[2]; *job.FailurePolicy != admissionregistrationv1.Ignore || len(job.MatchConditions) != 0 {
		t.Errorf("without conditions: %+v", job)
	}
}

// TestFailures: while no manager answers, what is rejected and what passes. Below
// 1.28, where no condition distinguishes them, that is what may concern pods
// without cards, and the status of pods with cards.
func TestFailures(t *testing.T) {
	for version, want := range map[string][]string{
		"1.29": {
			"bindings.policies Fail", "devices.policies Fail", "nodes.policies Fail", "pods Fail", "pods.policies Fail", "privileged.pods Fail", "quota.policies Fail",
		},
		"1.27": {
			"bindings.policies Ignore", "devices.policies Fail", "new-pods.policies Ignore", "nodes.policies Ignore", "other-devices.policies Ignore",
			"other-pods.policies Ignore", "pod-status.policies Ignore", "pods Ignore", "pods.policies Fail", "privileged.pods Ignore", "system-pods.policies Ignore", "unlabelled-devices.policies Fail",
		},
	} {
		p := params()
		p.NoMatchConditions = version == "1.27"
		r := read(t, p)
		var got []string
		add := func(name string, policy *admissionregistrationv1.FailurePolicyType, timeout *int32, conditions int) {
			got = append(got, strings.TrimSuffix(name, ".daybreak-gpu.io")+" "+string(*policy))
			if most := map[admissionregistrationv1.FailurePolicyType]int32{admissionregistrationv1.Fail: 5, admissionregistrationv1.Ignore: 2}[*policy]; *timeout > most {
				t.Errorf("%s: %s waits %d s", version, name, *timeout)
			}
			if (conditions > 0) == p.NoMatchConditions {
				t.Errorf("%s: %s has %d conditions", version, name, conditions)
			}
		}
		for _, w := range r.webhooks.Webhooks {
			add(w.Name, w.FailurePolicy, w.TimeoutSeconds, len(w.MatchConditions))
		}
		for _, w := range r.validating.Webhooks {
			add(w.Name, w.FailurePolicy, w.TimeoutSeconds, len(w.MatchConditions))
		}
		gputest.Equal(t, version, want, slices.Sorted(slices.Values(got)))
	}
}

// TestNamespaces: every namespace is served by exactly one of the two webhooks.
func TestNamespaces(t *testing.T) {
	for _, value := range []string{"", "true", "yes", "false"} {
		set := map[string]string{}
		if value != "" {
			set[wire.LabelPrivileged] = value
		}
		var paths []string
		for _, hook := range read(t, params()).webhooks.Webhooks {
			if matches(t, hook.NamespaceSelector, set) {
				paths = append(paths, *hook.ClientConfig.Service.Path)
			}
		}
		want := []string{Path}
		if value == "true" {
			want = []string{PathPrivileged}
		}
		gputest.Equal(t, fmt.Sprintf("label %q", value), want, paths)
	}
}

// TestQuotaNamespaces: quotas must hold in labelled namespaces, or in all of them,
// whether the API server or the manager sees to it.
func TestQuotaNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		everywhere bool
		labels     map[string]string
		want       bool
	}{
		"no label":                 {},
		"the label":                {labels: map[string]string{wire.LabelQuota: wire.QuotaEnforced}, want: true},
		"another value":            {labels: map[string]string{wire.LabelQuota: "true"}},
		"everywhere without label": {everywhere: true, want: true},
	} {
		p := params()
		p.QuotaEverywhere = tc.everywhere
		r := read(t, p)
		i := slices.IndexFunc(r.validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return w.Name == "quota.policies.daybreak-gpu.io"
		})
		for _, selector := range []*metav1.LabelSelector{r.bindings["daybreak-quota"].Spec.MatchResources.NamespaceSelector, r.validating.Webhooks[i].NamespaceSelector} {
			gputest.Equal(t, fmt.Sprintf("%s: %v selects", name, selector), tc.want, matches(t, selector, tc.labels))
		}
	}
}

func TestParams(t *testing.T) {
	p := params()
	p.URL, p.FailurePolicy = "https://127.0.0.1:9443/", "Ignore"
	// A name that would end a string, in YAML or in CEL.
	evil := `o'neill"\<&>: [x]`
	p.Schedulers = append(p.Schedulers, evil)
	p.Publishers, p.DirectBinders, p.SchedulerNames = []string{"koordlet", evil}, []string{evil}, []string{evil}
	r := read(t, p)
	for _, hook := range r.webhooks.Webhooks {
		if hook.ClientConfig.Service != nil || !strings.HasPrefix(*hook.ClientConfig.URL, "https://127.0.0.1:9443/admit") || *hook.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("%s: %+v", hook.Name, hook.ClientConfig)
		}
	}
	oldest := environment.MustBaseEnvSet(version.MajorMinor(1, 29)) // of API servers with policies: new expressions are of the version before
	for name, p := range r.policies {
		var text strings.Builder
		for _, c := range p.Spec.MatchConditions {
			text.WriteString(c.Expression)
		}
		for _, v := range p.Spec.Variables {
			text.WriteString(v.Expression)
		}
		if !strings.Contains(text.String(), quote(evil)) {
			t.Errorf("policy %s does not know the user", name)
		}
		if _, err := compilePolicy(p, oldest, environment.NewExpressions); err != nil {
			t.Errorf("policy %s: %v", name, err)
		}
	}
}

// TestGuarded: what is read from pods and nodes is what is guarded.
func TestGuarded(t *testing.T) {
	r := read(t, params())
	text := map[string]string{}
	for name, p := range r.policies {
		for _, v := range p.Spec.Variables {
			text[name] += v.Expression + "\n"
		}
		for _, v := range p.Spec.Validations {
			text[name] += v.Expression + "\n"
		}
	}
	for _, key := range allocation.Keys() {
		if !strings.Contains(text["daybreak-pods"], quote(key)) {
			t.Errorf("%s is not guarded on pods", key)
		}
	}
	// Every annotation by which what a pod asks for changes, or what is counted of it,
	// and no other: what is in the lists is tested in package request.
	for _, v := range r.policies["daybreak-pods"].Spec.Variables {
		if v.Name == "frozen" && (!strings.HasPrefix(v.Expression, "variables.bound ? "+list(wire.AskAnnotations()...)+" : ") ||
			!strings.HasSuffix(v.Expression, " ? "+list(wire.CountedAnnotations()...)+" : []")) {
			t.Errorf("frozen: %s", v.Expression)
		}
	}
	for _, key := range []string{wire.AnnotationNodeCards, wire.AnnotationServedBy, wire.AnnotationLock} {
		if !strings.Contains(text["daybreak-nodes"], key) {
			t.Errorf("%s is not guarded on nodes", key)
		}
	}
}
