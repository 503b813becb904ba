package place

import "github.com/daybreak-gpu/daybreak/internal/ledger"

// Waste returns how much is free of the node's healthy cards, and how much of
// that is of no use to the expected pods: for each class, what it can't use
// counts with the part that the class has in all. Both are in cards; half of a
// card is its compute and half its memory. Over a cluster, the second divided by
// the first is how fragmented it is.
//
// It is the fragmentation that placement keeps small, in units that people
// know, without the terms that look further ahead than one pod: what CPU can't
// feed, linked idle pairs, and the rest that slices leave when they fill a card.
func (d *Demand) Waste(n *ledger.Node) (free, useless float64) {
	var o outlook
	o.load(d, n, n.Now().Usage)
	possible := o.running(o.cpu)
	if len(d.several) > 0 {
		possible = possible.without(o.tooFew(possible, 0, nil))
	}
	for i := range o.groups {
		g := &o.groups[i]
		value := float64(g.cards.Len()) * float64(g.value) / idleValue
		free += value
		if d.total > 0 {
			useless += value * float64(d.total-d.weight(o.users(g, possible, o.idle))) / float64(d.total)
		}
	}
	return free, useless
}
