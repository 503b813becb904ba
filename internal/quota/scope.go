package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Covers reports whether the pod is within all scopes of the quota, as Kubernetes
// reads them.
func (q *Quota) Covers(pod *corev1.Pod) bool {
	for i := range q.scopes {
		if !matches(&q.scopes[i], pod) {
			return false
		}
	}
	return true
}

// unsupported reports whether it is not known which pods are within the scope. The
// limits of such a quota hold for all pods.
func unsupported(s corev1.ScopedResourceSelectorRequirement) bool {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass:
		return false
	}
	return true
}

func matches(s *corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(&pod.Spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(&pod.Spec)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch s.Operator {
		case corev1.ScopeSelectorOpIn:
			return class != "" && slices.Contains(s.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(s.Values, class)
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		}
		return class != ""
	}
	return true
}

// bestEffort reports whether no container of the pod states an amount of CPU or
// memory, which is Kubernetes' quality of service and not that of cards.
func bestEffort(spec *corev1.PodSpec) bool {
	states := func(r corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			if !list.Cpu().IsZero() || !list.Memory().IsZero() {
				return true
			}
		}
		return false
	}
	container := func(c corev1.Container) bool { return states(c.Resources) }
	return (spec.Resources == nil || !states(*spec.Resources)) &&
		!slices.ContainsFunc(spec.InitContainers, container) && !slices.ContainsFunc(spec.Containers, container)
}
