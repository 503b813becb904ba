package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/identity"
)

// Pods of the forger: one of the examples, which runs, one that waits, and one
// without cards.
const (
	// forger marks writes with the token of an agent, which the agents' own are not.
	forger   = "mallory"
	bound    = "sgpu-memory-mib"
	pending  = "pending"
	ordinary = "ordinary"
)

// rejectForged wants writes that would take or hide cards to be rejected, by
// Daybreak's rules. test/integration has the whole table.
func (s *suite) rejectForged() {
	s.Helper()
	waits := gputest.MakePod(pending).App("sgpu: 1").Obj()
	waits.Spec.NodeSelector = map[string]string{"no": "where"}
	for _, p := range []*corev1.Pod{waits, gputest.MakePod(ordinary).App("").Obj()} {
		p.Spec.Containers[0].Image = "none"
		_, err := s.Client.CoreV1().Pods(p.Namespace).Create(s.Ctx, p, metav1.CreateOptions{})
		s.Must(err)
	}
	tenant, err := identity.Tenant(s.Ctx, s.Cluster, forger, metav1.NamespaceDefault)
	s.Must(err)
	ways := s.podWays(s.clientOf(tenant))
	maps.Copy(ways, s.nodeWays())
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		err := ways[name]()
		switch {
		case err == nil:
			s.Errorf("%s: went through", name)
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-"), strings.Contains(err.Error(), `daybreak-gpu.io" denied the request`):
			s.result.rejected++
		default:
			s.Errorf("%s: rejected for another reason: %v", name, err)
		}
	}
	s.stripForged()
	for _, name := range []string{pending, ordinary} {
		s.Must(s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(s.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
	s.progress("%d of %d forged writes rejected", s.result.rejected, len(ways))
}

// stripForged wants a new pod to be admitted without the cards that it names.
func (s *suite) stripForged() {
	s.Helper()
	p := gputest.MakePod("forged").App("sgpu: 1").Annotate(wire.AnnotationAllocated, "[]").Annotate(wire.AnnotationPredicateTime, "1").Obj()
	p.Spec.Containers[0].Image = "none"
	made, err := s.Client.CoreV1().Pods(p.Namespace).Create(s.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	s.Must(err)
	for key := range made.Annotations {
		if allocation.IsAllocation(key) {
			s.Errorf("a new pod holds %s", key)
		}
	}
}

func (s *suite) clientOf(config *rest.Config) kubernetes.Interface {
	s.Helper()
	c, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return c
}

// annotate returns a merge patch that sets annotations, or removes those that are nil.
func annotate(annotations map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		panic(err)
	}
	return text
}

// podWays are what a user with all rights on pods may try.
func (s *suite) podWays(mallory kubernetes.Interface) map[string]func() error {
	pods := mallory.CoreV1().Pods(metav1.NamespaceDefault)
	patch := func(pod string, annotations map[string]any, subresources ...string) func() error {
		return func() error {
			_, err := pods.Patch(s.Ctx, pod, types.MergePatchType, annotate(annotations), metav1.PatchOptions{}, subresources...)
			return err
		}
	}
	create := func(p *corev1.Pod, node string) func() error {
		p.Spec.Containers[0].Image, p.Spec.NodeName = "none", node
		return func() error {
			_, err := pods.Create(s.Ctx, p, metav1.CreateOptions{})
			return err
		}
	}
	bind := func(annotations map[string]string) *corev1.Binding {
		return &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pending, Namespace: metav1.NamespaceDefault, Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: s.Machines[0].Node},
		}
	}
	forged := map[string]string{wire.AnnotationAllocated: "[]"}
	foreign := gputest.MakePod("forged").App("gpu: 1").Obj()
	foreign.Spec.SchedulerName = "volcano"
	ways := map[string]func() error{
		"create a pod without cards that holds some": create(gputest.MakePod("forged").App("").Annotate(wire.AnnotationAllocated, "[]").Obj(), ""),
		"create a bound pod, a slice":                create(gputest.MakePod("forged").App("sgpu: 1").Obj(), s.Machines[0].Node),
		"create a bound pod, Koordinator's dialect":  create(gputest.MakePod("forged").App("gpu-core: 10, gpu-memory: 1Gi").Obj(), s.Machines[0].Node),
		"create a bound pod of a foreign scheduler":  create(foreign, s.Machines[0].Node),
		"claim a static pod":                         create(gputest.MakePod("forged").App("sgpu: 1").Annotate(corev1.MirrorPodAnnotationKey, "x").Obj(), s.Machines[0].Node),
		"pods/binding":                               func() error { return pods.Bind(s.Ctx, bind(forged), metav1.CreateOptions{}) },
		"pods/binding, another QoS": func() error {
			return pods.Bind(s.Ctx, bind(map[string]string{wire.AnnotationQoS: "fixed-share"}), metav1.CreateOptions{})
		},
		"the legacy bindings": func() error {
			return mallory.CoreV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("bindings").Body(bind(forged)).Do(s.Ctx).Error()
		},
		"a privileged ephemeral container": func() error {
			p, err := pods.Get(s.Ctx, bound, metav1.GetOptions{})
			if err != nil {
				return err
			}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}}
			_, err = pods.UpdateEphemeralContainers(s.Ctx, bound, p, metav1.UpdateOptions{})
			return err
		},
		"server-side apply": func() error {
			text := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{%q:"[]"}}}`, bound, wire.AnnotationAllocated)
			_, err := pods.Patch(s.Ctx, bound, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: forger, Force: new(true)})
			return err
		},
	}
	for _, key := range []string{wire.AnnotationAllocated, wire.AnnotationPredicateTime, wire.AnnotationHAMiSGPU} {
		ways["set "+key] = patch(bound, map[string]any{key: "x"})
		ways["set "+key+" by pods/status"] = patch(bound, map[string]any{key: "x"}, "status")
		ways["set "+key+" on a pod that waits"] = patch(pending, map[string]any{key: "x"})
		ways["remove "+key] = patch(bound, map[string]any{key: nil})
	}
	ways["set "+wire.AnnotationAllocated+" on a pod without cards"] = patch(ordinary, map[string]any{wire.AnnotationAllocated: "[]"})
	for _, key := range []string{wire.AnnotationQoS, wire.AnnotationUseCards} {
		ways["change "+key+" of a bound pod"] = patch(bound, map[string]any{key: "x"})
	}
	return ways
}

// nodeWays are what an administrator may try by mistake, and an agent whose token was
// stolen.
func (s *suite) nodeWays() map[string]func() error {
	s.Helper()
	own, other := s.Machines[0].Node, s.Machines[1].Node
	patchNode := func(config *rest.Config, node string, annotations map[string]any, subresources ...string) func() error {
		nodes := s.clientOf(config).CoreV1().Nodes()
		return func() error {
			_, err := nodes.Patch(s.Ctx, node, types.MergePatchType, annotate(annotations), metav1.PatchOptions{FieldManager: forger}, subresources...)
			return err
		}
	}
	patchDevice := func(config *rest.Config, node string) func() error {
		devices := s.devicesAs(config)
		return func() error {
			_, err := devices.Patch(s.Ctx, node, types.MergePatchType, []byte(`{"spec":{"devices":[]}}`), metav1.PatchOptions{FieldManager: forger})
			return err
		}
	}
	admin, agent := s.REST(), s.agentOf(own)
	ways := map[string]func() error{
		"an administrator, a Device":                            patchDevice(admin, own),
		"an agent, the Device of another node":                  patchDevice(agent, other),
		"an agent, another node":                                patchNode(agent, other, map[string]any{"any": "thing"}),
		"an agent, " + wire.AnnotationNodeCards + " of another": patchNode(agent, other, map[string]any{wire.AnnotationNodeCards: "[]"}),
	}
	for _, key := range []string{wire.AnnotationNodeCards, wire.AnnotationLock, wire.AnnotationServedBy} {
		ways["an administrator, "+key+" of a node"] = patchNode(admin, own, map[string]any{key: "x"})
	}
	ways["an administrator, "+wire.AnnotationNodeCards+" by nodes/status"] = patchNode(admin, own, map[string]any{wire.AnnotationNodeCards: "x"}, "status")
	return ways
}

func (s *suite) devicesAs(config *rest.Config) dynamic.ResourceInterface {
	s.Helper()
	objects, err := dynamic.NewForConfig(config)
	s.Must(err)
	return objects.Resource(v1alpha1.GroupVersion.WithResource("devices"))
}

// agentOf returns how the agent of a node reaches the API server.
func (s *suite) agentOf(node string) *rest.Config {
	s.Helper()
	for _, x := range s.Parts.Ready("agent") {
		if x.Pod.Spec.NodeName != node {
			continue
		}
		config, err := identity.Pod(s.Ctx, s.Cluster, x.Pod)
		s.Must(err)
		return config
	}
	s.Fatalf("%s has no agent", node)
	return nil
}
