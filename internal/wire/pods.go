package wire

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Asks reports whether the pod asks for MetaX cards at all, in whatever way.
func Asks(pod *corev1.Pod) bool { return asksFor(pod, resources) }

// NamesMetaX reports whether the pod names MetaX itself. Koordinator's resources
// do not: other vendors' cards are asked for with the same words.
func NamesMetaX(pod *corev1.Pod) bool { return asksFor(pod, MetaXResources()) }

// SeemsToAsk reports whether the pod asks for MetaX cards or has a mistyped resource
// that resembles them: about these pods the API server asks the manager.
func SeemsToAsk(pod *corev1.Pod) bool {
	return hasResource(pod, func(name corev1.ResourceName) bool { return slices.Contains(resources, name) || IsUnknown(name) })
}

// asksFor reports whether a container of the pod has one of the resources, in
// limits or requests.
func asksFor(pod *corev1.Pod, names []corev1.ResourceName) bool {
	return hasResource(pod, func(name corev1.ResourceName) bool { return slices.Contains(names, name) })
}

// hasResource reports whether a container of the pod has such a resource, in
// limits or requests.
func hasResource(pod *corev1.Pod, is func(corev1.ResourceName) bool) bool {
	in := func(list corev1.ResourceList) bool {
		for name := range list {
			if is(name) {
				return true
			}
		}
		return false
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if in(list[i].Resources.Limits) || in(list[i].Resources.Requests) {
				return true
			}
		}
	}
	return false
}

// Holds reports whether the pod holds the cards it was given: it is bound and
// has not come to its end. A pod that is being deleted still holds.
func Holds(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !HasEnded(pod)
}

// HasEnded reports whether the pod has come to its end, which one that was never
// bound can too.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// CanHold reports whether the pod can hold cards at all: kubelet calls a device
// plugin for what a container has in its limits, and only for these resources.
func CanHold(pod *corev1.Pod) bool { return hasLimit(pod, deviceResources...) }

// hasLimit reports whether a container has some of one of the resources in its
// limits.
func hasLimit(pod *corev1.Pod, names ...corev1.ResourceName) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range names {
				if q, ok := list[i].Resources.Limits[name]; ok && q.Sign() > 0 {
					return true
				}
			}
		}
	}
	return false
}

// HasSlices reports whether kubelet will call the slice plugin for the pod: a
// container, init containers included, asks for its resource. Without that call
// no lock would ever be taken off.
func HasSlices(pod *corev1.Pod) bool { return hasLimit(pod, ResourceSGPU) }

// RequiredNodes returns the node affinity that the pod requires, or nil.
func RequiredNodes(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// ComponentSelector selects the pods of all components by the labels of the chart.
const ComponentSelector = "app.kubernetes.io/name=daybreak"

// IsComponent reports whether the pod has the labels that the chart gives the component,
// such as agent or scheduler. Any user may create such a pod: what is decided by
// it is decided by its namespace too.
func IsComponent(pod *corev1.Pod, name string) bool {
	return pod.Labels["app.kubernetes.io/name"] == "daybreak" && pod.Labels["app.kubernetes.io/component"] == name
}
