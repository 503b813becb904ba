package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Class is all of a pod that scopes tell apart: pods of one class are covered by the
// same quotas of their namespace.
type Class struct {
	deadline, bestEffort bool
	priority             string
}

// ClassOf returns the class of the pod.
func ClassOf(pod *corev1.Pod) Class {
	return Class{pod.Spec.ActiveDeadlineSeconds != nil, bestEffort(&pod.Spec), pod.Spec.PriorityClassName}
}

// Covers reports whether the pods of the class are within all scopes of the quota, as
// Kubernetes reads them.
func (q *Quota) Covers(c Class) bool {
	s := &q.scope
	return !s.deadline[c.deadline] && !s.bestEffort[c.bestEffort] && !s.but[c.priority] && (s.only == nil || s.only[c.priority])
}

// scope is all scopes of a quota together: asking it costs the same however many there
// are.
type scope struct {
	// deadline, bestEffort and but have what is out of scope.
	deadline, bestEffort map[bool]bool
	but                  map[string]bool
	// only has the priority classes that are in scope; nil: all.
	only map[string]bool
}

func newScope(all []corev1.ScopedResourceSelectorRequirement) scope {
	s := scope{deadline: map[bool]bool{}, bestEffort: map[bool]bool{}, but: map[string]bool{}}
	for i := range all {
		switch r := &all[i]; r.ScopeName {
		case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating:
			s.deadline[r.ScopeName == corev1.ResourceQuotaScopeNotTerminating] = true
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort:
			s.bestEffort[r.ScopeName == corev1.ResourceQuotaScopeNotBestEffort] = true
		case corev1.ResourceQuotaScopePriorityClass:
			s.addPriority(r)
		}
	}
	return s
}

// addPriority narrows the priority classes. The empty name is that of pods without one.
func (s *scope) addPriority(r *corev1.ScopedResourceSelectorRequirement) {
	switch r.Operator {
	case corev1.ScopeSelectorOpNotIn:
		for _, name := range r.Values {
			s.but[name] = true
		}
	case corev1.ScopeSelectorOpDoesNotExist:
		s.keep("")
	case corev1.ScopeSelectorOpIn:
		s.but[""] = true
		s.keep(r.Values...)
	default:
		s.but[""] = true
	}
}

// keep leaves these priority classes in scope, and of them those that were.
func (s *scope) keep(names ...string) {
	only := map[string]bool{}
	for _, name := range names {
		only[name] = s.only == nil || s.only[name]
	}
	s.only = only
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
