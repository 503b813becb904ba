package place

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// fullnessBits leaves room for the fullness of any node, overbooked ones
// included, below the score in one number.
const fullnessBits = 36

// Rank makes one number of an offer, so that offers of different nodes can be
// compared: the greater, the better. Equal ranks are true ties; the node's
// name decides them.
//
//   - spread: the highest score, then the emptier node
//   - binpack: the least loss, then the fuller node
//   - default: the highest score, then the fuller node
//
// Slices have neither score nor loss, so fullness alone decides; online pods
// go first of all where they disturb least.
func Rank(o *ledger.Offer, p *Preference) int64 {
	rank := -o.Disturbance
	fullness := int64(min(o.NodeFullness, 1<<fullnessBits-1))
	switch p.Node {
	case Spread:
		rank += o.Score
		fullness = 1<<fullnessBits - 1 - fullness
	case Binpack:
		rank -= o.Loss
	default:
		rank += o.Score
	}
	return rank<<fullnessBits + fullness
}

// Table returns what n of the free cards are worth, for every n from 1 to the
// number of free cards: the score of the best choice under spread, and the
// loss of the best choice under binpack. These are the tables that the
// vendor's plugin writes on a node; entry n-1 is for n cards.
func Table(t *gpu.Topology, free gpu.Set) (scores, losses []int64) {
	for n := 1; n <= free.Len(); n++ {
		q := subsets{topology: t, candidates: free, free: free, n: n}
		spread, _ := q.choose()
		q.binpack = true
		binpack, _ := q.choose()
		scores = append(scores, t.Score(spread))
		losses = append(losses, t.Loss(binpack, free))
	}
	return scores, losses
}
