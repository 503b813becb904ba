package allocation

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Reading is what one annotation says about a bound pod's cards, at face value.
// What is booked comes from the same annotations, but cut down to the pod's own
// limits; an auditor wants to see what was written.
type Reading struct {
	// Key is the annotation.
	Key string
	// Parts has what it says about each container, in the order of the pod's spec.
	// An annotation about the pod as a whole has all of it in one part,
	// and WholePod is set.
	Parts    []ledger.Part
	WholePod bool
	// Lost are cards that it names and the node does not have.
	Lost []string
	// Err says why it can't be read; the other fields are then empty.
	Err error
}

// On returns what the annotation says about one card.
func (r *Reading) On(card int) ledger.Usage {
	h := ledger.Holding{Parts: r.Parts}
	return h.On(card)
}

// Readings returns what each of the pod's allocation annotations says, the most
// trusted first. A node whose cards are only counted has none: there is nothing
// to look names up in.
func Readings(n *ledger.Node, pod *corev1.Pod) []Reading {
	if n.Counted {
		return nil
	}
	b := booking{node: n, pod: pod, containers: request.Containers(pod)}
	var readings []Reading
	for _, s := range b.sources() {
		h, lost, err := s.read()
		if err != nil {
			readings = append(readings, Reading{Key: s.key, Err: err})
			continue
		}
		whole := len(b.containers) > 1 && onePart(&h)
		readings = append(readings, Reading{Key: s.key, Parts: h.Parts, WholePod: whole, Lost: lost})
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

// SameCards reports whether two readings have the same amounts of each card.
func (r *Reading) SameCards(o *Reading) bool {
	return sameCards(&ledger.Holding{Parts: r.Parts}, &ledger.Holding{Parts: o.Parts})
}

// Cards returns the cards that the reading names and the node has.
func (r *Reading) Cards() gpu.Set {
	h := ledger.Holding{Parts: r.Parts}
	return h.Cards()
}

// PredicateTime returns when it was decided which cards the pod gets.
func PredicateTime(pod *corev1.Pod) (time.Time, bool) {
	nanoseconds, ok := Decided(pod)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(0, nanoseconds).UTC(), true
}
