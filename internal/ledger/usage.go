package ledger

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// Share is what one container holds of one card.
type Share struct {
	// Card is the card's index.
	Card    int
	Compute gpu.Percent
	Memory  gpu.MiB
	// Exclusive: no other share may be on the card.
	Exclusive bool
}

// Usage is what is booked on one card.
type Usage struct {
	Memory  gpu.MiB
	Compute gpu.Percent
	// Slots counts shares, Online and Offline those of the two classes.
	Slots, Online, Offline int16
	// QoS holds the class of the slices on the card: one, unless something
	// went wrong.
	QoS       gpu.QoSSet
	Exclusive bool
}

// Idle reports whether nothing is booked on the card.
func (u *Usage) Idle() bool { return u.Slots == 0 }

// Add books one share of a pod with the given class and QoS.
func (u *Usage) Add(s Share, class gpu.Class, qos gpu.QoS) {
	u.Memory += s.Memory
	u.Compute += s.Compute
	u.Slots++
	switch class {
	case gpu.Online:
		u.Online++
	case gpu.Offline:
		u.Offline++
	}
	if s.Exclusive {
		u.Exclusive = true
	} else if class != gpu.Online {
		u.QoS |= qos.Set()
	}
}

// Plus adds up two usages of one card.
func (u *Usage) Plus(o *Usage) { u.plus(o) }

func (u *Usage) plus(o *Usage) {
	u.Memory += o.Memory
	u.Compute += o.Compute
	u.Slots += o.Slots
	u.Online += o.Online
	u.Offline += o.Offline
	u.QoS |= o.QoS
	u.Exclusive = u.Exclusive || o.Exclusive
}

// peak raises u, amount by amount, to what o needs.
func (u *Usage) peak(o *Usage) {
	u.Memory = max(u.Memory, o.Memory)
	u.Compute = max(u.Compute, o.Compute)
	u.Slots = max(u.Slots, o.Slots)
	u.Online = max(u.Online, o.Online)
	u.Offline = max(u.Offline, o.Offline)
	u.QoS |= o.QoS
	u.Exclusive = u.Exclusive || o.Exclusive
}

// Fullness says how much of a card, or of a node on average, is booked: the
// booked parts of slots, compute and memory added up, in units that leave no
// rounding for the sizes cards and nodes come in. Equal fullness is therefore
// a true tie.
type Fullness int64

// FullnessUnit is one whole: a card with everything booked has three. It is
// divisible by 16 slots, by 100 percent, by the memory of real cards in steps
// of 128 MiB (512, 576, ...), and the result by the cards of a node.
const FullnessUnit Fullness = 1 << 13 * 27 * 25 * 7 * 11 * 13

// MaxFullness bounds the fullness of anything that is not overbooked.
const MaxFullness = 3 * FullnessUnit

// Fullness returns how full the card is.
func (u *Usage) Fullness(c *gpu.Card) Fullness {
	f := Fullness(u.Slots)*(FullnessUnit/gpu.MaxSlices) + Fullness(u.Compute)*(FullnessUnit/100)
	if c.Memory > 0 {
		f += fraction(u.Memory, c.Memory)
	}
	return f
}

// fraction returns part/whole in units of FullnessUnit, rounded down. Part may
// exceed whole on an overbooked card; whole has 24 bits at most, which leaves
// room for the product of the remainder.
func fraction(part, whole gpu.MiB) Fullness {
	return Fullness(part/whole)*FullnessUnit + Fullness(part%whole)*FullnessUnit/Fullness(whole)
}
