package ledger

import (
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Point is a state of a node that it can go back to.
type Point int

// undo has what changes of a node replaced: of each change the lists, which it did not
// write to, and of the cards that it touched what was booked there.
type undo struct {
	changes []change
	usage   []Usage
	full    []Fullness
}

type change struct {
	holdings []Holding
	unknown  []Holder
	cards    gpu.Set
	mean     Fullness
}

// Checkpoint returns the present state, for [Node.Undo]. What-ifs are tried that way on
// a [Node.Clone], one after the other.
func (n *Node) Checkpoint() Point {
	if n.undo == nil {
		n.undo = &undo{}
	}
	return Point(len(n.undo.changes))
}

// Undo takes back what was booked and released since the checkpoint. The node gets a
// new version: a version is never used twice.
func (n *Node) Undo(p Point) {
	u := n.undo
	if len(u.changes) == int(p) {
		return
	}
	for _, c := range slices.Backward(u.changes[p:]) {
		n.holdings, n.unknown, n.now.Mean = c.holdings, c.unknown, c.mean
		from := len(u.usage) - c.cards.Len()
		k := from
		for card := range c.cards.All() {
			n.now.Usage[card], n.now.Full[card] = u.usage[k], u.full[k]
			k++
		}
		u.usage, u.full = u.usage[:from], u.full[:from]
	}
	clear(u.changes[p:])
	u.changes = u.changes[:p]
	n.touch()
}

// save notes the state before a change of what is booked on the cards.
func (n *Node) save(cards gpu.Set) {
	u := n.undo
	if u == nil {
		return
	}
	u.changes = append(u.changes, change{holdings: n.holdings, unknown: n.unknown, cards: cards, mean: n.now.Mean})
	for c := range cards.All() {
		u.usage, u.full = append(u.usage, n.now.Usage[c]), append(u.full, n.now.Full[c])
	}
}
