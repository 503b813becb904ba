package ledger

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// Holder names the pod that holds shares.
type Holder string

// Part is what one container of a holder holds.
type Part struct {
	Container string
	Phase     gpu.Phase
	Shares    []Share
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
	var run, sidecars, peak Usage
	for i := range h.Parts {
		part := &h.Parts[i]
		var own Usage
		for _, sh := range part.Shares {
			if sh.Card == card {
				own.Add(sh, h.Class, h.QoS)
			}
		}
		switch part.Phase {
		case gpu.Init:
			own.plus(&sidecars)
			peak.peak(&own)
		case gpu.Sidecar:
			sidecars.plus(&own)
			run.plus(&own)
		default:
			run.plus(&own)
		}
	}
	peak.peak(&run)
	return peak
}
