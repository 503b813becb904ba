package place

import (
	"cmp"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// scratch is a copy of a node's usage to try things out on.
type scratch struct {
	usage [gpu.MaxCards]ledger.Usage
	full  [gpu.MaxCards]ledger.Fullness
}

func (d *scratch) reset(v *ledger.View) {
	copy(d.usage[:], v.Usage)
	copy(d.full[:], v.Full)
}

// book adds the shares of container i.
func (d *scratch) book(f *fitter, i int, cards gpu.Set) {
	req := &f.request.Requests[i]
	for c := range cards.All() {
		d.usage[c].Add(f.node.ShareOf(req, c), f.request.Class, f.request.QoS)
		d.full[c] = d.usage[c].Fullness(f.node.Topology().Card(c))
	}
}

// placeSeveral places a pod in which two containers or more ask for cards. Those
// that run together are placed first, in the order of the spec, each seeing
// the ones before it. Init containers then take, where they can, from the
// cards that the pod will hold anyway. Where that order fails, every other
// arrangement is considered.
func (f *fitter) placeSeveral() {
	var running scratch
	running.reset(f.view)
	held, ok := f.placeRunning(&running)
	if !ok || !f.placeInits(held) {
		placed, incomplete := f.placed(), false
		held, ok, incomplete = f.rearrange(&running)
		if !ok {
			*f.refusal = f.refuseSeveral(placed)
			f.refusal.Incomplete = incomplete
			return
		}
		*f.refusal = Refusal{}
		f.placeInits(held)
	}
	if f.ahead != nil {
		f.offer.Growth = f.growthAt(&running)
	}
}

// placeRunning places the containers that run at the same time.
func (f *fitter) placeRunning(d *scratch) (held gpu.Set, ok bool) {
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

// placeInits places the init containers: each runs alone, but for the sidecars that
// were started before it.
func (f *fitter) placeInits(held gpu.Set) bool {
	var before scratch
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
				return false
			}
			// Not accept: init containers are soon gone, so the node is not
			// chosen by what their cards are worth.
			f.offer.SetCards(i, cards)
			held |= cards
		}
	}
	return true
}

// rearrangeBudget bounds the search for another arrangement, in cards picked: a
// search takes some ten milliseconds at most. Pods of up to five containers on
// nodes of eight cards stay below it, whatever is booked there, and nearly all
// others. A search that reaches it ends as if there were no arrangement, and
// its refusal is marked incomplete.
const rearrangeBudget = 5_000

// setSteps is what choosing one set of linked cards counts.
const setSteps = 50

// rearrange looks for any arrangement of the containers, after the plain order
// failed: one container may have taken the very card that another one needs. It
// considers all of them, so there is none when it finds none, unless it ends at
// its budget.
func (f *fitter) rearrange(d *scratch) (held gpu.Set, ok, incomplete bool) {
	d.reset(f.view)
	*f.offer = f.node.NewOffer(len(f.request.Requests))
	f.offer.NodeFullness = f.view.Mean

	s := arrangement{fitter: f, scratch: d, steps: rearrangeBudget}
	var few [8]member // few pods have more, so this stays on the stack
	if s.order, ok = f.members(few[:0]); !ok || len(s.order) == 0 {
		return 0, false, false
	}
	s.nextToSidecar = f.sidecarBeforeInit()
	if !s.place(0) {
		return 0, false, s.steps <= 0
	}
	// Account for what was found as if it had been chosen in this order.
	d.reset(f.view)
	for _, m := range s.order {
		cards := f.offer.Cards(m.container)
		f.accept(m.container, cards, d.usage[:])
		d.book(f, m.container, cards)
		held |= cards
	}
	return held, true, false
}

// member is one of the containers that run together.
type member struct {
	container int
	// alone: the container shares its cards with no other.
	alone bool
	// candidates is how many cards could take it if no other container of the
	// pod were there.
	candidates int
}

// members appends the containers that run together in the order in which
// arrangements are tried, or reports that one of the pod's containers would
// not even fit by itself.
//
// Containers that are alone on their cards come last, and get the best linked
// of the cards that the slices leave. Their candidates differ by memory only,
// so that of two of them, the ones of the first are among those of the second:
// it does not matter to the second which of its own the first takes. Slices
// without compute come first, since they need a card that is not all booked.
func (f *fitter) members(order []member) (_ []member, ok bool) {
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		if req.Cards == 0 {
			continue
		}
		candidates, _ := f.candidates(req, f.view.Usage)
		if candidates.Len() < req.Cards {
			return nil, false
		}
		if req.Phase != gpu.Init {
			order = append(order, member{container: i, alone: f.alone(req), candidates: candidates.Len()})
		}
	}
	slices.SortStableFunc(order, func(a, b member) int {
		ra, rb := &f.request.Requests[a.container], &f.request.Requests[b.container]
		return cmp.Or(
			compareBool(a.alone, b.alone),
			-compareBool(ra.Compute == 0, rb.Compute == 0),
			cmp.Compare(a.candidates, b.candidates),
			-cmp.Compare(ra.Memory.Of(referenceMemory), rb.Memory.Of(referenceMemory)),
			-cmp.Compare(ra.Compute, rb.Compute),
			-cmp.Compare(ra.Cards, rb.Cards))
	})
	return order, true
}

// sidecarBeforeInit reports whether an init container runs next to a sidecar.
func (f *fitter) sidecarBeforeInit() bool {
	sidecar := false
	for i := range f.request.Requests {
		req := &f.request.Requests[i]
		switch {
		case req.Cards == 0:
		case req.Phase == gpu.Sidecar:
			sidecar = true
		case req.Phase == gpu.Init && sidecar:
			return true
		}
	}
	return false
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

// arrangement is a depth-first search over cards for containers. Cards that can
// stand for each other are tried once: which of them a container gets makes no
// difference to whether the others fit.
type arrangement struct {
	*fitter
	scratch *scratch
	order   []member
	steps   int
	// nextToSidecar: an init container runs next to a sidecar, so that the cards
	// of sidecars matter to it.
	nextToSidecar bool
}

// place finds cards for the containers from position k on, or leaves scratch copy
// and offer as they were.
func (s *arrangement) place(k int) bool {
	if k == len(s.order) {
		return true
	}
	candidates, ok := s.possible(k)
	if !ok {
		return false
	}
	i := s.order[k].container
	var best gpu.Set
	if s.linkAware(&s.request.Requests[i]) {
		s.steps -= setSteps
		best, _ = s.container(i, s.scratch.usage[:], s.scratch.full[:], 0)
		if s.try(k, best) {
			return true
		}
	}
	return s.cards(k, candidates, 0, best)
}

// possible returns the cards that could take the container at position k, and
// whether each of those that come after it could still be placed. Those that
// are alone on their cards need cards enough for all of them up to there.
func (s *arrangement) possible(k int) (candidates gpu.Set, ok bool) {
	alone := 0
	for j := k; j < len(s.order); j++ {
		req := &s.request.Requests[s.order[j].container]
		able, _ := s.candidates(req, s.scratch.usage[:])
		need := req.Cards
		if s.order[j].alone {
			alone += req.Cards
			need = alone
		}
		if able.Len() < need {
			return 0, false
		}
		if j == k {
			candidates = able
		}
	}
	return candidates, true
}

// cards completes the cards of the container at position k in the order of
// preference, then goes on to the next container. Sets that come to the same as
// tried are left out.
func (s *arrangement) cards(k int, left, chosen, tried gpu.Set) bool {
	req := &s.request.Requests[s.order[k].container]
	if chosen.Len() == req.Cards {
		return !s.equivalent(chosen, tried) && s.try(k, chosen)
	}
	for left.Len() >= req.Cards-chosen.Len() && s.steps > 0 {
		s.steps--
		r := s.ranking(s.scratch.usage[:], s.scratch.full[:], left)
		next := r.best(1)
		left &^= next
		if s.cards(k, left, chosen|next, tried) {
			return true
		}
		left &^= s.alike(next.First(), left)
	}
	return false
}

// try books the cards, goes on, and takes the booking back when that fails.
func (s *arrangement) try(k int, cards gpu.Set) bool {
	i := s.order[k].container
	saved := *s.scratch
	s.scratch.book(s.fitter, i, cards)
	s.offer.SetCards(i, cards)
	if s.initsFit(i) && s.place(k+1) {
		return true
	}
	*s.scratch = saved
	s.offer.SetCards(i, 0)
	return false
}

// initsFit reports whether the init containers still fit after container i got
// its cards: each next to those sidecars before it that have theirs.
func (s *arrangement) initsFit(i int) bool {
	if !s.nextToSidecar || s.request.Requests[i].Phase != gpu.Sidecar {
		return true
	}
	var before scratch
	before.reset(s.view)
	for j := range s.request.Requests {
		req := &s.request.Requests[j]
		switch {
		case req.Cards == 0:
		case req.Phase == gpu.Sidecar:
			before.book(s.fitter, j, s.offer.Cards(j))
		case req.Phase == gpu.Init:
			if able, _ := s.candidates(req, before.usage[:]); able.Len() < req.Cards {
				return false
			}
		}
	}
	return true
}

// alike returns the cards of the set that can stand for card c: they are of
// its kind and have the same on them. All are candidates of one container, so
// they are all healthy and not excluded.
func (s *arrangement) alike(c int, set gpu.Set) gpu.Set {
	t := s.node.Topology()
	var same gpu.Set
	for o := range set.All() {
		if s.scratch.usage[c] == s.scratch.usage[o] && s.view.Usage[c] == s.view.Usage[o] && gpu.SameKind(t.Card(c), t.Card(o)) && s.sameSidecars(c, o) {
			same |= gpu.SetOf(o)
		}
	}
	return same
}

// sameSidecars reports whether the same sidecars were placed on both cards.
func (s *arrangement) sameSidecars(c, o int) bool {
	if !s.nextToSidecar {
		return true
	}
	for i := range s.request.Requests {
		if on := s.offer.Cards(i); s.request.Requests[i].Phase == gpu.Sidecar && on.Has(c) != on.Has(o) {
			return false
		}
	}
	return true
}

// equivalent reports whether two sets have as many cards of each kind.
func (s *arrangement) equivalent(a, b gpu.Set) bool {
	if a.Len() != b.Len() {
		return false
	}
	for left := a; left != 0; {
		kind := s.alike(left.First(), a|b)
		if (kind & a).Len() != (kind & b).Len() {
			return false
		}
		left &^= kind
	}
	return true
}
