package place

import (
	"math"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const (
	// searchBudget bounds the steps of one search. Nodes of up to 16 cards stay
	// far below it, so their choice is always exact.
	searchBudget = 1_000_000
	// boundAbove is the number of candidates from which bounding pays.
	boundAbove = 16
	// memoAbove is the number of candidates from which remembering pays.
	memoAbove = 6
)

// subsets describes a choice of whole cards: n of candidates, must among them,
// from a node on which the cards of free are idle.
type subsets struct {
	topology   *gpu.Topology
	candidates gpu.Set
	free       gpu.Set
	must       gpu.Set
	n          int
	binpack    bool
}

// choose returns the best set. With spread that is the highest score, then the
// lowest loss; with binpack the lowest loss, then the highest score; then the
// lowest indices. For two cards or more, a zone that can hold the whole request
// beats everything outside it. There must be at least n candidates.
//
// The answer is exact unless complete is false, which takes a node of more
// than 16 candidates that are joined in many different ways.
func (q *subsets) choose() (cards gpu.Set, complete bool) {
	if q.candidates.Len() <= memoAbove {
		return q.search()
	}
	key := [4]uint64{uint64(q.candidates), uint64(q.free), uint64(q.must), uint64(q.n) << 1}
	if q.binpack {
		key[3]++
	}
	if a, ok := q.topology.Memo.Get(key); ok {
		return a.Cards, a.Complete
	}
	cards, complete = q.search()
	q.topology.Memo.Put(key, gpu.MemoAnswer{Cards: cards, Complete: complete})
	return cards, complete
}

func (q *subsets) search() (gpu.Set, bool) {
	s := searcher{topology: q.topology, steps: searchBudget, worth: math.MinInt64}
	// What a set is worth, as one number: score and loss stay under 2^18, so
	// the one that counts first is shifted past the other. The loss is what the
	// cards of the set weigh towards all free cards, less what stays inside,
	// which every pair counts twice; so worth is a sum over cards and pairs:
	//
	//	spread:  score<<20 - loss  =  score * (1<<20 + 2) - weight
	//	binpack: score - loss<<20  =  score * (1 + 2<<20) - weight<<20
	perWeight := int64(1)
	s.perScore = 1<<20 + 2
	if q.binpack {
		perWeight = 1 << 20
		s.perScore = 1 + 2<<20
	}
	for c := range q.candidates.All() {
		s.cost[c] = perWeight * q.topology.Pull(c, q.free)
	}
	if q.n >= 2 {
		for _, zone := range q.topology.Zones() {
			if inZone := q.candidates & zone; q.must&^zone == 0 && inZone.Len() >= q.n {
				s.run(inZone, q.must, q.n)
			}
		}
	}
	if !s.found {
		s.run(q.candidates, q.must, q.n)
	}
	return s.best, s.steps > 0
}

// searcher walks the sets of candidates in the order of ties, so that the
// first of equally good sets is the one to keep.
type searcher struct {
	topology *gpu.Topology
	perScore int64
	cost     [gpu.MaxCards]int64 // by card: what taking it costs by itself
	bounded  bool
	steps    int

	found bool
	best  gpu.Set
	worth int64
}

func (s *searcher) run(candidates, must gpu.Set, n int) {
	// Where an earlier zone has used the budget up, the quick way must do.
	s.bounded = candidates.Len() > boundAbove || s.steps <= 0
	if s.bounded {
		s.greedy(candidates, must, n)
	}
	s.walk(candidates&^must, must, n-must.Len(), s.value(must))
}

// gain is what card c adds to the worth of the cards taken.
func (s *searcher) gain(c int, taken gpu.Set) int64 {
	return s.perScore*s.topology.Pull(c, taken) - s.cost[c]
}

// value returns what the set is worth.
func (s *searcher) value(set gpu.Set) int64 {
	v := s.perScore * s.topology.Score(set)
	for c := range set.All() {
		v -= s.cost[c]
	}
	return v
}

// walk tries every way to add left cards of avail to taken. A card that is
// passed over takes its twins with it: a set with the twin instead would be
// worth the same and come later in the order of ties.
func (s *searcher) walk(avail, taken gpu.Set, left int, worth int64) {
	if left <= 1 {
		s.last(avail, taken, left, worth)
		return
	}
	if s.bounded && s.hopeless(avail, taken, left, worth) {
		return
	}
	for avail.Len() >= left && s.steps > 0 {
		s.steps--
		c := avail.First()
		avail &= avail - 1
		s.walk(avail, taken|gpu.SetOf(c), left-1, worth+s.gain(c, taken))
		avail &^= s.topology.Twins(c)
	}
}

// last adds the last card, if one is missing, and considers the results. Most
// of a search is spent here, so it spells out what gain does: all cards taken
// are far from the new one but for those linked to it or near it.
func (s *searcher) last(avail, taken gpu.Set, left int, worth int64) {
	if left == 0 {
		s.consider(taken, worth)
		return
	}
	t, far := s.topology, gpu.WeightFar*taken.Len()
	for avail != 0 {
		s.steps--
		c := avail.First() & (gpu.MaxCards - 1)
		avail &= avail - 1
		pull := far + (gpu.WeightLink-gpu.WeightFar)*(taken&t.Linked(c)).Len() + (gpu.WeightNear-gpu.WeightFar)*(taken&t.Near(c)).Len()
		if w := worth + s.perScore*int64(pull) - s.cost[c]; w >= s.worth {
			s.consider(taken|gpu.SetOf(c), w)
		}
		avail &^= t.Twins(c)
	}
}

// consider keeps the set when it is better than the best so far.
func (s *searcher) consider(set gpu.Set, worth int64) {
	if !s.found || worth > s.worth || worth == s.worth && set.Before(s.best) {
		s.found, s.best, s.worth = true, set, worth
	}
}

// hopeless reports whether no completion can be as good as the best so far: not
// even if every missing card gained as much as the best of them, each joined to
// the others by the heaviest of its pairs.
func (s *searcher) hopeless(avail, taken gpu.Set, left int, worth int64) bool {
	if !s.found || avail.Len() < left {
		return false
	}
	s.steps -= avail.Len() / 8 // a look at all cards takes its time, too
	most := int64(math.MinInt64)
	for c := range avail.All() {
		// Twice the gain, since two cards share the weight of their pair.
		most = max(most, 2*s.gain(c, taken)+s.perScore*s.topology.Heaviest(c, avail, left-1))
	}
	return worth+int64(left)*most/2 < s.worth
}

// greedy finds a good first set, so that bounding bites early: from every
// possible first card, always the card that gains most.
func (s *searcher) greedy(candidates, must gpu.Set, n int) {
	for first := range candidates.All() {
		taken := must
		if taken.Len() < n {
			taken |= gpu.SetOf(first)
		}
		for taken.Len() < n {
			left := candidates &^ taken
			best := left.First()
			for c := range (left & (left - 1)).All() {
				if s.gain(c, taken) > s.gain(best, taken) {
					best = c
				}
			}
			taken |= gpu.SetOf(best)
		}
		s.consider(taken, s.value(taken))
	}
}
