package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// whole returns jobs of so many whole cards, and fraction jobs that ask for so
// much of one.
func whole(cards int) kind            { return newKind(cards, gpu.FullCompute, "") }
func fraction(share gpu.Percent) kind { return newKind(1, share, gpu.BestEffort) }

// booked is what is booked on a server: percent by card.
type booked map[int]gpu.Percent

// makeWorld returns servers on which the given is booked, and jobs of the mixed
// mix to expect.
func makeWorld(t *testing.T, s shape, servers ...booked) *world {
	t.Helper()
	topology, err := s.topology()
	gputest.Must(t, err)
	w := &world{kinds: mixes[0].kinds()}
	for i, cards := range servers {
		n := newServer(i, strconv.Itoa(i), topology)
		for card, share := range cards {
			k := fraction(share)
			gputest.Must(t, n.book(ledger.Holder(strconv.Itoa(card)), &k, gpu.SetOf(card)))
		}
		w.servers = append(w.servers, n)
	}
	return w
}

func TestTopologyPolicies(t *testing.T) {
	empty := booked{}
	cases := map[string]struct {
		policy     string
		shape      string // 2x4, unless given
		servers    []booked
		job        kind
		wantServer int
		want       []int // nil: fits nowhere
	}{
		"greedy takes the last cards of the fullest server": {
			policy: "hami-greedy", servers: []booked{empty, {7: 100}, empty}, job: whole(4),
			wantServer: 1, want: []int{3, 4, 5, 6},
		},
		"HAMi takes the smallest zone that suffices": {policy: "hami", servers: []booked{{6: 100, 7: 100}}, job: whole(2), want: []int{4, 5}},
		"HAMi fills the fullest server although another has a whole zone": {
			policy: "hami", servers: []booked{empty, {0: 100, 4: 100}}, job: whole(4),
			wantServer: 1, want: []int{1, 2, 3, 7},
		},
		"HAMi empties the smallest zone first where none suffices": {policy: "hami", servers: []booked{{2: 100, 3: 100}}, job: whole(5), want: []int{0, 1, 5, 6, 7}},
		"HAMi with topology on goes where the cards are worth most": {
			policy: "hami-topology", servers: []booked{{0: 100, 4: 100}, empty}, job: whole(4),
			wantServer: 1, want: []int{0, 1, 2, 3},
		},
		"HAMi with topology on breaks the zone that loses least": {
			policy: "hami-topology", servers: []booked{empty, {0: 100, 1: 100, 2: 100}}, job: whole(1),
			wantServer: 1, want: []int{3},
		},
		"HAMi puts a part of a card on the emptiest card of the fullest server": {
			policy: "hami", servers: []booked{empty, {0: 47}}, job: fraction(46), wantServer: 1, want: []int{7},
		},
		"HAMi takes cards without links from the last": {policy: "hami", shape: "none", servers: []booked{{7: 100}}, job: whole(2), want: []int{5, 6}},
		"a part of a card does not fit where compute is short or the card is taken alone": {
			policy:  "hami",
			servers: []booked{{0: 100, 1: 100, 2: 100, 3: 100, 4: 100, 5: 100, 6: 100, 7: 81}, {0: 47}},
			job:     fraction(32), wantServer: 1, want: []int{7},
		},
		"whole cards do not fit where too few are idle": {policy: "hami-greedy", servers: []booked{{0: 11}}, job: whole(8)},
		"FGD fills the hole that fits":                  {policy: "fgd", servers: []booked{{0: 47, 1: 65}, empty}, job: fraction(32), want: []int{1}},
		"FGD does not break an idle server":             {policy: "fgd", servers: []booked{empty, {0: 100}}, job: whole(1), wantServer: 1, want: []int{1}},
		"FGD does not see zones":                        {policy: "fgd", servers: []booked{{0: 100, 1: 100, 2: 100}}, job: whole(4), want: []int{3, 4, 5, 6}},
		"ours takes the whole zone": {
			policy: "daybreak", servers: []booked{{0: 100, 4: 100}, {0: 100, 1: 100, 2: 100}}, job: whole(4),
			wantServer: 1, want: []int{4, 5, 6, 7},
		},
		"ours splits a job as little as can be": {policy: "daybreak", servers: []booked{{2: 100, 3: 100}}, job: whole(5), want: []int{0, 4, 5, 6, 7}},
		"ours fits nowhere":                     {policy: "daybreak", servers: []booked{{0: 11}}, job: whole(8)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(t, find(shapes, cmp.Or(tc.shape, "2x4")), tc.servers...)
			at, cards, ok := find(topologyPolicies, tc.policy).make(w).place(&tc.job)
			if ok != (tc.want != nil) {
				t.Fatalf("ok is %v", ok)
			}
			if !ok {
				return
			}
			if diff := gocmp.Diff(tc.want, cards.Indices()); at != tc.wantServer || diff != "" {
				t.Errorf("server %d, want %d; cards (-want +got):\n%s", at, tc.wantServer, diff)
			}
		})
	}
}

// TestFragmentation follows the published definition by hand.
func TestFragmentation(t *testing.T) {
	class := func(cards int, share gpu.Percent, weight float64) kind {
		k := newKind(cards, share, "")
		k.weight = weight
		return k
	}
	f := fgd{classes: []kind{class(1, 30, 0.5), class(1, 100, 0.3), class(2, 100, 0.2)}}
	cases := map[string]struct {
		left []gpu.Percent
		want float64
	}{
		"all idle":                             {[]gpu.Percent{100, 100, 100, 100, 100, 100, 100, 100}, 0},
		"all taken":                            {[]gpu.Percent{}, 0},
		"small rests":                          {[]gpu.Percent{20, 40}, 0.5*20 + 0.3*60 + 0.2*60},
		"one idle card serves one but not two": {[]gpu.Percent{100, 40}, 0.5*0 + 0.3*40 + 0.2*140},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := 100 * f.fragmentation("", 0, tc.left); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("fragmentation %g, want %g", got, tc.want)
			}
		})
	}
}

func TestTies(t *testing.T) {
	draw := func(w *world, compared ...int) int {
		tied, chosen := tie{world: w}, 0
		for i, c := range compared {
			if tied.replaces(c) {
				chosen = i + 1
			}
		}
		return chosen
	}
	if got := draw(&world{ties: TiesIndex}, 0, 1, 0, -1); got != 2 {
		t.Errorf("without chance candidate %d won, want the first of the best, 2", got)
	}
	random := &world{ties: TiesRandom, rng: rand.New(rand.NewPCG(1, 2))}
	counts := make([]int, 5)
	for range 30_000 {
		counts[draw(random, 1, 0, -1, 0)]++
	}
	for i, want := range []int{0, 10_000, 10_000, 0, 10_000} {
		if math.Abs(float64(counts[i]-want)) > 400 {
			t.Errorf("candidate %d won %d times of 30000, want about %d", i, counts[i], want)
		}
	}
}

// generous gives the same cards to every job.
type generous struct{}

func (generous) place(k *kind) (int, gpu.Set, bool) { return 0, gpu.FirstCards(k.cards), true }

// stingy gives no job a card.
type stingy struct{}

func (stingy) place(*kind) (int, gpu.Set, bool) { return 0, 0, false }
