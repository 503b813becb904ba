package simulate

import (
	"cmp"
	"math"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// fgd is Fragmentation Gradient Descent (USENIX ATC '23): the place where the
// free card share that the expected jobs cannot use grows least. It is given
// the true mix of jobs in advance, knows nothing of zones, and takes whole cards
// from the lowest index up.
type fgd struct {
	// classes are the jobs to expect; their weights add up to 1.
	classes []kind
	// cost of a growth, in cards.
	cost func(growth float64) float64
}

// newPublishedFGD returns the rule as its authors ran it: over the classes that
// make up most of the trace, with the score from 0 to 100 by a sigmoid of the
// growth, rounded down.
func newPublishedFGD(w *world) policy {
	f := fgd{classes: popular(w.kinds), cost: func(growth float64) float64 {
		return -math.Floor(100 / (1 + math.Exp(growth)))
	}}
	return scored(f.score)(w)
}

// newExactFGD returns the rule over all kinds and without rounding, but for
// what adding up in another order changes.
func newExactFGD(w *world) policy {
	f := fgd{classes: w.kinds, cost: func(growth float64) float64 { return math.Round(growth * 1e9) }}
	return scored(f.score)(w)
}

// cover is the part of the pods that the classes of the published rule cover.
const cover = 0.95

// popular returns the most frequent classes that cover the jobs well enough. A
// class is CPU, cards, part of a card and models; host memory and QoS do not count.
func popular(kinds []kind) []kind {
	var classes []kind
	known := map[string]int{}
	all := 0.0
	for _, k := range kinds {
		k.memory, k.request.QoS = 0, ""
		all += k.weight
		if at, ok := known[k.key()]; ok {
			classes[at].weight += k.weight
			continue
		}
		known[k.key()] = len(classes)
		classes = append(classes, k)
	}
	slices.SortStableFunc(classes, func(a, b kind) int { return cmp.Compare(b.weight, a.weight) })
	covered, n := 0.0, 0
	for ; covered < cover*all; n++ {
		covered += classes[n].weight
	}
	classes = classes[:n]
	for i := range classes {
		classes[i].weight /= covered
	}
	return classes
}

func (f *fgd) score(s *server, k *kind) (float64, gpu.Set) {
	left := make([]gpu.Percent, s.cards())
	for c := range left {
		left[c] = s.left(c)
	}
	before := f.fragmentation(s.model, s.FreeCPU, left)
	cost := func(cards gpu.Set) float64 {
		after := slices.Clone(left)
		for c := range cards.All() {
			after[c] -= k.share
		}
		return f.cost(f.fragmentation(s.model, s.FreeCPU-k.cpu, after) - before)
	}
	room := s.room(k)
	if !k.fractional() {
		cards := first(room, k.cards)
		return cost(cards), cards
	}
	best, least := gpu.Set(0), math.Inf(1)
	for c := range room.All() {
		if cost := cost(gpu.SetOf(c)); cost < least {
			best, least = gpu.SetOf(c), cost
		}
	}
	return least, best
}

// fragmentation is how many free cards the next job is expected not to be able
// to use.
func (f *fgd) fragmentation(model string, cpu gpu.MilliCPU, left []gpu.Percent) float64 {
	sum := 0.0
	for i := range f.classes {
		k := &f.classes[i]
		var all, usable gpu.Percent
		large := 0
		for _, l := range left {
			all += l
			if l >= k.share {
				usable += l
				large++
			}
		}
		if k.cards == 0 || k.cpu > cpu || large < k.cards || !k.runsOn(model) {
			usable = 0
		}
		sum += k.weight * float64(all-usable) / 100
	}
	return sum
}
