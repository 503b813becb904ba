package place

import (
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Fit computes where on the node the pod's containers go, or why they can't.
// It changes nothing and, for pods of a few containers, allocates nothing. The
// refusal's code is [Fits] when there is an offer.
func Fit(n *ledger.Node, r *gpu.PodRequest, p *Preference) (ledger.Offer, Refusal) {
	offer, refusal := fit(n, n.Now(), r, p, p.looksAhead())
	if refusal.Code != Fits {
		refusal.checkPermanent(n, r, p)
	}
	return offer, refusal
}

// checkPermanent records whether the node could take the pod if no other pod were
// on it. Foreign slices stay: they can't be evicted.
func (r *Refusal) checkPermanent(n *ledger.Node, pod *gpu.PodRequest, p *Preference) {
	_, empty := fit(n, n.WithoutPods(), pod, p, false)
	r.Permanent = empty.Code != Fits
	r.WhenEmpty = Shortage{Code: empty.Code, Want: empty.Want, Have: empty.Have, Idle: empty.Idle, Total: empty.Total}
}

func fit(n *ledger.Node, v *ledger.View, r *gpu.PodRequest, p *Preference, ahead bool) (ledger.Offer, Refusal) {
	if code := refuseNode(n, v, r); code != Fits {
		return ledger.Offer{}, wholeNode(n, code, r)
	}
	offer, refusal := n.NewOffer(len(r.Requests)), Refusal{}
	offer.NodeFullness = v.Mean
	// The fitter has pointers, so that nothing needs to be on the heap.
	f := fitter{node: n, view: v, request: r, prefer: p, offer: &offer, refusal: &refusal}
	switch _, single := SingleRequest(r); {
	case !ahead || n.Serves.Seats:
		f.run()
	case single:
		var a foresight
		f.ahead = &a
		f.run()
	default: // containers are tried out together
		var a foresight
		var room [gpu.MaxCards]group
		a.scratch.groups = room[:0]
		f.ahead = &a
		f.run()
	}
	return offer, refusal
}

// refuseNode returns the reason for which the node as a whole is out.
func refuseNode(n *ledger.Node, v *ledger.View, r *gpu.PodRequest) Code {
	switch {
	case n.Problem != nil:
		return BadInventory
	case n.Topology().Len() == 0:
		return NoCards
	case n.Paused != "":
		return Unhealthy
	case len(n.Unknown()) > 0 && v == n.Now():
		return Unaccounted
	}
	if !Served(n.Serves, r) {
		return ModeConflict
	}
	return Fits
}

// Served reports whether a node that serves these kinds of request can carry
// out all of the pod's.
func Served(s ledger.Serves, r *gpu.PodRequest) bool {
	for i := range r.Requests {
		req := &r.Requests[i]
		if req.Cards == 0 {
			continue
		}
		if req.Whole && !s.Whole && !s.Seats || !req.Whole && !s.Slices {
			return false
		}
	}
	return true
}

// wholeNode is the refusal of all cards of a node at once.
func wholeNode(n *ledger.Node, code Code, r *gpu.PodRequest) Refusal {
	refusal := Refusal{Code: code, Paused: n.Paused != "" && code == Unhealthy}
	for i := range r.Requests {
		if r.Requests[i].Cards > 0 {
			refusal.Want, refusal.Container = int64(r.Requests[i].Cards), i
			break
		}
	}
	refusal.Cards[code] = uint8(n.Topology().Len())
	return refusal
}

// SingleRequest returns the container that asks for cards, if a single one does.
func SingleRequest(r *gpu.PodRequest) (index int, single bool) {
	asking := 0
	for i := range r.Requests {
		if r.Requests[i].Cards > 0 {
			asking++
			index = i
		}
	}
	return index, asking == 1
}

// fitter is one run of Fit on one node.
type fitter struct {
	node    *ledger.Node
	view    *ledger.View // what other pods have booked
	request *gpu.PodRequest
	prefer  *Preference

	// ahead is nil when nothing is known of the pods to come.
	ahead *foresight

	offer   *ledger.Offer
	refusal *Refusal
}

// run places the pod.
func (f *fitter) run() {
	if i, single := SingleRequest(f.request); single {
		f.placeOne(i)
	} else {
		f.placeSeveral()
	}
	if f.node.Counted && f.refusal.Code == Fits {
		f.useVendorTable()
	}
}

// placeOne places a pod in which a single container asks for cards.
func (f *fitter) placeOne(i int) {
	cards, ok := f.container(i, f.view.Usage, f.view.Full, 0)
	if ok {
		f.accept(i, cards, f.view.Usage)
		if f.ahead != nil {
			f.offer.Growth = f.growthOf(i, cards)
		}
	}
}

// accept puts the cards of container i, chosen at the given usage, into the
// offer, and adds to what the offer is worth.
func (f *fitter) accept(i int, cards gpu.Set, usage []ledger.Usage) {
	f.offer.SetCards(i, cards)
	req := &f.request.Requests[i]
	if f.request.Class == gpu.Online {
		for c := range cards.All() {
			f.offer.Disturbance += disturbance(&usage[c])
		}
	}
	if f.linkAware(req) {
		f.offer.Score += f.node.Topology().Score(cards)
		f.offer.Loss += f.node.Topology().Loss(cards, idle(f.node.Topology(), usage))
	}
}

// linkAware reports whether the request's cards are chosen as a set, by links.
func (f *fitter) linkAware(req *gpu.Request) bool {
	return f.alone(req) && !f.prefer.IgnoreLinks
}

func (f *fitter) seat(req *gpu.Request) bool { return req.Whole && f.node.Serves.Seats }

// alone reports whether the request's cards are shared with no other container.
func (f *fitter) alone(req *gpu.Request) bool { return req.Exclusive && !f.seat(req) }

// container chooses the cards of container i at the given usage. Cards of held
// are preferred. When there are too few it records the refusal.
func (f *fitter) container(i int, usage []ledger.Usage, full []ledger.Fullness, held gpu.Set) (gpu.Set, bool) {
	req := &f.request.Requests[i]
	candidates, t := f.candidates(req, usage)
	if candidates.Len() < req.Cards {
		*f.refusal = f.refuse(i, candidates, &t)
		return 0, false
	}
	if !f.linkAware(req) {
		r := f.ranking(usage, full, candidates)
		r.held = held
		if f.ahead != nil && !r.online && candidates.Len() > req.Cards {
			r.growth = f.grow(candidates, i, usage)
		}
		return r.best(req.Cards), true
	}
	q := subsets{topology: f.node.Topology(), candidates: candidates, free: idle(f.node.Topology(), usage), n: req.Cards, binpack: f.prefer.packs()}
	if held &= candidates; held.Len() >= req.Cards {
		q.candidates = held
	} else {
		q.must = held
	}
	if f.ahead != nil && q.must == 0 && candidates.Len() > req.Cards {
		cards, complete := f.setAhead(&q, i, usage)
		f.offer.Incomplete = f.offer.Incomplete || !complete
		return cards, true
	}
	cards, complete := q.choose()
	f.offer.Incomplete = f.offer.Incomplete || !complete
	return cards, true
}

// refuse returns why container i gets no cards, from the cards that could take it
// and what the others gave as their reasons.
func (f *fitter) refuse(i int, candidates gpu.Set, t *tally) Refusal {
	req := &f.request.Requests[i]
	r := t.refusal(req, candidates)
	r.Container = i
	r.Idle = f.alone(req) || !req.Exclusive && f.prefer.wantsUnused()
	if r.Code == CardExcluded && f.lacksListed() {
		r.Absent, r.Listed = f.request.Allow[0], len(f.request.Allow)
	}
	return r
}

// lacksListed reports whether the pod lists cards of which the node has none. Of
// cards without an identity that is not known.
func (f *fitter) lacksListed() bool {
	t := f.node.Topology()
	for i := range t.Len() {
		if id := t.Card(i).ID; id == "" || slices.Contains(f.request.Allow, id) {
			return false
		}
	}
	return len(f.request.Allow) > 0
}

func (f *fitter) ranking(usage []ledger.Usage, full []ledger.Fullness, candidates gpu.Set) ranking {
	return ranking{
		topology: f.node.Topology(), usage: usage, full: full, candidates: candidates,
		keys: f.prefer.Cards, online: f.request.Class == gpu.Online,
	}
}

// idle returns the healthy idle cards.
func idle(t *gpu.Topology, usage []ledger.Usage) gpu.Set {
	var s gpu.Set
	for i := range t.Healthy().All() {
		if usage[i].Idle() {
			s |= gpu.SetOf(i)
		}
	}
	return s
}

// candidates returns the cards that could each take one share of the request,
// and why the others can't.
func (f *fitter) candidates(req *gpu.Request, usage []ledger.Usage) (gpu.Set, tally) {
	var s gpu.Set
	var t tally
	topology := f.node.Topology()
	unused := !req.Exclusive && f.prefer.wantsUnused()
	// Unless the pod names cards, a card like the one before it gets the same
	// answer.
	anonymous := !unused && len(f.request.Allow)+len(f.request.Deny) == 0
	var share ledger.Usage // made for the first card in use
	var code Code
	var want, have int64
	for i := range topology.Len() {
		card := topology.Card(i)
		if !anonymous || i == 0 || usage[i] != usage[i-1] || card.Healthy != topology.Card(i-1).Healthy || !gpu.SameKind(card, topology.Card(i-1)) {
			c := check{card: card, usage: &usage[i], pod: f.request, request: req, share: &share, seat: f.seat(req)}
			if share.Slots == 0 && !usage[i].Idle() {
				share = f.share(req)
			}
			c.othersThere = unused && !f.view.Usage[i].Idle()
			code, want, have = c.run()
		}
		if code == Fits {
			s |= gpu.SetOf(i)
		} else {
			t.count(code, want, have)
		}
	}
	return s, t
}

// share is a share of the request, but for its amounts. A seat has no QoS.
func (f *fitter) share(req *gpu.Request) ledger.Usage {
	var u ledger.Usage
	if f.seat(req) {
		u.Add(ledger.Share{}, f.request.Class, "")
	} else {
		u.Add(ledger.Share{Exclusive: req.Exclusive}, f.request.Class, f.request.QoS)
	}
	return u
}

// useVendorTable replaces score and loss by the node's own figures for the
// number of cards, on nodes where the vendor's plugin picks them.
func (f *fitter) useVendorTable() {
	var cards gpu.Set
	for i := range f.request.Requests {
		if f.request.Requests[i].Phase != gpu.Init {
			cards |= f.offer.Cards(i)
		}
	}
	if score, ok := f.node.Vendor.Scores[cards.Len()]; ok {
		f.offer.Score = score
	}
	if loss, ok := f.node.Vendor.Losses[cards.Len()]; ok {
		f.offer.Loss = loss
	}
}
