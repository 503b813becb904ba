package place

import (
	"cmp"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Policy says what a good node is, and which of a node's cards a request for
// whole cards gets.
type Policy uint8

// The policies.
const (
	// Default is for pods that name no policy: whole cards as Spread picks
	// them, then what leaves the most useful cards to the pods that are
	// expected, then the fuller card and node. While nothing is known of them,
	// slices are packed.
	Default Policy = iota
	// Binpack does the least damage to what later jobs need, and fills.
	Binpack
	// Spread gives the job the best-linked cards, and levels.
	Spread
)

// CardKey orders the cards of a node for a slice. Keys apply one after the
// other: the next decides where the one before leaves a tie.
type CardKey uint8

// The keys.
const (
	// Fullest takes the card with the most booked on it.
	Fullest CardKey = iota
	// Emptiest takes the card with the least booked on it.
	Emptiest
	// SameNUMA takes the NUMA node that offers the most cards.
	SameNUMA
	// Unused is a condition more than an order: only idle cards now.
	Unused
)

// Preference is what a pod likes among the cards it could have. The zero
// Preference is the default.
type Preference struct {
	// Node picks the node, and the cards of whole-card requests.
	Node Policy
	// Cards picks the cards of slices inside the node. Without a key for
	// fullness among them the default order has the last word.
	Cards []CardKey
	// IgnoreLinks makes whole-card requests blind to how cards are joined.
	IgnoreLinks bool
	// Demand is what is expected of the pods to come; nil: nothing is known.
	// Only the default policy looks at it.
	Demand *Demand
}

// looksAhead reports whether the expected pods are considered.
func (p *Preference) looksAhead() bool { return p.Demand != nil && p.Node == Default }

// packs reports whether whole cards are chosen for the least loss.
func (p *Preference) packs() bool { return p.Node == Binpack }

// wantsUnused reports whether slices go to idle cards.
func (p *Preference) wantsUnused() bool { return slices.Contains(p.Cards, Unused) }

// defaultOrder is the order of cards for a slice whose pod names none, among
// those that leave equally useful cards to the pods that are expected.
const defaultOrder = Fullest

// ranking compares two candidate cards for a slice: negative when a is better.
// It is a total order: the index decides last.
type ranking struct {
	topology   *gpu.Topology
	usage      []ledger.Usage
	full       []ledger.Fullness
	candidates gpu.Set
	held       gpu.Set
	keys       []CardKey
	online     bool
	// growth has by card how much less useful the node becomes; nil when
	// nothing is known of the pods to come.
	growth *growth
}

func (r *ranking) compare(a, b int) int {
	// Cards that the pod has anyway cost nothing.
	if r.held.Has(a) != r.held.Has(b) {
		return compareBool(r.held.Has(b), r.held.Has(a))
	}
	if r.online {
		return cmp.Or(cmp.Compare(disturbance(&r.usage[a]), disturbance(&r.usage[b])), cmp.Compare(a, b))
	}
	for _, key := range r.keys {
		if c := r.by(key, a, b); c != 0 {
			return c
		}
	}
	if r.growth != nil {
		if c := cmp.Compare(r.growth[a], r.growth[b]); c != 0 {
			return c
		}
	}
	return cmp.Or(r.by(defaultOrder, a, b), cmp.Compare(a, b))
}

func (r *ranking) by(key CardKey, a, b int) int {
	switch key {
	case Fullest:
		return cmp.Compare(r.full[b], r.full[a])
	case Emptiest:
		return cmp.Compare(r.full[a], r.full[b])
	case SameNUMA:
		return r.byNUMA(a, b)
	default:
		return 0
	}
}

// byNUMA prefers the NUMA node with the most candidates, then the lower one.
// Cards of unknown NUMA node come last.
func (r *ranking) byNUMA(a, b int) int {
	na, nb := r.topology.Card(a), r.topology.Card(b)
	if na.NUMAKnown != nb.NUMAKnown {
		return compareBool(nb.NUMAKnown, na.NUMAKnown)
	}
	if na.NUMA == nb.NUMA {
		return 0
	}
	return cmp.Or(cmp.Compare(r.neighbours(nb.NUMA), r.neighbours(na.NUMA)), cmp.Compare(na.NUMA, nb.NUMA))
}

func (r *ranking) neighbours(numa int) int {
	n := 0
	for i := range r.candidates.All() {
		if c := r.topology.Card(i); c.NUMAKnown && c.NUMA == numa {
			n++
		}
	}
	return n
}

// best returns the n best candidates.
func (r *ranking) best(n int) gpu.Set {
	var chosen gpu.Set
	for range n {
		left := r.candidates &^ chosen
		best := left.First()
		for i := range (left & (left - 1)).All() {
			if r.compare(i, best) < 0 {
				best = i
			}
		}
		chosen |= gpu.SetOf(best)
	}
	return chosen
}

// disturbance says how much an online pod on this card gets in the way: least
// where few online pods are, then few offline ones; a card that only offline
// pods use is the last resort, since joining it suspends them all. It stays
// small enough to be added up over containers and ranked.
func disturbance(u *ledger.Usage) int64 {
	const most = 31
	online, offline := min(int64(u.Online), most), min(int64(u.Offline), most)
	d := online*(most+1) + offline
	if online == 0 && offline > 0 {
		d += (most + 1) * (most + 1)
	}
	return d
}
