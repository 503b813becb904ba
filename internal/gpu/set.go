package gpu

import (
	"iter"
	"math/bits"
)

// Set is a set of cards of one node, by index.
type Set uint64

// SetOf returns the set of the given indices.
func SetOf(indices ...int) Set {
	var s Set
	for _, i := range indices {
		s |= 1 << i
	}
	return s
}

// FirstCards returns the set of indices 0 to n-1.
func FirstCards(n int) Set {
	if n >= MaxCards {
		return ^Set(0)
	}
	return 1<<n - 1
}

// Has reports whether card i is in s.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// Len returns the number of cards in s.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// First returns the lowest index in s, or [MaxCards] when s is empty.
func (s Set) First() int { return bits.TrailingZeros64(uint64(s)) }

// Before reports whether s comes before o in the order of ties: the set whose
// sorted indices are the smaller at the first difference. Both must have the
// same number of cards.
func (s Set) Before(o Set) bool {
	diff := s ^ o
	return s&(diff&-diff) != 0
}

// All yields the indices in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(s.First()) {
				return
			}
		}
	}
}

// Indices returns the indices in ascending order.
func (s Set) Indices() []int {
	out := make([]int, 0, s.Len())
	for i := range s.All() {
		out = append(out, i)
	}
	return out
}
