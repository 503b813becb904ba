package place

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// check asks whether one card can take one share of a request.
type check struct {
	card    *gpu.Card
	usage   *ledger.Usage
	pod     *gpu.PodRequest
	request *gpu.Request
	// share is what the request adds to the card, but for its amounts.
	share *ledger.Usage
	// seat: the share has no amounts, only a place on the card.
	seat bool
	// othersThere: the pod wants an idle card, and this one is used.
	othersThere bool
}

// run goes through the rules in the order of the codes and returns the first
// that the card breaks, with what was wanted and what there is.
func (c *check) run() (code Code, want, have int64) {
	switch {
	case !c.card.Healthy:
		return Unhealthy, 0, 0
	case !c.pod.Admits(c.card.ID):
		return CardExcluded, 0, 0
	}
	if conflict := c.usage.Conflict(c.share); conflict != 0 {
		return codeOf(conflict), 0, 0
	}
	switch {
	case c.othersThere:
		return ExclusiveConflict, 0, 0
	case int(c.usage.Slots) >= c.card.Slots:
		return SlicesFull, 1, 0
	case c.seat:
		return Fits, 0, 0
	}
	return c.amounts()
}

// codeOf returns the first of the codes that the conflict has.
func codeOf(c ledger.Conflict) Code {
	switch {
	case c&ledger.ClassConflict != 0:
		return ClassConflict
	case c&ledger.QoSConflict != 0:
		return QoSConflict
	}
	return ExclusiveConflict
}

// amounts checks memory and compute.
func (c *check) amounts() (code Code, want, have int64) {
	memory, free := c.request.Memory.Of(c.card.Memory), max(0, c.card.Memory-c.usage.Memory)
	if memory > free {
		return MemoryShort, int64(memory), int64(free)
	}
	if c.pod.Class == gpu.Online {
		return Fits, 0, 0 // online work is not metered
	}
	// A share without compute still needs a card that is not all booked.
	compute, left := max(1, c.request.Compute), max(0, gpu.FullCompute-c.usage.Compute)
	if compute > left {
		return ComputeShort, int64(compute), int64(left)
	}
	return Fits, 0, 0
}

// tally collects why the cards of a node were refused.
type tally struct {
	cards      [codes]uint8
	want, have [codes]int64
}

// count notes a refused card; the best of those refused for one code is kept.
func (t *tally) count(code Code, want, have int64) {
	if t.cards[code] == 0 || want-have < t.want[code]-t.have[code] {
		t.want[code], t.have[code] = want, have
	}
	t.cards[code]++
}

// refusal returns the refusal of the node: its reason is the one of the cards that
// came furthest in the checks, since these are nearest to fitting.
func (t *tally) refusal(req *gpu.Request, fitting gpu.Set) Refusal {
	t.cards[TooFewCards] = uint8(fitting.Len())
	last := TooFewCards
	for last > NoCards && t.cards[last] == 0 {
		last--
	}
	r := Refusal{Code: last, Want: int64(req.Cards), Have: int64(fitting.Len()), Cards: t.cards}
	switch last {
	case SlicesFull, MemoryShort, ComputeShort:
		r.Want, r.Have = t.want[last], t.have[last]
	}
	return r
}
