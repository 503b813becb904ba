package manager

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// briefPod is the cache's transform: of a pod it keeps what some part reads.
// With a hundred thousand pods the rest, above all containers' environments
// and volumes, would be most of the manager's memory.
func briefPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	full := pod.Spec
	pod.Spec = corev1.PodSpec{
		NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority,
		Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources, SchedulingGates: pod.Spec.SchedulingGates,
		InitContainers: briefContainers(pod.Spec.InitContainers), Containers: briefContainers(pod.Spec.Containers),
	}
	if wire.Asks(pod) { // of others it does not matter which nodes they may use
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = full.NodeSelector, briefAffinity(full.Affinity), full.Tolerations
	}
	if cluster.IsScheduler(pod) { // its arguments tell its policy
		for i := range full.Containers {
			pod.Spec.Containers[i].Args = full.Containers[i].Args
		}
	}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, Reason: pod.Status.Reason, NominatedNodeName: pod.Status.NominatedNodeName,
		StartTime: pod.Status.StartTime,
	}
	return pod, nil
}

// briefAffinity keeps what decides which nodes a pod may use.
func briefAffinity(full *corev1.Affinity) *corev1.Affinity {
	if full == nil || full.NodeAffinity == nil || full.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: full.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
	}}
}

func briefContainers(containers []corev1.Container) []corev1.Container {
	brief := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		brief[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return brief
}

// briefNode is the same for nodes.
func briefNode(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
	}
	return obj, nil
}
