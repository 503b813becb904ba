package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// seen is all that can be seen of a node.
type seen struct {
	Holdings []ledger.Holding
	Unknown  []ledger.Holder
	Now      ledger.View
}

func see(n *ledger.Node) seen {
	c := n.Clone() // what is seen later may share memory with the node
	return seen{Holdings: append([]ledger.Holding{}, c.Holdings()...), Unknown: append([]ledger.Holder{}, c.Unknown()...), Now: *c.Now()}
}

// TestUndo books and releases at random, goes back to states before, and compares all
// that can be seen with what was seen then. What was remembered of one state is never
// taken for what was remembered of another, not even of an equal one.
func TestUndo(t *testing.T) {
	for seed := range uint64(200) {
		r := gputest.Rand(seed)
		n := ledger.NewNode("n", gputest.Zones(4, 4), ledger.Serves{Whole: true, Slices: true})
		n.SetForeign([]ledger.Usage{{}, used(1, 10, 512)})
		for range r.IntN(10) {
			change(r, n)
		}
		outer := see(n)
		trial := n.Clone()
		points, states := []ledger.Point{trial.Checkpoint()}, []seen{see(trial)}
		step := 0
		for range 200 {
			step++
			if r.IntN(4) == 0 {
				k := r.IntN(len(points))
				trial.Undo(points[k])
				points, states = points[:k+1], states[:k+1]
				if diff := cmp.Diff(states[k], see(trial)); diff != "" {
					t.Fatalf("seed %d, step %d: after Undo (-before +after):\n%s", seed, step, diff)
				}
			} else {
				was := see(trial)
				change(r, trial)
				if remembered, ok := trial.Remembered().(seen); ok && !cmp.Equal(remembered, see(trial)) {
					t.Fatalf("seed %d, step %d: what is remembered is of another state: %+v, it is %+v", seed, step, remembered, was)
				}
				points, states = append(points, trial.Checkpoint()), append(states, see(trial))
			}
			if remembered, ok := trial.Remembered().(seen); ok && !cmp.Equal(remembered, see(trial)) {
				t.Fatalf("seed %d, step %d: what is remembered is of another state", seed, step)
			}
			trial.Remember(see(trial))
		}
		if diff := cmp.Diff(outer, see(n)); diff != "" {
			t.Fatalf("seed %d: the what-ifs changed the node (-before +after):\n%s", seed, diff)
		}
	}
}

// change books, books again or releases pods, some with unknown cards.
func change(r *rand.Rand, n *ledger.Node) {
	holder := func() ledger.Holder { return ledger.Holder(fmt.Sprint("pod-", r.IntN(12))) }
	random := func(h ledger.Holder) ledger.Holding {
		return held(h, r.IntN(9), gpu.Percent(1+r.IntN(100)), gpu.MiB(128*(1+r.IntN(100))))
	}
	switch r.IntN(5) {
	case 0, 1:
		n.Book(random(holder()))
	case 2:
		n.Release(holder(), holder())
	case 3:
		n.BookUnknown(holder())
	default:
		a, b := holder()+"-a", holder()+"-b"
		n.Release(a, b)
		n.BookAll([]ledger.Holding{random(a)}, []ledger.Holder{b})
	}
}

// TestVersionsAreUnique: an offer that was made on a what-if can't be committed to the
// node itself, though both have changed as often.
func TestVersionsAreUnique(t *testing.T) {
	n := ledger.NewNode("n", gputest.Zones(4, 4), ledger.Serves{Whole: true, Slices: true})
	trial := n.Clone()
	before := trial.Checkpoint()
	offer := trial.NewOffer(1)
	trial.Book(held("y", 3, 10, 128))
	trial.Undo(before)
	if _, err := trial.Commit(offer, "p", gputest.AskWhole(1)); err == nil {
		t.Error("an offer from before a change that was undone is committed")
	}
	for _, change := range []func(*ledger.Node){
		func(n *ledger.Node) { n.Book(held("a", 0, 10, 128)) },
		func(n *ledger.Node) { n.Release("a") },
		func(n *ledger.Node) { n.BookUnknown("b") },
		func(n *ledger.Node) { n.BookAll([]ledger.Holding{held("c", 1, 10, 128)}, nil) },
		func(n *ledger.Node) { n.Undo(before) },
	} {
		offer := trial.NewOffer(1)
		change(trial)
		if _, err := trial.Commit(offer, "p", gputest.AskWhole(1)); err == nil {
			t.Fatal("an offer from before a change is committed")
		}
		offer = trial.NewOffer(1)
		n.Book(held("x", 2, 10, 128))
		if _, err := n.Commit(offer, "p", gputest.AskWhole(1)); err == nil {
			t.Fatal("an offer of the what-if is committed to the node")
		}
	}
}
