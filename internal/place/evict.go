package place

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Victim is a pod that could be evicted.
type Victim struct {
	Holder   ledger.Holder
	Priority int32
	// Started is zero for a pod that has not started.
	Started time.Time
	// Budgets are the disruption budgets that the eviction is charged to, by
	// their position in [Eviction.Allowed].
	Budgets []int
	// Index is the caller's, such as the position of the pod in a list.
	Index int

	// at is the position of what the pod holds among the node's holdings, or -1.
	at    int
	cards gpu.Set
	// uses is what the pod has booked of each of these cards.
	uses []ledger.Usage
	held ledger.Fullness
	// chosen is true while the pod is in the set that a search looks at.
	chosen bool
}

// on returns what the pod has booked of one of its cards.
func (v *Victim) on(card int) *ledger.Usage { return &v.uses[(v.cards & gpu.FirstCards(card)).Len()] }

// started makes start times comparable: pods that have not started are youngest.
func (v *Victim) started() int64 {
	if v.Started.IsZero() {
		return math.MaxInt64
	}
	return v.Started.UnixNano()
}

// Eviction is the search for the cheapest pods to evict from a node so that a pod
// fits. Every set of victims keeps the order of the full list.
type Eviction struct {
	// Allowed is the number of evictions that each disruption budget allows.
	Allowed []int32
	// Before, if set, books what is placed on the node before the pod.
	Before func(*ledger.Node)

	*attempt
	id   NodeID
	node *ledger.Node
	// below, if set, is what the victims must cost less than, or as much if orEqual.
	below   *EvictionCost
	orEqual bool
	// maxTries bounds the work of the search, and tries is the work done, in sets of
	// victims that were tried.
	maxTries, tries int

	victims []*Victim      // most important first
	stays   []ledger.Usage // on each card, of what is not a victim
	left    []int32        // of Allowed, while violations charges a set
	set     []*Victim      // room for the set at hand
	cards   *cardEviction

	best     []*Victim
	bestCost EvictionCost
}

// EvictionTries bounds the work that is done for one pod on all nodes together: some
// ten milliseconds.
const EvictionTries = 20_000

// fitTries is what trying a set counts on the node as a whole, where cards can't be
// looked at one by one.
const fitTries = 25

// SortVictims sorts pods of the node, the most important first, and reads what they
// hold there. It returns the list.
func SortVictims(n *ledger.Node, victims []*Victim) []*Victim {
	positions := make(map[ledger.Holder]int, len(n.Holdings()))
	for i := range n.Holdings() {
		positions[n.Holdings()[i].Holder] = i
	}
	uses := make([]ledger.Usage, 0, len(victims))
	for _, v := range victims {
		v.at, v.cards, v.uses, v.held = -1, 0, nil, 0
		if i, ok := positions[v.Holder]; ok {
			h := &n.Holdings()[i]
			v.at, v.cards = i, h.Cards()&n.Topology().All()
			for c := range v.cards.All() {
				uses = append(uses, h.On(c))
			}
			v.uses = uses[len(uses)-v.cards.Len():]
			v.held = heldOn(n.Topology(), v)
		}
	}
	slices.SortFunc(victims, func(a, b *Victim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.started(), b.started()), cmp.Compare(a.Holder, b.Holder))
	})
	return victims
}

// heldOn returns how much of the cards the pod holds: all of a card that it shares
// with no other pod.
func heldOn(t *gpu.Topology, v *Victim) (held ledger.Fullness) {
	for c := range v.cards.All() {
		if u := v.on(c); u.Exclusive {
			held += ledger.MaxFullness
		} else {
			held += u.Fullness(t.Card(c))
		}
	}
	return held
}

// Cheapest returns the victims to evict, most important first: the cheapest of
// all sets, or of those that were tried where there are too many. It returns false
// when cards are not what is missing, evicting all victims makes no room, or nothing
// that does costs less than below.
func (e *Eviction) Cheapest() ([]*Victim, bool) {
	affordable := func(v *Victim) bool { return e.undercuts(e.Cost([]*Victim{v})) }
	if !slices.ContainsFunc(e.victims, affordable) || e.Fits() || !e.makesRoom(e.victims) {
		return nil, false
	}
	for pool := range e.pools {
		e.among(pool)
		if e.best != nil && (e.bestCost.Violations == 0 || e.tries >= e.maxTries) {
			break
		}
	}
	return e.best, e.best != nil
}

// undercuts reports whether the cost is lower than that of the best set so far or, if
// there is none, than below.
func (e *Eviction) undercuts(c EvictionCost) bool {
	switch {
	case e.best != nil:
		return c.Compare(e.bestCost) < 0
	case e.below != nil:
		order := c.Compare(*e.below)
		return order < 0 || order == 0 && e.orEqual
	}
	return true
}

// keep keeps the set if it is the best so far.
func (e *Eviction) keep(set []*Victim) {
	if c := e.Cost(set); e.undercuts(c) {
		e.best, e.bestCost = slices.Clone(set), c
	}
}

// least returns a cost that no set of so many pods of the pool undercuts.
func least(pool []*Victim, size int) EvictionCost {
	lowest := pool[len(pool)-1]
	return EvictionCost{highest: lowest.Priority, sum: int64(size) * lowest.value(), pods: size, start: math.MaxInt64}
}

// value is the priority, made positive so that more pods are never cheaper.
func (v *Victim) value() int64 { return int64(v.Priority) - math.MinInt32 }

// pools yields groups of victims that make room together, each a part of the
// next: pods that no budget protects, up to each priority in turn, then all
// victims. A set of one pool that violates no budget is cheaper than every set
// that needs a later pool.
func (e *Eviction) pools(yield func([]*Victim) bool) {
	free := e.victims
	if len(e.Allowed) > 0 {
		free = slices.DeleteFunc(slices.Clone(free), func(v *Victim) bool { return e.violations([]*Victim{v}) > 0 })
	}
	var levels []int // where the pods of each priority begin, the lowest first
	for from, v := range slices.Backward(free) {
		if from == 0 || free[from-1].Priority != v.Priority {
			levels = append(levels, from)
		}
	}
	first, _ := slices.BinarySearchFunc(levels, true, func(from int, _ bool) int {
		if e.makesRoom(free[from:]) {
			return 1
		}
		return -1
	})
	for _, from := range levels[first:] {
		if !yield(free[from:]) {
			return
		}
	}
	yield(e.victims)
}

// among looks for the cheapest set of the pool.
func (e *Eviction) among(pool []*Victim) {
	if s, ok := e.byCard(pool); ok {
		s.run()
		return
	}
	for size := 1; size <= len(pool); size++ {
		if !e.undercuts(least(pool, size)) {
			return
		}
		if combinations(len(pool), size) > (e.maxTries-e.tries)/fitTries {
			if e.best == nil || e.bestCost.Violations > 0 {
				e.empty(pool)
			}
			return
		}
		e.ofSize(pool, size)
	}
}

// Fits reports whether the pod fits without an eviction.
func (e *Eviction) Fits() bool {
	if e.Before != nil {
		return e.fitsWithout(nil)
	}
	_, refusal := fit(e.node, e.node.Now(), e.request, e.prefer, false)
	return refusal.Code == Fits
}

// makesRoom reports whether the pod fits once the victims are gone.
func (e *Eviction) makesRoom(victims []*Victim) bool {
	if s, ok := e.byCard(victims); ok {
		return s.makesRoom()
	}
	return e.fitsWithout(victims)
}

// fitsWithout reports whether the pod fits on the node without the victims.
func (e *Eviction) fitsWithout(victims []*Victim) (fits bool) {
	e.tries += fitTries
	e.without(victims, func(n *ledger.Node) {
		_, refusal := fit(n, n.Now(), e.request, e.prefer, false)
		fits = refusal.Code == Fits
	})
	return fits
}

// without shows the node without the victims, and with what is placed before the pod.
func (e *Eviction) without(victims []*Victim, show func(*ledger.Node)) {
	holders := make([]ledger.Holder, len(victims))
	for i, v := range victims {
		holders[i] = v.Holder
	}
	before := e.trial.Checkpoint()
	n := e.trial.Edit(e.id)
	n.Release(holders...)
	if e.Before != nil {
		e.Before(n)
	}
	show(n)
	e.trial.Undo(before)
}

// ofSize looks for the cheapest set of the given size that makes room. A set costs
// more than any part of it, so a part that costs too much already is left at once.
func (e *Eviction) ofSize(pool []*Victim, size int) {
	var walk func(from int, chosen []*Victim)
	walk = func(from int, chosen []*Victim) {
		if len(chosen) > 0 && !e.undercuts(e.Cost(chosen)) {
			return
		}
		if len(chosen) == size {
			if e.fitsWithout(chosen) {
				e.keep(chosen)
			}
			return
		}
		for i := from; i <= len(pool)-(size-len(chosen)); i++ {
			walk(i+1, append(chosen, pool[i]))
		}
	}
	walk(0, nil)
}

// empty empties one card after the other, always the one that keeps the set cheapest,
// until the pod fits; then it spares the victims that are not needed. It finds nothing
// where what is placed before the pod takes the room that the pool would make.
func (e *Eviction) empty(pool []*Victim) {
	chosen := map[*Victim]bool{}
	with := func(cards gpu.Set) []*Victim {
		return slices.DeleteFunc(slices.Clone(pool), func(v *Victim) bool { return !chosen[v] && v.cards&cards == 0 })
	}
	set := with(0)
	for !e.fitsWithout(set) {
		var next []*Victim
		for c := range e.node.Topology().All().All() {
			on := with(gpu.SetOf(c))
			if len(on) > len(set) && (next == nil || e.compare(on, next) < 0) {
				next = on
			}
		}
		switch {
		case len(set) == len(pool):
			return
		case next == nil:
			next = pool // the rest is held on no known card
		}
		for _, v := range next {
			chosen[v] = true
		}
		set = next
	}
	for _, v := range e.sparing(set) {
		delete(chosen, v)
		if !e.fitsWithout(with(0)) {
			chosen[v] = true
		}
	}
	e.keep(with(0))
}

// sparing returns the order in which members of the set are spared: first pods
// whose budget the set violates, within each group the most important first.
func (e *Eviction) sparing(set []*Victim) []*Victim {
	e.violations(set)
	var broken, others []*Victim
	for _, v := range set {
		if slices.ContainsFunc(v.Budgets, func(b int) bool { return e.left[b] < 0 }) {
			broken = append(broken, v)
		} else {
			others = append(others, v)
		}
	}
	return append(broken, others...)
}

// EvictionCost is what evicting a set of pods costs.
type EvictionCost struct {
	// Violations is the number of pods whose eviction exceeds a budget.
	Violations int

	highest int32 // priority
	sum     int64 // of priorities, made positive so that more pods are never cheaper
	pods    int
	held    ledger.Fullness // of cards
	start   int64           // of the pod that has run longest
}

// Compare orders costs as kube-scheduler orders nodes: fewest violations of
// budgets, lowest highest priority, smallest sum of priorities (and so fewest
// pods), then pods that started last. Before the last it compares how much of their
// cards the pods hold: a slice is evicted rather than a job on eight cards.
func (c EvictionCost) Compare(o EvictionCost) int {
	return cmp.Or(
		cmp.Compare(c.Violations, o.Violations), cmp.Compare(c.highest, o.highest),
		cmp.Compare(c.sum, o.sum), cmp.Compare(c.pods, o.pods), cmp.Compare(c.held, o.held), cmp.Compare(o.start, c.start))
}

// Cost returns what evicting the set costs.
func (e *Eviction) Cost(set []*Victim) EvictionCost { return CostOf(set, e.violations(set)) }

// CostOf returns what evicting the set costs, which [SortVictims] has read, if it
// exceeds budgets for so many of its pods.
func CostOf(set []*Victim, violations int) EvictionCost {
	c := EvictionCost{Violations: violations, highest: math.MinInt32, pods: len(set), start: math.MaxInt64}
	for _, v := range set {
		c.highest, c.sum, c.start = max(c.highest, v.Priority), c.sum+v.value(), min(c.start, v.started())
		c.held += v.held
	}
	return c
}

func (e *Eviction) compare(a, b []*Victim) int { return e.Cost(a).Compare(e.Cost(b)) }

// violations returns the number of pods in the set whose eviction, after those
// before them, exceeds a budget. Pods outside the set are not charged.
func (e *Eviction) violations(set []*Victim) int {
	e.left = append(e.left[:0], e.Allowed...)
	n := 0
	for _, v := range set {
		over := false
		for _, b := range v.Budgets {
			e.left[b]--
			over = over || e.left[b] < 0
		}
		if over {
			n++
		}
	}
	return n
}

// combinations returns how many sets of k there are among n, or a large number.
func combinations(n, k int) int {
	c := 1
	for i := range k {
		if c = c * (n - i) / (i + 1); c > EvictionTries {
			return EvictionTries + 1
		}
	}
	return c
}
