package simulate

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// mix is how many jobs, of a hundred, ask for what.
type mix struct {
	name string
	// fractional is the number of jobs that ask for a part of one card.
	fractional int
	// whole is the number of jobs by the whole cards they ask for; entry n is
	// for n cards.
	whole [serverCards + 1]int
}

var mixes = []mix{
	{name: "mixed", fractional: 40, whole: [...]int{1: 25, 2: 15, 4: 12, 8: 8}},
	{name: "training", fractional: 10, whole: [...]int{1: 20, 2: 30, 4: 25, 8: 15}},
	{name: "inference", fractional: 70, whole: [...]int{1: 20, 2: 6, 4: 3, 8: 1}},
	// No multiple of a zone: jobs that must be split, and split well.
	{name: "odd", fractional: 30, whole: [...]int{1: 20, 2: 10, 3: 15, 5: 10, 6: 8, 7: 4, 8: 3}},
}

// String returns the name that options and reports use.
func (m mix) String() string { return m.name }

// fractions are the parts of a card that fractional jobs ask for, in percent,
// and how often: as in a public trace of a large cluster (docs/placement.md).
// More than a third ask for four fifths of a card, whose rest few can use.
var fractions = []struct {
	share gpu.Percent
	count int
}{
	{11, 24}, {16, 74}, {22, 62}, {23, 140}, {32, 328}, {37, 47}, {46, 128}, {47, 750},
	{48, 19}, {55, 72}, {59, 75}, {65, 253}, {81, 1078},
}

// kinds spells the mix out, small jobs first. The weights add up to 1.
func (m mix) kinds() []kind {
	counted := 0
	for _, f := range fractions {
		counted += f.count
	}
	var kinds []kind
	add := func(k kind, weight float64) {
		k.id, k.weight = len(kinds), weight
		kinds = append(kinds, k)
	}
	for _, f := range fractions {
		add(newKind(1, f.share, gpu.BestEffort), float64(m.fractional)/100*float64(f.count)/float64(counted))
	}
	for cards, count := range m.whole {
		if count > 0 {
			add(newKind(cards, gpu.FullCompute, ""), float64(count)/100)
		}
	}
	return kinds
}

// drawJobs draws the arrivals of one run. They depend on the seed, the mix and
// the load only, so every policy sees the same; and a heavier load is the same
// jobs in quicker succession.
func drawJobs(kinds []kind, n int, cards, load float64, seed int64) []job {
	r := random(seed, jobStream)
	mean := 0.0
	for i := range kinds {
		mean += kinds[i].weight * cardsOf(&kinds[i])
	}
	gap := mean / (load * cards)
	drawn := make([]job, n)
	now := 0.0
	for i := range drawn {
		now += r.ExpFloat64() * gap
		drawn[i] = job{kind: &kinds[drawKind(kinds, r.Float64())], arrives: now, lasts: r.ExpFloat64()}
	}
	return drawn
}

// drawKind returns the kind at the point u, from 0 to 1, of the weights laid end
// to end.
func drawKind(kinds []kind, u float64) int {
	for i := range kinds {
		if u -= kinds[i].weight; u < 0 {
			return i
		}
	}
	return len(kinds) - 1
}
