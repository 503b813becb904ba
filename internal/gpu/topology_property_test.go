package gpu_test

import (
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// reach returns by pairs whether two cards are joined by links, directly or
// through others.
func reach(p *gputest.Plan) [][]bool {
	n := len(p.Cards)
	joined := make([][]bool, n)
	for i := range joined {
		joined[i] = make([]bool, n)
		joined[i][i] = true
	}
	for _, l := range p.Links {
		joined[l.A][l.B], joined[l.B][l.A] = true, true
	}
	for k := range n {
		for i := range n {
			for j := range n {
				joined[i][j] = joined[i][j] || joined[i][k] && joined[k][j]
			}
		}
	}
	return joined
}

func TestZonesAreConnectedComponents(t *testing.T) {
	for seed := range uint64(500) {
		r := gputest.Rand(seed)
		plan := gputest.Random(r, 1+r.IntN(24))
		topology, joined := plan.Topology(), reach(plan)
		last := -1
		for z, zone := range topology.Zones() {
			if zone.Len() < 2 || zone.First() <= last {
				t.Fatalf("seed %d: zone %d is %v, after one that starts at %d\n%v", seed, z, zone.Indices(), last, plan)
			}
			last = zone.First()
		}
		for i := range plan.Cards {
			zone, ok := topology.ZoneOf(i)
			alone := true
			for j := range plan.Cards {
				alone = alone && (i == j || !joined[i][j])
				other, _ := topology.ZoneOf(j)
				if same := ok && zone == other; i != j && same != joined[i][j] {
					t.Fatalf("seed %d: cards %d and %d in one zone: %t, joined by links: %t\n%v", seed, i, j, same, joined[i][j], plan)
				}
			}
			if ok == alone || ok && !topology.Zones()[zone-1].Has(i) {
				t.Fatalf("seed %d: card %d is in zone %d, %t\n%v", seed, i, zone, ok, plan)
			}
		}
	}
}

// TestTwinsCanStandForEachOther checks the symmetry that the exact search rests
// on: two cards are twins exactly when every third card has the same weight to
// both.
func TestTwinsCanStandForEachOther(t *testing.T) {
	twins := 0
	for seed := range uint64(500) {
		r := gputest.Rand(seed)
		plan := gputest.Random(r, 1+r.IntN(16))
		topology := plan.Topology()
		for i := range plan.Cards {
			for j := range plan.Cards {
				want := true
				for k := range plan.Cards {
					if k != i && k != j && topology.Pull(i, gpu.SetOf(k)) != topology.Pull(j, gpu.SetOf(k)) {
						want = false
					}
				}
				if got := topology.Twins(i).Has(j); got != want {
					t.Fatalf("seed %d: cards %d and %d are twins: %t, want %t\n%v", seed, i, j, got, want, plan)
				}
				if want && i != j {
					twins++
				}
			}
		}
	}
	if twins == 0 {
		t.Error("no two cards were alike: the test shows nothing")
	}
}

// TestLossIsWhatTheCutCosts checks the identity by which loss is defined.
func TestLossIsWhatTheCutCosts(t *testing.T) {
	for seed := range uint64(500) {
		r := gputest.Rand(seed)
		n := 1 + r.IntN(gpu.MaxCards)
		topology := gputest.Random(r, n).Topology()
		free := gputest.Subset(r, n, 70)
		s := free & gputest.Subset(r, n, 50)
		want := topology.Score(free) - topology.Score(s) - topology.Score(free&^s)
		if got := topology.Loss(s, free); got != want {
			t.Fatalf("seed %d: loss of %v out of %v is %d, want %d", seed, s.Indices(), free.Indices(), got, want)
		}
		for i := range s.All() {
			var pulled int64
			for j := range s.All() {
				pulled += topology.Pull(i, gpu.SetOf(j))
			}
			if got := topology.Pull(i, s); got != pulled {
				t.Fatalf("seed %d: card %d is pulled by %d, its pairs weigh %d", seed, i, got, pulled)
			}
		}
	}
}

// TestHeaviest compares with the sorted weights of the card's pairs.
func TestHeaviest(t *testing.T) {
	for seed := range uint64(500) {
		r := gputest.Rand(seed)
		n := 2 + r.IntN(20)
		topology := gputest.Random(r, n).Topology()
		card, s := r.IntN(n), gputest.Subset(r, n, 60)
		var weights []int64
		for j := range (s &^ gpu.SetOf(card)).All() {
			weights = append(weights, topology.Pull(card, gpu.SetOf(j)))
		}
		slices.Sort(weights)
		slices.Reverse(weights)
		var want int64
		for k, weight := range weights {
			want += weight
			if got := topology.Heaviest(card, s, k+1); got != want {
				t.Fatalf("seed %d: the %d heaviest pairs of card %d in %v weigh %d, want %d", seed, k+1, card, s.Indices(), got, want)
			}
		}
	}
}
