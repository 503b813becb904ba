package gpu

import "strconv"

// MiB is an amount of card memory.
type MiB int64

// MilliCPU is an amount of a node's CPU, in thousandths of a core.
type MilliCPU int64

// Coarse returns c rounded up to so many binary digits; with two digits to 1, 2, 3,
// 4, 6, 8, 12, 16, ... Pods that differ by less are of one kind, or there would be
// as many kinds as pods.
func (c MilliCPU) Coarse(digits int) MilliCPU {
	shift := 0
	for v := c >> digits; v > 0; v >>= 1 {
		shift++
	}
	return (c + 1<<shift - 1) >> shift << shift
}

// Percent is a share of one card's compute, 0 to 100.
type Percent int32

const (
	// FullCompute is all of one card's compute. Asking for it means being alone
	// on the card.
	FullCompute Percent = 100
	// MemoryStep is the driver's granule: a slice's memory is a multiple of it.
	MemoryStep MiB = 128
	// MaxSlices is how many slices the driver makes of one card.
	MaxSlices = 16
	// MaxCards is how many cards a node may hold: a set of cards is one word.
	MaxCards = 64
)

// RoundUp returns m as the driver would hand it out: the next multiple of
// [MemoryStep].
func (m MiB) RoundUp() MiB { return (m + MemoryStep - 1) / MemoryStep * MemoryStep }

// RoundDown returns the multiple of [MemoryStep] that m surely covers.
func (m MiB) RoundDown() MiB { return m / MemoryStep * MemoryStep }

// String renders whole GiB as such and everything else in MiB, so that no
// digit is lost: "4 GiB", "640 MiB".
func (m MiB) String() string {
	if m != 0 && m%1024 == 0 {
		return strconv.FormatInt(int64(m/1024), 10) + " GiB"
	}
	return strconv.FormatInt(int64(m), 10) + " MiB"
}

// Memory is an amount of card memory as a request states it. Its meaning in
// MiB depends on the card when it is stated as a ratio.
type Memory struct {
	// Amount is the memory in MiB; it counts while Ratio is zero.
	Amount MiB
	// Ratio is the share of the card's memory in percent; 100 is all of it.
	Ratio Percent
}

// AllMemory is the whole memory of whichever card it is asked of.
func AllMemory() Memory { return Memory{Ratio: 100} }

// Of returns what m means on a card with total memory. A ratio is rounded
// down, so that ratios which add up to 100 always fit together, but never to
// nothing: the driver makes no slice without memory.
func (m Memory) Of(total MiB) MiB {
	switch {
	case m.Ratio == 0:
		return m.Amount
	case m.Ratio >= 100:
		return total
	default:
		return max(MemoryStep, (total * MiB(m.Ratio) / 100).RoundDown())
	}
}
