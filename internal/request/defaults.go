package request

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ApplyDefaults fills in what the pod left unsaid, as [Read] read it: the QoS class
// of shares, limits for requests and requests for limits, and in Koordinator's
// dialect the number of cards in both of its names. It changes nothing of what
// the pod asks for, so [Read] returns the same afterwards, and a second call
// changes nothing.
//
// It never changes a map in place: a pod that shares its maps with another, as
// a shallow copy does, leaves that one alone.
func ApplyDefaults(pod *corev1.Pod, ask *PodRequest) {
	if _, ok := pod.Annotations[wire.AnnotationQoS]; !ok && ask.Request.QoS != "" {
		annotations := make(map[string]string, len(pod.Annotations)+1)
		maps.Copy(annotations, pod.Annotations)
		annotations[wire.AnnotationQoS] = string(ask.Request.QoS)
		pod.Annotations = annotations
	}
	for i, c := range Containers(pod) {
		completeContainer(c.resources, ask.Request.Requests[i].Cards)
	}
}

// completeContainer adds what the container's resources leave unsaid; cards is the
// number of cards that they ask for.
func completeContainer(r *corev1.ResourceRequirements, cards int) {
	ours := corev1.ResourceList{}
	for _, name := range wire.Resources() {
		if q, ok := r.Limits[name]; ok {
			ours[name] = q
		} else if q, ok := r.Requests[name]; ok {
			ours[name] = q
		}
	}
	completeKoordinator(ours, cards)
	replace(r, wire.Resources(), ours)
}

// completeKoordinator writes Koordinator's resources out as its own webhook
// does, since nodes offer them in no other way: gpu as compute and memory, and
// the number of cards. Kubelet's plugin is called for sgpu alone, so that one
// has to be there too.
func completeKoordinator(ours corev1.ResourceList, cards int) {
	if !slices.ContainsFunc(wire.KoordinatorResources(), func(name corev1.ResourceName) bool { _, ok := ours[name]; return ok }) {
		return
	}
	if q, ok := ours[wire.KoordGPU]; ok {
		delete(ours, wire.KoordGPU)
		ours[wire.KoordCore], ours[wire.KoordMemoryRatio] = q, q
	}
	for _, name := range []corev1.ResourceName{wire.KoordShared, wire.ResourceSGPU} {
		if _, ok := ours[name]; !ok {
			ours[name] = *resource.NewQuantity(int64(cards), resource.DecimalSI)
		}
	}
}

// replace makes the amounts those of the named resources in limits and requests.
// Other resources stay as they are.
func replace(r *corev1.ResourceRequirements, names []corev1.ResourceName, amounts corev1.ResourceList) {
	r.Limits, r.Requests = replaced(r.Limits, names, amounts), replaced(r.Requests, names, amounts)
}

// replaced returns the list after that, the same list where it is no change.
func replaced(list corev1.ResourceList, names []corev1.ResourceName, amounts corev1.ResourceList) corev1.ResourceList {
	if !slices.ContainsFunc(names, func(name corev1.ResourceName) bool {
		was, had := list[name]
		is, has := amounts[name]
		return had != has || has && was.Cmp(is) != 0
	}) {
		return list
	}
	changed := make(corev1.ResourceList, len(list)+len(amounts))
	for name, q := range list {
		if !slices.Contains(names, name) {
			changed[name] = q
		}
	}
	maps.Copy(changed, amounts)
	return changed
}
