package churn

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// whole returns jobs of so many whole cards.
func whole(cards int) *kind {
	var m Mix
	m.Whole[cards] = 100
	kinds := m.kinds()
	return &kinds[len(kinds)-1]
}

// fraction returns jobs that ask for so much of a card.
func fraction(share gpu.Percent) *kind {
	for _, k := range (Mix{Fractional: 100}).kinds() {
		if k.share == share {
			return &k
		}
	}
	panic("no job asks for " + strconv.Itoa(int(share)) + "%")
}

// server is what is booked on a server: percent by card.
type server map[int]gpu.Percent

// makeWorld returns servers on which the given is booked.
func makeWorld(t *testing.T, shape string, servers ...server) *world {
	t.Helper()
	s := shapeNamed(t, shape)
	topology, err := s.topology()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{shape: s, kinds: Mixes()[0].kinds()}
	for i, booked := range servers {
		n := ledger.NewNode(strconv.Itoa(i), topology, ledger.Serves{Whole: true, Slices: true})
		for card, share := range booked {
			n.Book(ledger.Holding{
				Holder: ledger.Holder(strconv.Itoa(card)), QoS: gpu.BestEffort,
				Parts: []ledger.Part{{Shares: []ledger.Share{{
					Card: card, Compute: share, Memory: gpu.Memory{Ratio: share}.Of(cardMemory), Exclusive: share == 100,
				}}}},
			})
		}
		w.servers = append(w.servers, n)
	}
	return w
}

func TestRules(t *testing.T) {
	empty := server{}
	cases := map[string]struct {
		rule       string
		shape      string
		servers    []server
		job        *kind
		wantServer int
		want       []int // nil: fits nowhere
	}{
		"greedy takes the last cards of the fullest server": {
			rule: "hami-greedy", shape: "2x4", servers: []server{empty, {7: 100}, empty}, job: whole(4),
			wantServer: 1, want: []int{3, 4, 5, 6},
		},
		"HAMi takes the smallest zone that suffices": {
			rule: "hami", shape: "2x4", servers: []server{{6: 100, 7: 100}}, job: whole(2), want: []int{4, 5},
		},
		"HAMi fills the fullest server although another has a whole zone": {
			rule: "hami", shape: "2x4", servers: []server{empty, {0: 100, 4: 100}}, job: whole(4),
			wantServer: 1, want: []int{1, 2, 3, 7},
		},
		"HAMi empties the smallest zone first where none suffices": {
			rule: "hami", shape: "2x4", servers: []server{{2: 100, 3: 100}}, job: whole(5), want: []int{0, 1, 5, 6, 7},
		},
		"HAMi with topology on goes where the cards are worth most": {
			rule: "hami-topology", shape: "2x4", servers: []server{{0: 100, 4: 100}, empty}, job: whole(4),
			wantServer: 1, want: []int{0, 1, 2, 3},
		},
		"HAMi with topology on breaks the zone that loses least": {
			rule: "hami-topology", shape: "2x4", servers: []server{empty, {0: 100, 1: 100, 2: 100}}, job: whole(1),
			wantServer: 1, want: []int{3},
		},
		"HAMi puts a part of a card on the emptiest card of the fullest server": {
			rule: "hami", shape: "2x4", servers: []server{empty, {0: 47}}, job: fraction(46), wantServer: 1, want: []int{7},
		},
		"HAMi takes cards without links from the last": {
			rule: "hami", shape: "none", servers: []server{{7: 100}}, job: whole(2), want: []int{5, 6},
		},
		"a part of a card does not fit where compute is short or somebody is alone": {
			rule: "hami", shape: "2x4",
			servers: []server{{0: 100, 1: 100, 2: 100, 3: 100, 4: 100, 5: 100, 6: 100, 7: 81}, {0: 47}},
			job:     fraction(32), wantServer: 1, want: []int{7},
		},
		"whole cards do not fit where too few are idle": {
			rule: "hami-greedy", shape: "2x4", servers: []server{{0: 11}}, job: whole(8), want: nil,
		},
		"FGD fills the hole that fits": {
			rule: "fgd", shape: "2x4", servers: []server{{0: 47, 1: 65}, empty}, job: fraction(32), wantServer: 0, want: []int{1},
		},
		"FGD does not break an idle server": {
			rule: "fgd", shape: "2x4", servers: []server{empty, {0: 100}}, job: whole(1), wantServer: 1, want: []int{1},
		},
		"FGD does not see zones": {
			rule: "fgd", shape: "2x4", servers: []server{{0: 100, 1: 100, 2: 100}}, job: whole(4), want: []int{3, 4, 5, 6},
		},
		"ours takes the whole zone": {
			rule: "daybreak", shape: "2x4", servers: []server{{0: 100, 4: 100}, {0: 100, 1: 100, 2: 100}}, job: whole(4),
			wantServer: 1, want: []int{4, 5, 6, 7},
		},
		"ours splits a job as little as can be": {
			rule: "daybreak", shape: "2x4", servers: []server{{2: 100, 3: 100}}, job: whole(5), want: []int{0, 4, 5, 6, 7},
		},
		"ours fits nowhere": {
			rule: "daybreak", shape: "2x4", servers: []server{{0: 11}}, job: whole(8), want: nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(t, tc.shape, tc.servers...)
			for i := range rules {
				if rules[i].name != tc.rule {
					continue
				}
				at, cards, ok := rules[i].make(w).pick(tc.job)
				if ok != (tc.want != nil) {
					t.Fatalf("ok is %v", ok)
				}
				if !ok {
					return
				}
				if diff := cmp.Diff(tc.want, cards.Indices()); at != tc.wantServer || diff != "" {
					t.Errorf("server %d, want %d; cards (-want +got):\n%s", at, tc.wantServer, diff)
				}
				return
			}
			t.Fatalf("no rule %q", tc.rule)
		})
	}
}

// TestFragmentation follows the published definition by hand.
func TestFragmentation(t *testing.T) {
	f := fgd{world: &world{kinds: []kind{
		{cards: 1, share: 30, weight: 0.5},
		{cards: 1, share: 100, weight: 0.3},
		{cards: 2, share: 100, weight: 0.2},
	}}}
	cases := map[string]struct {
		free [serverCards]gpu.Percent
		want float64
	}{
		"all idle":    {[...]gpu.Percent{100, 100, 100, 100, 100, 100, 100, 100}, 0},
		"all taken":   {[serverCards]gpu.Percent{}, 0},
		"small rests": {[serverCards]gpu.Percent{20, 40}, 0.5*20 + 0.3*60 + 0.2*60},
		"one idle card serves one but not two": {
			[serverCards]gpu.Percent{100, 40}, 0.5*0 + 0.3*40 + 0.2*140,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := f.fragmentation(&tc.free); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("fragmentation %g, want %g", got, tc.want)
			}
		})
	}
}

func TestTies(t *testing.T) {
	draw := func(random *rand.Rand, compared ...int) int {
		tied, chosen := ties{random: random}, -1
		for i, c := range compared {
			if tied.replaces(c) {
				chosen = i
			}
		}
		return chosen
	}
	if got := draw(nil, -1, 0, 1, 0, -1); got != 2 {
		t.Errorf("without chance candidate %d won, want the first of the best, 2", got)
	}
	random := rand.New(rand.NewPCG(1, 2))
	counts := make([]int, 5)
	for range 30_000 {
		counts[draw(random, 1, 1, 0, -1, 0)]++
	}
	for i, want := range []int{0, 10_000, 10_000, 0, 10_000} {
		if math.Abs(float64(counts[i]-want)) > 400 {
			t.Errorf("candidate %d won %d times of 30000, want about %d", i, counts[i], want)
		}
	}
}

// generous gives the same cards to everyone.
type generous struct{}

func (generous) pick(k *kind) (int, gpu.Set, bool) { return 0, gpu.FirstCards(k.cards), true }

// stingy gives nothing to anyone.
type stingy struct{}

func (stingy) pick(*kind) (int, gpu.Set, bool) { return 0, 0, false }
