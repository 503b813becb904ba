package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// ForgerName marks forged writes: as a user, and as the field manager of writes with the
// tokens of others.
const ForgerName = "mallory"

// Forger is who would like to have the cards of others, in a cluster with a victim that
// holds some. It plays one table of forged writes on every version of the API server.
type Forger struct {
	*World
	// Mallory has all rights on pods in the namespace default, and nothing else.
	Mallory kubernetes.Interface
	// Agent is the agent of Node, and Scheduler and Manager the other parts.
	Agent, Scheduler, Manager *rest.Config
	Node, Other               string
	// NoConditions says that the webhooks of the API server have none: it does not ask
	// about the status of a pod without the manager's label.
	NoConditions bool
	// Loot is what the victim holds, as Mallory would like it on her own pod.
	Loot map[string]string
}

// Settle creates the victim, and Mallory's own pods: one that is bound, one that waits,
// one that a scheduler touched, and one without cards.
func (f *Forger) Settle() {
	f.Helper()
	f.Namespace("victims", nil)
	f.Mallory = f.Tenant(ForgerName, "default")
	victim := PodFor("victim", "", "gpu-core: 10, gpu-memory: 1Gi")
	victim.Namespace = "victims"
	const slice = "sgpu: 1, vcore: 1, vmemory: 1"
	own := PodFor("bound", "", slice)
	own.Annotations = map[string]string{wire.AnnotationUseCards: "", wire.AnnotationCardPolicy: "binpack"}
	pending := PodFor("pending", "", slice)
	pending.Annotations = map[string]string{wire.AnnotationNoUseCards: "GPU-large"}
	pending.Spec.NodeSelector = map[string]string{"no": "where"}
	touched := pending.DeepCopy()
	touched.Name, touched.Spec.SchedulerName = "touched", "another"
	f.Create(victim, own, pending, touched, PodFor("ordinary", "", ""))
	f.Bound("bound")
	f.Bound("ordinary")
	f.Loot = map[string]string{}
	f.Eventually("the victim runs", time.Minute, func() error {
		p, err := f.Client.CoreV1().Pods("victims").Get(f.Ctx, "victim", metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%v %w", p.Status.Phase, err)
		}
		for key, value := range p.Annotations {
			if allocation.IsAllocation(key) {
				f.Loot[key] = value
			}
		}
		return nil
	})
	if len(f.Loot) < 5 {
		f.Fatalf("the victim holds %v", f.Loot)
	}
	patch, err := allocation.TermPatch(f.Changed("touched", nil), "", "host_1", "")
	f.Must(err)
	_, err = f.ClientOf(f.Scheduler).CoreV1().Pods("default").Patch(f.Ctx, "touched", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	f.Must(err)
}

// Play plays the table, of which nothing may go through, and returns how many writes
// were rejected by Daybreak's rules.
func (f *Forger) Play() (rejected int) {
	f.Helper()
	ways := f.podWays()
	maps.Copy(ways, f.otherWays())
	if f.NoConditions {
		delete(ways, "touch a pod without cards")
	}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		err := ways[name]()
		switch {
		case err == nil:
			f.Errorf("%s: went through", name)
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-"), strings.Contains(err.Error(), `daybreak-gpu.io" denied the request`),
			strings.HasPrefix(name, "the manager itself") && apierrors.IsForbidden(err): // it has no right to write pods at all
			rejected++
		default:
			f.Errorf("%s: rejected for another reason: %v", name, err)
		}
	}
	f.Logf("%d of %d forged writes rejected", rejected, len(ways))
	return rejected
}

// Copied wants a new pod to be let in without what it says it holds.
func (f *Forger) Copied() {
	f.Helper()
	p := PodFor("copied", "", "sgpu: 1, vcore: 1, vmemory: 1")
	p.Annotations = maps.Clone(f.Loot)
	made, err := f.Mallory.CoreV1().Pods("default").Create(f.Ctx, p, metav1.CreateOptions{})
	f.Must(err)
	for key := range made.Annotations {
		if allocation.IsAllocation(key) {
			f.Errorf("a new pod holds %s", key)
		}
	}
}

// PodFor returns a pod with these limits for a scheduler, which runs without an
// image.
func PodFor(name, scheduler, limits string) *corev1.Pod {
	p := Runnable(gputest.MakePod(name).App(limits), 0)
	p.Spec.SchedulerName, p.Spec.Containers[0].Name = scheduler, "c"
	return p
}

// Runnable returns the pod as an API server takes it: with the name of an image that no
// node has to pull, and so many seconds to end.
func Runnable(b *gputest.PodBuilder, grace int64) *corev1.Pod {
	p := b.Obj().DeepCopy()
	p.Spec.TerminationGracePeriodSeconds = &grace
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Image = "none"
		}
	}
	return p
}

// Annotate returns a merge patch that sets annotations, or removes those that
// are nil.
func Annotate[V any](annotations map[string]V) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		panic(err)
	}
	return text
}

// one returns one of the annotations to forge.
func (f *Forger) one() map[string]string {
	return map[string]string{wire.AnnotationAllocated: f.Loot[wire.AnnotationAllocated]}
}

// Patch patches a pod of Mallory's.
func (f *Forger) Patch(client kubernetes.Interface, name string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods("default").Patch(f.Ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

// touch writes the scheduler's condition.
func (f *Forger) touch(name string) error {
	f.Helper()
	patch, err := allocation.TermPatch(f.Changed(name, nil), "", ForgerName, "")
	f.Must(err)
	_, err = f.Mallory.CoreV1().Pods("default").Patch(f.Ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// Changed returns a pod with the annotations added.
func (f *Forger) Changed(name string, annotations map[string]string) *corev1.Pod {
	f.Helper()
	p, err := f.Client.CoreV1().Pods("default").Get(f.Ctx, name, metav1.GetOptions{})
	f.Must(err)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, annotations)
	return p
}

// Binding is a Binding of the pod that waits.
func (f *Forger) Binding(annotations map[string]string) *corev1.Binding {
	return &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Name: "pending", Namespace: "default", Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: f.Node},
	}
}

// podWays are ways to write which cards a pod holds, or to change what it asked
// for once it runs, by what a user with all rights on pods can do.
func (f *Forger) podWays() map[string]func() error {
	pods := f.Mallory.CoreV1().Pods("default")
	ways := map[string]func() error{
		"create a pod that asks for nothing": func() error {
			p := PodFor("forged", "", "")
			p.Annotations = f.one()
			_, err := pods.Create(f.Ctx, p, metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			_, err := pods.Update(f.Ctx, f.Changed("bound", f.one()), metav1.UpdateOptions{})
			return err
		},
		"update a pod that waits": func() error {
			_, err := pods.Update(f.Ctx, f.Changed("pending", f.one()), metav1.UpdateOptions{})
			return err
		},
		"patch":                          func() error { return f.Patch(f.Mallory, "bound", Annotate(f.one())) },
		"patch a pod that waits":         func() error { return f.Patch(f.Mallory, "pending", Annotate(f.one())) },
		"patch a pod that asks for none": func() error { return f.Patch(f.Mallory, "ordinary", Annotate(f.one())) },
		"strategic merge patch": func() error {
			_, err := pods.Patch(f.Ctx, "bound", types.StrategicMergePatchType, Annotate(f.one()), metav1.PatchOptions{})
			return err
		},
		"JSON patch": func() error {
			_, err := pods.Patch(f.Ctx, "bound", types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/metadata/annotations/metax-tech.com~1gpu-devices-allocated","value":"[]"}]`), metav1.PatchOptions{})
			return err
		},
		"server-side apply": func() error {
			text := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bound","annotations":{%q:"[]"}}}`, wire.AnnotationAllocated)
			_, err := pods.Patch(f.Ctx, "bound", types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: ForgerName, Force: new(true)})
			return err
		},
		"update pods/status": func() error {
			_, err := pods.UpdateStatus(f.Ctx, f.Changed("bound", f.one()), metav1.UpdateOptions{})
			return err
		},
		"patch pods/status":               func() error { return f.Patch(f.Mallory, "bound", Annotate(f.one()), "status") },
		"touch a pending pod":             func() error { return f.touch("pending") },
		"touch a pod that runs":           func() error { return f.touch("bound") },
		"touch a pod without cards":       func() error { return f.touch("ordinary") },
		"change what a scheduler touched": func() error { return f.touch("touched") },
		"remove what a scheduler touched": func() error {
			return f.Patch(f.Mallory, "touched", []byte(`{"status":{"conditions":null}}`), "status")
		},
		"pods/binding": func() error { return pods.Bind(f.Ctx, f.Binding(f.one()), metav1.CreateOptions{}) },
		"pods/binding, by Koordinator's word": func() error {
			return pods.Bind(f.Ctx, f.Binding(map[string]string{wire.AnnotationKoordAllocated: "{}"}), metav1.CreateOptions{})
		},
		"pods/binding, another QoS on the way": func() error {
			return pods.Bind(f.Ctx, f.Binding(map[string]string{wire.AnnotationQoS: "fixed-share"}), metav1.CreateOptions{})
		},
		"the legacy bindings": func() error {
			return f.Mallory.CoreV1().RESTClient().Post().Namespace("default").Resource("bindings").Body(f.Binding(f.one())).Do(f.Ctx).Error()
		},
		"a privileged ephemeral container": func() error {
			p := f.Changed("bound", nil)
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}}
			_, err := pods.UpdateEphemeralContainers(f.Ctx, "bound", p, metav1.UpdateOptions{})
			return err
		},
		"say that it is a static pod": func() error {
			p := PodFor("forged", "", "sgpu: 1")
			p.Annotations, p.Spec.NodeName = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, f.Node
			_, err := pods.Create(f.Ctx, p, metav1.CreateOptions{})
			return err
		},
	}
	for name, p := range map[string]*corev1.Pod{
		"a slice": PodFor("forged", "", "sgpu: 1"), "whole cards": PodFor("forged", "", "gpu: 1"),
		"Koordinator's words": PodFor("forged", "", "gpu-core: 10, gpu-memory: 1Gi"), "Koordinator's words, by the scheduler's name": PodFor("forged", "daybreak", "gpu-core: 10, gpu-memory: 1Gi"),
		"a foreign scheduler": PodFor("forged", "volcano", "sgpu: 1"), "a foreign scheduler, whole cards": PodFor("forged", "another", "gpu: 1"),
		"a foreign scheduler, Koordinator's words too": PodFor("forged", "koord-scheduler", "gpu-core: 10, gpu-memory: 1Gi, sgpu: 1"),
	} {
		p.Spec.NodeName = f.Node
		ways["create it bound: "+name] = func() error {
			_, err := pods.Create(f.Ctx, p.DeepCopy(), metav1.CreateOptions{})
			return err
		}
	}
	for key := range f.Loot {
		ways["remove "+key] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]any{key: nil})) }
		ways["remove "+key+" by pods/status"] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]any{key: nil}), "status") }
		ways["set "+key] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]string{key: "x"})) }
	}
	delete(ways, "remove "+wire.AnnotationKoordAllocated) // the pod has none
	delete(ways, "remove "+wire.AnnotationKoordAllocated+" by pods/status")
	for _, key := range []string{"hami.io/metax-gpu-devices-allocated", "hami.io/metax-sgpu-devices-to-allocate", "hami.io/metax-anything"} {
		ways["set "+key] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]string{key: "x"})) }
		ways["set "+key+" on a pod without cards"] = func() error { return f.Patch(f.Mallory, "ordinary", Annotate(map[string]string{key: "x"})) }
	}
	for _, key := range wire.AskAnnotations() {
		value := "x"
		ways["change "+key+" once bound"] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]string{key: value})) }
		ways["change "+key+" once bound, by pods/status"] = func() error {
			return f.Patch(f.Mallory, "bound", Annotate(map[string]string{key: value}), "status")
		}
	}
	for _, key := range wire.CountedAnnotations() {
		ways["change "+key+" of a pod that quotas count"] = func() error { return f.Patch(f.Mallory, "pending", Annotate(map[string]string{key: "x"})) }
	}
	ways["remove "+wire.AnnotationNoUseCards+" of a pod that quotas count"] = func() error {
		return f.Patch(f.Mallory, "pending", Annotate(map[string]any{wire.AnnotationNoUseCards: nil}))
	}
	for _, key := range []string{wire.AnnotationQoS, wire.AnnotationUseCards, wire.AnnotationCardPolicy} {
		ways["remove "+key+" once bound"] = func() error { return f.Patch(f.Mallory, "bound", Annotate(map[string]any{key: nil})) }
	}
	return ways
}

// otherWays are for those who can do more: service accounts of elsewhere,
// administrators, agents of other nodes.
func (f *Forger) otherWays() map[string]func() error {
	f.Helper()
	ways := map[string]func() error{}
	patchNode := func(config *rest.Config, node string, annotations map[string]any, subresources ...string) func() error {
		client := f.ClientOf(config)
		return func() error {
			_, err := client.CoreV1().Nodes().Patch(f.Ctx, node, types.MergePatchType, Annotate(annotations), metav1.PatchOptions{FieldManager: ForgerName}, subresources...)
			return err
		}
	}
	admin := f.REST()
	for _, key := range []string{wire.AnnotationNodeCards, wire.AnnotationScores, wire.AnnotationLosses, wire.AnnotationLock} {
		ways["a node's "+key] = patchNode(admin, f.Node, map[string]any{key: "x"})
		ways["a node's "+key+" by nodes/status"] = patchNode(admin, f.Node, map[string]any{key: "x"}, "status")
	}
	ways["a node's "+wire.AnnotationServedBy] = patchNode(admin, f.Node, map[string]any{wire.AnnotationServedBy: "daybreak-gpu"})
	ways["a new node's "+wire.AnnotationServedBy] = func() error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{wire.AnnotationServedBy: "daybreak"}}}
		_, err := f.Client.CoreV1().Nodes().Create(f.Ctx, n, metav1.CreateOptions{})
		return err
	}

	scheduler := f.Scheduler
	ways["the scheduler, a node's cards beside the lock"] = patchNode(scheduler, f.Node, map[string]any{wire.AnnotationLock: "x", wire.AnnotationNodeCards: "[]"})
	ways["the scheduler, an empty annotation"] = patchNode(scheduler, f.Node, map[string]any{wire.AnnotationScores: ""})
	ways["the scheduler removes what a node says"] = patchNode(scheduler, f.Node, map[string]any{wire.AnnotationServedBy: nil})

	own := f.Agent
	nowhere := rest.CopyConfig(own)
	nowhere.BearerToken = f.Token(manager.DefaultNamespace, local.AgentAccount)
	ways["an agent, another's node"] = patchNode(own, f.Other, map[string]any{"any": "thing"})
	ways["an agent, another's cards"] = patchNode(own, f.Other, map[string]any{wire.AnnotationNodeCards: "[]"})
	ways["an agent takes a lock"] = patchNode(own, f.Node, map[string]any{wire.AnnotationLock: "x"})
	ways["an agent of nowhere"] = patchNode(nowhere, f.Node, map[string]any{wire.AnnotationNodeCards: "[]"})

	sick := []byte(`{"spec":{"devices":[]}}`)
	ways["a Device"] = f.patchDevice(admin, f.Node, sick)
	ways["a Device is not MetaX's any more"] = f.patchDevice(admin, f.Node, []byte(`{"metadata":{"labels":{"node.koordinator.sh/gpu-vendor":"nvidia"}}}`))
	ways["an agent, another's Device"] = f.patchDevice(own, f.Other, sick)
	ways["an agent of nowhere, a Device"] = f.patchDevice(nowhere, f.Node, sick)
	ways["delete a Device"] = func() error {
		return f.Devices(admin).Delete(f.Ctx, f.Node, metav1.DeleteOptions{})
	}
	for name, labels := range map[string]map[string]any{"a Device of a node that has none": {"node.koordinator.sh/gpu-vendor": "metax"}, "a Device without a vendor": {}} {
		ways[name] = func() error {
			d := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Device", "metadata": map[string]any{"name": "forged", "labels": labels},
				"spec": map[string]any{"devices": []any{map[string]any{"type": "gpu", "id": "GPU-1", "minor": int64(0), "health": true}}},
			}}
			_, err := f.Devices(admin).Create(f.Ctx, d, metav1.CreateOptions{})
			return err
		}
	}

	// Rights in the victim's namespace do not help, nor does the scheduler's
	// name in another namespace, nor being an administrator.
	for name, config := range map[string]*rest.Config{
		"another namespace's service account": f.account("default", "robot"),
		"an account called as the scheduler":  f.account("default", local.SchedulerUser),
		"an administrator":                    admin,
		"the manager itself":                  f.Manager,
	} {
		client := f.ClientOf(config)
		ways[name+" changes the victim"] = func() error {
			_, err := client.CoreV1().Pods("victims").Patch(f.Ctx, "victim", types.MergePatchType, Annotate(map[string]any{wire.AnnotationAllocated: nil}), metav1.PatchOptions{FieldManager: ForgerName})
			return err
		}
	}
	return ways
}

func (f *Forger) patchDevice(config *rest.Config, name string, patch []byte) func() error {
	f.Helper()
	client := f.Devices(config)
	return func() error {
		_, err := client.Patch(f.Ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: ForgerName})
		return err
	}
}

// account returns a service account that may do anything with the victim.
func (f *Forger) account(namespace, name string) *rest.Config {
	f.Helper()
	f.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	all := []string{"*"}
	f.Grant(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}, "victims", rbacv1.PolicyRule{APIGroups: all, Resources: all, Verbs: all})
	config := rest.AnonymousClientConfig(f.REST())
	config.BearerToken = f.Token(namespace, name)
	return config
}
