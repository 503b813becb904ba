package ledger

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// Holder names the pod that holds shares.
type Holder string

// Part is what one container of a holder holds.
type Part struct {
	Container string
	Phase     gpu.Phase
	// Whole: the container requested whole cards, not slices.
	Whole  bool
	Shares []Share
}

// Holding is what one pod holds on a node.
type Holding struct {
	Holder Holder
	QoS    gpu.QoS
	Class  gpu.Class
	// Parts has one entry for each container in the order of the pod's spec,
	// init containers first.
	Parts []Part
}

// Cards returns the cards that the holding is on.
func (h *Holding) Cards() gpu.Set {
	var s gpu.Set
	for i := range h.Parts {
		for _, sh := range h.Parts[i].Shares {
			s |= gpu.SetOf(sh.Card)
		}
	}
	return s
}

// On returns what the holding books of one card: the peak over the pod's life,
// as the package comment defines it.
func (h *Holding) On(card int) Usage {
	return fold[Usage](h, func(part *Part) (own Usage) {
		for _, sh := range part.Shares {
			if sh.Card == card {
				own.Add(sh, h.Class, h.QoS)
			}
		}
		return own
	})
}

// foldable is what containers hold and pods at their peak.
type foldable[T any] interface {
	*T
	plus(other *T)
	peak(other *T)
}

// fold returns the peak over the pod's life of what each container holds.
func fold[T any, P foldable[T]](h *Holding, holds func(*Part) T) T {
	var run, sidecars, peak T
	for i := range h.Parts {
		own := holds(&h.Parts[i])
		switch h.Parts[i].Phase {
		case gpu.Init:
			P(&own).plus(&sidecars)
			P(&peak).peak(&own)
		case gpu.Sidecar:
			P(&sidecars).plus(&own)
			P(&run).plus(&own)
		default:
			P(&run).plus(&own)
		}
	}
	P(&peak).peak(&run)
	return peak
}
