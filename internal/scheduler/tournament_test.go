package scheduler

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTournament: whatever comes, goes and changes, the best member is at the
// top, and taking the best away again and again sorts the members.
func TestTournament(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to repeat it
		rows := 1 + random.IntN(70)
		worth, member := make([]int, rows), make([]bool, rows)
		better := func(a, b int) bool { return cmp.Or(cmp.Compare(worth[a], worth[b]), cmp.Compare(b, a)) > 0 }
		tour := newTournament(rows)
		for step := range 200 {
			row := random.IntN(rows)
			worth[row], member[row] = random.IntN(9), random.IntN(3) > 0
			if step%50 == 0 {
				tour.play(member, better)
			} else {
				tour.update(row, member[row], better)
			}
			var want []int
			for i := range rows {
				if member[i] {
					want = append(want, i)
				}
			}
			slices.SortFunc(want, func(a, b int) int {
				if better(a, b) {
					return -1
				}
				return 1
			})
			if got, ok := tour.top(); ok != (len(want) > 0) || ok && got != want[0] {
				t.Fatalf("seed %d, step %d: row %d is best (%v), want the first of %v", seed, step, got, ok, want)
			}
			if step%20 != 0 {
				continue
			}
			var order []int
			for top, ok := tour.top(); ok; top, ok = tour.top() {
				order = append(order, top)
				tour.update(top, false, better)
			}
			if !slices.Equal(order, want) {
				t.Fatalf("seed %d, step %d: the members come as %v, want %v", seed, step, order, want)
			}
			for _, i := range order {
				tour.update(i, true, better)
			}
		}
	}
}
