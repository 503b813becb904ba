package request

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Trim is the transform of informers: it keeps of a Pod or a Node what some part
// of Daybreak reads, and drops managed fields of everything. With a hundred
// thousand pods the rest, above all environments and volumes, would be most of
// the memory. Of a pod without cards a few KiB are kept at most.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		if wire.SeemsToAsk(obj) {
			trimPod(obj)
		} else {
			trimOther(obj)
		}
	case *corev1.Node:
		obj.Status.Images = nil
	}
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

func trimPod(pod *corev1.Pod) {
	pod.Labels = fewLabels(pod.Labels)
	trimAnnotations(pod)
	spec, status, cpu := pod.Spec, pod.Status, CPUOnNode(pod)
	pod.Spec = corev1.PodSpec{
		NodeName: spec.NodeName, SchedulerName: spec.SchedulerName, Priority: spec.Priority,
		ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds, Overhead: spec.Overhead, Resources: spec.Resources,
		SchedulingGates: slices.Clone(spec.SchedulingGates[:min(len(spec.SchedulingGates), maxGates)]),
		InitContainers:  trimContainers(spec.InitContainers), Containers: trimContainers(spec.Containers),
	}
	pod.Spec.PriorityClassName, pod.Spec.PreemptionPolicy = spec.PriorityClassName, spec.PreemptionPolicy
	pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = spec.NodeSelector, trimAffinity(spec.Affinity), spec.Tolerations
	pod.Status = corev1.PodStatus{
		Phase: status.Phase, Conditions: status.Conditions, Reason: status.Reason, NominatedNodeName: status.NominatedNodeName,
		StartTime: status.StartTime,
	}
	if CPUOnNode(pod) != cpu { // it is being resized
		pod.Status = status
	}
}

// droppedBytes is the annotation of a trimmed pod with the size of those that are not
// kept: they limit what an allocation may add. No user's annotation has such a name.
const droppedBytes = "daybreak-gpu.io/-dropped-bytes"

// trimAnnotations keeps the annotations that some part of Daybreak reads, and a few with
// names that resemble them. What is long is read of pods with cards only.
func trimAnnotations(pod *corev1.Pod) {
	kept, unknown, dropped, asks := map[string]string{}, 0, 0, wire.Asks(pod)
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		value, keep := pod.Annotations[key], false
		switch {
		case hasMeaning(key) || key == wire.AnnotationRunTime || key == corev1.MirrorPodAnnotationKey:
			keep = asks || len(value) <= maxKept
		case slices.ContainsFunc(wire.PodPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
			unknown++
			keep = unknown <= maxUnknownKept && len(value) <= maxKept
		}
		if keep {
			kept[key] = value
		} else {
			dropped += len(key) + len(value)
		}
	}
	if dropped > 0 {
		kept[droppedBytes] = strconv.Itoa(dropped)
	}
	pod.Annotations = kept
}

// AnnotationBytes returns the size of the pod's annotations as the API server counts it,
// without those of the given keys; of a trimmed pod, that of the full one.
func AnnotationBytes(pod *corev1.Pod, without map[string]string) (size int) {
	for key, value := range pod.Annotations {
		if _, out := without[key]; out {
			continue
		}
		if dropped, err := strconv.Atoi(value); key == droppedBytes && err == nil {
			size += dropped
			continue
		}
		size += len(key) + len(value)
	}
	return size
}

// maxGates bounds the scheduling gates that are kept of a pod, and maxUnknownKept the
// annotations, and the resources of a container, that have no meaning here.
const maxGates, maxUnknownKept = 16, 16

// maxKept bounds the bytes of labels that are kept of a pod. Those of
// Daybreak's components and of the vendor's plugin are far below.
const maxKept = 8 << 10

// fewLabels returns the labels unless they are too large to be kept.
func fewLabels(labels map[string]string) map[string]string {
	size := 0
	for key, value := range labels {
		size += len(key) + len(value)
	}
	if size > maxKept {
		return nil
	}
	return labels
}

// trimOther keeps of a pod without cards what it takes of its node's CPU, and what
// shows that it is one of Daybreak's components or the vendor's plugin. These
// are most pods of a cluster, and any user may create large ones.
func trimOther(pod *corev1.Pod) {
	object, spec, cpu := pod.ObjectMeta, pod.Spec, CPUOnNode(pod)
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: object.Name, GenerateName: object.GenerateName, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
		CreationTimestamp: object.CreationTimestamp, DeletionTimestamp: object.DeletionTimestamp,
	}
	if owner := metav1.GetControllerOf(&object); owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	pod.Labels = fewLabels(object.Labels)
	var container corev1.Container
	container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(cpu), resource.DecimalSI)}
	pod.Spec = corev1.PodSpec{NodeName: spec.NodeName, SchedulerName: spec.SchedulerName, Priority: spec.Priority, Containers: []corev1.Container{container}}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, StartTime: pod.Status.StartTime}
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
		r := &trimmed[i].Resources
		r.Limits, r.Requests = trimResources(r.Limits), trimResources(r.Requests)
	}
	return trimmed
}

// trimResources keeps the resources that some part of Daybreak reads, and a few others:
// any user may name thousands.
func trimResources(full corev1.ResourceList) corev1.ResourceList {
	if len(full) <= maxUnknownKept {
		return full
	}
	kept, others := corev1.ResourceList{}, 0
	for _, name := range slices.Sorted(maps.Keys(full)) {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !slices.Contains(wire.Resources(), name) {
			others++
			if others > maxUnknownKept {
				continue
			}
		}
		kept[name] = full[name]
	}
	return kept
}
