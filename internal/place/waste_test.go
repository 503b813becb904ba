package place_test

import (
	"math"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestWaste(t *testing.T) {
	tests := map[string]struct {
		came                  []some
		node                  *ledger.Node
		wantFree, wantUseless float64
	}{
		"idle cards are of use to all":          {[]some{{50, part(50)}, {50, gputest.AskWhole(1)}}, node(cards(4, nil)), 4, 0},
		"nothing is free":                       {[]some{{50, part(50)}}, node(cards(2, nil), alone(0, 1)), 0, 0},
		"what is left is too small":             {[]some{{50, part(50)}}, node(cards(1, nil), taken(0, 80)), 0.2, 0.2},
		"too small for half of the demand":      {[]some{{50, part(50)}, {50, part(20)}}, node(cards(1, nil), taken(0, 80)), 0.2, 0.1},
		"half of a card runs another QoS class": {[]some{{50, part(20)}}, node(cards(1, nil), takenBy(gpu.FixedShare, 0, 50)), 0.5, 0.5},
		"three idle cards of a zone for fours":  {[]some{{50, gputest.AskWhole(4)}}, node(gputest.Zones(4), alone(0)), 3, 3},
		"cards that are not well are not free":  {[]some{{50, part(50)}}, node(cards(2, func(c []gpu.Card) { c[1].Healthy = false })), 1, 0},
		"no CPU is left to use the cards with":  {[]some{{50, takes(4000, part(50))}}, node(cards(2, nil), cpu(1000)), 2, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			free, useless := expecting(t, nil, tt.came...).Demand.Waste(tt.node)
			if math.Abs(free-tt.wantFree) > 1e-3 || math.Abs(useless-tt.wantUseless) > 1e-3 {
				t.Errorf("Waste() = %v free and %v of no use, want %v and %v", free, useless, tt.wantFree, tt.wantUseless)
			}
		})
	}
}
