package gputest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// PodBuilder puts a pod together. Its containers are called c0, c1 and so on,
// in the order they are added, whichever list they go to.
type PodBuilder struct {
	pod   *corev1.Pod
	count int
}

// MakePod starts a pod of the default namespace.
func MakePod(name string) *PodBuilder {
	return &PodBuilder{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}}
}

// App adds an app container with limits as [MakeResources] reads them.
func (b *PodBuilder) App(limits string) *PodBuilder { return b.AppWith(limits, "") }

// AppWith adds an app container with limits and requests.
func (b *PodBuilder) AppWith(limits, requests string) *PodBuilder {
	b.pod.Spec.Containers = append(b.pod.Spec.Containers, b.container(limits, requests))
	return b
}

// Init adds an init container.
func (b *PodBuilder) Init(limits string) *PodBuilder {
	b.pod.Spec.InitContainers = append(b.pod.Spec.InitContainers, b.container(limits, ""))
	return b
}

// Sidecar adds an init container that keeps running.
func (b *PodBuilder) Sidecar(limits string) *PodBuilder {
	c := b.container(limits, "")
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	b.pod.Spec.InitContainers = append(b.pod.Spec.InitContainers, c)
	return b
}

func (b *PodBuilder) container(limits, requests string) corev1.Container {
	c := corev1.Container{Name: fmt.Sprintf("c%d", b.count)}
	c.Resources.Limits, c.Resources.Requests = MakeResources(limits), MakeResources(requests)
	b.count++
	return c
}

// Annotate adds an annotation.
func (b *PodBuilder) Annotate(key, value string) *PodBuilder {
	metav1.SetMetaDataAnnotation(&b.pod.ObjectMeta, key, value)
	return b
}

// On binds the pod to a node.
func (b *PodBuilder) On(node string) *PodBuilder {
	b.pod.Spec.NodeName = node
	return b
}

// Phase sets how far the pod has come.
func (b *PodBuilder) Phase(phase corev1.PodPhase) *PodBuilder {
	b.pod.Status.Phase = phase
	return b
}

// Obj returns the pod.
func (b *PodBuilder) Obj() *corev1.Pod { return b.pod }

// MakeResources reads resources written as in a manifest, with commas in
// between: "sgpu: 1, vcore: 60, vmemory: 4Gi". The names of MetaX's and of
// Koordinator's resources may go without their prefix, except for
// koordinator.sh/gpu, since a plain gpu is MetaX's. It panics on anything that
// is no quantity: the API server would not have let it pass either.
func MakeResources(text string) corev1.ResourceList {
	if text == "" {
		return nil
	}
	list := corev1.ResourceList{}
	for entry := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(entry, ":")
		list[resourceName(strings.TrimSpace(name))] = resource.MustParse(strings.TrimSpace(value))
	}
	return list
}

func resourceName(name string) corev1.ResourceName {
	switch name {
	case "gpu", "sgpu", "vcore", "vmemory":
		name = "metax-tech.com/" + name
	case "gpu.shared", "gpu-core", "gpu-memory", "gpu-memory-ratio":
		name = "koordinator.sh/" + name
	}
	return corev1.ResourceName(name)
}
