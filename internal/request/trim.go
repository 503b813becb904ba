package request

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Trim is the transform of informers: it keeps of a Pod or a Node what some part
// of Daybreak reads, and drops managed fields of everything. With a hundred
// thousand pods the rest, above all environments and volumes, would be most of
// the memory.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		trimPod(obj)
	case *corev1.Node:
		obj.Status.Images = nil
	}
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

func trimPod(pod *corev1.Pod) {
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	spec, status, cpu := pod.Spec, pod.Status, CPUOnNode(pod)
	pod.Spec = corev1.PodSpec{
		NodeName: spec.NodeName, SchedulerName: spec.SchedulerName, Priority: spec.Priority,
		ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds, Overhead: spec.Overhead, Resources: spec.Resources, SchedulingGates: spec.SchedulingGates,
		InitContainers: trimContainers(spec.InitContainers), Containers: trimContainers(spec.Containers),
	}
	if wire.Asks(pod) { // of others it does not matter which nodes they may use, nor whom they may preempt
		pod.Spec.PriorityClassName, pod.Spec.PreemptionPolicy = spec.PriorityClassName, spec.PreemptionPolicy
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = spec.NodeSelector, trimAffinity(spec.Affinity), spec.Tolerations
	}
	if wire.IsComponent(pod, "scheduler") || wire.IsComponent(pod, "manager") { // policy and tolerated taint
		for i := range spec.Containers {
			pod.Spec.Containers[i].Args = spec.Containers[i].Args
		}
	}
	pod.Status = corev1.PodStatus{
		Phase: status.Phase, Conditions: status.Conditions, Reason: status.Reason, NominatedNodeName: status.NominatedNodeName,
		StartTime: status.StartTime,
	}
	if CPUOnNode(pod) != cpu { // it is being resized
		pod.Status = status
	}
}

// trimAffinity keeps what decides which nodes a pod may use.
func trimAffinity(full *corev1.Affinity) *corev1.Affinity {
	if full == nil || full.NodeAffinity == nil || full.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: full.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
	}}
}

func trimContainers(full []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, len(full))
	for i := range full {
		trimmed[i] = corev1.Container{Name: full[i].Name, Resources: full[i].Resources, RestartPolicy: full[i].RestartPolicy}
	}
	return trimmed
}
