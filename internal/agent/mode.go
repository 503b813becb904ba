package agent

import (
	"cmp"
	"fmt"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Reasons of the conditions about modes.
const (
	reasonDriverTooOld   = "DriverTooOld"
	reasonNoSlices       = "NoSlices"
	reasonVirtualCards   = "VirtualCards"
	reasonNoVirtualCards = "NoVirtualCards"
	reasonPodsHoldCards  = "PodsHoldCards"
)

// modeQuestion is all that the mode of a node depends on.
type modeQuestion struct {
	// configured is the mode in the ConfigMap, preset the one without; may be empty.
	configured, preset gpu.Mode
	// current is what is published now; empty at first.
	current gpu.Mode
	// servesBoth: whole cards are handed out in mode sgpu too, as Daybreak does and
	// the vendor's plugin does not.
	servesBoth bool
	driver     string
	// noSlices is why no slices can be made, if that is known.
	noSlices string
	// cards counts the cards that are there, virtual those that are virtual.
	cards, virtual int
	// holders are the pods that hold cards, if podsKnown.
	holders   []holder
	podsKnown bool
}

// holder is a pod that holds cards.
type holder struct {
	name   string
	slices bool // it has some, not only whole cards
}

// modeDecision is the mode to publish, and why it is not another one.
type modeDecision struct {
	mode, pending gpu.Mode
	// noSlices is why slices are not served, waits why the pending mode is pending.
	noSlices, waits fault
}

// decide returns the mode. What the hardware can't do is never published; a change
// that would take cards from pods waits for them.
func (q *modeQuestion) decide() modeDecision {
	asked := cmp.Or(q.configured, q.preset)
	if asked == "" {
		asked = q.natural()
	}
	d := modeDecision{mode: asked}
	switch {
	case asked == gpu.ModeVGPU && q.virtual == 0:
		d.mode, d.pending = gpu.ModeNative, asked
		d.waits = fault{reasonNoVirtualCards, "mode vgpu waits for virtual functions: switch them on with mx-smi vm --enable-vf"}
	case asked != gpu.ModeVGPU && q.cards > 0 && q.virtual == q.cards:
		d.mode = gpu.ModeVGPU
	case asked == gpu.ModeSGPU && q.virtual > 0:
		d.mode = gpu.ModeNative
		d.noSlices = fault{reasonVirtualCards, "some cards are virtual functions, which take no slices: the node hands out whole cards only"}
	case asked == gpu.ModeSGPU && deviceplugin.MakesNoSlices(q.driver):
		d.mode = gpu.ModeNative
		d.noSlices = fault{reasonDriverTooOld, fmt.Sprintf("slices need driver %s, this is %s: the node hands out whole cards only", deviceplugin.SlicesSince, q.driver)}
	case asked == gpu.ModeSGPU && q.noSlices != "":
		d.mode = gpu.ModeNative
		d.noSlices = fault{reasonNoSlices, q.noSlices + ": the node allocates whole GPUs only"}
	}
	return q.deferred(d)
}

// natural is the mode where none is configured: everything that the hardware can do.
func (q *modeQuestion) natural() gpu.Mode {
	switch {
	case q.cards > 0 && q.virtual == q.cards:
		return gpu.ModeVGPU
	case deviceplugin.MakesNoSlices(q.driver) || q.noSlices != "":
		return gpu.ModeNative
	}
	return gpu.ModeSGPU
}

// deferred keeps the current mode while pods would lose their cards, unless the
// hardware has taken them already.
func (q *modeQuestion) deferred(d modeDecision) modeDecision {
	impossible := d.noSlices.reason != "" && q.before() == gpu.ModeSGPU || q.cards > 0 && q.virtual == q.cards
	if d.mode == q.before() || impossible {
		return d
	}
	losers, waits := q.losers(d.mode)
	if !waits {
		return d
	}
	wanted := cmp.Or(d.pending, d.mode)
	return modeDecision{mode: q.before(), pending: wanted, waits: fault{reasonPodsHoldCards, fmt.Sprintf("mode %s waits for %s", wanted, counted(losers))}}
}

// before is the mode in force; without one, pods may have slices and whole cards.
func (q *modeQuestion) before() gpu.Mode { return cmp.Or(q.current, gpu.ModeSGPU) }

// losers counts the pods that would lose their cards in the new mode.
func (q *modeQuestion) losers(to gpu.Mode) (pods int, waits bool) {
	if !q.podsKnown {
		return 0, q.current != ""
	}
	from := q.before()
	for _, h := range q.holders {
		switch {
		case from == gpu.ModeSGPU && to == gpu.ModeNative && !h.slices:
		case from == gpu.ModeNative && to == gpu.ModeSGPU && !h.slices && q.servesBoth:
		default:
			pods++
		}
	}
	return pods, pods > 0
}

// counted counts pods, which it does not name: users read the Device and events of a
// Node and may not see the pods.
func counted(pods int) string {
	switch pods {
	case 0:
		return "the list of pods"
	case 1:
		return "1 pod that holds cards"
	}
	return fmt.Sprintf("%d pods that hold cards", pods)
}
