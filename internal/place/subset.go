package place

import "github.com/daybreak-gpu/daybreak/internal/gpu"

const (
	// searchBudget bounds the steps of one search. Nodes of up to 16 cards stay
	// far below it, so their choice is always exact.
	searchBudget = 1_000_000
	// boundAbove is the number of candidates from which bounding pays.
	boundAbove = 16
	// memoAbove is the number of candidates from which remembering pays.
	memoAbove = 8
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
// than 16 candidates without symmetry.
func (q *subsets) choose() (cards gpu.Set, complete bool) {
	if q.candidates.Len() <= memoAbove {
		return q.search()
	}
	key := [5]uint64{uint64(q.candidates), uint64(q.free), uint64(q.must), uint64(q.n)}
	if q.binpack {
		key[4] = 1
	}
	if a, ok := q.topology.Memo.Get(key); ok {
		return a.Cards, a.Complete
	}
	cards, complete = q.search()
	q.topology.Memo.Put(key, gpu.MemoAnswer{Cards: cards, Complete: complete})
	return cards, complete
}

func (q *subsets) search() (gpu.Set, bool) {
	s := searcher{topology: q.topology, binpack: q.binpack, steps: searchBudget}
	for c := range q.candidates.All() {
		s.pull[c] = int32(q.topology.Pull(c, q.free))
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
	binpack  bool
	bounded  bool
	pull     [gpu.MaxCards]int32 // by card: its weight to all free cards
	steps    int

	found bool
	best  gpu.Set
	worth int64
}

func (s *searcher) run(candidates, must gpu.Set, n int) {
	var score, pull int64
	for c := range must.All() {
		pull += int64(s.pull[c])
	}
	score = s.topology.Score(must)
	s.bounded = candidates.Len() > boundAbove
	if s.bounded {
		s.greedy(candidates, must, n)
	}
	s.walk(candidates&^must, must, n-must.Len(), score, pull)
}

// walk tries every way to add left cards of avail to taken. A card that is
// passed over takes its twins with it: a set with the twin instead would be
// worth the same and come later in the order of ties.
func (s *searcher) walk(avail, taken gpu.Set, left int, score, pull int64) {
	if left == 0 {
		s.consider(taken, score, pull)
		return
	}
	if s.bounded && left > 1 && s.hopeless(avail, taken, left, score, pull) {
		return
	}
	for avail.Len() >= left && s.steps > 0 {
		s.steps--
		c := avail.First()
		avail &= avail - 1
		s.walk(avail, taken|gpu.SetOf(c), left-1, score+s.topology.Pull(c, taken), pull+int64(s.pull[c]))
		avail &^= s.topology.Twins(c)
	}
}

// consider keeps the set when it is better than the best so far. The weight
// that leaves the set is all the weight of its cards less what stays inside,
// which each pair counts twice: that is the loss.
func (s *searcher) consider(set gpu.Set, score, pull int64) {
	worth := s.value(score, pull-2*score)
	if !s.found || worth > s.worth || worth == s.worth && set.Before(s.best) {
		s.found, s.best, s.worth = true, set, worth
	}
}

// value makes one number of score and loss, both under 2^18, in the order the
// policy asks for: greater is better.
func (s *searcher) value(score, loss int64) int64 {
	if s.binpack {
		return -loss<<20 + score
	}
	return score<<20 - loss
}

// hopeless reports whether no completion can be better than the best so far.
func (s *searcher) hopeless(avail, taken gpu.Set, left int, score, pull int64) bool {
	if !s.found {
		return false
	}
	var nearest, lightest int64 = 0, 1 << 40
	for c := range avail.All() {
		nearest = max(nearest, s.topology.Pull(c, taken))
		lightest = min(lightest, int64(s.pull[c]))
	}
	l := int64(left)
	most := score + l*nearest + l*(l-1)/2*gpu.WeightLink
	least := max(0, pull+l*lightest-2*most)
	return s.value(most, least) < s.worth
}

// greedy finds a good first set, so that bounding bites early: from every
// possible first card, always the card most drawn to those taken.
func (s *searcher) greedy(candidates, must gpu.Set, n int) {
	for first := range candidates.All() {
		taken := must
		if taken.Len() < n {
			taken |= gpu.SetOf(first)
		}
		for taken.Len() < n {
			best, bestPull := -1, int64(-1)
			for c := range (candidates &^ taken).All() {
				if p := s.topology.Pull(c, taken)<<20 - int64(s.pull[c]); best < 0 || p > bestPull {
					best, bestPull = c, p
				}
			}
			taken |= gpu.SetOf(best)
		}
		var pull int64
		for c := range taken.All() {
			pull += int64(s.pull[c])
		}
		s.consider(taken, s.topology.Score(taken), pull)
	}
}
