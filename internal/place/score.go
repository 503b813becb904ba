package place

import (
	"cmp"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Worth is what an offer is worth against those of other nodes. Equal worth is a
// true tie; the node's name decides it.
type Worth struct {
	links    int64
	growth   int64
	fullness int64
}

// Compare is positive when w is the better one.
func (w Worth) Compare(o Worth) int {
	return cmp.Or(cmp.Compare(w.links, o.links), cmp.Compare(o.growth, w.growth), cmp.Compare(w.fullness, o.fullness))
}

// Rank says what an offer is worth, so that offers of different nodes can be
// compared.
//
//   - spread: the highest score, then the emptier node
//   - binpack: the least loss, then the fuller node
//   - default: the highest score, then the node that stays most useful to the
//     pods that are expected, then the fuller node
//
// Slices have neither score nor loss; online pods go first of all where they
// disturb least.
func Rank(o *ledger.Offer, p *Preference) Worth {
	w := Worth{links: -o.Disturbance, fullness: int64(o.NodeFullness)}
	switch p.Node {
	case Spread:
		w.links += o.Score
		w.fullness = -w.fullness
	case Binpack:
		w.links -= o.Loss
	default:
		w.links += o.Score
		w.growth = o.Growth
	}
	return w
}
