package simulate

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestDaybreakMissesNoPair is the promise about links: every multi-card job gets
// as many pairs of cards in one zone as any set of idle cards on any server had
// to offer when it started. The optimum is found by trying all sets, without
// the core. There is no tolerance; longer runs, as `daybreak simulate
// --topology` makes them, print the same figure.
func TestDaybreakMissesNoPair(t *testing.T) {
	for _, shape := range shapes {
		for _, mix := range mixes {
			t.Run(fmt.Sprintf("%s %s", shape.name, mix.name), func(t *testing.T) {
				t.Parallel()
				o := Options{
					Policies: []string{"daybreak"}, Zones: []string{shape.name}, Mixes: []string{mix.name},
					Loads: []float64{0.6, 0.85, 0.95}, Servers: 12, Jobs: 600, Seed: 1000, Seeds: 1,
				}
				r, err := runStudy(t.Context(), &o, ignoreProgress)
				gputest.Must(t, err)
				for i := range r.Runs {
					run := &r.Runs[i]
					if run.Pairs != run.BestPairs || run.Weight != run.BestWeight {
						t.Errorf("load %g, seed %d: %d pairs of weight %d, and %d of weight %d were to be had",
							run.Load, run.Seed, run.Pairs, run.Weight, run.BestPairs, run.BestWeight)
					}
					if run.BestWeight == 0 || run.BestPairs == 0 && shape.zone > 0 {
						t.Errorf("load %g, seed %d: there was nothing to be had, so nothing was tested", run.Load, run.Seed)
					}
				}
			})
		}
	}
}

// TestOthersMissPairs makes sure that the measure can fail: the other policies
// do not get all pairs.
func TestOthersMissPairs(t *testing.T) {
	o := Options{
		Policies: names(topologyPolicies)[1:], Zones: []string{"2x4"}, Mixes: []string{"mixed"}, Loads: []float64{0.85},
		Servers: 12, Jobs: 3000, Seed: 1000, Seeds: 1,
	}
	r, err := runStudy(t.Context(), &o, ignoreProgress)
	gputest.Must(t, err)
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Pairs >= run.BestPairs {
			t.Errorf("%s got %d pairs of %d", run.Policy, run.Pairs, run.BestPairs)
		}
	}
}
