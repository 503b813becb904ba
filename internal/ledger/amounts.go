package ledger

import (
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Amounts is what a pod counts in quotas, of all its cards together: as much as its
// containers can use, which may be more than is booked on the cards.
type Amounts struct {
	// Compute is in percent of one card: two whole cards are 200.
	Compute gpu.Percent
	Memory  gpu.MiB
	// Cards are those of which the pod can use all compute.
	Cards int
	// Whole and Slices count the cards by the resource that was requested: whole
	// cards, or slices of them.
	Whole, Slices int
}

// Peak returns the most that a pod on the node counts at one time. It does not depend
// on how the containers were distributed over cards, except that a ratio of memory, and
// an exclusive share, is more of a larger card.
func (n *Node) Peak(h *Holding) Amounts {
	return h.peak(func(card int) gpu.MiB { return n.topology.Card(card).Memory })
}

// PeakOf returns the peak of a pod on cards of the given memory.
func PeakOf(r *gpu.PodRequest, memory gpu.MiB) Amounts {
	h := Holding{Class: r.Class, Parts: make([]Part, len(r.Requests))}
	for i := range r.Requests {
		req := &r.Requests[i]
		h.Parts[i] = newPart(req)
		for range req.Cards {
			h.Parts[i].Shares = append(h.Parts[i].Shares, shareOf(req, 0, memory))
		}
	}
	return h.peak(func(int) gpu.MiB { return memory })
}

// PeakVaries reports whether the peak of a pod depends on the memory of its cards.
func PeakVaries(r *gpu.PodRequest) bool {
	return slices.ContainsFunc(r.Requests, func(req gpu.Request) bool { return req.Cards > 0 && (req.Exclusive || req.Memory.Ratio > 0) })
}

// peak returns the peak on cards whose memory the function returns.
func (h *Holding) peak(memory func(card int) gpu.MiB) Amounts {
	return fold[Amounts](h, func(part *Part) (own Amounts) {
		for i := range part.Shares {
			s := &part.Shares[i]
			own.add(s, part.Whole, h.Class == gpu.Online, memory(s.Card))
		}
		return own
	})
}

// add adds what a share of a card with this memory counts. A container with an exclusive
// share gets the card's own devices, and with them all memory, whatever it asked for. An
// online pod has no share of the compute: it takes what it needs before the others.
func (a *Amounts) add(s *Share, whole, online bool, memory gpu.MiB) {
	compute, held := s.Compute, s.Memory
	if online {
		compute = gpu.FullCompute
	}
	if s.Exclusive {
		held = max(held, memory)
	}
	a.Compute += compute
	a.Memory += held
	if s.Exclusive || online {
		a.Cards++
	}
	if whole {
		a.Whole++
	} else {
		a.Slices++
	}
}

// Plus adds up the amounts of several pods.
func (a *Amounts) Plus(o *Amounts) { a.plus(o) }

// Negated returns the amounts that take these off a sum.
func (a *Amounts) Negated() Amounts {
	return Amounts{Compute: -a.Compute, Memory: -a.Memory, Cards: -a.Cards, Whole: -a.Whole, Slices: -a.Slices}
}

func (a *Amounts) plus(o *Amounts) {
	a.Compute += o.Compute
	a.Memory += o.Memory
	a.Cards += o.Cards
	a.Whole += o.Whole
	a.Slices += o.Slices
}

func (a *Amounts) peak(o *Amounts) {
	a.Compute = max(a.Compute, o.Compute)
	a.Memory = max(a.Memory, o.Memory)
	a.Cards = max(a.Cards, o.Cards)
	a.Whole = max(a.Whole, o.Whole)
	a.Slices = max(a.Slices, o.Slices)
}
