package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestValidate: an agent is known by the pod of its token, and writes on the node
// of that pod.
func TestValidate(t *testing.T) {
	const system = "daybreak-system"
	agent := policy.ServiceAccount(system, "daybreak-agent")
	manifests, err := policy.Guards(policy.Params{Namespace: system, Schedulers: []string{"s"}, Agents: []string{agent}})
	gputest.Must(t, err)
	pod := func(name, account, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, UID: "1"}, Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node}}
	}
	client := fake.NewClientset(pod("agent", "daybreak-agent", "n1"), pod("other", "default", "n1"), pod("pending", "daybreak-agent", ""))
	evaluator, err := policy.NewEvaluator(manifests, corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)), client, authorizerfactory.NewAlwaysDenyAuthorizer())
	gputest.Must(t, err)
	registry := prometheus.NewRegistry()
	h := Handler(Rules{}, NewPolicies(evaluator, client), registry)
	const own = "ValidatingAdmissionPolicy 'daybreak-nodes' with binding 'daybreak-nodes' denied request: an agent writes on its own node only"
	type extra = map[string]authenticationv1.ExtraValue
	token := func(pod, uid string) extra {
		return extra{"authentication.kubernetes.io/pod-name": {pod}, "authentication.kubernetes.io/pod-uid": {uid}}
	}
	object := func(node, annotations string) runtime.RawExtension {
		return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"annotations":{%s}}}`, node, annotations)}
	}
	writes := func(node string, token extra) *admissionv1.AdmissionResponse {
		t.Helper()
		return send(t, h, policy.PathValidate, &admissionv1.AdmissionRequest{
			Operation: admissionv1.Update, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Node"}, Name: node,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}, UserInfo: authenticationv1.UserInfo{Username: agent, Extra: token},
			OldObject: object(node, ""), Object: object(node, fmt.Sprintf(`%q:"{}"`, wire.AnnotationScores)),
		})
	}
	for name, tc := range map[string]struct {
		node  string
		extra extra
		want  string
	}{
		"its own node":                                 {node: "n1", extra: token("agent", "1")},
		"another node":                                 {node: "n2", extra: token("agent", "1"), want: own},
		"a pod that was deleted":                       {node: "n1", extra: token("agent", "2"), want: own},
		"a pod that never was":                         {node: "n1", extra: token("none", "1"), want: own},
		"a pod of another account":                     {node: "n1", extra: token("other", "1"), want: own},
		"a pod that waits":                             {node: "n1", extra: token("pending", "1"), want: own},
		"a token of no pod":                            {node: "n1", want: own},
		"a token that names the node, as from 1.30 on": {node: "n2", extra: extra{"authentication.kubernetes.io/node-name": {"n2"}}},
	} {
		answer := writes(tc.node, tc.extra)
		got := ""
		if answer.Result != nil {
			got = answer.Result.Message
		}
		if answer.Allowed != (tc.want == "") || !answer.Allowed && (got != tc.want || answer.Result.Code != http.StatusForbidden) {
			t.Errorf("%s: allowed %v: %q, want %q", name, answer.Allowed, got, tc.want)
		}
	}
	// What can't be read is an error: the API server applies the failure policy to
	// it, and denies here.
	answer := send(t, h, policy.PathValidate, &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(`[]`)}})
	if answer.Allowed || answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("answer %+v", answer)
	}
	// So is a pod that can't be looked up: its agent may write here.
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, context.DeadlineExceeded })
	for node, allowed := range map[string]bool{"n1": true, "n3": false} { // the pod on n1 is known
		pod := map[string]string{"n1": "agent", "n3": "slow"}[node]
		answer := writes(node, token(pod, "1"))
		if answer.Allowed != allowed || !allowed && (answer.Result.Code != http.StatusInternalServerError || !strings.Contains(answer.Result.Message, "the pod slow, which the token names, could not be looked up")) {
			t.Errorf("%s: answer %+v, want allowed %v", node, answer, allowed)
		}
	}
	want := `
# HELP daybreak_manager_policy_requests_total Requests validated with the admission policies, on API servers older than 1.30, by result: allowed, denied, error.
# TYPE daybreak_manager_policy_requests_total counter
daybreak_manager_policy_requests_total{result="allowed"} 3
daybreak_manager_policy_requests_total{result="denied"} 6
daybreak_manager_policy_requests_total{result="error"} 2
`
	gputest.Check(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "daybreak_manager_policy_requests_total"))
}

// TestQuotaPolicyAgrees: whatever a pod asks for, the policy of quotas denies none
// that the webhook admits.
func TestQuotaPolicyAgrees(t *testing.T) {
	manifests, err := policy.Guards(policy.Params{Namespace: "daybreak-system", Schedulers: []string{"s"}, QuotaEverywhere: true})
	gputest.Must(t, err)
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	gputest.Must(t, namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	evaluator, err := policy.NewEvaluator(manifests, corelisters.NewNamespaceLister(namespaces), fake.NewClientset(), authorizerfactory.NewAlwaysDenyAuthorizer())
	gputest.Must(t, err)
	random := gputest.Rand(11)
	limits := func() string {
		var list []string
		for _, name := range append(wire.Resources(), wire.ResourceCompute, wire.ResourceCards) {
			if random.IntN(5) == 0 {
				list = append(list, string(name)+": "+[]string{"0", "1", "2", "50", "100", "1Gi"}[random.IntN(6)])
			}
		}
		return strings.Join(list, ",")
	}
	r, metered, plain := rules(), 0, 0
	for range 3000 {
		b := gputest.MakePod("p").App(limits())
		if random.IntN(2) == 0 {
			b.Init(limits())
		}
		if random.IntN(2) == 0 {
			b.App(limits())
		}
		pod := b.Obj()
		pod.APIVersion, pod.Kind = "v1", "Pod"
		pod.Spec.SchedulerName = []string{"default-scheduler", "daybreak", "other"}[random.IntN(3)]
		if v := r.Admit(pod, &authenticationv1.UserInfo{Username: "jane"}); len(v.Problems) > 0 {
			continue
		}
		err := evaluator.Evaluate(t.Context(), &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "default", Name: "p", UserInfo: authenticationv1.UserInfo{Username: "jane"}, Object: runtime.RawExtension{Raw: encode(t, pod)},
		})
		if err != nil {
			t.Fatalf("admitted, and then: %v\n%s", err, encode(t, pod))
		}
		if _, ok := request.ReadAmounts(&pod.Spec); ok {
			metered++
		} else {
			plain++
		}
	}
	t.Logf("%d pods with amounts and %d without pass", metered, plain)
	if metered < 50 || plain < 50 {
		t.Error("too few of each for the test")
	}
}
