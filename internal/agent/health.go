package agent

import (
	"fmt"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Reasons of a card's condition Healthy.
const (
	reasonHealthy     = "DeviceHealthy"
	reasonUnavailable = "DeviceUnavailable"
	reasonECC         = "UncorrectableECC"
	reasonPages       = "RetiredPages"
	reasonNoMemory    = "NoMemory"
	reasonLost        = "CardLost"
	reasonRecovering  = "Recovering"
	reasonUnknown     = "DeviceUnhealthy" // of a Device that does not say more
)

// maxRetiredPages is how many memory pages may be retired. A few are normal.
const maxRetiredPages = 64

// fault is what is wrong with a card. The message does not change while the fault is
// the same, or the Device would be written with every look.
type fault struct{ reason, message string }

var lostFault = fault{reasonLost, "the card is no longer found"}

type health struct {
	damper damper
	// fault is what brought the card down last.
	fault fault
	// errors counts uncorrectable memory errors so far; nil if never reported.
	errors *int64
	// latched: memory errors rose. The driver goes on as before, so only new counters
	// (the card was reset, the driver reloaded) or an operator's annotation end it.
	latched bool
}

// remembered is the health of a card as its Device has it.
func remembered(healthy bool, f fault, errors *int64, now time.Time) health {
	h := health{errors: errors}
	if f.reason == reasonRecovering {
		f = fault{reasonUnknown, "the card was down before the agent started"}
	}
	if !healthy {
		h.fault, h.latched = f, f.reason == reasonECC
		h.damper.see(false, now)
	}
	return h
}

// look notes what a look found; nil: the card was not found.
func (h *health) look(c *discover.Card, now time.Time) {
	f, bad := lostFault, true
	if c != nil {
		h.count(c.Vitals.ECC)
		f, bad = h.judge(c)
	}
	if bad {
		h.fault = f
	}
	h.damper.see(!bad, now)
}

// count follows the counter of uncorrectable errors.
func (h *health) count(ecc *discover.ECC) {
	if ecc == nil {
		return
	}
	errors := ecc.SRAMUncorrectable + ecc.DRAMUncorrectable
	before := errors // what a card has when it is first seen is history
	if h.errors != nil {
		before = *h.errors
	}
	if errors < before {
		before, h.latched = 0, false // the counters began again
	}
	if errors > before {
		h.latched = true
		h.fault = fault{reasonECC, fmt.Sprintf("uncorrectable memory errors rose from %d to %d", before, errors)}
	}
	h.errors = &errors
}

// judge returns what is wrong with a card that was found.
func (h *health) judge(c *discover.Card) (f fault, bad bool) {
	v := &c.Vitals
	switch {
	case h.latched: // first, so that the Device has it for an agent that restarts
		return h.eccFault(), true
	case v.Available != nil && !*v.Available && v.Reason != "":
		return fault{reasonUnavailable, "reported by the driver: " + v.Reason}, true
	case v.Available != nil && !*v.Available:
		return fault{reasonUnavailable, "the driver reports the card as unavailable"}, true
	case v.ECC != nil && v.ECC.RetiredPages > maxRetiredPages:
		return fault{reasonPages, fmt.Sprintf("more than %d pages of its memory are retired", maxRetiredPages)}, true
	case c.Memory < gpu.MemoryStep:
		return fault{reasonNoMemory, "the driver reports no memory"}, true
	}
	return fault{}, false
}

// eccFault is the latched fault, as first reported if none came in between.
func (h *health) eccFault() fault {
	if h.fault.reason == reasonECC {
		return h.fault
	}
	return fault{reasonECC, "uncorrectable memory errors rose"}
}

// verdict returns whether the card may be used, and why not.
func (h *health) verdict() (healthy bool, why fault) {
	switch {
	case !h.damper.down:
		return true, fault{reasonHealthy, "device is healthy"}
	case h.damper.recovering():
		return false, fault{reasonRecovering, fmt.Sprintf("%s; recovering, healthy after %s without a fault", h.fault.message, h.damper.hold())}
	}
	return false, h.fault
}
