package ledger

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// Amounts is what a pod holds of all its cards together, as quotas count it.
type Amounts struct {
	// Compute is in percent of one card: two whole cards are 200.
	Compute gpu.Percent
	Memory  gpu.MiB
	// Cards are those that no other pod may use.
	Cards int
	// Whole and Slices count the cards by the resource that was requested: whole
	// cards, or slices of them.
	Whole, Slices int
}

// Peak returns the most that the pod holds at one time. It does not depend on how
// the containers were distributed over cards, except that a ratio of memory is
// more of a larger card.
func (h *Holding) Peak() Amounts {
	return fold[Amounts](h, func(part *Part) (own Amounts) {
		for i := range part.Shares {
			own.add(&part.Shares[i], part.Whole)
		}
		return own
	})
}

// PeakOf returns the peak of a pod on cards of the given memory.
func PeakOf(r *gpu.PodRequest, memory gpu.MiB) Amounts {
	h := Holding{Parts: make([]Part, len(r.Requests))}
	for i := range r.Requests {
		req := &r.Requests[i]
		h.Parts[i] = newPart(req)
		for range req.Cards {
			h.Parts[i].Shares = append(h.Parts[i].Shares, shareOf(req, 0, memory))
		}
	}
	return h.Peak()
}

func (a *Amounts) add(s *Share, whole bool) {
	a.Compute += s.Compute
	a.Memory += s.Memory
	if s.Exclusive {
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
