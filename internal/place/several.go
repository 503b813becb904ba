package place

import (
	"cmp"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// desk is a copy of a node's usage to try things out on.
type desk struct {
	usage [gpu.MaxCards]ledger.Usage
	full  [gpu.MaxCards]ledger.Fullness
}

func (d *desk) reset(v *ledger.View) {
	copy(d.usage[:], v.Usage)
	copy(d.full[:], v.Full)
}

// book puts the shares of container i on the desk.
func (d *desk) book(f *fitter, i int, cards gpu.Set) {
	req := &f.request.Requests[i]
	for c := range cards.All() {
		d.usage[c].Add(f.node.ShareOf(req, c), f.request.Class, f.request.QoS)
		d.full[c] = d.usage[c].Fullness(f.node.Topology().Card(c))
	}
}

// several places a pod in which two containers or more ask for cards. Those
// that run together are placed first, in the order of the spec, each seeing
// the ones before it. Init containers then take, where they can, from the
// cards that the pod will hold anyway.
func (f *fitter) several() {
	var running desk
	running.reset(f.view)
	held, ok := f.together(&running)
	if !ok {
		refusal := *f.refusal
		if held, ok = f.rearrange(&running); !ok {
			*f.refusal = refusal // of the plain order: it reads naturally
			return
		}
		*f.refusal = Refusal{}
	}
	if f.ahead != nil {
		f.offer.Growth = f.growthAt(&running)
	}
	f.inits(held)
}

// together places the containers that run at the same time.
func (f *fitter) together(d *desk) (held gpu.Set, ok bool) {
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		if req.Cards == 0 || req.Phase == gpu.Init {
			continue
		}
		cards, ok := f.container(i, d.usage[:], d.full[:], 0)
		if !ok {
			return 0, false
		}
		f.accept(i, cards, d.usage[:])
		d.book(f, i, cards)
		held |= cards
	}
	return held, true
}

// inits places the init containers: each runs alone, but for the sidecars that
// were started before it.
func (f *fitter) inits(held gpu.Set) {
	var before desk
	before.reset(f.view)
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		switch {
		case req.Cards == 0:
		case req.Phase == gpu.Sidecar:
			before.book(f, i, f.offer.Cards(i))
		case req.Phase == gpu.Init:
			cards, ok := f.container(i, before.usage[:], before.full[:], held)
			if !ok {
				return
			}
			// Not accept: init containers are soon gone, so the node is not
			// chosen by what their cards are worth.
			f.offer.SetCards(i, cards)
			held |= cards
		}
	}
}

// rearrangeBudget bounds the search for another arrangement. A pod has few
// containers and a node few cards, so it is rarely used up.
const rearrangeBudget = 10_000

// rearrange looks for any arrangement of the containers that run together,
// after the plain order failed: one container may have taken the very card
// that a later one needs. The hardest come first: those alone on their cards
// can only use idle ones, which leaves the slices to be tried card by card.
func (f *fitter) rearrange(d *desk) (held gpu.Set, ok bool) {
	d.reset(f.view)
	*f.offer = f.node.NewOffer(len(f.request.Requests))
	f.offer.NodeFullness = f.view.Mean

	order := make([]int, 0, 8) // few pods have more, so this stays on the stack
	for i := range f.request.Requests {
		if req := &f.request.Requests[i]; req.Cards > 0 && req.Phase != gpu.Init {
			order = append(order, i)
		}
	}
	if len(order) < 2 {
		return 0, false
	}
	slices.SortStableFunc(order, func(a, b int) int {
		ra, rb := &f.request.Requests[a], &f.request.Requests[b]
		return cmp.Or(
			-compareBool(ra.Exclusive, rb.Exclusive),
			-compareBool(ra.Compute == 0, rb.Compute == 0), // they need a card that is not all booked yet
			-cmp.Compare(ra.Memory.Of(referenceMemory), rb.Memory.Of(referenceMemory)),
			-cmp.Compare(ra.Compute, rb.Compute),
			-cmp.Compare(ra.Cards, rb.Cards))
	})
	s := arrangement{fitter: f, desk: d, steps: rearrangeBudget}
	if !s.place(order) {
		return 0, false
	}
	// Account for what was found as if it had been chosen in this order.
	d.reset(f.view)
	for _, i := range order {
		cards := f.offer.Cards(i)
		f.accept(i, cards, d.usage[:])
		d.book(f, i, cards)
		held |= cards
	}
	return held, true
}

// referenceMemory turns ratios into amounts where requests are compared with
// each other and not with a card: a C500's.
const referenceMemory gpu.MiB = 64 << 10

func compareBool(a, b bool) int {
	if a == b {
		return 0
	}
	if a {
		return 1
	}
	return -1
}

// arrangement is a depth-first search over cards for containers.
type arrangement struct {
	*fitter
	desk  *desk
	steps int
}

// place finds cards for all the containers, or leaves the desk as it was.
func (s *arrangement) place(order []int) bool {
	if len(order) == 0 {
		return true
	}
	i := order[0]
	req := &s.request.Requests[i]
	if s.linkAware(req) {
		cards, ok := s.container(i, s.desk.usage[:], s.desk.full[:], 0)
		if !ok {
			return false
		}
		return s.try(i, cards, func() bool { return s.place(order[1:]) })
	}
	candidates, _ := s.candidates(req, s.desk.usage[:])
	return s.cards(order, candidates, 0)
}

// cards completes the cards of the first container in every order of
// preference, then goes on to the next container.
func (s *arrangement) cards(order []int, left, chosen gpu.Set) bool {
	req := &s.request.Requests[order[0]]
	if chosen.Len() == req.Cards {
		return s.try(order[0], chosen, func() bool { return s.place(order[1:]) })
	}
	for left.Len() >= req.Cards-chosen.Len() && s.steps > 0 {
		s.steps--
		r := s.ranking(s.desk.usage[:], s.desk.full[:], left)
		next := r.best(1)
		left &^= next
		if s.cards(order, left, chosen|next) {
			return true
		}
	}
	return false
}

// try books the cards, goes on, and takes the booking back when that fails.
func (s *arrangement) try(i int, cards gpu.Set, goOn func() bool) bool {
	saved := *s.desk
	s.desk.book(s.fitter, i, cards)
	s.offer.SetCards(i, cards)
	if goOn() {
		return true
	}
	*s.desk = saved
	return false
}
