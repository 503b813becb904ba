package place_test

import (
	"math/bits"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// worth is an independent reading of what cards are worth: it starts from the
// bare cards and links, and nothing of it is the product's.
type worth struct {
	pair  [][]int64 // the weight of each pair
	group []int     // by card: the lowest card of its zone
}

func worthOf(p *gputest.Plan) *worth {
	n := len(p.Cards)
	w := &worth{pair: make([][]int64, n), group: make([]int, n)}
	direct := map[[2]int]bool{}
	for i := range n {
		w.pair[i] = make([]int64, n)
		w.group[i] = i
	}
	for range n {
		for _, l := range p.Links {
			direct[[2]int{l.A, l.B}], direct[[2]int{l.B, l.A}] = true, true
			lowest := min(w.group[l.A], w.group[l.B])
			w.group[l.A], w.group[l.B] = lowest, lowest
		}
	}
	for i := range n {
		for j := range n {
			switch {
			case i == j:
			case direct[[2]int{i, j}]:
				w.pair[i][j] = 110
			case w.group[i] == w.group[j], p.Cards[i].Switch != "" && p.Cards[i].Switch == p.Cards[j].Switch:
				w.pair[i][j] = 50
			default:
				w.pair[i][j] = 10
			}
		}
	}
	return w
}

// score adds up the weights of the pairs inside the mask.
func (w *worth) score(mask uint64) int64 {
	var sum int64
	for i := range w.pair {
		for j := range i {
			if mask>>i&1 == 1 && mask>>j&1 == 1 {
				sum += w.pair[i][j]
			}
		}
	}
	return sum
}

// scores returns the score of every set of cards.
func (w *worth) scores() []int64 {
	all := make([]int64, 1<<len(w.pair))
	for mask := 1; mask < len(all); mask++ {
		highest := bits.Len(uint(mask)) - 1
		rest := mask &^ (1 << highest)
		all[mask] = all[rest]
		for j := range highest {
			if rest>>j&1 == 1 {
				all[mask] += w.pair[highest][j]
			}
		}
	}
	return all
}

// inZone reports whether the cards of the mask are all of one zone.
func (w *worth) inZone(mask uint64) bool {
	first := bits.TrailingZeros64(mask)
	for i := range w.group {
		if mask>>i&1 == 1 && w.group[i] != w.group[first] {
			return false
		}
	}
	return true
}

// pick is a set of cards with what it is worth.
type pick struct {
	mask        uint64
	score, loss int64
}

func (p pick) indices() []int { return gpu.Set(p.mask).Indices() }

// better compares two sets of the same size under a policy.
func (p pick) better(o pick, policy place.Policy) bool {
	first, second := p.score-o.score, o.loss-p.loss
	if policy == place.Binpack {
		first, second = second, first
	}
	switch {
	case first != 0:
		return first > 0
	case second != 0:
		return second > 0
	}
	return slices.Compare(p.indices(), o.indices()) < 0
}

// choices is the outcome of a brute force over all sets of candidates: by
// policy and number of cards the best one.
type choices map[place.Policy][]pick

// bruteForce looks at every set of candidates. Free are the cards that no pod
// uses, candidates or not.
func (w *worth) bruteForce(candidates, free uint64) choices {
	score := w.scores()
	best := choices{}
	for _, policy := range []place.Policy{place.Default, place.Spread, place.Binpack} {
		bests := make([]pick, bits.OnesCount64(candidates)+1)
		linked := make([]bool, len(bests)) // a set inside one zone was seen
		for mask := uint64(1); mask < uint64(len(score)); mask++ {
			if mask&^candidates != 0 {
				continue
			}
			p := pick{mask: mask, score: score[mask], loss: score[free] - score[mask] - score[free&^mask]}
			n := bits.OnesCount64(mask)
			inZone := n >= 2 && w.inZone(mask)
			if linked[n] && !inZone {
				continue
			}
			if bests[n].mask == 0 || inZone && !linked[n] || p.better(bests[n], policy) {
				bests[n], linked[n] = p, linked[n] || inZone
			}
		}
		best[policy] = bests
	}
	return best
}

// greedy is the obvious quick way: from every first card on, always the card
// that is best for the moment. It returns the best of what that finds.
func (w *worth) greedy(free uint64, n int, policy place.Policy) pick {
	groups := []uint64{}
	for i := range w.group {
		var zone uint64
		for j := range w.group {
			if w.group[j] == i && free>>j&1 == 1 {
				zone |= 1 << j
			}
		}
		if n >= 2 && bits.OnesCount64(zone) >= n {
			groups = append(groups, zone)
		}
	}
	if len(groups) == 0 {
		groups = append(groups, free)
	}
	var best pick
	for _, group := range groups {
		for first := range w.pair {
			if group>>first&1 == 0 {
				continue
			}
			p := w.grow(w.pick(1<<first, free), group, free, n, policy)
			if best.mask == 0 || p.better(best, policy) {
				best = p
			}
		}
	}
	return best
}

func (w *worth) grow(p pick, group, free uint64, n int, policy place.Policy) pick {
	for bits.OnesCount64(p.mask) < n {
		var next pick
		for i := range w.pair {
			if (group&^p.mask)>>i&1 == 0 {
				continue
			}
			if q := w.plus(p, i, free); next.mask == 0 || q.better(next, policy) {
				next = q
			}
		}
		p = next
	}
	return p
}

// plus adds a card: its pairs with the cards taken no longer go through the
// cut, its pairs with the cards left now do.
func (w *worth) plus(p pick, card int, free uint64) pick {
	for i, weight := range w.pair[card] {
		switch {
		case p.mask>>i&1 == 1:
			p.score += weight
			p.loss -= weight
		case free>>i&1 == 1:
			p.loss += weight
		}
	}
	p.mask |= 1 << card
	return p
}

func (w *worth) pick(mask, free uint64) pick {
	return pick{mask: mask, score: w.score(mask), loss: w.score(free) - w.score(mask) - w.score(free&^mask)}
}
