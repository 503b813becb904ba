package gpu

import "slices"

// Phase says when in its pod's life a container runs.
type Phase uint8

// The phases of a container. They decide which containers hold their shares at
// the same time.
const (
	// App containers run together until the pod ends.
	App Phase = iota
	// Init containers run one after the other before the app containers.
	Init
	// Sidecar containers start among the init containers and stay.
	Sidecar
)

// Request is what one container asks of cards.
type Request struct {
	// Container is the container's name.
	Container string
	Phase     Phase
	// Cards is the number of distinct cards; 0 means the container asks none.
	Cards int
	// Whole: the container asked for whole cards, which are another resource
	// than slices; a node may serve one of the two.
	Whole bool
	// Exclusive means alone on each card.
	Exclusive bool
	// Compute and Memory are what is booked of each card.
	Compute Percent
	Memory  Memory
}

// PodRequest is what a pod asks, all its containers together. It is made once
// per pod, shared and never changed.
type PodRequest struct {
	// Requests has one entry for each container in the order of the pod's spec,
	// init containers first, also for those that ask nothing.
	Requests []Request
	QoS      QoS
	Class    Class
	// Allow, when not empty, names the only cards that may be used; Deny names
	// cards that must not be.
	Allow []CardID
	Deny  []CardID
	// CPU is what the pod takes of its node's CPU, and Models, when not empty,
	// the only card models it may run on, in ascending order. kube-scheduler
	// enforces both; here they describe the demand of pods of this kind.
	CPU    MilliCPU
	Models []string
}

// Cards returns how many cards the pod's containers ask for, all added up.
func (r *PodRequest) Cards() int {
	n := 0
	for i := range r.Requests {
		n += r.Requests[i].Cards
	}
	return n
}

// Admits reports whether the pod's lists let it use the card. A card without
// an identity can be on no list, so it is kept out as soon as there is one.
func (r *PodRequest) Admits(id CardID) bool {
	if len(r.Allow) == 0 && len(r.Deny) == 0 {
		return true
	}
	if id == "" || slices.Contains(r.Deny, id) {
		return false
	}
	return len(r.Allow) == 0 || slices.Contains(r.Allow, id)
}
