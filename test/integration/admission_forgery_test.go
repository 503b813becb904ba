package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// forgers is a world with a victim that holds cards, and with users who would
// like to have them.
type forgers struct {
	*world
	// mallory has all rights on pods in the namespace default, and nothing else.
	mallory kubernetes.Interface
	// loot is what the victim holds, as mallory would like it on her own pod.
	loot map[string]string
}

// operatorUser may create bound pods, as the vendor's operator does.
const operatorUser = "system:serviceaccount:metax-operator:validator"

func newForgers(t *testing.T, g guards) *forgers {
	w := newOpenWorld(t, local.Config{})
	params := w.cluster.Policies()
	params.DirectBinders = []string{operatorUser}
	w.guard(g, params)
	w.nodes(2)
	w.scheduler("scheduler")
	w.namespace("victims", nil)
	victim := runnable(asks("gpu-core: 10, gpu-memory: 1Gi"), "victim")
	victim.Namespace = "victims"
	w.create(victim)
	// Mallory's own pods: one that runs, one that waits, one without cards.
	own := annotated(pod("bound", "sgpu=1", "vcore=1", "vmemory=1"), wire.AnnotationUseCards, "")
	annotated(own, wire.AnnotationCardPolicy, "binpack")
	pending := pod("pending", "sgpu=1", "vcore=1", "vmemory=1")
	pending.Spec.NodeSelector = map[string]string{"no": "where"}
	touched := pending.DeepCopy()
	touched.Name, touched.Spec.SchedulerName = "touched", "another"
	w.create(own, pending, touched, pod("ordinary"))
	f := &forgers{world: w, mallory: w.tenant("mallory", "default"), loot: map[string]string{}}
	w.bound("bound")
	w.bound("ordinary")
	w.eventually("the victim runs", time.Minute, func() error {
		p, err := w.client.CoreV1().Pods("victims").Get(w.ctx, "victim", metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%v %w", p.Status.Phase, err)
		}
		for key, value := range p.Annotations {
			if allocation.IsAllocation(key) {
				f.loot[key] = value
			}
		}
		return nil
	})
	if len(f.loot) < 5 {
		t.Fatalf("the victim holds %v", f.loot)
	}
	patch, err := allocation.TermPatch(f.changed("touched", nil), "", "host_1", "")
	w.must(err)
	_, err = f.clientOf(w.cluster.RESTAs("scheduler")).CoreV1().Pods("default").Patch(w.ctx, "touched", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	w.must(err)
	return f
}

// podFor returns a pod with these limits for a scheduler, which runs without an
// image.
func podFor(name, scheduler, limits string) *corev1.Pod {
	p := pod(name)
	p.Spec.SchedulerName = scheduler
	p.Spec.Containers[0].Resources.Limits = gputest.MakeResources(limits)
	return p
}

// as returns a client of a user.
func (f *forgers) as(user string, groups ...string) kubernetes.Interface {
	f.Helper()
	config := f.cluster.REST()
	if groups == nil {
		groups = []string{"system:masters"}
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return f.clientOf(config)
}

// one returns one of the annotations to forge.
func (f *forgers) one() map[string]string {
	return map[string]string{wire.AnnotationAllocated: f.loot[wire.AnnotationAllocated]}
}

// annotate returns a merge patch that sets annotations, or removes those that
// are nil.
func annotate[V any](annotations map[string]V) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		panic(err)
	}
	return text
}

func (f *forgers) patch(client kubernetes.Interface, name string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods("default").Patch(f.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

// touch writes the scheduler's condition.
func (f *forgers) touch(name string) error {
	f.Helper()
	patch, err := allocation.TermPatch(f.changed(name, nil), "", "mallory", "")
	f.must(err)
	_, err = f.mallory.CoreV1().Pods("default").Patch(f.ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// changed returns a pod with the annotations added.
func (f *forgers) changed(name string, annotations map[string]string) *corev1.Pod {
	f.Helper()
	p, err := f.client.CoreV1().Pods("default").Get(f.ctx, name, metav1.GetOptions{})
	f.must(err)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, annotations)
	return p
}

// podWays are ways to write which cards a pod holds, or to change what it asked
// for once it runs, by what a user with all rights on pods can do.
func (f *forgers) podWays() map[string]func() error {
	pods := f.mallory.CoreV1().Pods("default")
	ways := map[string]func() error{
		"create a pod that asks for nothing": func() error {
			p := pod("forged")
			p.Annotations = f.one()
			_, err := pods.Create(f.ctx, p, metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			_, err := pods.Update(f.ctx, f.changed("bound", f.one()), metav1.UpdateOptions{})
			return err
		},
		"update a pod that waits": func() error {
			_, err := pods.Update(f.ctx, f.changed("pending", f.one()), metav1.UpdateOptions{})
			return err
		},
		"patch":                          func() error { return f.patch(f.mallory, "bound", annotate(f.one())) },
		"patch a pod that waits":         func() error { return f.patch(f.mallory, "pending", annotate(f.one())) },
		"patch a pod that asks for none": func() error { return f.patch(f.mallory, "ordinary", annotate(f.one())) },
		"strategic merge patch": func() error {
			_, err := pods.Patch(f.ctx, "bound", types.StrategicMergePatchType, annotate(f.one()), metav1.PatchOptions{})
			return err
		},
		"JSON patch": func() error {
			_, err := pods.Patch(f.ctx, "bound", types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/metadata/annotations/metax-tech.com~1gpu-devices-allocated","value":"[]"}]`), metav1.PatchOptions{})
			return err
		},
		"server-side apply": func() error {
			text := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bound","annotations":{%q:"[]"}}}`, wire.AnnotationAllocated)
			_, err := pods.Patch(f.ctx, "bound", types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "mallory", Force: new(true)})
			return err
		},
		"update pods/status": func() error {
			_, err := pods.UpdateStatus(f.ctx, f.changed("bound", f.one()), metav1.UpdateOptions{})
			return err
		},
		"patch pods/status":               func() error { return f.patch(f.mallory, "bound", annotate(f.one()), "status") },
		"touch a pending pod":             func() error { return f.touch("pending") },
		"touch a pod that runs":           func() error { return f.touch("bound") },
		"touch a pod without cards":       func() error { return f.touch("ordinary") },
		"change what a scheduler touched": func() error { return f.touch("touched") },
		"remove what a scheduler touched": func() error {
			return f.patch(f.mallory, "touched", []byte(`{"status":{"conditions":null}}`), "status")
		},
		"pods/binding": func() error { return pods.Bind(f.ctx, f.binding(f.one()), metav1.CreateOptions{}) },
		"pods/binding, by Koordinator's word": func() error {
			return pods.Bind(f.ctx, f.binding(map[string]string{wire.AnnotationKoordAllocated: "{}"}), metav1.CreateOptions{})
		},
		"pods/binding, another QoS on the way": func() error {
			return pods.Bind(f.ctx, f.binding(map[string]string{wire.AnnotationQoS: "fixed-share"}), metav1.CreateOptions{})
		},
		"the legacy bindings": func() error {
			return f.mallory.CoreV1().RESTClient().Post().Namespace("default").Resource("bindings").Body(f.binding(f.one())).Do(f.ctx).Error()
		},
		"a privileged ephemeral container": func() error {
			p := f.changed("bound", nil)
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}}
			_, err := pods.UpdateEphemeralContainers(f.ctx, "bound", p, metav1.UpdateOptions{})
			return err
		},
		"say that it is a static pod": func() error {
			p := annotated(pod("forged", "sgpu=1"), corev1.MirrorPodAnnotationKey, "x")
			p.Spec.NodeName = "metax-1"
			_, err := pods.Create(f.ctx, p, metav1.CreateOptions{})
			return err
		},
	}
	for name, p := range map[string]*corev1.Pod{
		"a slice": podFor("forged", "", "sgpu: 1"), "whole cards": podFor("forged", "", "gpu: 1"),
		"Koordinator's words": podFor("forged", "", "gpu-core: 10, gpu-memory: 1Gi"), "Koordinator's words, by the scheduler's name": podFor("forged", "daybreak", "gpu-core: 10, gpu-memory: 1Gi"),
		"a foreign scheduler": podFor("forged", "volcano", "sgpu: 1"), "a foreign scheduler, whole cards": podFor("forged", "another", "gpu: 1"),
		"a foreign scheduler, Koordinator's words too": podFor("forged", "koord-scheduler", "gpu-core: 10, gpu-memory: 1Gi, sgpu: 1"),
	} {
		p.Spec.NodeName = "metax-1"
		ways["create it bound: "+name] = func() error {
			_, err := pods.Create(f.ctx, p.DeepCopy(), metav1.CreateOptions{})
			return err
		}
	}
	for key := range f.loot {
		ways["remove "+key] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]any{key: nil})) }
		ways["remove "+key+" by pods/status"] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]any{key: nil}), "status") }
		ways["set "+key] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]string{key: "x"})) }
	}
	delete(ways, "remove "+wire.AnnotationKoordAllocated) // the pod has none
	delete(ways, "remove "+wire.AnnotationKoordAllocated+" by pods/status")
	for _, key := range []string{"hami.io/metax-gpu-devices-allocated", "hami.io/metax-sgpu-devices-to-allocate", "hami.io/metax-anything"} {
		ways["set "+key] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]string{key: "x"})) }
		ways["set "+key+" on a pod without cards"] = func() error { return f.patch(f.mallory, "ordinary", annotate(map[string]string{key: "x"})) }
	}
	for _, key := range wire.AskAnnotations() {
		value := "x"
		ways["change "+key+" once bound"] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]string{key: value})) }
		ways["change "+key+" once bound, by pods/status"] = func() error {
			return f.patch(f.mallory, "bound", annotate(map[string]string{key: value}), "status")
		}
	}
	for _, key := range []string{wire.AnnotationQoS, wire.AnnotationUseCards, wire.AnnotationCardPolicy} {
		ways["remove "+key+" once bound"] = func() error { return f.patch(f.mallory, "bound", annotate(map[string]any{key: nil})) }
	}
	return ways
}

// binding is a Binding of the pod that waits.
func (f *forgers) binding(annotations map[string]string) *corev1.Binding {
	return &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Name: "pending", Namespace: "default", Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "metax-1"},
	}
}

// otherWays are for those who can do more: service accounts of elsewhere,
// administrators, agents of other nodes.
func (f *forgers) otherWays() map[string]func() error {
	f.Helper()
	ways := map[string]func() error{}
	patchNode := func(config *rest.Config, node string, annotations map[string]any, subresources ...string) func() error {
		client := f.clientOf(config)
		return func() error {
			_, err := client.CoreV1().Nodes().Patch(f.ctx, node, types.MergePatchType, annotate(annotations), metav1.PatchOptions{}, subresources...)
			return err
		}
	}
	admin := f.cluster.REST()
	for _, key := range []string{wire.AnnotationNodeCards, wire.AnnotationScores, wire.AnnotationLosses, wire.AnnotationLock} {
		ways["a node's "+key] = patchNode(admin, "metax-1", map[string]any{key: "x"})
		ways["a node's "+key+" by nodes/status"] = patchNode(admin, "metax-1", map[string]any{key: "x"}, "status")
	}
	ways["a node's "+wire.AnnotationServedBy] = patchNode(admin, "metax-1", map[string]any{wire.AnnotationServedBy: "daybreak-gpu"})
	ways["a new node's "+wire.AnnotationServedBy] = func() error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{wire.AnnotationServedBy: "daybreak"}}}
		_, err := f.client.CoreV1().Nodes().Create(f.ctx, n, metav1.CreateOptions{})
		return err
	}

	scheduler := f.cluster.RESTAs("scheduler")
	ways["the scheduler, a node's cards beside the lock"] = patchNode(scheduler, "metax-1", map[string]any{wire.AnnotationLock: "x", wire.AnnotationNodeCards: "[]"})
	ways["the scheduler, an empty annotation"] = patchNode(scheduler, "metax-1", map[string]any{wire.AnnotationScores: ""})
	ways["the scheduler removes what a node says"] = patchNode(scheduler, "metax-1", map[string]any{wire.AnnotationServedBy: nil})

	own := f.agentOf("metax-1")
	nowhere := rest.CopyConfig(own)
	nowhere.BearerToken = f.plainToken(manager.DefaultNamespace, local.AgentAccount)
	ways["an agent, another's node"] = patchNode(own, "metax-2", map[string]any{"any": "thing"})
	ways["an agent, another's cards"] = patchNode(own, "metax-2", map[string]any{wire.AnnotationNodeCards: "[]"})
	ways["an agent takes a lock"] = patchNode(own, "metax-1", map[string]any{wire.AnnotationLock: "x"})
	ways["an agent of nowhere"] = patchNode(nowhere, "metax-1", map[string]any{wire.AnnotationNodeCards: "[]"})

	sick := []byte(`{"spec":{"devices":[]}}`)
	ways["a Device"] = f.patchDevice(admin, "metax-1", sick)
	ways["a Device is not MetaX's any more"] = f.patchDevice(admin, "metax-1", []byte(`{"metadata":{"labels":{"node.koordinator.sh/gpu-vendor":"nvidia"}}}`))
	ways["an agent, another's Device"] = f.patchDevice(own, "metax-2", sick)
	ways["an agent of nowhere, a Device"] = f.patchDevice(nowhere, "metax-1", sick)
	ways["delete a Device"] = func() error {
		return f.devices(admin).Delete(f.ctx, "metax-1", metav1.DeleteOptions{})
	}
	for name, labels := range map[string]map[string]any{"a Device of a node that has none": {"node.koordinator.sh/gpu-vendor": "metax"}, "a Device without a vendor": {}} {
		ways[name] = func() error {
			d := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Device", "metadata": map[string]any{"name": "forged", "labels": labels},
				"spec": map[string]any{"devices": []any{map[string]any{"type": "gpu", "id": "GPU-1", "minor": int64(0), "health": true}}},
			}}
			_, err := f.devices(admin).Create(f.ctx, d, metav1.CreateOptions{})
			return err
		}
	}

	// Rights in the victim's namespace do not help, nor does the scheduler's
	// name in another namespace, nor being an administrator.
	for name, config := range map[string]*rest.Config{
		"another namespace's service account": f.account("default", "robot"),
		"an account called as the scheduler":  f.account("default", local.SchedulerUser),
		"an administrator":                    admin,
		"the manager itself":                  f.cluster.RESTAs("manager"),
	} {
		client := f.clientOf(config)
		ways[name+" changes the victim"] = func() error {
			_, err := client.CoreV1().Pods("victims").Patch(f.ctx, "victim", types.MergePatchType, annotate(map[string]any{wire.AnnotationAllocated: nil}), metav1.PatchOptions{})
			return err
		}
	}
	return ways
}

func (f *forgers) devices(config *rest.Config) dynamic.ResourceInterface {
	f.Helper()
	client, err := dynamic.NewForConfig(config)
	f.must(err)
	return client.Resource(v1alpha1.GroupVersion.WithResource("devices"))
}

func (f *forgers) patchDevice(config *rest.Config, name string, patch []byte) func() error {
	f.Helper()
	client := f.devices(config)
	return func() error {
		_, err := client.Patch(f.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// account returns a service account that may do anything with the victim.
func (f *forgers) account(namespace, name string) *rest.Config {
	f.Helper()
	_, err := f.client.CoreV1().ServiceAccounts(namespace).Create(f.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	f.must(err)
	_, err = f.client.RbacV1().RoleBindings("victims").Create(f.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: namespace}},
	}, metav1.CreateOptions{})
	f.must(err)
	config := rest.AnonymousClientConfig(f.cluster.REST())
	config.BearerToken = f.plainToken(namespace, name)
	return config
}

// plainToken returns a token that is bound to no pod.
func (f *forgers) plainToken(namespace, name string) string {
	f.Helper()
	token, err := f.client.CoreV1().ServiceAccounts(namespace).CreateToken(f.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	f.must(err)
	return token.Status.Token
}

// state returns everything that must not change.
func (f *forgers) state() map[string]any {
	f.Helper()
	out := map[string]any{}
	for _, namespace := range []string{"default", "victims"} {
		list, err := f.client.CoreV1().Pods(namespace).List(f.ctx, metav1.ListOptions{})
		f.must(err)
		for i := range list.Items {
			p := &list.Items[i]
			out["pod "+p.Name] = []any{p.Annotations, p.Spec.NodeName, allocation.TermOf(p)}
		}
	}
	nodes, err := f.client.CoreV1().Nodes().List(f.ctx, metav1.ListOptions{})
	f.must(err)
	for i := range nodes.Items {
		out["node "+nodes.Items[i].Name] = nodes.Items[i].Annotations
	}
	devices, err := f.devices(f.cluster.REST()).List(f.ctx, metav1.ListOptions{})
	f.must(err)
	for i := range devices.Items {
		out["device "+devices.Items[i].GetName()] = devices.Items[i].Object["spec"]
	}
	return out
}

// settled returns the state once it stays: agents and manager write what follows
// from the pods a moment after the pods run.
func (f *forgers) settled() map[string]any {
	f.Helper()
	last, since := f.state(), time.Now()
	f.eventually("the state stays", time.Minute, func() error {
		if now := f.state(); !cmp.Equal(last, now) {
			last, since = now, time.Now()
		}
		if age := time.Since(since); age < 2*time.Second {
			return fmt.Errorf("it is %s old", age)
		}
		return nil
	})
	return last
}

// eachGuards runs the test with each of those who may evaluate the policies.
func eachGuards(t *testing.T, test func(t *testing.T, g guards)) {
	t.Helper()
	t.Parallel()
	for _, g := range []guards{byServer, byManager, byManagerAlone} {
		t.Run(string(g), func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
}

// TestForgery: no user takes another pod's cards, in any way.
func TestForgery(t *testing.T) { eachGuards(t, testForgery) }

func testForgery(t *testing.T, g guards) {
	f := newForgers(t, g)
	ways := f.podWays()
	maps.Copy(ways, f.otherWays())
	maps.DeleteFunc(ways, func(name string, _ func() error) bool { return g.unseen(name) })
	before := f.settled()
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		err := ways[name]()
		if err == nil {
			t.Errorf("%s: went through", name)
			continue
		}
		ours := strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-") || strings.Contains(err.Error(), `admission webhook "pods.daybreak-gpu.io"`)
		// The manager has no right to write pods at all.
		if !ours && (!strings.HasPrefix(name, "the manager itself") || !apierrors.IsForbidden(err)) {
			t.Errorf("%s: refused for another reason: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, f.state()); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
	t.Logf("%d ways", len(ways))
	f.audit()
}

// TestForgeryHasNoEffect: ways that the API server takes without a word, and
// that change nothing.
func TestForgeryHasNoEffect(t *testing.T) { eachGuards(t, testForgeryHasNoEffect) }

func testForgeryHasNoEffect(t *testing.T, g guards) {
	f := newForgers(t, g)
	before := f.state()
	pods := f.mallory.CoreV1().Pods("default")

	p := f.changed("bound", f.loot)
	p.Annotations[wire.AnnotationQoS] = "fixed-share"
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "none"}}}
	if _, err := pods.UpdateEphemeralContainers(f.ctx, "bound", p, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an ephemeral container: %v", err)
	}
	// Status is written back with the scheduler's condition, by kubelet above all.
	again := f.changed("touched", nil)
	again.Status.Conditions = append(again.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse})
	if _, err := pods.UpdateStatus(f.ctx, again, metav1.UpdateOptions{}); err != nil {
		t.Errorf("status with the scheduler's condition as it was: %v", err)
	}
	// A kubelet that can resize says so by telling what its containers have.
	_, err := f.client.CoreV1().Pods("default").Patch(f.ctx, "bound", types.StrategicMergePatchType,
		[]byte(`{"status":{"containerStatuses":[{"name":"c","resources":{"limits":{"metax-tech.com/sgpu":"1"}}}]}}`), metav1.PatchOptions{}, "status")
	f.must(err)
	if _, err := pods.UpdateResize(f.ctx, "bound", f.changed("bound", f.loot), metav1.UpdateOptions{}); err != nil {
		t.Errorf("resize: %v", err)
	}
	for key, value := range map[corev1.ResourceName]string{wire.ResourceSGPU: "2", wire.ResourceVCore: "100", wire.ResourceVMemory: "64"} {
		p := f.changed("bound", nil)
		for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests} {
			list[key] = resource.MustParse(value)
		}
		if _, err := pods.UpdateResize(f.ctx, "bound", p, metav1.UpdateOptions{}); err == nil {
			t.Errorf("resize took %s: %s", key, value)
		}
		if _, err := pods.Update(f.ctx, p, metav1.UpdateOptions{}); err == nil {
			t.Errorf("an update took %s: %s", key, value)
		}
	}
	if diff := cmp.Diff(before, f.state()); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}

	// A new pod that asks for cards is let in without what it says it holds.
	copied := pod("copied", "sgpu=1", "vcore=1", "vmemory=1")
	copied.Annotations = maps.Clone(f.loot)
	made, err := pods.Create(f.ctx, copied, metav1.CreateOptions{})
	f.must(err)
	for key := range made.Annotations {
		if allocation.IsAllocation(key) {
			t.Errorf("a new pod holds %s", key)
		}
	}
	f.audit()
}

// TestBoundPastTheWebhook: what no policy may leave to the webhook holds without
// it, as with failurePolicy Ignore and a manager that is down; and a pod that is
// bound past every scheduler does not close its node.
func TestBoundPastTheWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{}) // only the policies
	f := &forgers{world: w, mallory: w.tenant("mallory", "default")}
	w.nodes(1)
	w.scheduler("scheduler")
	pods := f.mallory.CoreV1().Pods("default")
	for name, p := range map[string]*corev1.Pod{
		"a slice": podFor("forged", "", "sgpu: 1"), "whole cards, a foreign scheduler": podFor("forged", "volcano", "gpu: 1"),
		"Koordinator's words": podFor("forged", "", "gpu-core: 10, gpu-memory: 1Gi"), "a static pod": annotated(podFor("forged", "", "sgpu: 1"), corev1.MirrorPodAnnotationKey, "x"),
	} {
		p.Spec.NodeName = "metax-1"
		_, err := pods.Create(f.ctx, p, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-pods'") ||
			!strings.Contains(err.Error(), "spec.nodeName: the scheduler chooses the cards together with the node: leave it out, and to choose the node write nodeSelector: {kubernetes.io/hostname: metax-1}") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Koordinator's words alone, for another scheduler, are none of our business,
	// and hold none of our cards.
	closer := podFor("closer", "another", "gpu-core: 1")
	closer.Spec.NodeName = "metax-1"
	_, err := pods.Create(f.ctx, closer, metav1.CreateOptions{})
	f.must(err)
	// A scheduler that writes no allocation binds a pod: the agent starts nothing
	// without one.
	_, err = pods.Create(f.ctx, podFor("volcanos", "volcano", "sgpu: 1, vcore: 10, vmemory: 1"), metav1.CreateOptions{})
	f.must(err)
	binding := f.binding(nil)
	binding.Name = "volcanos"
	f.must(f.client.CoreV1().Pods("default").Bind(f.ctx, binding, metav1.CreateOptions{}))
	w.create(pod("honest", "sgpu=1", "vcore=10", "vmemory=1"))
	w.bound("honest")
	w.eventually("the vendor's annotation shows what is free", time.Minute, func() error {
		node, err := w.client.CoreV1().Nodes().Get(w.ctx, "metax-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		cards, err := inventory.DecodeNodeCards(node.Annotations[wire.AnnotationNodeCards])
		if err == nil && (len(cards) == 0 || *cards[len(cards)-1].AvailableVRam == 0) {
			err = fmt.Errorf("nothing is free: %s", node.Annotations[wire.AnnotationNodeCards])
		}
		return err
	})
}
