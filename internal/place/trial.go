package place

import (
	"slices"

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
