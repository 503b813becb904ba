package policy

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const nodeName = "authentication.kubernetes.io/node-name"

var namespaceLabels = map[string]map[string]string{"default": nil, "budgeted": {wire.LabelQuota: wire.QuotaEnforced}, "trusted": {wire.LabelPrivileged: "true"}}

func newEvaluator(t testing.TB) *Evaluator {
	t.Helper()
	manifests, err := Guards(params())
	gputest.Must(t, err)
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, labels := range namespaceLabels {
		gputest.Must(t, namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	e, err := NewEvaluator(manifests, corelisters.NewNamespaceLister(namespaces), fake.NewClientset(), authorizerfactory.NewAlwaysDenyAuthorizer())
	gputest.Must(t, err)
	return e
}

// request is a request about an object as an API server sends it.
func request(t testing.TB, who authenticationv1.UserInfo, plural, subresource string, old, object metav1.Object) *admissionv1.AdmissionRequest {
	t.Helper()
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, SubResource: subresource, UserInfo: who, Resource: metav1.GroupVersionResource{Version: "v1", Resource: plural}}
	kinds := map[string]metav1.GroupVersionKind{"pods": {Version: "v1", Kind: "Pod"}, "nodes": {Version: "v1", Kind: "Node"}}
	req.Kind = kinds[plural]
	if subresource == "binding" {
		req.Kind.Kind = "Binding"
	}
	raw := func(object metav1.Object) []byte {
		object.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind(req.Kind)) //nolint:errcheck // a test's own
		text, err := json.Marshal(object)
		gputest.Must(t, err)
		return text
	}
	req.Name, req.Namespace, req.Object.Raw = object.GetName(), object.GetNamespace(), raw(object)
	if old != nil {
		req.Operation, req.OldObject.Raw = admissionv1.Update, raw(old)
	}
	return req
}

// annotated is an update of the object that the request is about, which there was before.
func annotated(t *testing.T, who authenticationv1.UserInfo, created *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	t.Helper()
	var old corev1.Pod
	gputest.Must(t, json.Unmarshal(created.Object.Raw, &old))
	object := old.DeepCopy()
	object.Annotations = map[string]string{"a": "b"}
	return request(t, who, "pods", "", &old, object)
}

func TestEvaluator(t *testing.T) {
	e := newEvaluator(t)
	jane := authenticationv1.UserInfo{Username: "jane"}
	agent := authenticationv1.UserInfo{Username: params().Agents[0], Extra: map[string]authenticationv1.ExtraValue{nodeName: {"n1"}}}
	pod := func(annotations map[string]string) *corev1.Pod {
		p := gputest.MakePod("p").App("sgpu: 1").Obj()
		p.Namespace, p.Annotations = "default", annotations
		return p
	}
	node := func(name string, annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	budgeted := func(limits, scheduler string, change ...func(*corev1.Pod)) *admissionv1.AdmissionRequest {
		p := gputest.MakePod("p").App(limits).App("cpu: 1").Obj()
		p.Namespace, p.Spec.SchedulerName = "budgeted", scheduler
		for _, c := range change {
			c(p)
		}
		return request(t, jane, "pods", "", nil, p)
	}
	amounts := func(names ...corev1.ResourceName) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, name := range names {
				p.Spec.Containers[0].Resources.Limits[name] = resource.MustParse("0")
			}
		}
	}
	lacks := func(names string) string {
		return "ValidatingAdmissionPolicy 'daybreak-quota' with binding 'daybreak-quota' denied request: spec.containers[0].resources.limits: " + names + ": the quotas of this namespace count what the manager writes here, " +
			"and no manager answered when the pod was created: create it again when the Deployment daybreak-manager has a ready pod"
	}
	all := "daybreak-gpu.io/compute, daybreak-gpu.io/memory, daybreak-gpu.io/cards"
	by := func(name string) string {
		return "ValidatingAdmissionPolicy 'daybreak-" + name + "' with binding 'daybreak-" + name + "' denied request: "
	}
	marked := pod(nil)
	marked.Labels = map[string]string{wire.LabelAdmitted: "true"}
	forged := map[string]string{wire.AnnotationAllocated: "[]"}
	cards := map[string]string{wire.AnnotationNodeCards: "[]"}
	update := func(change func(*corev1.Pod), key, before, after string) *admissionv1.AdmissionRequest {
		old := pod(map[string]string{key: before})
		amounts(wire.AmountResources()...)(old)
		change(old)
		now := old.DeepCopy()
		now.Annotations = map[string]string{key: after}
		return request(t, jane, "pods", "", old, now)
	}
	waits, bound := func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.NodeName = "n1" }
	uncounted := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = gputest.MakePod("p").App("sgpu: 1").Obj().Spec.Containers[0].Resources
	}
	counts := func(key string) string {
		return by("pods") + "metadata.annotations[" + key + "]: quotas count this pod by it: leave it as it is, or delete the pod and create another"
	}
	// privileged is a new pod with a privileged container in the list at, if any.
	privileged := func(namespace, limits, scheduler, list string, change ...func(*corev1.Pod)) *admissionv1.AdmissionRequest {
		p := gputest.MakePod("p").Init("cpu: 1").App(limits).App("cpu: 1").Obj()
		p.Namespace, p.Spec.SchedulerName = namespace, scheduler
		lists := map[string][]corev1.Container{"containers": p.Spec.Containers, "initContainers": p.Spec.InitContainers}
		if containers := lists[list]; containers != nil {
			containers[len(containers)-1].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}
		for _, c := range change {
			c(p)
		}
		return request(t, jane, "pods", "", nil, p)
	}
	sees := func(at string) string {
		return by("pods") + at + " is privileged, and would see every GPU of the node: leave privileged out, or let an administrator label the namespace daybreak-gpu.io/allow-privileged: \"true\""
	}
	static := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations = node, map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}
	}
	for name, tc := range map[string]struct {
		req  *admissionv1.AdmissionRequest
		want string
	}{
		"the cards of a counted pod":       {update(waits, wire.AnnotationUseCards, "GPU-small", ""), counts(wire.AnnotationUseCards)},
		"the other cards of one":           {update(waits, wire.AnnotationNoUseCards, "GPU-large", "GPU-small"), counts(wire.AnnotationNoUseCards)},
		"the class of one":                 {update(waits, wire.AnnotationClass, "online", "offline"), counts(wire.AnnotationClass)},
		"the QoS of one":                   {req: update(waits, wire.AnnotationQoS, "best-effort", "fixed-share")},
		"the same cards, another note":     {req: update(waits, "note", "a", "b")},
		"the cards of one without amounts": {req: update(uncounted, wire.AnnotationUseCards, "GPU-small", "")},
		"the scheduler changes the cards": {req: func() *admissionv1.AdmissionRequest {
			r := update(waits, wire.AnnotationUseCards, "GPU-small", "")
			r.UserInfo.Username = params().Schedulers[0]
			return r
		}()},
		"the cards of a bound pod": {
			update(bound, wire.AnnotationUseCards, "GPU-small", ""),
			by("pods") + "metadata.annotations[metax-tech.com/use-gpuuuid]: the cards of this pod were chosen by it, and the pod is bound: leave it as it is, or delete the pod and create another",
		},
		"an ordinary pod":           {req: request(t, jane, "pods", "", nil, pod(nil))},
		"no containers":             {req: request(t, jane, "pods", "", nil, &corev1.Pod{ObjectMeta: pod(map[string]string{wire.AnnotationKoordAllocated: "{}"}).ObjectMeta})}, // the API server rejects it later
		"a forged pod":              {request(t, jane, "pods", "", nil, pod(forged)), by("pods") + "metadata.annotations[metax-tech.com/gpu-devices-allocated]: which cards a pod holds is written by the scheduler alone: leave it out"},
		"the scheduler":             {req: request(t, authenticationv1.UserInfo{Username: params().Schedulers[0]}, "pods", "", nil, pod(forged))},
		"the label goes":            {request(t, jane, "pods", "", marked, pod(nil)), by("pods") + "metadata.labels[daybreak-gpu.io/admitted]: marks a pod with cards that was admitted: leave it as it is"},
		"the label stays":           {req: request(t, jane, "pods", "status", marked, marked)},
		"a Binding":                 {request(t, jane, "pods", "binding", nil, &corev1.Binding{ObjectMeta: pod(forged).ObjectMeta}), by("bindings") + "metadata.annotations[metax-tech.com/gpu-devices-allocated]: only the scheduler writes the allocation of a pod: leave it out"},
		"an agent":                  {req: request(t, agent, "nodes", "", node("n1", nil), node("n1", cards))},
		"another's agent":           {request(t, agent, "nodes", "", node("n2", nil), node("n2", cards)), by("nodes") + "an agent writes on its own node only"},
		"an administrator":          {request(t, jane, "nodes", "", node("n1", nil), node("n1", cards)), by("nodes") + "metadata.annotations[metax-tech.com/node-gpu-devices]: only the agent of a node writes the description of its GPUs: leave it as it is"},
		"no amounts":                {budgeted("sgpu: 1", "daybreak"), lacks(all)},
		"no amounts, Koordinator's": {budgeted("gpu-core: 10, gpu-memory: 1Gi", "default-scheduler"), lacks(all)},
		"no amounts, whole cards":   {budgeted("gpu: 2", "daybreak"), lacks(all)},
		"no amounts, init container": {budgeted("cpu: 1", "daybreak", func(p *corev1.Pod) {
			p.Spec.InitContainers = gputest.MakePod("p").Init("sgpu: 1").Obj().Spec.InitContainers
		}), lacks(all)},
		"amounts":              {req: budgeted("sgpu: 1", "daybreak", amounts(wire.AmountResources()...))},
		"two of three amounts": {budgeted("sgpu: 1", "daybreak", amounts(wire.ResourceCompute, wire.ResourceCards)), lacks("daybreak-gpu.io/memory")},
		"amounts elsewhere": {budgeted("sgpu: 1", "daybreak", amounts(wire.AmountResources()...), func(p *corev1.Pod) {
			slices.Reverse(p.Spec.Containers)
		}), lacks(all)},
		"no amounts, no cards":          {req: budgeted("cpu: 1", "daybreak")},
		"no amounts, 0 cards":           {req: budgeted("sgpu: 0", "daybreak")},
		"no amounts, another scheduler": {req: budgeted("sgpu: 1", "hami-scheduler")},
		"no amounts, a static pod": {req: func() *admissionv1.AdmissionRequest {
			r := budgeted("sgpu: 1", "daybreak", func(p *corev1.Pod) {
				p.Spec.NodeName, p.Annotations = "n1", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			})
			r.UserInfo = authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}
			return r
		}()},
		"no amounts, updated": {req: func() *admissionv1.AdmissionRequest {
			r := budgeted("sgpu: 1", "daybreak")
			r.Operation, r.OldObject = admissionv1.Update, r.Object
			return r
		}()},
		"a privileged container":            {privileged("default", "sgpu: 1", "daybreak", "containers"), sees("spec.containers: c2")},
		"a privileged init container":       {privileged("default", "gpu: 1", "default-scheduler", "initContainers"), sees("spec.initContainers: c0")},
		"privileged, Koordinator's names":   {privileged("default", "gpu-core: 100, gpu-memory-ratio: 100", "daybreak", "containers"), sees("spec.containers: c2")},
		"privileged, by another scheduler":  {privileged("default", "sgpu: 1", "hami-scheduler", "containers"), sees("spec.containers: c2")},
		"privileged, another vendor's":      {req: privileged("default", "gpu-core: 100, gpu-memory-ratio: 100", "koord-scheduler", "containers")},
		"privileged, without cards":         {req: privileged("default", "cpu: 1", "daybreak", "containers")},
		"privileged, 0 cards":               {req: privileged("default", "sgpu: 0", "daybreak", "containers")},
		"privileged, where it is allowed":   {req: privileged("trusted", "sgpu: 1", "daybreak", "containers")},
		"with cards, not privileged":        {req: privileged("default", "sgpu: 1", "daybreak", "")},
		"privileged, an annotation changes": {req: annotated(t, jane, privileged("default", "sgpu: 1", "daybreak", "containers"))},
		"privileged, a static pod": {req: func() *admissionv1.AdmissionRequest {
			r := privileged("default", "sgpu: 1", "daybreak", "containers", static("n1"))
			r.UserInfo = authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}
			return r
		}()},
		"privileged, said to be a static pod": {privileged("default", "sgpu: 1", "daybreak", "containers", static("")), sees("spec.containers: c2")},
		"a hand-over without the right": {
			request(t, jane, "nodes", "", node("n1", nil), node("n1", map[string]string{wire.AnnotationServedBy: wire.ServedByVendor})),
			by("nodes") + "metadata.annotations[daybreak-gpu.io/served-by]: only the agent of a node writes the description of its GPUs: leave it as it is; who has the verb hand-over on nodes may set it to vendor or remove it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.Evaluate(t.Context(), tc.req)
			if tc.want == "" {
				if err != nil {
					t.Errorf("denied: %v", err)
				}
				return
			}
			if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("got\n  %v\nwant\n  %s", err, tc.want)
			}
		})
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"a misspelt field":    "kind: ValidatingAdmissionPolicy\nspec: {failurPolicy: Fail}",
		"another object":      "kind: Pod",
		"an unknown variable": "kind: ValidatingAdmissionPolicy\nspec: {validations: [{expression: variables.none}]}",
		"no YAML":             "kind: [",
	} {
		if _, err := NewEvaluator([]byte(text), nil, nil, nil); err == nil {
			t.Errorf("%s: no complaint", name)
		}
	}
}

// conditions is a validating webhook with conditions, compiled.
type conditions struct {
	rules      []admissionregistrationv1.RuleWithOperations
	namespaces *metav1.LabelSelector
	matcher    matchconditions.Matcher
}

// TestConditions: conditions compile on API servers of 1.28, and the API server
// asks about every request that the policies deny.
func TestConditions(t *testing.T) {
	t.Parallel()
	env := environment.MustBaseEnvSet(version.MajorMinor(1, 27))
	var hooks []conditions
	r := read(t, params())
	for i := range r.validating.Webhooks {
		w := &r.validating.Webhooks[i]
		hooks = append(hooks, conditions{w.Rules, w.NamespaceSelector, webhook.NewValidatingWebhookAccessor("uid", Name, w).GetCompiledMatcher(cel.NewConditionCompiler(env))})
		for _, c := range w.MatchConditions {
			result := cel.NewCompiler(env).CompileCELExpression((*matchconditions.MatchCondition)(&c), cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			if result.Error != nil {
				t.Errorf("%s: %s: %v in\n%s", w.Name, c.Name, result.Error, c.Expression)
			}
		}
	}
	for _, w := range r.webhooks.Webhooks {
		for _, c := range w.MatchConditions {
			result := cel.NewCompiler(env).CompileCELExpression((*matchconditions.MatchCondition)(&c), cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			if result.Error != nil {
				t.Errorf("%s: %s: %v", w.Name, c.Name, result.Error)
			}
		}
	}
	if t.Failed() {
		return
	}
	e := newEvaluator(t)
	random := rand.New(rand.NewPCG(5, 7))
	denied, sent := 0, 0
	const requests = 2000
	for range requests {
		req := randomRequest(t, random)
		err := e.Evaluate(t.Context(), req)
		asked, asking := hooksMatch(t, hooks, req)
		if asking != nil {
			t.Fatalf("condition fails: %v", asking)
		}
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if err != nil {
			denied++
		}
		if asked {
			sent++
		}
		if err != nil && !asked {
			t.Fatalf("denied but not asked about: %v\n%s %s\n%s\n%s", err, req.UserInfo.Username, req.SubResource, req.OldObject.Raw, req.Object.Raw)
		}
	}
	t.Logf("%d of %d requests denied, %d asked about", denied, requests, sent)
	if denied < 300 || sent > requests*9/10 {
		t.Error("too few of each for the test")
	}
}

// hooksMatch reports whether the API server asks about a request.
func hooksMatch(t *testing.T, hooks []conditions, req *admissionv1.AdmissionRequest) (bool, error) {
	t.Helper()
	object, err := decodeObject(req.Object.Raw)
	gputest.Must(t, err)
	old, err := decodeObject(req.OldObject.Raw)
	gputest.Must(t, err)
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name, schema.GroupVersionResource(req.Resource),
			req.SubResource, admission.Operation(req.Operation), nil, false, &user.DefaultInfo{Name: req.UserInfo.Username}),
		VersionedKind: schema.GroupVersionKind(req.Kind), VersionedObject: object, VersionedOldObject: old,
	}
	for _, h := range hooks {
		if !slices.ContainsFunc(h.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return (&rules.Matcher{Rule: r, Attr: attributes}).Matches()
		}) || h.namespaces != nil && !matches(t, h.namespaces, namespaceLabels[req.Namespace]) {
			continue
		}
		if result := h.matcher.Match(t.Context(), attributes, nil, nil); result.Error != nil || result.Matches {
			return result.Matches, result.Error
		}
	}
	return false, nil
}

// randomRequest is a write on a pod or a node, often with what the policies are
// about.
func randomRequest(t *testing.T, random *rand.Rand) *admissionv1.AdmissionRequest {
	p := params()
	users := []string{"jane", "jane", "jane", "system:node:n1", p.Schedulers[0], p.Agents[0], p.Managers[0]}
	who := authenticationv1.UserInfo{Username: users[random.IntN(len(users))], Extra: map[string]authenticationv1.ExtraValue{nodeName: {"n1"}}}
	if random.IntN(2) == 0 {
		old, object := randomNode(random), randomNode(random)
		object.Name = old.Name
		if random.IntN(3) > 0 {
			object.Spec, object.Labels = old.Spec, old.Labels
		}
		subresource := []string{"", "status"}[random.IntN(2)]
		if random.IntN(8) == 0 {
			return request(t, who, "nodes", "", nil, object)
		}
		return request(t, who, "nodes", subresource, old, object)
	}
	old := randomPod(random)
	object := old.DeepCopy()
	other := randomPod(random)
	for _, change := range []func(){
		func() { object.Annotations = other.Annotations },
		func() { object.Labels = other.Labels },
		func() { object.Status = other.Status },
		func() { object.Spec.EphemeralContainers = other.Spec.EphemeralContainers },
	} {
		if random.IntN(4) == 0 {
			change()
		}
	}
	switch random.IntN(5) {
	case 0:
		return request(t, who, "pods", "", nil, object)
	case 1:
		return request(t, who, "pods", "binding", nil, &corev1.Binding{ObjectMeta: object.ObjectMeta})
	}
	return request(t, who, "pods", []string{"", "status", "ephemeralcontainers", "resize"}[random.IntN(4)], old, object)
}

// some returns some of the keys with random values.
func some(random *rand.Rand, keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if random.IntN(len(keys)) == 0 {
			out[key] = []string{"true", "x"}[random.IntN(2)]
		}
	}
	return out
}

func randomPod(random *rand.Rand) *corev1.Pod {
	limits := []string{"cpu: 1", "cpu: 1", "sgpu: 1", "gpu: 1", "gpu-core: 10", "sgpu: 0"}
	b := gputest.MakePod("p").App(limits[random.IntN(len(limits))])
	if random.IntN(4) == 0 {
		b.Init(limits[random.IntN(len(limits))])
	}
	pod := b.Obj()
	pod.Namespace = []string{"default", "budgeted"}[random.IntN(2)]
	for _, name := range wire.AmountResources() {
		if random.IntN(3) > 0 {
			pod.Spec.Containers[0].Resources.Limits[name] = resource.MustParse("1")
		}
	}
	pod.Annotations = some(random, slices.Concat(wire.AskAnnotations(), []string{
		"a", wire.AnnotationAllocated, wire.AnnotationPredicateTime, wire.AnnotationKoordAllocated, wire.AnnotationHAMiNode, "hami.io/metax-x", corev1.MirrorPodAnnotationKey,
	})...)
	pod.Labels = some(random, "a", wire.LabelAdmitted)
	if random.IntN(2) == 0 {
		pod.Spec.NodeName = []string{"n1", "n2"}[random.IntN(2)]
	}
	pod.Spec.SchedulerName = []string{"", "daybreak", "other"}[random.IntN(3)]
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if len(list) > 0 && random.IntN(3) == 0 {
			list[0].SecurityContext = &corev1.SecurityContext{}
			if random.IntN(4) > 0 {
				list[0].SecurityContext.Privileged = new(random.IntN(2) == 0)
			}
		}
	}
	if random.IntN(3) == 0 {
		pod.Status.Conditions = []corev1.PodCondition{{Type: "Ready"}, {Type: wire.ConditionTerm, Status: corev1.ConditionTrue, Message: []string{"", "x"}[random.IntN(2)]}}
	}
	if random.IntN(3) == 0 {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "d", SecurityContext: &corev1.SecurityContext{Privileged: new(random.IntN(2) == 0)},
		}}}
	}
	return pod
}

func randomNode(random *rand.Rand) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: []string{"n1", "n2"}[random.IntN(2)]}}
	n.Annotations = some(random, slices.Concat(wire.AgentAnnotations(), []string{"a", "b", wire.AnnotationLock, wire.AnnotationAdvertised, "metax-tech.com/gpu.topology.x"})...)
	n.Labels = some(random, "a", "b", "c", wire.LabelModel)
	if random.IntN(2) == 0 {
		n.Labels[wire.LabelVendor] = wire.VendorMetaX
	}
	if random.IntN(4) == 0 {
		n.Spec.Unschedulable = true
	}
	n.Status.Capacity = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", wire.ResourceSGPU, wire.KoordCore} {
		if random.IntN(3) == 0 {
			n.Status.Capacity[name] = resource.MustParse("1")
		}
	}
	return n
}

// BenchmarkEvaluator: an ordinary pod, a status that leaves everything, a node's
// status, a denied pod.
func BenchmarkEvaluator(b *testing.B) {
	e := newEvaluator(b)
	jane, kubelet := authenticationv1.UserInfo{Username: "jane"}, authenticationv1.UserInfo{Username: "system:node:n1"}
	pod := gputest.MakePod("p").App("cpu: 1").Obj()
	withCards := gputest.MakePod("p").App("sgpu: 1").On("n1").Annotate(wire.AnnotationAllocated, "[]").Obj()
	pod.Namespace, withCards.Namespace = "default", "default"
	node := randomNode(rand.New(rand.NewPCG(1, 1)))
	for range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{"registry.example.com/team/image:1.2.3"}, SizeBytes: 1})
	}
	requests := map[string]*admissionv1.AdmissionRequest{
		"create a pod": request(b, jane, "pods", "", nil, pod), "status of a pod with cards": request(b, kubelet, "pods", "status", withCards, withCards),
		"status of a node": request(b, kubelet, "nodes", "status", node, node), "bind a pod": request(b, jane, "pods", "binding", nil, &corev1.Binding{ObjectMeta: pod.ObjectMeta}),
		"denied": request(b, jane, "pods", "", nil, withCards),
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := e.Evaluate(b.Context(), requests[name]); (err != nil) != (name == "denied") {
					b.Fatal(err)
				}
			}
		})
	}
}
