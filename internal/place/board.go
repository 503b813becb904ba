package place

import (
	"math/rand/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// NodeID is a node of a [Board]: a position in slices that have something for each.
type NodeID int

const (
	// maxRankings bounds the rankings that are kept, and rankingMemory the bytes
	// that they take: nodeMemory for each node.
	maxRankings   = 512
	rankingMemory = 64 << 20
	nodeMemory    = 42
	// recentChanges is how many changes are listed one by one. Who is further
	// behind looks at all nodes.
	recentChanges = 1024
)

// Board has the accounts of all nodes, and knows of each kind of request which of
// them can take it and what they are worth to it. Between two decisions a node
// changes, or a few: only these are asked again.
//
// There is one writer at a time. Readers may come between its changes.
type Board struct {
	nodes  []*ledger.Node // by NodeID; nil: none now
	names  []string       // by NodeID
	byName map[string]NodeID
	free   []NodeID

	// changes counts the changes, changed has of each node the count at its last
	// one, and latest the nodes of the last changes, in a ring.
	changes uint64
	changed []uint64
	latest  [recentChanges]NodeID

	rankings map[Key]*Ranking
	keys     []Key // of the rankings
	key      []byte
	random   *rand.Rand
}

// NewBoard returns a board without nodes.
func NewBoard() *Board {
	return &Board{
		byName: map[string]NodeID{}, rankings: map[Key]*Ranking{},
		random: rand.New(rand.NewPCG(1, 1)), //nolint:gosec // rankings are forgotten by it, which changes no answer
	}
}

// Set puts the node on the board, in the place of the one of its name. Whoever changes
// it there sets it again. New nodes get the NodeIDs 0, 1, 2 and so on, unless others
// were removed before.
func (b *Board) Set(n *ledger.Node) NodeID {
	id, known := b.byName[n.Name]
	switch last := len(b.free) - 1; {
	case known:
	case last >= 0:
		id, b.free = b.free[last], b.free[:last]
	default:
		id = NodeID(len(b.nodes))
		b.nodes, b.names, b.changed = append(b.nodes, nil), append(b.names, ""), append(b.changed, 0)
	}
	b.nodes[id], b.names[id], b.byName[n.Name] = n, n.Name, id
	b.note(id)
	return id
}

// Remove takes the node off the board. Its NodeID goes to a node that is set later.
func (b *Board) Remove(id NodeID) {
	delete(b.byName, b.names[id])
	b.nodes[id] = nil
	b.free = append(b.free, id)
	b.note(id)
}

func (b *Board) note(id NodeID) {
	b.latest[b.changes%recentChanges] = id
	b.changes++
	b.changed[id] = b.changes
}

// Node returns the node, or nil if it was removed.
func (b *Board) Node(id NodeID) *ledger.Node { return b.nodes[id] }

// Find returns the node of the name, if it is on the board.
func (b *Board) Find(name string) (id NodeID, ok bool) {
	id, ok = b.byName[name]
	return id, ok
}

// Len returns how many NodeIDs there are, those of removed nodes among them.
func (b *Board) Len() int { return len(b.nodes) }

// Better reports whether the first node, which is worth so much, is better than the
// other one. Where both are worth the same, their names decide.
func (b *Board) Better(first NodeID, worth Worth, second NodeID, other Worth) bool {
	if order := worth.Compare(other); order != 0 {
		return order > 0
	}
	return b.names[first] < b.names[second]
}

// Ranking returns what the nodes, as they are now, are worth to such a request. It
// holds until the board changes.
func (b *Board) Ranking(r *gpu.PodRequest, p *Preference) *Ranking {
	b.key = appendKey(b.key[:0], r, p)
	k, known := b.rankings[Key(b.key)]
	if !known {
		k = b.add(Key(b.key))
	}
	k.refresh(r, p)
	return k
}

// add returns a new ranking. When there are too many another one is forgotten for it,
// any of them: if it were the one that was not asked for the longest, each of a few
// more kinds than are kept would be forgotten just before it comes again.
func (b *Board) add(key Key) *Ranking {
	if len(b.keys) < min(maxRankings, max(1, rankingMemory/(nodeMemory*max(1, len(b.nodes))))) {
		b.keys, b.rankings[key] = append(b.keys, key), &Ranking{board: b}
		return b.rankings[key]
	}
	i := b.random.IntN(len(b.keys))
	k := b.rankings[b.keys[i]]
	delete(b.rankings, b.keys[i])
	b.keys[i], b.rankings[key], k.changes = key, k, 0
	return k
}
