package place

import (
	"cmp"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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
			gputest.Equal(t, "answers, as at the checkpoint", before[len(before)-1], answers(trial.Node))
			gputest.Equal(t, "best nodes, as asked one by one", bestOf(trial, nodes, request, prefer), inOrder(trial.Best(b.Ranking(request, prefer), request, prefer)))
		}
		gputest.Equal(t, "the board, as before", onBoard, answers(b.Node))
		gputest.Equal(t, "another trial, as before", onBoard, answers(other.Node))
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	if undone < 500 {
		t.Errorf("%d changes were taken back: too few to prove anything", undone)
	}
}

// bestOf asks the nodes of the trial one by one, and returns those with room, the best
// first. Their names are in the order of their NodeIDs.
func bestOf(t *Trial, nodes int, r *gpu.PodRequest, p *Preference) []NodeID {
	worths := map[NodeID]Worth{}
	for id := range NodeID(nodes) {
		if offer, refusal := Fit(t.Node(id), r, p); refusal.Code == Fits {
			worths[id] = Rank(&offer, p)
		}
	}
	return slices.SortedFunc(maps.Keys(worths), func(a, b NodeID) int {
		return cmp.Or(worths[b].Compare(worths[a]), int(a-b))
	})
}

func inOrder(best iter.Seq2[NodeID, Worth]) (ids []NodeID) {
	for id := range best {
		ids = append(ids, id)
	}
	return ids
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
