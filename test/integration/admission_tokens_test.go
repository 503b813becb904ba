package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// thieves is a world in which an attacker has the tokens of Daybreak's parts.
type thieves struct {
	*world
	guards guards
	// tokens are the parts with the rights that they have; mighty are the same
	// users with every right, so that only the policies are in the way.
	tokens, mighty map[string]kubernetes.Interface
}

// The parts; the agent's token is that of metax-1.
const (
	partAgent     = "agent"
	partManager   = "manager"
	partScheduler = "scheduler"
)

func newThieves(t *testing.T, g guards) *thieves {
	w := newOpenWorld(t)
	w.guard(g, w.Policies())
	w.AddNodes(2)
	for _, name := range []string{"metax-1", "metax-2"} {
		w.Eventually("the manager advertises "+name, time.Minute, func() error {
			n, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
			if _, marked := n.Annotations[wire.AnnotationAdvertised]; err == nil && (!marked || n.Status.Capacity.Name(wire.KoordCore, "").IsZero()) {
				err = fmt.Errorf("annotations %v, capacity %v", n.Annotations, n.Status.Capacity)
			}
			return err
		})
	}
	th := &thieves{world: w, guards: g, mighty: map[string]kubernetes.Interface{}, tokens: map[string]kubernetes.Interface{
		partAgent:     w.ClientOf(w.AgentOf("metax-1")),
		partManager:   w.ClientOf(w.RESTAs("manager")),
		partScheduler: w.ClientOf(w.RESTAs("scheduler")),
	}}
	for part, user := range map[string]rest.ImpersonationConfig{
		partAgent: {
			UserName: policy.ServiceAccount(local.AgentNamespace, local.AgentAccount),
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"metax-1"}},
		},
		partManager:   {UserName: local.ManagerUser},
		partScheduler: {UserName: local.SchedulerUser},
	} {
		user.Groups = []string{"system:masters"}
		config := w.REST()
		config.Impersonate = user
		th.mighty[part] = w.ClientOf(config)
	}
	return th
}

func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// nodePatches are merge patches of a Node that no part may make.
func nodePatches() map[string][]byte {
	type object = map[string]any
	meta := func(field string, value any) []byte { return jsonOf(object{"metadata": object{field: value}}) }
	spec := func(field string, value any) []byte { return jsonOf(object{"spec": object{field: value}}) }
	return map[string][]byte{
		"set a label":                     meta("labels", object{"a": "b"}),
		"set a label of node-restriction": meta("labels", object{"node-restriction.kubernetes.io/x": "y"}),
		"make it a control plane":         meta("labels", object{"node-role.kubernetes.io/control-plane": ""}),
		"remove a label":                  meta("labels", object{"kept": nil}),
		"set an annotation":               meta("annotations", object{"a": "b"}),
		"remove an annotation":            meta("annotations", object{"kept": nil}),
		"set a finalizer":                 meta("finalizers", []string{"example.com/x"}),
		"set an owner":                    meta("ownerReferences", []object{{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}}),
		"taint it":                        spec("taints", []object{{"key": "a", "effect": "NoExecute"}}),
		"remove its taints":               spec("taints", nil),
		"cordon it":                       spec("unschedulable", true),
		"hand it over":                    meta("annotations", object{wire.AnnotationServedBy: wire.ServedByVendor}),
	}
}

// statusPatches are merge patches of a Node's status that no part may make.
func statusPatches() map[string][]byte {
	type object = map[string]any
	status := func(field string, value any) []byte { return jsonOf(object{"status": object{field: value}}) }
	return map[string][]byte{
		"conditions":                      status("conditions", []object{{"type": "Ready", "status": "False", "reason": "x", "message": "x"}}),
		"no conditions":                   status("conditions", nil),
		"addresses":                       status("addresses", []object{{"type": "InternalIP", "address": "10.6.6.6"}}),
		"kubelet's port":                  status("daemonEndpoints", object{"kubeletEndpoint": object{"Port": 666}}),
		"images":                          status("images", []object{{"names": []string{"x"}}}),
		"cpu":                             status("capacity", object{"cpu": "1000"}),
		"allocatable memory":              status("allocatable", object{"memory": "1"}),
		"no cpu":                          status("allocatable", object{"cpu": nil}),
		"the vendor's resource":           status("capacity", object{string(wire.ResourceGPU): "100"}),
		"Koordinator's other resources":   status("allocatable", object{"koordinator.sh/batch-cpu": "1"}),
		"cpu beside what it may":          status("capacity", object{"cpu": "1000", string(wire.KoordCore): "100"}),
		"a label, on the way":             jsonOf(object{"metadata": object{"labels": object{"a": "b"}}}),
		"an annotation, on the way":       jsonOf(object{"metadata": object{"annotations": object{"a": "b"}}}),
		"a taint and a label, on the way": jsonOf(object{"spec": object{"unschedulable": true}, "metadata": object{"labels": object{"a": "b"}}}),
	}
}

// foreign are what the other parts may write.
func foreign(part string) map[string][]byte {
	out := map[string][]byte{}
	if part != partAgent {
		out["what the agent writes"] = harness.Annotate(map[string]any{wire.AnnotationNodeCards: "[]"})
		out["the agent's word, removed"] = harness.Annotate(map[string]any{wire.AnnotationServedBy: nil, wire.AnnotationNodeCards: nil})
	}
	if part != partManager {
		out["the manager's mark"] = harness.Annotate(map[string]any{wire.AnnotationAdvertised: "x"})
		out["the manager's label"] = jsonOf(map[string]any{"metadata": map[string]any{"labels": map[string]any{wire.LabelModel: "x"}}})
	}
	if part != partScheduler {
		out["the lock"] = harness.Annotate(map[string]any{wire.AnnotationLock: "x"})
	}
	return out
}

// nodeWays are ways of a part to write on nodes what is not its own.
func (th *thieves) nodeWays(part string, client kubernetes.Interface) map[string]func() error {
	nodes := client.CoreV1().Nodes()
	ways := map[string]func() error{}
	patch := func(kind types.PatchType, name string, text []byte, options metav1.PatchOptions, subresources ...string) func() error {
		return func() error {
			_, err := nodes.Patch(th.Ctx, name, kind, text, options, subresources...)
			return err
		}
	}
	for name, text := range nodePatches() {
		ways[name] = patch(types.MergePatchType, "metax-1", text, metav1.PatchOptions{})
	}
	for name, text := range foreign(part) {
		ways[name] = patch(types.MergePatchType, "metax-1", text, metav1.PatchOptions{})
		ways[name+" by nodes/status"] = patch(types.MergePatchType, "metax-1", text, metav1.PatchOptions{}, "status")
	}
	for name, text := range statusPatches() {
		ways["status: "+name] = patch(types.MergePatchType, "metax-1", text, metav1.PatchOptions{}, "status")
	}
	ways["set a label by server-side apply"] = patch(types.ApplyPatchType, "metax-1",
		[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"metax-1","labels":{"a":"b"}}}`), metav1.PatchOptions{FieldManager: "thief", Force: new(true)})
	ways["set a label by a JSON patch"] = patch(types.JSONPatchType, "metax-1",
		[]byte(`[{"op":"add","path":"/metadata/labels/a","value":"b"}]`), metav1.PatchOptions{})
	ways["set a label by an update"] = func() error {
		n := th.Node("metax-1")
		n.Labels["a"] = "b"
		_, err := nodes.Update(th.Ctx, n, metav1.UpdateOptions{})
		return err
	}
	ways["create a node"] = func() error {
		_, err := nodes.Create(th.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}, metav1.CreateOptions{})
		return err
	}
	if part != partManager {
		ways["status: what the manager writes"] = patch(types.MergePatchType, "metax-1",
			jsonOf(map[string]any{"status": map[string]any{"capacity": map[string]any{string(wire.KoordCore): "1"}}}), metav1.PatchOptions{}, "status")
	}
	if part == partAgent {
		ways["another node's cards"] = patch(types.MergePatchType, "metax-2", harness.Annotate(map[string]any{wire.AnnotationNodeCards: "[]"}), metav1.PatchOptions{})
		ways["a word that is none"] = patch(types.MergePatchType, "metax-1", harness.Annotate(map[string]any{wire.AnnotationServedBy: "x"}), metav1.PatchOptions{})
	}
	return ways
}

// eventWays are Events that are not the part's.
func (th *thieves) eventWays(part string, client kubernetes.Interface) map[string]func() error {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "victim"}
	core := func(component, instance string) func() error {
		return func() error {
			_, err := client.CoreV1().Events("default").Create(th.Ctx, eventOf(component, instance, about), metav1.CreateOptions{})
			return err
		}
	}
	ways := map[string]func() error{
		"an Event of kubelet": core("kubelet", "metax-1"),
		"an Event of no one":  core("", ""),
		"an Event of kubelet by events.k8s.io": func() error {
			e := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "e"}, EventTime: metav1.NowMicro(), Regarding: about, Reason: "R", Action: "A", Type: "Normal",
				ReportingController: "kubelet", ReportingInstance: "metax-1",
			}
			_, err := client.EventsV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		},
		"kubelet's Event is changed": func() error {
			_, err := client.CoreV1().Events("default").Patch(th.Ctx, "kubelets", types.MergePatchType, []byte(`{"count":7,"message":"x"}`), metav1.PatchOptions{})
			return err
		},
		"kubelet's Event is made its own": func() error {
			text := fmt.Appendf(nil, `{"reportingComponent":%q,"reportingInstance":"metax-1","source":{"component":%q,"host":"metax-1"}}`, componentOf(part), componentOf(part))
			_, err := client.CoreV1().Events("default").Patch(th.Ctx, "kubelets", types.MergePatchType, text, metav1.PatchOptions{})
			return err
		},
		"an election that kubelet reports": func() error {
			e := eventOf("kubelet", "metax-1", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: "default", Name: "metax-1"})
			e.Reason = "LeaderElection"
			_, err := client.CoreV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		},
	}
	// The source is what kubectl shows.
	ways["an Event that looks right"] = func() error {
		e := eventOf(componentOf(part), "metax-1", about)
		e.Source.Component = "kubelet"
		_, err := client.CoreV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
		return err
	}
	if part == partAgent {
		ways["an Event of another node's agent"] = core(wire.AgentComponent, "metax-2")
		ways["an Event of no node's agent"] = core(wire.AgentComponent, "")
		ways["an election"] = func() error {
			e := eventOf("x", "metax-1", corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "default", Name: "x"})
			e.Reason = "LeaderElection"
			_, err := client.CoreV1().Events("default").Create(th.Ctx, e, metav1.CreateOptions{})
			return err
		}
	} else {
		ways["an Event of an agent"] = core(wire.AgentComponent, "metax-1")
	}
	return ways
}

func componentOf(part string) string {
	return map[string]string{partAgent: wire.AgentComponent, partManager: wire.ManagerComponent, partScheduler: "daybreak"}[part]
}

func eventOf(component, instance string, about corev1.ObjectReference) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e", Namespace: "default"}, InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: "R", Message: "m",
		ReportingController: component, ReportingInstance: instance, Source: corev1.EventSource{Component: component, Host: instance},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
}

// configurationWays are changes of webhook configurations by which objects would
// be sent elsewhere.
func (th *thieves) configurationWays(client kubernetes.Interface) map[string]func() error {
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	change := func(how func(c *admissionregistrationv1.MutatingWebhookConfiguration)) func() error {
		return func() error {
			c, err := th.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(th.Ctx, policy.Name, metav1.GetOptions{})
			th.Must(err)
			how(c)
			_, err = configurations.Update(th.Ctx, c, metav1.UpdateOptions{})
			return err
		}
	}
	type conf = admissionregistrationv1.MutatingWebhookConfiguration
	other := admissionregistrationv1.MutatingWebhook{
		Name: "thief.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://thief.example.com/")},
	}
	ways := map[string]func() error{
		"webhooks: rules":               change(func(c *conf) { c.Webhooks[0].Rules[0].Resources = []string{"secrets"} }),
		"webhooks: one more rule":       change(func(c *conf) { c.Webhooks[1].Rules = append(c.Webhooks[1].Rules, c.Webhooks[1].Rules[0]) }),
		"webhooks: the URL":             change(func(c *conf) { c.Webhooks[0].ClientConfig.URL = new("https://thief.example.com/") }),
		"webhooks: a Service":           change(func(c *conf) { c.Webhooks[0].ClientConfig = serviceOf("thief") }),
		"webhooks: conditions":          change(func(c *conf) { c.Webhooks[0].MatchConditions = nil }),
		"webhooks: namespaces":          change(func(c *conf) { c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{} }),
		"webhooks: failures":            change(func(c *conf) { c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore) }),
		"webhooks: time":                change(func(c *conf) { c.Webhooks[0].TimeoutSeconds = new(int32(30)) }),
		"webhooks: one more":            change(func(c *conf) { c.Webhooks = append(c.Webhooks, other) }),
		"webhooks: one less":            change(func(c *conf) { c.Webhooks = c.Webhooks[:1] }),
		"webhooks: none":                change(func(c *conf) { c.Webhooks = nil }),
		"webhooks: another name":        change(func(c *conf) { c.Webhooks[0].Name = other.Name }),
		"webhooks: the other way round": change(func(c *conf) { slices.Reverse(c.Webhooks) }),
		"webhooks: a label":             change(func(c *conf) { c.Labels = map[string]string{"a": "b"} }),
		"webhooks: an owner": change(func(c *conf) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "1"}}
		}),
		"webhooks: caBundle and rules": change(func(c *conf) {
			c.Webhooks[0].ClientConfig.CABundle = nil
			c.Webhooks[0].Rules[0].Operations = []admissionregistrationv1.OperationType{"*"}
		}),
		"webhooks: another configuration": func() error {
			c := &conf{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Webhooks: []admissionregistrationv1.MutatingWebhook{other}}
			_, err := configurations.Create(th.Ctx, c, metav1.CreateOptions{})
			return err
		},
		"webhooks: delete": func() error { return configurations.Delete(th.Ctx, policy.Name, metav1.DeleteOptions{}) },
		"a validating webhook": func() error {
			c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "thief"}}
			_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(th.Ctx, c, metav1.CreateOptions{})
			return err
		},
	}
	return ways
}

func serviceOf(name string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name}}
}

// secretWays create Secrets, one of which would be filled with the token of another
// account. No policy is about them: no part has the right.
func (th *thieves) secretWays(client kubernetes.Interface) map[string]func() error {
	secrets := client.CoreV1().Secrets(manager.DefaultNamespace)
	create := func(name string, kind corev1.SecretType) func() error {
		return func() error {
			s := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: local.AgentAccount}}, Type: kind,
			}
			_, err := secrets.Create(th.Ctx, s, metav1.CreateOptions{})
			return err
		}
	}
	return map[string]func() error{
		"a token of another account":                create("stolen", corev1.SecretTypeServiceAccountToken),
		"any other Secret":                          create("stolen", corev1.SecretTypeOpaque),
		"a token in the place of the certificates'": create(policy.Secret, corev1.SecretTypeServiceAccountToken),
		"a Secret, applied": func() error {
			_, err := secrets.Apply(th.Ctx, applycorev1.Secret("stolen", manager.DefaultNamespace), metav1.ApplyOptions{FieldManager: "thief", Force: true})
			return err
		},
		"the certificates go": func() error { return secrets.Delete(th.Ctx, policy.Secret, metav1.DeleteOptions{}) },
	}
}

// state returns everything that must not change.
func (th *thieves) state() map[string]any {
	th.Helper()
	out := map[string]any{}
	nodes, err := th.Client.CoreV1().Nodes().List(th.Ctx, metav1.ListOptions{})
	th.Must(err)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		for k := range n.Status.Conditions { // the simulator's heartbeat
			n.Status.Conditions[k].LastHeartbeatTime = metav1.Time{}
		}
		out["node "+n.Name] = []any{n.Labels, n.Annotations, n.Finalizers, n.OwnerReferences, n.Spec, n.Status}
	}
	configurations, err := th.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(th.Ctx, metav1.ListOptions{})
	th.Must(err)
	for i := range configurations.Items {
		out["configuration "+configurations.Items[i].Name] = configurations.Items[i].Webhooks
	}
	events, err := th.Client.CoreV1().Events("default").List(th.Ctx, metav1.ListOptions{FieldSelector: "reason=R"})
	th.Must(err)
	for i := range events.Items {
		e := &events.Items[i]
		out["event "+e.Name] = []any{e.ReportingController, e.ReportingInstance, e.Source, e.Count, e.Message}
	}
	secrets, err := th.Client.CoreV1().Secrets(manager.DefaultNamespace).List(th.Ctx, metav1.ListOptions{})
	th.Must(err)
	for i := range secrets.Items {
		out["secret "+secrets.Items[i].Name] = string(secrets.Items[i].Type)
	}
	return out
}

// TestStolenTokens: with the token of an agent, of the manager or of the scheduler
// none changes labels, taints, spec or status of nodes, webhook configurations or
// others' Events: not with the rights of that part, and not with all. None creates
// Secrets with the rights of that part.
//
// A manager that evaluates the policies is asked about nodes only.
//
// What the parts write of their own, and the hand-over of a node, passes.
func TestStolenTokens(t *testing.T) {
	eachGuards(t, func(t *testing.T, g guards) {
		th := newThieves(t, g)
		for _, part := range []struct {
			name string
			test func(*testing.T, *thieves)
		}{{"others' writes", testStolenTokens}, {"the hand-over", testHandOver}, {"own writes", testOwnWrites}} {
			t.Run(part.name, func(t *testing.T) {
				one := *th
				one.world = &world{th.Part(t)}
				part.test(t, &one)
			})
		}
	})
}

func testStolenTokens(t *testing.T, th *thieves) {
	th.Eventually("there is something to remove", time.Minute, func() error {
		n := th.Node("metax-1")
		n.Labels["kept"], n.Annotations["kept"] = "x", "x"
		n.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}}
		_, err := th.Client.CoreV1().Nodes().Update(th.Ctx, n, metav1.UpdateOptions{})
		return err
	})
	kubelets := eventOf("kubelet", "metax-1", corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "victim"})
	kubelets.Name, kubelets.GenerateName = "kubelets", ""
	_, err := th.Client.CoreV1().Events("default").Create(th.Ctx, kubelets, metav1.CreateOptions{})
	th.Must(err)
	before := th.state()
	count := 0
	for _, part := range []string{partAgent, partManager, partScheduler} {
		for rights, client := range map[string]kubernetes.Interface{"its rights": th.tokens[part], "all rights": th.mighty[part]} {
			ways := th.nodeWays(part, client)
			if th.guards == byServer {
				maps.Copy(ways, th.eventWays(part, client))
				maps.Copy(ways, th.configurationWays(client))
			}
			if rights == "its rights" {
				maps.Copy(ways, th.secretWays(client))
			}
			for _, name := range slices.Sorted(maps.Keys(ways)) {
				count++
				err := ways[name]()
				switch {
				case err == nil:
					t.Errorf("%s with %s: %s: went through", part, rights, name)
				case !apierrors.IsForbidden(err):
					t.Errorf("%s with %s: %s: rejected for another reason: %v", part, rights, name, err)
				case rights == "all rights" && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-"):
					t.Errorf("%s with %s: %s: not rejected by a policy: %v", part, rights, name, err)
				}
			}
		}
	}
	gputest.Equal(t, "state before and after", before, th.state())
	t.Logf("%d ways", count)
}

// testHandOver: who has the verb on nodes leaves a node to the vendor's plugin and
// takes it back; no one else does.
func testHandOver(t *testing.T, th *thieves) {
	user := func(name string, verbs ...string) kubernetes.Interface {
		th.Grant(harness.User(name), "", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: verbs})
		config := th.REST()
		config.Impersonate = rest.ImpersonationConfig{UserName: name}
		return th.ClientOf(config)
	}
	say := func(client kubernetes.Interface, annotations map[string]any) error {
		_, err := client.CoreV1().Nodes().Patch(th.Ctx, "metax-1", types.MergePatchType, harness.Annotate(annotations), metav1.PatchOptions{})
		return err
	}
	word := func(value any) map[string]any { return map[string]any{wire.AnnotationServedBy: value} }
	operator, labeller := user("operator", "get", "patch", policy.HandOver), user("labeller", "get", "patch", "update", "delete")
	may := map[string]kubernetes.Interface{"an administrator": th.Client, "a user with the verb": operator}
	mayNot := map[string]kubernetes.Interface{
		"a user who may write and delete nodes": labeller, "a tenant": th.Tenant("tenant", "default"),
		"an agent": th.tokens[partAgent], "an agent with all rights": th.mighty[partAgent],
		"the manager": th.tokens[partManager], "the manager with all rights": th.mighty[partManager],
		"the scheduler": th.tokens[partScheduler], "the scheduler with all rights": th.mighty[partScheduler],
	}
	th.Eventually("the role holds", time.Minute, func() error { return say(operator, word(wire.ServedByVendor)) })
	for name, client := range may {
		for _, value := range []any{nil, wire.ServedByVendor} {
			if err := say(client, word(value)); err != nil {
				t.Errorf("%s: served-by %v: %v", name, value, err)
			}
		}
		for what, annotations := range map[string]map[string]any{
			"Daybreak's word": word(wire.ServedByDaybreak), "nonsense": word("x"),
			"cards on the way": {wire.AnnotationServedBy: nil, wire.AnnotationNodeCards: "[]"},
		} {
			if err := say(client, annotations); !apierrors.IsForbidden(err) {
				t.Errorf("%s writes %s: %v", name, what, err)
			}
		}
	}
	for name, client := range mayNot {
		if err := say(client, word(nil)); !apierrors.IsForbidden(err) {
			t.Errorf("%s takes the node back: %v", name, err)
		}
	}
	gputest.Must(t, say(th.Client, word(nil)))
	for name, client := range mayNot {
		if err := say(client, word(wire.ServedByVendor)); !apierrors.IsForbidden(err) {
			t.Errorf("%s hands the node over: %v", name, err)
		}
	}
	if err := say(th.tokens[partAgent], word(wire.ServedByDaybreak)); err != nil {
		t.Errorf("the agent serves it again: %v", err)
	}
	for _, value := range []any{wire.ServedByVendor, nil} {
		if err := say(th.Client, word(value)); err != nil {
			t.Errorf("an administrator, over the agent's word: %v: %v", value, err)
		}
	}
}
