package discover

import (
	"cmp"
	"maps"
	"slices"
)

// complete adds what the kernel knows to the cards that a source lists, by PCI
// address. A card that only one of the two has is not available: it neither
// vanishes nor is it handed out. It reports whether the two agree.
func complete(out, pci *Snapshot) (agree bool) {
	kernel := make(map[string]*Card, len(pci.Cards))
	for i := range pci.Cards {
		kernel[pci.Cards[i].BDF] = &pci.Cards[i]
	}
	out.Driver = cmp.Or(out.Driver, pci.Driver)
	agree = true
	next := 0
	for i := range out.Cards {
		c := &out.Cards[i]
		next = max(next, c.Minor+1)
		if c.BDF == "" {
			continue
		}
		k, ok := kernel[c.BDF]
		if !ok {
			agree = false
			c.fail("it is gone from the PCI bus")
			continue
		}
		delete(kernel, c.BDF)
		c.NUMA, c.PCIeRoot, c.PCIeSwitch = k.NUMA, k.PCIeRoot, k.PCIeSwitch
		c.Virtual = c.Virtual || k.Virtual
	}
	for _, bdf := range slices.Sorted(maps.Keys(kernel)) {
		agree = false
		c := *kernel[bdf]
		c.Minor = next
		c.fail("it is on the PCI bus, but the driver does not list it")
		out.Cards = append(out.Cards, c)
		next++
	}
	return agree
}

// fail makes a card unavailable for a reason, unless it is so for another.
func (c *Card) fail(reason string) {
	if !c.Unavailable() || c.Vitals.Reason == "" {
		c.Vitals.Available, c.Vitals.Reason = new(false), reason
	}
}
