package ledger

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// ErrStale is returned when an offer is older than the node it is for.
var ErrStale = errors.New("ledger: the node changed since the offer was made")

// Serves says which kinds of request a node can carry out.
type Serves struct {
	// Whole cards, slices of cards, or seats: whole-card requests that get a
	// place on a card without bounds.
	Whole, Slices, Seats bool
}

// VendorTable is a node's own figures for n whole cards, n counted from 1, where
// the vendor's plugin picks the cards and publishes only their worth.
type VendorTable struct {
	Scores, Losses map[int]int64
}

// Node is the account of one node.
type Node struct {
	Name   string
	Serves Serves
	// Problem, when not nil, says why the node's cards can't be read.
	Problem error
	// Paused, unless it is empty, says why the node takes no pods for now,
	// whatever is free.
	Paused string
	// Counted: the cards have no identity. The vendor's plugin picks them, and
	// only their number is known.
	Counted bool
	Vendor  VendorTable
	// FreeCPU is the node's CPU that pods leave free; it means nothing unless
	// CPUKnown. The owner of the node sets it: booking cards does not change it.
	FreeCPU  gpu.MilliCPU
	CPUKnown bool

	topology *gpu.Topology
	holdings []Holding
	unknown  []Holder
	foreign  View
	now      View
	version  uint64
	memo     *memo
	undo     *undo // nil until the first Checkpoint
}

// versions is the last version that a node got. No two states have the same, so that
// what was computed from one is never taken for what another would give.
var versions atomic.Uint64

// touch gives the node a version of its own.
func (n *Node) touch() { n.version = versions.Add(1) }

// memo keeps one value that was computed from the node, with the version that it
// is valid for.
type memo struct{ atomic.Pointer[remembered] }

type remembered struct {
	version uint64
	what    any
}

// Remember keeps a value that was computed from what is booked, in place of the
// one before. It is safe for concurrent use by readers of the node.
func (n *Node) Remember(what any) { n.memo.Store(&remembered{version: n.version, what: what}) }

// Remembered returns the value, or nil when something was booked or released
// since.
func (n *Node) Remembered() any {
	if r := n.memo.Load(); r != nil && r.version == n.version {
		return r.what
	}
	return nil
}

// View is the state of a node's cards that a decision is made on. Slices are
// indexed by card and must not be changed by the reader.
type View struct {
	Usage []Usage
	Full  []Fullness
	// Mean is the mean fullness of the healthy cards.
	Mean Fullness
}

// NewNode returns a node on which nothing is booked. A nil topology is a node
// without cards.
func NewNode(name string, t *gpu.Topology, s Serves) *Node {
	if t == nil {
		t = &gpu.Topology{}
	}
	n := &Node{Name: name, Serves: s, topology: t, memo: &memo{}}
	n.SetForeign(nil)
	return n
}

// SetForeign books foreign slices, which belong to no pod; nil means none.
// Evicting pods does not free them. It can't be undone.
func (n *Node) SetForeign(usage []Usage) {
	n.foreign = View{Usage: make([]Usage, n.topology.Len()), Full: make([]Fullness, n.topology.Len())}
	copy(n.foreign.Usage, usage)
	n.measure(&n.foreign, n.topology.All())
	n.now, n.undo = n.foreign.clone(), nil
	n.touch()
	n.refold(n.topology.All())
}

// Topology returns the node's cards.
func (n *Node) Topology() *gpu.Topology { return n.topology }

// Holdings returns what is booked, in the order it was booked. The caller must
// not change it.
func (n *Node) Holdings() []Holding { return n.holdings }

// Unknown returns the holders whose cards are not known.
func (n *Node) Unknown() []Holder { return n.unknown }

// Now returns the state with everything booked.
func (n *Node) Now() *View { return &n.now }

// WithoutPods returns the state that evicting every pod would leave.
func (n *Node) WithoutPods() *View { return &n.foreign }

// Book records a holding, in place of what its holder had before.
func (n *Node) Book(h Holding) {
	n.Release(h.Holder)
	n.save(h.Cards() & n.topology.All())
	n.holdings = append(n.holdings, h)
	n.touch()
	n.measure(&n.now, n.add(&h))
}

// BookAll records holdings and holders whose cards are not known. None may be on
// the node already or be listed twice.
func (n *Node) BookAll(holdings []Holding, unknown []Holder) {
	n.save(n.topology.All())
	n.unknown = append(n.unknown, unknown...)
	if n.holdings == nil {
		n.holdings = make([]Holding, 0, len(holdings)+1)
	}
	n.holdings = append(n.holdings, holdings...)
	n.touch()
	var touched gpu.Set
	for i := range holdings {
		touched |= n.add(&holdings[i])
	}
	n.measure(&n.now, touched)
}

// BookUnknown records that the holder is on the node with unknown cards.
func (n *Node) BookUnknown(h Holder) {
	n.Release(h)
	n.save(0)
	n.unknown = append(n.unknown, h)
	n.touch()
}

// Commit books the offer for the holder and returns what it then holds, or
// [ErrStale] when the node changed since the offer was made.
func (n *Node) Commit(o Offer, holder Holder, r *gpu.PodRequest) (Holding, error) {
	if o.version != n.version {
		return Holding{}, fmt.Errorf("commit %s on %s at version %d, made at %d: %w", holder, n.Name, n.version, o.version, ErrStale)
	}
	h := n.Holding(&o, holder, r)
	n.Book(h)
	return h, nil
}

// Release takes the holders off the node, if they are there.
func (n *Node) Release(holders ...Holder) {
	var touched gpu.Set
	left := 0
	for i := range n.holdings {
		if h := &n.holdings[i]; slices.Contains(holders, h.Holder) {
			touched |= h.Cards()
		} else {
			left++
		}
	}
	gone := func(h Holder) bool { return slices.Contains(holders, h) }
	if left == len(n.holdings) && !slices.ContainsFunc(n.unknown, gone) {
		return
	}
	touched &= n.topology.All()
	n.save(touched)
	n.touch()
	// What was saved has the old lists, so these are new ones.
	holdings := n.holdings
	n.holdings = make([]Holding, 0, left+1)
	for i := range holdings {
		if !gone(holdings[i].Holder) {
			n.holdings = append(n.holdings, holdings[i])
		}
	}
	n.unknown = slices.DeleteFunc(slices.Clone(n.unknown), gone)
	n.refold(touched)
}

// Clone returns an independent copy; the topology is shared.
func (n *Node) Clone() *Node {
	c := *n
	c.memo, c.undo = &memo{}, nil
	// Nothing writes to what the lists have: they are appended to, or replaced.
	c.holdings, c.unknown = slices.Clip(n.holdings), slices.Clip(n.unknown)
	c.now = n.now.clone()
	return &c
}

func (v *View) clone() View {
	return View{Usage: slices.Clone(v.Usage), Full: slices.Clone(v.Full), Mean: v.Mean}
}

// refold computes the usage of the cards from the holdings.
func (n *Node) refold(cards gpu.Set) {
	for c := range cards.All() {
		n.now.Usage[c] = n.foreign.Usage[c]
	}
	for i := range n.holdings {
		h := &n.holdings[i]
		for c := range (h.Cards() & cards).All() {
			booked := h.On(c)
			n.now.Usage[c].plus(&booked)
		}
	}
	n.measure(&n.now, cards)
}

// add puts the holding on top of the present usage and returns the cards whose
// fullness must be measured again.
func (n *Node) add(h *Holding) gpu.Set {
	cards := h.Cards() & n.topology.All()
	for card := range cards.All() {
		booked := h.On(card)
		n.now.Usage[card].plus(&booked)
	}
	return cards
}

// measure brings the fullness of the given cards, and the mean, up to date.
func (n *Node) measure(v *View, cards gpu.Set) {
	for i := range cards.All() {
		v.Full[i] = v.Usage[i].Fullness(n.topology.Card(i))
	}
	var sum Fullness
	healthy := n.topology.Healthy()
	for i := range healthy.All() {
		sum += v.Full[i]
	}
	if healthy != 0 {
		v.Mean = sum / Fullness(healthy.Len())
	}
}
