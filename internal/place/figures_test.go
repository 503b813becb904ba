package place_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPublishedFigures are the choices that the documentation of topology-aware
// placement draws: two zones of four, the first two cards busy.
func TestPublishedFigures(t *testing.T) {
	cases := map[string]struct {
		ask       int
		policy    place.Policy
		want      []int
		wantScore int64
		wantLoss  int64
	}{
		"four cards spread: the untouched zone":      {ask: 4, policy: place.Spread, want: []int{4, 5, 6, 7}, wantScore: 660, wantLoss: 80},
		"two cards packed: what is left of the zone": {ask: 2, policy: place.Binpack, want: []int{2, 3}, wantScore: 110, wantLoss: 80},
		"four cards packed: the same zone":           {ask: 4, policy: place.Binpack, want: []int{4, 5, 6, 7}, wantScore: 660, wantLoss: 80},
		"two cards spread: a tie goes to less loss":  {ask: 2, policy: place.Spread, want: []int{2, 3}, wantScore: 110, wantLoss: 80},
		"four cards without a policy":                {ask: 4, policy: place.Default, want: []int{4, 5, 6, 7}, wantScore: 660, wantLoss: 80},
		"three cards fit into one zone only":         {ask: 3, policy: place.Binpack, want: []int{4, 5, 6}, wantScore: 330, wantLoss: 390},
		"five cards need both zones":                 {ask: 5, policy: place.Spread, want: []int{2, 4, 5, 6, 7}, wantScore: 700, wantLoss: 150},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := node(gputest.Zones(4, 4), alone(0, 1))
			offer, refusal := place.Fit(n, gputest.AskWhole(tc.ask), &place.Preference{Node: tc.policy})
			if refusal.Code != place.Fits {
				t.Fatalf("refused: %s", refusal.Message(n))
			}
			gputest.Equal(t, "cards", tc.want, offer.Cards(0).Indices())
			if offer.Score != tc.wantScore || offer.Loss != tc.wantLoss {
				t.Errorf("score %d, loss %d; want %d, %d", offer.Score, offer.Loss, tc.wantScore, tc.wantLoss)
			}
		})
	}
}

// TestPublishedTables are the scores and losses that the vendor's plugin wrote
// on real nodes; entry 0 is for one card.
func TestPublishedTables(t *testing.T) {
	cases := map[string]struct {
		topology   *gpu.Topology
		busy       []int
		wantScores []int64
		wantLosses []int64
	}{
		"two zones of four, two cards of one busy": {
			topology: gputest.Zones(4, 4), busy: []int{0, 1},
			wantScores: []int64{0, 110, 330, 660, 700, 850},
			wantLosses: []int64{150, 80, 390, 80, 150, 0},
		},
		"the same with the busy cards elsewhere": {
			topology: gputest.Zones(4, 4), busy: []int{4, 7},
			wantScores: []int64{0, 110, 330, 660, 700, 850},
			wantLosses: []int64{150, 80, 390, 80, 150, 0},
		},
		"two rings of four, all free": {
			topology:   gputest.Rings(4, 4),
			wantScores: []int64{0, 110, 270, 540, 580, 730, 930, 1240},
			wantLosses: []int64{310, 400, 390, 160, 390, 400, 310, 0},
		},
		"one card":     {topology: gputest.Zones(1), wantScores: []int64{0}, wantLosses: []int64{0}},
		"no card free": {topology: gputest.Zones(2), busy: []int{0, 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			offered(t, tc.topology, tc.busy, place.Spread, tc.wantScores)
			offered(t, tc.topology, tc.busy, place.Binpack, tc.wantLosses)
		})
	}
}

// offered checks that what Fit offers is worth what the table says: the score
// under spread, the loss under binpack.
func offered(t *testing.T, topology *gpu.Topology, busy []int, policy place.Policy, want []int64) {
	t.Helper()
	n := node(topology, alone(busy...))
	var got []int64
	for k := 1; k <= topology.Len()-len(busy); k++ {
		offer, refusal := place.Fit(n, gputest.AskWhole(k), &place.Preference{Node: policy})
		if refusal.Code != place.Fits {
			t.Fatalf("%d cards refused: %s", k, refusal.Message(n))
		}
		if policy == place.Spread {
			got = append(got, offer.Score)
		} else {
			got = append(got, offer.Loss)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offered under policy %d (-table +offers):\n%s", policy, diff)
	}
}
