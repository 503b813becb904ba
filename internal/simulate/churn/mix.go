package churn

import (
	"math/rand/v2"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Mix is how many jobs, of a hundred, ask for what.
type Mix struct {
	// Name is what options and reports call it.
	Name string
	// Fractional is the number of jobs that ask for a part of one card.
	Fractional int
	// Whole is the number of jobs by the whole cards they ask for; entry n is
	// for n cards.
	Whole [serverCards + 1]int
}

// Mixes returns the known mixes.
func Mixes() []Mix {
	return []Mix{
		{Name: "mixed", Fractional: 40, Whole: [...]int{1: 25, 2: 15, 4: 12, 8: 8}},
		{Name: "training", Fractional: 10, Whole: [...]int{1: 20, 2: 30, 4: 25, 8: 15}},
		{Name: "inference", Fractional: 70, Whole: [...]int{1: 20, 2: 6, 4: 3, 8: 1}},
		// No multiple of a zone: jobs that must be split, and split well.
		{Name: "odd", Fractional: 30, Whole: [...]int{1: 20, 2: 10, 3: 15, 5: 10, 6: 8, 7: 4, 8: 3}},
	}
}

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

// kind is one sort of job: all jobs of a kind ask for the same.
type kind struct {
	cards   int
	share   gpu.Percent // of each card; 100 is the whole card
	weight  float64     // part of all jobs
	request gpu.PodRequest
}

// fractional tells whether the kind asks for a part of a card.
func (k *kind) fractional() bool { return k.share < gpu.FullCompute }

// size is the name of the kind's size in reports.
func (k *kind) size() string {
	if k.fractional() {
		return sizeFractional
	}
	return strconv.Itoa(k.cards)
}

// sizeFractional is what reports call jobs that ask for a part of a card.
const sizeFractional = "fractional"

// demand is the number of cards that a job of the kind keeps busy.
func (k *kind) demand() float64 { return float64(k.cards) * float64(k.share) / 100 }

// kinds spells the mix out, small jobs first.
func (m Mix) kinds() []kind {
	var kinds []kind
	counted := 0
	for _, f := range fractions {
		counted += f.count
	}
	for _, f := range fractions {
		kinds = append(kinds, kind{
			cards: 1, share: f.share, weight: float64(m.Fractional) / 100 * float64(f.count) / float64(counted),
			request: gpu.PodRequest{QoS: gpu.BestEffort, Requests: []gpu.Request{{
				Container: "main", Cards: 1, Compute: f.share, Memory: gpu.Memory{Ratio: f.share},
			}}},
		})
	}
	for cards, count := range m.Whole {
		if count == 0 {
			continue
		}
		kinds = append(kinds, kind{
			cards: cards, share: gpu.FullCompute, weight: float64(count) / 100,
			request: gpu.PodRequest{Requests: []gpu.Request{{
				Container: "main", Cards: cards, Whole: true, Exclusive: true,
				Compute: gpu.FullCompute, Memory: gpu.AllMemory(),
			}}},
		})
	}
	return kinds
}

// job is one arrival.
type job struct {
	kind           int
	arrives, lasts float64
}

// jobs draws the arrivals of one run. They depend on the seed, the mix and the
// load only, so every rule sees the same; and a heavier load is the same jobs
// in quicker succession.
func jobs(kinds []kind, n int, cards, load float64, seed uint64) []job {
	r := rand.New(rand.NewPCG(seed, 0xda7b4ea4))
	mean := 0.0
	for i := range kinds {
		mean += kinds[i].weight * kinds[i].demand()
	}
	gap := mean / (load * cards)
	drawn := make([]job, n)
	now := 0.0
	for i := range drawn {
		now += r.ExpFloat64() * gap
		drawn[i] = job{kind: pick(kinds, r.Float64()), arrives: now, lasts: r.ExpFloat64()}
	}
	return drawn
}

// pick returns the kind at the point u, from 0 to 1, of the weights laid end to
// end.
func pick(kinds []kind, u float64) int {
	for i := range kinds {
		if u -= kinds[i].weight; u < 0 {
			return i
		}
	}
	return len(kinds) - 1
}
