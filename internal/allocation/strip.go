package allocation

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// HAMiMetaXPrefix begins the annotations in which HAMi's scheduler keeps what it
// gives of MetaX cards.
const HAMiMetaXPrefix = "hami.io/metax-"

// IsAllocation reports whether the annotation is part of an allocation: writing it
// gives cards away.
func IsAllocation(key string) bool {
	return slices.Contains(Keys(), key) || strings.HasPrefix(key, HAMiMetaXPrefix)
}

// Keys lists the annotations that a scheduler writes, except
// those that begin with [HAMiMetaXPrefix].
func Keys() []string {
	return []string{wire.AnnotationAllocated, wire.AnnotationPredicateTime, wire.AnnotationKoordAllocated, wire.AnnotationHAMiNode}
}

// Strip takes all annotations of an allocation off the pod and returns
// their names in order. A new pod holds none, and what a Binding does not overwrite
// would stay.
func Strip(pod *corev1.Pod) []string {
	var stripped []string
	for key := range pod.Annotations {
		if IsAllocation(key) {
			stripped = append(stripped, key)
		}
	}
	if len(stripped) == 0 {
		return nil
	}
	slices.Sort(stripped)
	pod.Annotations = maps.Clone(pod.Annotations)
	for _, key := range stripped {
		delete(pod.Annotations, key)
	}
	return stripped
}
