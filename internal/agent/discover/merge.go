package discover

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// complete adds what the kernel knows to the cards that a source lists, by PCI
// address. A card that only one of the two has is not available: it neither
// vanishes nor is it handed out. The two lists are compared in the answer,
// which is empty where they agree.
func complete(out, pci *Snapshot) (difference string) {
	kernel := make(map[string]*Card, len(pci.Cards))
	for i := range pci.Cards {
		kernel[pci.Cards[i].BDF] = &pci.Cards[i]
	}
	out.Driver = cmp.Or(out.Driver, pci.Driver)
	var differences []string
	next := 0
	for i := range out.Cards {
		c := &out.Cards[i]
		next = max(next, c.Minor+1)
		if c.BDF == "" {
			continue
		}
		k, ok := kernel[c.BDF]
		if !ok {
			differences = append(differences, "-"+c.BDF)
			c.fail("it is gone from the PCI bus")
			continue
		}
		delete(kernel, c.BDF)
		c.NUMA, c.DRMCard, c.DRMRender = cmp.Or(k.NUMA, c.NUMA), cmp.Or(k.DRMCard, c.DRMCard), cmp.Or(k.DRMRender, c.DRMRender)
		c.PCIeRoot, c.PCIeSwitch = k.PCIeRoot, k.PCIeSwitch
		c.Virtual = c.Virtual || k.Virtual
	}
	for _, bdf := range slices.Sorted(maps.Keys(kernel)) {
		differences = append(differences, "+"+bdf)
		c := *kernel[bdf]
		c.Minor = next
		c.fail("it is on the PCI bus, but the driver does not list it")
		out.Cards = append(out.Cards, c)
		next++
	}
	return strings.Join(differences, " ")
}

// fail makes a card unavailable for a reason, unless it is so for another.
func (c *Card) fail(reason string) {
	if !c.Unavailable() || c.Vitals.Reason == "" {
		c.Vitals.Available, c.Vitals.Reason = new(false), reason
	}
}
