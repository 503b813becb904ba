package place

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// placed returns for how many cards of its containers the offer has a place.
func (f *fitter) placed() (cards int64) {
	for i := range f.request.Requests {
		cards += int64(f.offer.Cards(i).Len())
	}
	return cards
}

// refuseSeveral returns why the pod's containers do not fit, after no arrangement of
// them was found; in the order of the spec, some got the placed cards. Either one
// container would not fit by itself, or the node has less than all of them want, or
// it is the arrangement.
func (f *fitter) refuseSeveral(placed int64) Refusal {
	own := f.refuseOne()
	if own.Code != Fits && (own.Code < SlicesFull || own.Code == TooFewCards) {
		return own
	}
	r := Refusal{Container: f.refusal.Container, Cards: own.Cards}
	if own.Code == Fits {
		candidates, t := f.candidates(&f.request.Requests[r.Container], f.view.Usage)
		r.Cards = t.refusal(&f.request.Requests[r.Container], candidates).Cards
	}
	sum := f.sum()
	r.Idle = sum.idle > sum.idleCards
	r.Total = !r.Idle
	switch {
	case r.Idle:
		r.Code, r.Want, r.Have = TooFewCards, sum.idle, sum.idleCards
	case sum.slices > sum.freeSlices:
		r.Code, r.Want, r.Have = SlicesFull, sum.slices, sum.freeSlices
	case sum.memory > sum.freeMemory:
		r.Code, r.Want, r.Have = MemoryShort, int64(sum.memory), int64(sum.freeMemory)
	case sum.compute > sum.freeCompute:
		r.Code, r.Want, r.Have = ComputeShort, int64(sum.compute), int64(sum.freeCompute)
	case own.Code != Fits:
		return own
	default:
		r.Code, r.Want, r.Have = TooFewCards, int64(f.request.Cards()), placed
	}
	return r
}

// refuseOne returns the refusal of the first container that would not fit if it
// were the only one.
func (f *fitter) refuseOne() Refusal {
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		if candidates, t := f.candidates(req, f.view.Usage); candidates.Len() < req.Cards {
			return f.refuse(i, candidates, &t)
		}
	}
	return Refusal{}
}

// sum is what the containers that run together want, and what the node has.
type sum struct {
	// idle is the number of cards wanted by containers that share them with no
	// other.
	idle, idleCards int64
	// The others are about shares; what is free is that of cards that could take
	// one of any size.
	slices, freeSlices   int64
	memory, freeMemory   gpu.MiB
	compute, freeCompute gpu.Percent
}

func (f *fitter) sum() sum {
	var s sum
	var idle, open gpu.Set
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		switch {
		case req.Cards == 0 || req.Phase == gpu.Init:
		case f.alone(req):
			cards, _ := f.candidates(req, f.view.Usage)
			idle |= cards
			s.idle += int64(req.Cards)
		default:
			least := *req
			least.Memory, least.Compute = gpu.Memory{}, 0
			cards, _ := f.candidates(&least, f.view.Usage)
			open |= cards
		}
	}
	s.idleCards = int64(idle.Len())
	f.addFree(&s, open)
	f.addShares(&s, open)
	return s
}

// addFree adds what is free of the cards.
func (f *fitter) addFree(s *sum, open gpu.Set) {
	for c := range open.All() {
		card, used := f.node.Topology().Card(c), &f.view.Usage[c]
		s.freeSlices += int64(card.Slots) - int64(used.Slots)
		s.freeMemory += max(0, card.Memory-used.Memory)
		s.freeCompute += max(0, gpu.FullCompute-used.Compute)
	}
}

// addShares adds what the containers with shares want, a part of a card's memory as
// that of the smallest card.
func (f *fitter) addShares(s *sum, open gpu.Set) {
	var smallest gpu.MiB
	for c := range open.All() {
		if memory := f.node.Topology().Card(c).Memory; smallest == 0 || memory < smallest {
			smallest = memory
		}
	}
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		if req.Phase == gpu.Init || f.alone(req) {
			continue
		}
		s.slices += int64(req.Cards)
		if f.seat(req) {
			continue
		}
		s.memory += gpu.MiB(req.Cards) * req.Memory.Of(smallest)
		if f.request.Class != gpu.Online {
			s.compute += gpu.Percent(req.Cards) * req.Compute
		}
	}
}
