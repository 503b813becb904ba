package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// cardEviction is the search among a pool of victims for a pod of which a single
// container asks for cards. It fits once enough cards have room for a share of it each,
// whatever the others have on them, so that victims are chosen card by card and the
// node is not copied.
type cardEviction struct {
	*Eviction
	request *gpu.Request
	share   ledger.Usage
	seat    bool
	unused  bool
	pool    []*Victim
}

// workspace is memory that searches of several nodes share, one after the other.
type workspace struct {
	// unknown are victims whose cards are not known: while they are there, nothing fits.
	unknown []*Victim
	// base is what stays on each card, and on the victims there, least important first.
	base  []ledger.Usage
	on    [][]*Victim
	lists []*Victim
	// order has the cards that can get room, the cheapest first.
	order []toll
	rest  []*Victim
	sizes []int64
	gone  []bool
}

// toll is what making room on a card costs at least, in fractions of pods.
type toll struct {
	card int
	cost EvictionCost
}

// fractions of a pod are what it counts on each of its cards where costs of cards are
// added up. It is divisible by up to ten cards.
const fractions = 2520

// byCard returns the search among the pool, unless several containers ask for cards.
func (e *Eviction) byCard(pool []*Victim) (*cardEviction, bool) {
	if e.cards == nil {
		i, single := SingleRequest(e.request)
		if !single {
			return nil, false
		}
		e.only(i)
	}
	s := e.cards
	s.pool, s.unknown, s.base = pool, s.unknown[:0], append(s.base[:0], e.kept()...)
	for _, v := range e.victims {
		// A pool keeps the order of the list of which it is a part.
		if len(pool) > 0 && pool[0] == v {
			pool = pool[1:]
			if v.at < 0 && slices.Contains(e.node.Unknown(), v.Holder) {
				s.unknown = append(s.unknown, v)
			}
			continue
		}
		for c := range v.cards.All() {
			s.base[c].Plus(v.on(c))
		}
	}
	return s, true
}

// only makes the search one for a single container of the pod.
func (e *Eviction) only(container int) {
	f := fitter{node: e.node, request: e.request}
	req := &e.request.Requests[container]
	e.cards = &cardEviction{
		Eviction: e, request: req,
		share: f.share(req), seat: f.seat(req), unused: !req.Exclusive && e.prefer.wantsUnused(),
	}
}

// kept returns what is on each card that no eviction removes.
func (e *Eviction) kept() []ledger.Usage {
	switch {
	case e.stays != nil:
	case e.Before != nil:
		e.tries += fitTries
		e.without(e.victims, func(n *ledger.Node) { e.stays = slices.Clone(n.Now().Usage) })
	default:
		e.stays = e.withoutVictims()
	}
	return e.stays
}

// withoutVictims returns what is on each card without the victims.
func (e *Eviction) withoutVictims() []ledger.Usage {
	holdings, base := e.node.Holdings(), e.node.WithoutPods().Usage
	gone, n := slices.Grow(e.gone[:0], len(holdings))[:len(holdings)], 0
	clear(gone)
	e.gone = gone
	for _, v := range e.victims {
		if v.at >= 0 {
			gone[v.at] = true
			n++
		}
	}
	if n == len(holdings) {
		return base
	}
	base = slices.Clone(base)
	for i := range holdings {
		if gone[i] {
			continue
		}
		for c := range (holdings[i].Cards() & e.node.Topology().All()).All() {
			u := holdings[i].On(c)
			base[c].Plus(&u)
		}
	}
	return base
}

// list lists the victims of each card.
func (s *cardEviction) list() {
	n := 0
	for _, v := range s.pool {
		n += v.cards.Len()
		v.chosen = false
	}
	lists := slices.Grow(s.lists[:0], n)
	s.lists = lists
	s.on = s.on[:0]
	for c := range s.node.Topology().Len() {
		from := len(lists)
		for _, v := range slices.Backward(s.pool) {
			if v.cards.Has(c) {
				lists = append(lists, v)
			}
		}
		s.on = append(s.on, lists[from:])
	}
}

// hasRoom reports whether the card has room for a share of the request next to what
// is used of it.
func (s *cardEviction) hasRoom(card int, used *ledger.Usage) bool {
	c := check{
		card: s.node.Topology().Card(card), usage: used, pod: s.Eviction.request, request: s.request,
		share: &s.share, seat: s.seat, othersThere: s.unused && !used.Idle(),
	}
	code, _, _ := c.run()
	return code == Fits
}

// makesRoom reports whether the pod fits without the pool.
func (s *cardEviction) makesRoom() bool {
	if refuseNode(s.node, s.node.WithoutPods(), s.Eviction.request) != Fits || len(s.unknown) < len(s.node.Unknown()) {
		return false
	}
	cards := 0
	for c := range s.node.Topology().Len() {
		if s.hasRoom(c, &s.base[c]) {
			cards++
		}
	}
	return cards >= s.request.Cards
}

// run looks for the cheapest set of the pool.
func (s *cardEviction) run() {
	s.assess(false)
	for _, v := range s.unknown {
		v.chosen = true
	}
	s.choose(0, s.request.Cards)
	for _, v := range s.unknown {
		v.chosen = false
	}
	if s.best == nil && s.below == nil { // the work was too much
		s.empty(s.pool)
	}
}

// assess sorts the cards by what making room there costs at least. A pod on several
// cards counts on each of them in part if it is shared, else on none.
func (s *cardEviction) assess(shared bool) {
	s.tries += s.node.Topology().Len()
	s.list()
	s.order = slices.Grow(s.order[:0], s.node.Topology().Len())
	for c := range s.node.Topology().Len() {
		if s.hasRoom(c, &s.base[c]) {
			s.order = append(s.order, toll{card: c, cost: s.toll(c, shared)})
		}
	}
	slices.SortFunc(s.order, func(a, b toll) int { return cmp.Or(a.cost.Compare(b.cost), cmp.Compare(a.card, b.card)) })
}

// toll returns what making room on the card costs at least.
func (s *cardEviction) toll(card int, shared bool) EvictionCost {
	cost := EvictionCost{highest: math.MinInt32, start: math.MaxInt64}
	all := s.with(card, s.base[card], s.on[card])
	if s.hasRoom(card, &all) {
		return cost
	}
	s.rest = s.rest[:0]
	left := s.base[card]
	for _, v := range s.on[card] {
		with := s.base[card]
		with.Plus(v.on(card))
		if s.hasRoom(card, &with) {
			s.rest = append(s.rest, v)
			left.Plus(v.on(card))
			continue
		}
		weight := v.weight(shared)
		cost = cost.plus(s.Cost([]*Victim{v}), weight)
	}
	if len(s.rest) == 0 || s.hasRoom(card, &left) {
		return cost
	}
	// Some of the rest have to go, too: as many as it takes if they are the largest, each
	// as cheap as the cheapest.
	n := s.fewest(card, s.rest, &left)
	cheapest := s.Cost(s.rest[:1])
	weight := s.rest[0].weight(shared)
	s.sizes = s.sizes[:0]
	for _, v := range s.rest {
		c := s.Cost([]*Victim{v})
		cheapest.Violations, cheapest.sum = min(cheapest.Violations, c.Violations), min(cheapest.sum, c.sum)
		cheapest.held, weight = min(cheapest.held, c.held), min(weight, v.weight(shared))
		s.sizes = append(s.sizes, c.start)
	}
	slices.Sort(s.sizes)
	cheapest.start = s.sizes[len(s.sizes)-n]
	for range n {
		cost = cost.plus(cheapest, weight)
	}
	return cost
}

// weight is what the pod counts on each of its cards.
func (v *Victim) weight(shared bool) int64 {
	n := v.cards.Len()
	if !shared && n > 1 {
		return 0
	}
	return fractions / int64(n)
}

// plus returns c with a cost added so many times; the highest priority is left as it is.
func (c EvictionCost) plus(o EvictionCost, times int64) EvictionCost {
	c.Violations += o.Violations * int(times)
	c.sum += o.sum * times
	c.pods += o.pods * int(times)
	c.held += o.held * ledger.Fullness(times)
	if times > 0 {
		c.start = min(c.start, o.start)
	}
	return c
}

// whole returns the cost in whole pods, rounded up.
func (c EvictionCost) whole() EvictionCost {
	up := func(n int64) int64 { return (n + fractions - 1) / fractions }
	return EvictionCost{
		Violations: int(up(int64(c.Violations))), highest: c.highest, sum: up(c.sum), pods: int(up(int64(c.pods))),
		held: ledger.Fullness(up(int64(c.held))), start: c.start,
	}
}

// with adds what victims that are not chosen have booked of the card.
func (s *cardEviction) with(card int, used ledger.Usage, victims []*Victim) ledger.Usage {
	for _, v := range victims {
		if !v.chosen {
			used.Plus(v.on(card))
		}
	}
	return used
}

// fewest returns how many of the victims have to leave the card at least, of which
// they use so much together with the rest.
func (s *cardEviction) fewest(card int, victims []*Victim, used *ledger.Usage) int {
	c := s.node.Topology().Card(card)
	n := max(1, int(used.Slots)+1-c.Slots)
	if s.seat {
		return min(n, len(victims))
	}
	n = max(n, s.count(int64(used.Memory+s.request.Memory.Of(c.Memory)-c.Memory), victims, func(v *Victim) int64 { return int64(v.on(card).Memory) }))
	if s.Eviction.request.Class != gpu.Online {
		n = max(n, s.count(int64(used.Compute+max(1, s.request.Compute)-gpu.FullCompute), victims, func(v *Victim) int64 { return int64(v.on(card).Compute) }))
	}
	return min(n, len(victims))
}

// count returns how many of the victims have at least so much together.
func (s *cardEviction) count(much int64, victims []*Victim, size func(*Victim) int64) (n int) {
	s.sizes = s.sizes[:0]
	for _, v := range victims {
		if !v.chosen {
			s.sizes = append(s.sizes, size(v))
		}
	}
	slices.Sort(s.sizes)
	for n < len(s.sizes) && much > 0 {
		n++
		much -= s.sizes[len(s.sizes)-n]
	}
	return n
}

// Bound returns a cost that no set of victims which makes room undercuts, or false
// when none makes room.
func (e *Eviction) Bound() (bound EvictionCost, ok bool) {
	if _, single := SingleRequest(e.request); single {
		return e.bound()
	}
	// What makes room for the pod makes room for each of its containers.
	defer func() { e.cards = nil }()
	for i := range e.request.Requests {
		if e.request.Requests[i].Cards == 0 {
			continue
		}
		e.only(i)
		one, possible := e.bound()
		if !possible {
			return EvictionCost{}, false
		}
		if !ok || one.Compare(bound) > 0 {
			bound, ok = one, true
		}
	}
	return bound, ok
}

// bound is Bound for a single container.
func (e *Eviction) bound() (EvictionCost, bool) {
	if len(e.victims) == 0 {
		return EvictionCost{}, false
	}
	for pool := range e.pools {
		s, _ := e.byCard(pool)
		if !s.makesRoom() {
			break
		}
		s.assess(true)
		cost := s.lowest()
		for _, v := range s.unknown {
			cost = cost.plus(e.Cost([]*Victim{v}), fractions)
		}
		cost, single := cost.whole(), least(pool, 1)
		cost.highest = single.highest
		if len(pool) < len(e.victims) || e.violations(pool) == 0 {
			cost.highest = pool[0].Priority // those up to a lower one make no room
		}
		cost.pods = max(cost.pods, single.pods)
		cost.sum = max(cost.sum, int64(cost.pods)*single.sum)
		return cost, true
	}
	return EvictionCost{}, false
}

// lowest returns the lowest cost of as many cards as the pod wants. Where pods are on
// several cards, of which each has a fraction of the cost, the cards with the lowest
// of each amount may not be the same.
func (s *cardEviction) lowest() EvictionCost {
	cost := EvictionCost{highest: math.MinInt32, start: math.MaxInt64}
	n := s.request.Cards
	if !slices.ContainsFunc(s.pool, func(v *Victim) bool { return v.cards.Len() > 1 }) {
		for _, t := range s.order[:n] {
			cost = cost.plus(t.cost, 1)
		}
		return cost
	}
	sum := func(amount func(c *EvictionCost) int64) (sum int64) {
		s.sizes = s.sizes[:0]
		for i := range s.order {
			s.sizes = append(s.sizes, amount(&s.order[i].cost))
		}
		slices.Sort(s.sizes)
		for _, a := range s.sizes[:n] {
			sum += a
		}
		return sum
	}
	cost.Violations = int(sum(func(c *EvictionCost) int64 { return int64(c.Violations) }))
	cost.sum = sum(func(c *EvictionCost) int64 { return c.sum })
	cost.pods = int(sum(func(c *EvictionCost) int64 { return int64(c.pods) }))
	cost.held = ledger.Fullness(sum(func(c *EvictionCost) int64 { return int64(c.held) }))
	return cost
}

// choose makes room on so many more of the cards from position i on.
func (s *cardEviction) choose(i, more int) {
	if more == 0 {
		set := s.chosen()
		if s.undercuts(s.Cost(set)) && (s.Before == nil || s.fitsWithout(set)) {
			s.keep(set)
		}
		return
	}
	for ; i <= len(s.order)-more; i++ {
		var least EvictionCost
		least.start = math.MaxInt64
		for _, t := range s.order[i : i+more] {
			least = least.plus(t.cost, 1)
		}
		if !s.affords(least.whole()) {
			return
		}
		card := s.order[i].card
		s.clear(card, s.on[card], s.base[card], func() { s.choose(i+1, more-1) })
	}
}

// chosen returns the set that is chosen.
func (s *cardEviction) chosen() []*Victim {
	s.set = s.set[:0]
	for _, v := range s.pool {
		if v.chosen {
			s.set = append(s.set, v)
		}
	}
	return s.set
}

// affords reports whether the set that is chosen, with so much more, is cheaper than
// the best.
func (s *cardEviction) affords(more EvictionCost) bool {
	s.tries++
	if s.tries > s.maxTries {
		return false
	}
	cost := s.Cost(s.chosen())
	cost = cost.plus(more, 1)
	return s.undercuts(cost)
}

// clear evicts sets of the victims that make room on the card next to what is used of
// it, and calls next for each. No set has a victim that need not go.
func (s *cardEviction) clear(card int, victims []*Victim, used ledger.Usage, next func()) {
	all := s.with(card, used, victims)
	switch {
	case s.hasRoom(card, &all):
		next()
		return
	case len(victims) == 0 || !s.hasRoom(card, &used):
		return
	}
	n := s.fewest(card, victims, &all)
	lowest := victims[0]
	if !s.affords(EvictionCost{sum: int64(n) * lowest.value(), pods: n, start: math.MaxInt64}) {
		return
	}
	v := victims[0]
	if v.chosen {
		s.clear(card, victims[1:], used, next)
		return
	}
	v.chosen = true
	s.clear(card, victims[1:], used, next)
	v.chosen = false
	// Where it is spared, so are those that are as large and cost no less.
	for len(victims) > 0 && v.likeOn(card, victims[0]) {
		if !victims[0].chosen {
			used.Plus(victims[0].on(card))
		}
		victims = victims[1:]
	}
	s.clear(card, victims, used, next)
}

// likeOn reports whether evicting the other victim, which comes later, makes as much
// room and costs no less.
func (v *Victim) likeOn(card int, o *Victim) bool {
	return v == o || v.cards == o.cards && v.cards.Len() == 1 && v.Priority == o.Priority && *v.on(card) == *o.on(card) && slices.Equal(v.Budgets, o.Budgets)
}
