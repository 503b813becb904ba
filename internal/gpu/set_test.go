package gpu_test

import (
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestSet(t *testing.T) {
	cases := map[string]struct {
		set         gpu.Set
		wantIndices []int
		wantFirst   int
		wantHas     []int
		wantHasNot  []int
	}{
		"no card":             {set: gpu.SetOf(), wantIndices: []int{}, wantFirst: gpu.MaxCards, wantHasNot: []int{0, 63}},
		"one card":            {set: gpu.SetOf(3), wantIndices: []int{3}, wantFirst: 3, wantHas: []int{3}, wantHasNot: []int{2, 4}},
		"named out of order":  {set: gpu.SetOf(9, 2, 4), wantIndices: []int{2, 4, 9}, wantFirst: 2, wantHas: []int{2, 4, 9}},
		"named twice":         {set: gpu.SetOf(5, 5), wantIndices: []int{5}, wantFirst: 5},
		"the very last card":  {set: gpu.SetOf(63), wantIndices: []int{63}, wantFirst: 63, wantHas: []int{63}, wantHasNot: []int{0, 62}},
		"none of the first":   {set: gpu.FirstCards(0), wantIndices: []int{}, wantFirst: gpu.MaxCards},
		"the first three":     {set: gpu.FirstCards(3), wantIndices: []int{0, 1, 2}, wantFirst: 0, wantHasNot: []int{3}},
		"the first 63":        {set: gpu.FirstCards(63), wantIndices: upTo(63), wantFirst: 0, wantHasNot: []int{63}},
		"all a node may hold": {set: gpu.FirstCards(gpu.MaxCards), wantIndices: upTo(64), wantFirst: 0, wantHas: []int{63}},
		"more than can be":    {set: gpu.FirstCards(gpu.MaxCards + 1), wantIndices: upTo(64), wantFirst: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "Indices", tc.wantIndices, tc.set.Indices())
			gputest.Equal(t, "Len", len(tc.wantIndices), tc.set.Len())
			gputest.Equal(t, "First", tc.wantFirst, tc.set.First())
			for _, i := range tc.wantHas {
				if !tc.set.Has(i) {
					t.Errorf("card %d is not in the set", i)
				}
			}
			for _, i := range tc.wantHasNot {
				if tc.set.Has(i) {
					t.Errorf("card %d is in the set", i)
				}
			}
		})
	}
}

func TestSetAllCanStopEarly(t *testing.T) {
	var got []int
	for i := range gpu.SetOf(1, 4, 6, 7).All() {
		got = append(got, i)
		if i == 4 {
			break
		}
	}
	gputest.Equal(t, "cards seen", []int{1, 4}, got)
}

// TestSetBefore compares the order of ties with the order of the sorted
// indices, for random sets of equal size.
func TestSetBefore(t *testing.T) {
	r := gputest.Rand(1)
	for range 5000 {
		size := 1 + r.IntN(10)
		a, b := gpu.SetOf(r.Perm(64)[:size]...), gpu.SetOf(r.Perm(64)[:size]...)
		if r.IntN(4) == 0 {
			b = a
		}
		if got, want := a.Before(b), slices.Compare(a.Indices(), b.Indices()) < 0; got != want {
			t.Fatalf("%v before %v = %t, want %t", a.Indices(), b.Indices(), got, want)
		}
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
