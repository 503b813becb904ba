package place

import (
	"iter"
	"maps"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Trial is a what-if: the nodes of a [Board] with other pods on them. It copies a node
// when it is first changed, so the board stays as it is. Each goroutine needs a trial
// of its own, which ends when the board changes.
type Trial struct {
	board  *Board
	copies map[NodeID]*ledger.Node
	edits  []edit
}

// edit is a node that was about to be changed, as it was before.
type edit struct {
	node   *ledger.Node
	before ledger.Point
}

// Point is a state of a trial.
type Point int

// Try returns a trial in which the nodes are as they are on the board.
func (b *Board) Try() *Trial { return &Trial{board: b, copies: map[NodeID]*ledger.Node{}} }

// Node returns the node as it is in the trial. The caller must not change it.
func (t *Trial) Node(id NodeID) *ledger.Node {
	if n, ok := t.copies[id]; ok {
		return n
	}
	return t.board.Node(id)
}

// Edit returns the node for the caller to book on and release from, until the next
// checkpoint.
func (t *Trial) Edit(id NodeID) *ledger.Node {
	n, ok := t.copies[id]
	if !ok {
		n = t.board.Node(id).Clone()
		t.copies[id] = n
	}
	t.edits = append(t.edits, edit{node: n, before: n.Checkpoint()})
	return n
}

// Checkpoint returns the present state, for [Trial.Undo].
func (t *Trial) Checkpoint() Point { return Point(len(t.edits)) }

// Undo takes back all changes since the checkpoint.
func (t *Trial) Undo(p Point) {
	for _, e := range slices.Backward(t.edits[p:]) {
		e.node.Undo(e.before)
	}
	clear(t.edits[p:])
	t.edits = t.edits[:p]
}

// Best returns the nodes that can take such a pod in the trial, from the best to the
// worst: those that were changed are asked again, the others are in the order of the
// ranking.
func (t *Trial) Best(k *Ranking, r *gpu.PodRequest, p *Preference) iter.Seq2[NodeID, Worth] {
	type ranked struct {
		id    NodeID
		worth Worth
	}
	var changed []ranked // the best last
	for _, id := range slices.Sorted(maps.Keys(t.copies)) {
		if offer, refusal := Fit(t.copies[id], r, p); refusal.Code == Fits {
			changed = append(changed, ranked{id, Rank(&offer, p)})
		}
	}
	slices.SortFunc(changed, func(a, b ranked) int {
		if t.board.Better(b.id, b.worth, a.id, a.worth) {
			return -1
		}
		return 1
	})
	return func(yield func(NodeID, Worth) bool) {
		rest := changed
		for id, worth := range k.Best() {
			for n := len(rest); n > 0 && t.board.Better(rest[n-1].id, rest[n-1].worth, id, worth); n = len(rest) {
				best := rest[n-1]
				if rest = rest[:n-1]; !yield(best.id, best.worth) {
					return
				}
			}
			if _, asked := t.copies[id]; !asked && !yield(id, worth) {
				return
			}
		}
		for _, best := range slices.Backward(rest) {
			if !yield(best.id, best.worth) {
				return
			}
		}
	}
}
