package allocation

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Reading is what one annotation, or one group, says about a bound pod's cards.
type Reading struct {
	// Key is the annotation.
	Key string
	// Holding has what it says about each container, in the order of the pod's spec.
	// An annotation about the pod as a whole has all of it in one part, and WholePod
	// is set.
	ledger.Holding
	WholePod bool
	// Lost are cards that it names and the node does not have.
	Lost []string
	// Err says why it can't be read; the other fields do not count then.
	Err error
}

// Readings returns what each of the pod's allocation annotations says, the most
// trusted first, at face value: what is booked is cut down to the pod's own limits;
// an auditor wants to see what was written. A node whose cards are only counted
// has none: there is nothing to look names up in.
func Readings(n *ledger.Node, pod *corev1.Pod) []Reading {
	if n.Counted {
		return nil
	}
	b := booking{node: n, pod: pod, containers: request.Containers(pod)}
	readings := b.readings()
	for i := range readings {
		r := &readings[i]
		r.WholePod = r.Err == nil && len(b.containers) > 1 && onePart(&r.Holding)
	}
	return readings
}

// onePart reports whether at most one container has cards, as in
// annotations of writers that know pods only.
func onePart(h *ledger.Holding) bool {
	parts := 0
	for i := range h.Parts {
		if len(h.Parts[i].Shares) > 0 {
			parts++
		}
	}
	return parts <= 1
}

// readings reads the annotations that the pod has, the most trusted first.
func (b *booking) readings() []Reading {
	var list []Reading
	if text, ok := b.pod.Annotations[wire.AnnotationAllocated]; ok {
		lists, err := decodeVendor(text)
		list = append(list, b.reading(wire.AnnotationAllocated, lists, err))
	}
	sgpu, whole := b.pod.Annotations[wire.AnnotationHAMiSGPU], b.pod.Annotations[wire.AnnotationHAMiGPU]
	if sgpu != "" || whole != "" {
		key := wire.AnnotationHAMiSGPU
		if sgpu == "" {
			key = wire.AnnotationHAMiGPU
		}
		lists, err := decodeHAMi(b.node.Name, sgpu, whole)
		list = append(list, b.reading(key, lists, err))
	}
	if text, ok := b.pod.Annotations[wire.AnnotationKoordAllocated]; ok {
		r := Reading{Key: wire.AnnotationKoordAllocated}
		var shares []NamedShare
		if shares, r.Err = decodeKoordinator(text, b.node); r.Err == nil {
			r.Holding, r.Lost, r.Err = b.podHolding(shares)
		}
		list = append(list, r)
	}
	return list
}

// reading is what an annotation with a list for each container says, if it could
// be decoded.
func (b *booking) reading(key string, lists [][]NamedShare, err error) Reading {
	r := Reading{Key: key, Err: err}
	if err == nil {
		r.Holding, r.Lost, r.Err = b.holding(lists)
	}
	return r
}

// PredicateTime returns when it was decided which cards the pod gets, if it says so.
func PredicateTime(pod *corev1.Pod) (time.Time, bool) {
	at, err := strconv.ParseInt(pod.Annotations[wire.AnnotationPredicateTime], 10, 64)
	if err != nil || at <= 0 {
		return time.Time{}, false
	}
	return time.Unix(0, at).UTC(), true
}
