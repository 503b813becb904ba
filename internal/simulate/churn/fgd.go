package churn

import (
	"cmp"
	"math"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// fgd is Fragmentation Gradient Descent as published (USENIX ATC '23), which
// knows nothing of zones: the placement after which the least free capacity is
// out of reach of the jobs to be expected. It is told the true mix in advance,
// and takes whole cards from the lowest index up.
type fgd struct {
	*world
}

func (f *fgd) pick(k *kind) (server int, cards gpu.Set, ok bool) {
	var least float64
	tied := ties{random: f.random}
	for i, n := range f.servers {
		can := roomy(n, k)
		if can.Len() < k.cards {
			continue
		}
		free := freeShares(n)
		before := f.fragmentation(&free)
		try := func(chosen gpu.Set) {
			after := free
			for c := range chosen.All() {
				after[c] -= k.share
			}
			grown := f.fragmentation(&after) - before
			compared := cmp.Compare(least, grown)
			if math.Abs(least-grown) < 1e-9 {
				compared = 0 // but for rounding
			}
			if tied.replaces(compared) {
				server, cards, least, ok = i, chosen, grown, true
			}
		}
		if !k.fractional() {
			try(can &^ last(can, can.Len()-k.cards))
			continue
		}
		for c := range can.All() {
			try(gpu.SetOf(c))
		}
	}
	return server, cards, ok
}

// fragmentation is the free capacity of a server, in percent of cards, that the
// next job is expected not to be able to use.
func (f *fgd) fragmentation(free *[serverCards]gpu.Percent) float64 {
	sum := 0.0
	for i := range f.kinds {
		k := &f.kinds[i]
		all, small, fitting := 0, 0, 0
		for _, left := range free {
			all += int(left)
			if left >= k.share {
				fitting++
			} else {
				small += int(left)
			}
		}
		if fitting < k.cards {
			small = all
		}
		sum += k.weight * float64(small)
	}
	return sum
}

// freeShares returns what is left of each card.
func freeShares(n *ledger.Node) [serverCards]gpu.Percent {
	var free [serverCards]gpu.Percent
	for i, u := range n.Now().Usage {
		if !u.Exclusive {
			free[i] = gpu.FullCompute - u.Compute
		}
	}
	return free
}
