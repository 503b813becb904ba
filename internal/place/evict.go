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

	cards gpu.Set
	held  ledger.Fullness
}

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
	// Below, if set, is what the victims must cost less than.
	Below *EvictionCost
	// MaxTries bounds the sets of victims that are tried one by one.
	MaxTries int
	// Tries counts the sets of victims that were tried.
	Tries int

	node    *ledger.Node
	request *gpu.PodRequest
	prefer  *Preference
	victims []*Victim // most important first
	left    []int32   // of Allowed, while violations charges a set
}

// maxTries is the usual bound.
const maxTries = 4000

// NewEviction returns the search among the given victims, in any order.
func NewEviction(n *ledger.Node, r *gpu.PodRequest, p *Preference, victims []*Victim) *Eviction {
	e := &Eviction{node: n, request: r, prefer: p, victims: slices.Clone(victims), MaxTries: maxTries}
	held := make(map[ledger.Holder]*ledger.Holding, len(n.Holdings()))
	for i := range n.Holdings() {
		h := &n.Holdings()[i]
		held[h.Holder] = h
	}
	for _, v := range victims {
		v.cards, v.held = 0, 0
		if h := held[v.Holder]; h != nil {
			v.cards = h.Cards()
			v.held = heldOn(n.Topology(), h)
		}
	}
	slices.SortFunc(e.victims, func(a, b *Victim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.started(), b.started()), cmp.Compare(a.Holder, b.Holder))
	})
	return e
}

// heldOn returns how much of the node's cards the pod holds: all of a card that it
// shares with no other pod.
func heldOn(t *gpu.Topology, h *ledger.Holding) (held ledger.Fullness) {
	for c := range (h.Cards() & t.All()).All() {
		if u := h.On(c); u.Exclusive {
			held += ledger.MaxFullness
		} else {
			held += u.Fullness(t.Card(c))
		}
	}
	return held
}

// Cheapest returns the victims to evict, most important first: the cheapest of
// all sets, or of the smaller sets where there are too many to try; if none of
// these makes room, the pods on the cheapest cards. It returns false when cards
// are not what is missing, evicting all victims makes no room, or nothing that does
// costs less than Below.
func (e *Eviction) Cheapest() ([]*Victim, bool) {
	affordable := func(v *Victim) bool { return e.undercuts(e.Cost([]*Victim{v}), nil) }
	if !slices.ContainsFunc(e.victims, affordable) || e.fitsWithout(nil) || !e.fitsWithout(e.victims) {
		return nil, false
	}
	var best []*Victim
	for pool := range e.pools {
		best = e.among(pool, best)
		if e.violations(best) == 0 {
			break
		}
	}
	return best, best != nil
}

// undercuts reports whether the cost is lower than that of the best set so far or, if
// there is none, than Below.
func (e *Eviction) undercuts(c EvictionCost, best []*Victim) bool {
	switch {
	case best != nil:
		return c.Compare(e.Cost(best)) < 0
	case e.Below != nil:
		return c.Compare(*e.Below) < 0
	}
	return true
}

// least returns a cost that no set of so many pods of the pool undercuts.
func least(pool []*Victim, size int) EvictionCost {
	lowest := pool[len(pool)-1].Priority
	return EvictionCost{highest: lowest, sum: int64(size) * (int64(lowest) - math.MinInt32), pods: size, start: math.MaxInt64}
}

// pools yields groups of victims that make room together, each a part of the
// next: pods that no budget protects, up to each priority in turn, then all
// victims. A set of one pool that violates no budget is cheaper than every set
// that needs a later pool.
func (e *Eviction) pools(yield func([]*Victim) bool) {
	var free []*Victim
	var levels []int32
	for _, v := range e.victims {
		if e.violations([]*Victim{v}) == 0 {
			free = append(free, v)
			levels = append(levels, v.Priority)
		}
	}
	for _, level := range sorted(levels) {
		pool := slices.DeleteFunc(slices.Clone(free), func(v *Victim) bool { return v.Priority > level })
		if e.fitsWithout(pool) && !yield(pool) {
			return
		}
	}
	yield(e.victims)
}

// among returns the cheapest set of the pool, or best when none is cheaper.
func (e *Eviction) among(pool, best []*Victim) []*Victim {
	for size := 1; size <= len(pool); size++ {
		if !e.undercuts(least(pool, size), best) {
			return best
		}
		if combinations(len(pool), size) <= e.MaxTries-e.Tries {
			best = e.ofSize(pool, size, best)
			continue
		}
		if best == nil || e.violations(best) > 0 {
			if set := e.byCards(pool); e.undercuts(e.Cost(set), best) {
				best = set
			}
		}
		return best
	}
	return best
}

// fitsWithout reports whether the pod fits once the victims are gone.
func (e *Eviction) fitsWithout(victims []*Victim) bool {
	e.Tries++
	holders := make([]ledger.Holder, len(victims))
	for i, v := range victims {
		holders[i] = v.Holder
	}
	n := e.node.Clone()
	n.Release(holders...)
	if e.Before != nil {
		e.Before(n)
	}
	_, refusal := fit(n, n.Now(), e.request, e.prefer, false)
	return refusal.Code == Fits
}

// ofSize returns the cheapest set of the given size that makes room, or best
// when none is cheaper. A set costs more than any part of it, so a part that
// costs too much already is left at once.
func (e *Eviction) ofSize(pool []*Victim, size int, best []*Victim) []*Victim {
	var walk func(from int, chosen []*Victim)
	walk = func(from int, chosen []*Victim) {
		if len(chosen) > 0 && !e.undercuts(e.Cost(chosen), best) {
			return
		}
		if len(chosen) == size {
			if e.fitsWithout(chosen) {
				best = slices.Clone(chosen)
			}
			return
		}
		for i := from; i <= len(pool)-(size-len(chosen)); i++ {
			walk(i+1, append(chosen, pool[i]))
		}
	}
	walk(0, nil)
	return best
}

// byCards empties one card after the other, always the one that keeps the set
// cheapest, until the pod fits; then it spares the victims that are not needed.
func (e *Eviction) byCards(pool []*Victim) []*Victim {
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
		if next == nil {
			next = pool // the rest is held on no known card; the whole pool makes room
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
	return with(0)
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
func (e *Eviction) Cost(set []*Victim) EvictionCost {
	c := EvictionCost{Violations: e.violations(set), highest: math.MinInt32, pods: len(set), start: math.MaxInt64}
	for _, v := range set {
		c.highest, c.sum, c.start = max(c.highest, v.Priority), c.sum+int64(v.Priority)-math.MinInt32, min(c.start, v.started())
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
		if c = c * (n - i) / (i + 1); c > maxTries {
			return maxTries + 1
		}
	}
	return c
}
