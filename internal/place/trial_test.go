package place

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// TestTrial edits the nodes of a trial at random, goes back to states before, and
// compares what the nodes answer with what they answered then. The board and another
// trial never notice.
func TestTrial(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	undone := 0
	for round := range 100 {
		const cards, nodes = 4, 3
		b := NewBoard()
		for i := range nodes {
			n, _ := nodeWith(cards, randomPods(random, cards))
			n.Name = strconv.Itoa(i)
			b.Set(n)
		}
		request, prefer := randomRequest(random, cards), &Preference{}
		answers := func(nodeOf func(NodeID) *ledger.Node) (all []answer) {
			for id := range NodeID(nodes) {
				all = append(all, answerOf(nodeOf(id), request, prefer))
			}
			return all
		}
		onBoard := answers(b.Node)
		trial, other := b.Try(), b.Try()
		points, before := []Point{trial.Checkpoint()}, [][]answer{onBoard}
		for range 40 {
			if random.IntN(3) == 0 {
				k := random.IntN(len(points))
				trial.Undo(points[k])
				points, before = points[:k+1], before[:k+1]
				undone++
			} else {
				n := trial.Edit(NodeID(random.IntN(nodes)))
				if random.IntN(2) == 0 && len(n.Holdings()) > 0 {
					n.Release(n.Holdings()[random.IntN(len(n.Holdings()))].Holder)
				} else if offer, refusal := Fit(n, request, prefer); refusal.Code == Fits {
					n.Book(n.Holding(&offer, ledger.Holder("new-"+strconv.Itoa(random.IntN(99))), request))
				}
				points, before = append(points, trial.Checkpoint()), append(before, answers(trial.Node))
			}
			if diff := cmp.Diff(before[len(before)-1], answers(trial.Node)); diff != "" {
				t.Fatalf("round %d: the trial answers otherwise than at the checkpoint (-then +now):\n%s", round, diff)
			}
		}
		if diff := cmp.Diff(onBoard, answers(b.Node)); diff != "" {
			t.Fatalf("round %d: the trial changed the board (-before +after):\n%s", round, diff)
		}
		if diff := cmp.Diff(onBoard, answers(other.Node)); diff != "" {
			t.Fatalf("round %d: the trial changed another one (-before +after):\n%s", round, diff)
		}
	}
	if undone < 500 {
		t.Errorf("%d changes were taken back: too few to prove anything", undone)
	}
}

// answer is what can be seen of a node: what is booked, and what it offers.
type answer struct {
	Holdings int
	Usage    []ledger.Usage
	Cards    [][]int
	Code     Code
}

func answerOf(n *ledger.Node, r *gpu.PodRequest, p *Preference) answer {
	a := answer{Holdings: len(n.Holdings()), Usage: append([]ledger.Usage{}, n.Now().Usage...)}
	offer, refusal := Fit(n, r, p)
	a.Code = refusal.Code
	if refusal.Code == Fits {
		for _, part := range n.Holding(&offer, "x", r).Parts {
			var cards []int
			for _, s := range part.Shares {
				cards = append(cards, s.Card)
			}
			a.Cards = append(a.Cards, cards)
		}
	}
	return a
}
