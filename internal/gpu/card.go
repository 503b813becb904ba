package gpu

import "fmt"

// CardID is the hardware's UUID of a card. It is empty on nodes whose cards
// are counted but not known one by one.
type CardID string

// Card is one physical GPU, or one virtual function of one. Cards are facts:
// what is booked on them is the ledger's business.
type Card struct {
	ID CardID
	// Minor is the driver's number of the card; inventories are ordered by it.
	Minor int
	// Model is the chip's name without the vendor prefix: "C500".
	Model string
	// Memory is what can be handed out, a multiple of [MemoryStep].
	Memory MiB
	// Slots is how many shares the card takes, at most [MaxSlices].
	Slots int
	// Healthy cards take new pods; others keep what they have.
	Healthy bool
	// NUMA is the card's NUMA node; it means nothing unless NUMAKnown.
	NUMA      int
	NUMAKnown bool
	// Switch names the PCIe switch, or the PCIe root where no switch is known;
	// cards with the same name are near each other. Empty: unknown.
	Switch string
}

// SameKind reports whether two cards can hold the same: they are of one model,
// with as much memory and as many slots.
func SameKind(c, o *Card) bool {
	return c.Memory == o.Memory && c.Slots == o.Slots && c.Model == o.Model
}

// Validate returns what is wrong with the card's facts, or nil.
func (c Card) Validate() error {
	switch {
	case c.Memory < 0 || c.Memory > maxCardMemory:
		return fmt.Errorf("gpu: card %q has %d MiB of memory, want 0 to %d", c.ID, c.Memory, maxCardMemory)
	case c.Healthy && c.Memory < MemoryStep:
		return fmt.Errorf("gpu: card %q is healthy but has %d MiB of memory, want at least %d", c.ID, c.Memory, MemoryStep)
	case c.Memory%MemoryStep != 0:
		return fmt.Errorf("gpu: card %q has %d MiB of memory, want a multiple of %d", c.ID, c.Memory, MemoryStep)
	case c.Slots < 1 || c.Slots > MaxSlices:
		return fmt.Errorf("gpu: card %q takes %d shares, want 1 to %d", c.ID, c.Slots, MaxSlices)
	case c.Minor < 0:
		return fmt.Errorf("gpu: card %q has minor number %d, want 0 or more", c.ID, c.Minor)
	}
	return nil
}

// maxCardMemory bounds what an inventory may claim, well above any real card,
// so that sums over a node cannot overflow.
const maxCardMemory MiB = 16 << 20
