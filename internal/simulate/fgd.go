package simulate

import (
	"cmp"
	"math"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// fgd is the published rule of Fragmentation Gradient Descent (USENIX ATC'23):
// the place where the expected fragmentation grows least, over the classes of
// pods that make up most of the trace, rounded as its authors round it.
type fgd struct {
	classes []fgdClass
}

// fgdClass is a class of the target workload.
type fgdClass struct {
	kind
	share float64
}

// fgdCover is the part of the pods that the target workload covers.
const fgdCover = 0.95

func newFGD(s *setting) policy {
	f := fgd{classes: fgdClasses(s)}
	return scored(f.score)(s)
}

// fgdClasses returns the most popular classes that cover the trace well enough.
// A class is CPU, cards, part of a card and models; host memory does not count.
func fgdClasses(s *setting) []fgdClass {
	pods := make([]Pod, len(s.trace))
	for i, id := range s.trace {
		pods[i] = s.state.kinds[id].Pod
		pods[i].Memory, pods[i].QoS = 0, ""
	}
	kinds, of := kindsOf(pods, true)
	counts := make([]int, len(kinds))
	for _, id := range of {
		counts[id]++
	}
	order := make([]int, len(kinds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	covered := 0
	var classes []fgdClass
	for _, id := range order {
		classes = append(classes, fgdClass{kind: kinds[id], share: float64(counts[id])})
		if covered += counts[id]; float64(covered) >= fgdCover*float64(len(pods)) {
			break
		}
	}
	for i := range classes {
		classes[i].share /= float64(covered)
	}
	return classes
}

// score is the published one: 0 to 100 by a sigmoid of the growth, rounded
// down; here the less the better.
func (f *fgd) score(s *state, n *server, k *kind) (float64, gpu.Set) {
	before := f.fragmentation(n, n.cpu, n.left)
	after := slices.Clone(n.left)
	rounded := func() float64 {
		growth := f.fragmentation(n, n.cpu-k.CPU, after) - before
		return -math.Floor(100 / (1 + math.Exp(growth/wholeCard)))
	}
	if !k.fractional() {
		cards := idleCards(n, k.Cards)
		for c := range cards.All() {
			after[c] = 0
		}
		return rounded(), cards
	}
	best, cost := -1, 0.0
	for c := range n.left {
		if !s.takes(n, c, k) {
			continue
		}
		after[c] -= k.Milli
		if r := rounded(); best < 0 || r < cost {
			best, cost = c, r
		}
		after[c] += k.Milli
	}
	return cost, gpu.SetOf(best)
}

// fragmentation is the part of the node's free card share that the target
// workload is expected not to be able to use.
func (f *fgd) fragmentation(n *server, cpu int64, left []int) float64 {
	free := 0
	for _, l := range left {
		free += l
	}
	sum := 0.0
	for i := range f.classes {
		m := &f.classes[i]
		usable, large := 0, 0
		for _, l := range left {
			if l >= m.Milli {
				usable += l
				large++
			}
		}
		if m.Cards == 0 || m.CPU > cpu || large < m.Cards || m.Models != nil && !slices.Contains(m.Models, n.Model) {
			usable = 0
		}
		sum += m.share * float64(free-usable)
	}
	return sum
}
