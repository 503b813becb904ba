package place_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// boardWalk is a board that changes, and the nodes that should be on it.
type boardWalk struct {
	*testing.T
	*rand.Rand
	board *place.Board
	nodes map[string]*ledger.Node
	made  int
	held  map[string][]ledger.Holder
}

// TestBoard changes a board at random, a little or a lot between two questions, and
// compares every ranking with what the nodes answer one by one.
func TestBoard(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &boardWalk{T: t, Rand: gputest.Rand(seed), board: place.NewBoard(), nodes: map[string]*ledger.Node{}, held: map[string][]ledger.Holder{}}
			var demands []*place.Demand
			for _, n := range []int{0, 40, 400} {
				c := place.NewCensus()
				for range n {
					c.Add(place.KindsOf(usualPod(w.Rand)), 1)
				}
				demands = append(demands, c.Demand())
			}
			var kinds []*gpu.PodRequest
			for range 6 {
				kinds = append(kinds, usualPod(w.Rand))
			}
			for range 400 {
				w.change()
				prefer := place.Preference{Node: []place.Policy{place.Default, place.Default, place.Binpack, place.Spread}[w.IntN(4)], Demand: demands[w.IntN(3)]}
				w.compare(kinds[w.IntN(len(kinds))], &prefer)
			}
		})
	}
}

// change changes a few nodes, now and then so many that the board has no list of them.
func (w *boardWalk) change() {
	steps := w.IntN(4)
	switch w.IntN(40) {
	case 0:
		steps = place.RecentChanges + w.IntN(100)
	case 1:
		steps = 300
	}
	for range steps {
		names := slices.Sorted(maps.Keys(w.nodes))
		what := w.IntN(20)
		switch {
		case len(names) < 3 || what == 0 && len(names) < 400 || what == 1 && steps == 300:
			name := fmt.Sprintf("n%03d", w.IntN(1000))
			w.set(ledger.NewNode(name, gputest.Zones([]int{4, 4}[:1+w.IntN(2)]...), ledger.Serves{Whole: true, Slices: w.IntN(5) > 0}))
		case what == 2 && len(names) > 5:
			name := names[w.IntN(len(names))]
			id, _ := w.board.Find(name)
			w.board.Remove(id)
			delete(w.nodes, name)
			delete(w.held, name)
		default:
			w.book(names[w.IntN(len(names))])
		}
	}
}

func (w *boardWalk) set(n *ledger.Node) {
	w.nodes[n.Name], w.held[n.Name] = n, nil
	w.board.Set(n)
}

// book books a pod on the node, or releases one.
func (w *boardWalk) book(name string) {
	n := w.nodes[name]
	if held := w.held[name]; len(held) > 0 && w.IntN(2) == 0 {
		n.Release(held[0])
		w.held[name] = held[1:]
		w.board.Set(n)
		return
	}
	pod := usualPod(w.Rand)
	if offer, refusal := place.Fit(n, pod, &place.Preference{}); refusal.Code == place.Fits {
		w.made++
		holder := ledger.Holder(fmt.Sprint("pod-", w.made))
		n.Book(n.Holding(&offer, holder, pod))
		w.held[name] = append(w.held[name], holder)
	}
	w.board.Set(n)
}

// compare asks every node for itself, and wants the board to have the same.
func (w *boardWalk) compare(r *gpu.PodRequest, p *place.Preference) {
	w.Helper()
	type ranked struct {
		name  string
		worth place.Worth
	}
	ranking := w.board.Ranking(r, p)
	var want, got []ranked
	for name, n := range w.nodes {
		offer, refusal := place.Fit(n, r, p)
		fits := refusal.Code == place.Fits
		if fits {
			want = append(want, ranked{name, place.Rank(&offer, p)})
		}
		id, _ := w.board.Find(name)
		if _, boardFits, hope := ranking.At(id); boardFits != fits || hope != (fits || !refusal.Permanent) {
			w.Fatalf("%s fits: %v, and without other pods: %v; the node itself says %v and %v", name, boardFits, hope, fits, !refusal.Permanent)
		}
	}
	slices.SortFunc(want, func(a, b ranked) int {
		return cmp.Or(b.worth.Compare(a.worth), cmp.Compare(a.name, b.name))
	})
	for id, worth := range ranking.Best() {
		got = append(got, ranked{w.board.Node(id).Name, worth})
		for nested := range ranking.Best() {
			if w.board.Node(nested).Name != got[0].name {
				w.Fatal("the best is another one while the nodes are walked through")
			}
			break
		}
	}
	if !slices.Equal(got, want) {
		w.Fatalf("the board has %d nodes in its order, want %d:\n%v\nwant\n%v", len(got), len(want), got, want)
	}
	if ranking.Room() != len(want) {
		w.Fatalf("%d nodes have room, want %d", ranking.Room(), len(want))
	}
}

// TestRankingsInTurn: a few more kinds of request than are kept cost a little more,
// not as much as if none were kept.
func TestRankingsInTurn(t *testing.T) {
	board := boardOf([]*ledger.Node{named("n1", node(cards(1, nil)))})
	kind := func(i int) *gpu.PodRequest { return gputest.AskSlice(gpu.Percent(1+i%100), gpu.MiB(1+i)) }
	const kinds = place.MaxRankings + 8
	kept := 0
	for round := range 3 {
		for i := range kinds {
			if round > 0 && board.Has(place.KeyOf(kind(i), &place.Preference{})) {
				kept++
			}
			board.Ranking(kind(i), &place.Preference{})
		}
	}
	if kept < kinds {
		t.Errorf("%d of %d rankings were kept until they were asked for again", kept, 2*kinds)
	}
}

// TestRankingsAreBounded: by their number, and on a large board by their memory.
func TestRankingsAreBounded(t *testing.T) {
	for nodes, want := range map[int]int{
		1: place.MaxRankings,
		place.RankingMemory / place.NodeMemory / 3: 3,
	} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			board := place.NewBoard()
			for i := range nodes {
				board.Set(ledger.NewNode(strconv.Itoa(i), nil, ledger.Serves{}))
			}
			for i := range want + 2 {
				board.Ranking(gputest.AskSlice(1, gpu.MiB(1+i)), &place.Preference{})
			}
			last := place.KeyOf(gputest.AskSlice(1, gpu.MiB(want+2)), &place.Preference{})
			if board.Rankings() != want || !board.Has(last) {
				t.Errorf("%d rankings are kept (the last: %v), want %d", board.Rankings(), board.Has(last), want)
			}
		})
	}
}
