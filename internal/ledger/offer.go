package ledger

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// inlineParts is how many containers an offer carries without an allocation;
// few pods have more.
const inlineParts = 6

// Offer is a placement on one node that was computed but not booked. It is
// valid for the version of the node it was made from.
type Offer struct {
	version uint64
	count   int
	few     [inlineParts]gpu.Set
	many    []gpu.Set

	// Score and Loss are the worth of the chosen card sets and what choosing
	// them costs later jobs, added up over the containers that run together.
	// They are zero for slices.
	Score, Loss int64
	// Growth is by how much the offer makes the cards left on the node less
	// useful to the pods that are expected: see package place. It is zero when
	// nothing is known about them.
	Growth int64
	// Disturbance says how much an online pod gets in the way of others.
	Disturbance int64
	// Incomplete: the search for the best cards of a very large node ended at
	// its budget, so the cards are good but not proved best.
	Incomplete bool
	// NodeFullness is the mean fullness of the node before this offer.
	NodeFullness Fullness
}

// NewOffer returns an empty offer for a pod of n containers.
func (n *Node) NewOffer(containers int) Offer {
	o := Offer{version: n.version, count: containers}
	if containers > inlineParts {
		o.many = make([]gpu.Set, containers)
	}
	return o
}

// Cards returns the cards of container i, in the order of the request.
func (o *Offer) Cards(i int) gpu.Set {
	if o.many != nil {
		return o.many[i]
	}
	return o.few[i]
}

// SetCards sets the cards of container i.
func (o *Offer) SetCards(i int, s gpu.Set) {
	if o.many != nil {
		o.many[i] = s
		return
	}
	o.few[i] = s
}

// Holding returns what the holder of the offer holds.
func (n *Node) Holding(o *Offer, holder Holder, r *gpu.PodRequest) Holding {
	h := Holding{Holder: holder, QoS: r.QoS, Class: r.Class, Parts: make([]Part, o.count)}
	for i := range h.Parts {
		req := &r.Requests[i]
		part := newPart(req)
		for c := range o.Cards(i).All() {
			part.Shares = append(part.Shares, n.ShareOf(req, c))
		}
		h.Parts[i] = part
	}
	return h
}

func newPart(r *gpu.Request) Part {
	return Part{Container: r.Container, Phase: r.Phase, Whole: r.Whole}
}

// ShareOf returns what the request books of the card. Whole cards are a seat,
// without amounts, on a node that hands out seats.
func (n *Node) ShareOf(r *gpu.Request, card int) Share {
	if r.Whole && n.Serves.Seats {
		return Share{Card: card}
	}
	return shareOf(r, card, n.topology.Card(card).Memory)
}

func shareOf(r *gpu.Request, card int, memory gpu.MiB) Share {
	return Share{Card: card, Compute: r.Compute, Memory: r.Memory.Of(memory), Exclusive: r.Exclusive}
}
