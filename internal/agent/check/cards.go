package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// best returns the answer with the most facts about the cards.
func (f *Facts) best() *discover.Snapshot {
	switch {
	case f.Library != nil:
		return f.Library
	case f.Command != nil:
		return f.Command
	}
	return &discover.Snapshot{}
}

// cards returns the cards that the driver can use.
func (f *Facts) cards() []discover.Card {
	return slices.DeleteFunc(slices.Clone(f.best().Cards), func(c discover.Card) bool { return c.Unavailable() })
}

func pciCards(f *Facts) Outcome {
	switch {
	case f.PCI == nil:
		return unknown("sysfs can't be read: %s", f.Errors[sourcePCI])
	case len(f.PCI.Cards) == 0 && len(f.best().Cards) > 0:
		return failed("no PCI device of vendor 0x9999, but the driver lists %d cards", len(f.best().Cards))
	case len(f.PCI.Cards) == 0:
		return unknown("no PCI device of vendor 0x9999: has this node cards?")
	}
	return ok("%d cards on the PCI bus", len(f.PCI.Cards))
}

func driverModule(f *Facts) Outcome {
	switch {
	case f.Kernel.Module:
		return ok("module metax is loaded, version %s", cmp.Or(f.Kernel.ModuleVersion, "not given"))
	case f.PCI == nil || len(f.PCI.Cards) == 0:
		return unknown("module metax is not loaded, and no card is on the PCI bus")
	case len(f.cards()) > 0:
		return unknown("there is no module metax, but a driver answers: it has another name")
	}
	return failed("module metax is not loaded")
}

func driverVersion(f *Facts) Outcome {
	version := f.best().Driver
	if version == "" {
		return unknown("the driver does not report a version")
	}
	if deviceplugin.MakesNoSlices(version) {
		return failed("driver %s", version)
	}
	return ok("driver %s", version)
}

func libraryLoads(f *Facts) Outcome {
	switch {
	case f.Library != nil && len(f.Library.Cards) == 0:
		return unknown("%s answers and lists no card", f.Library.Source)
	case f.Library != nil:
		return ok("%s lists %d cards", f.Library.Source, len(f.Library.Cards))
	case f.Errors[sourceLibrary] == "":
		return unknown("it is not among the sources that are used")
	case f.Command != nil:
		return unknown("%s; mx-smi answers in its place, without slices", f.Errors[sourceLibrary])
	}
	return failed("%s", f.Errors[sourceLibrary])
}

func libraryFunctions(f *Facts) Outcome {
	switch {
	case f.Library == nil:
		return unknown("the library was not loaded")
	case len(f.Library.Missing) > 0:
		return unknown("%s has no %s", f.Library.Source, strings.Join(f.Library.Missing, ", "))
	}
	return ok("%s has every function", f.Library.Source)
}

func sliceSupport(f *Facts) Outcome {
	switch {
	case len(f.cards()) == 0:
		return unknown("no GPU was found")
	case f.Library == nil:
		return unknown("slices are made through the library alone, which was not loaded")
	case f.Library.NoSlices != "":
		return unknown("%s", f.Library.NoSlices)
	}
	return ok("library and driver make slices of these GPUs")
}

func librarySteady(f *Facts) Outcome {
	if f.Library == nil || f.LibraryAgain == nil {
		return unknown("the library was not asked twice")
	}
	first, second := identities(f.Library), identities(f.LibraryAgain)
	if !maps.Equal(first, second) {
		return failed("first %v, then %v", first, second)
	}
	return ok("the same %d cards twice", len(first))
}

// identities returns UUIDs by PCI address.
func identities(s *discover.Snapshot) map[string]string {
	out := map[string]string{}
	for i := range s.Cards {
		if c := &s.Cards[i]; c.BDF != "" && c.UUID != "" {
			out[c.BDF] = c.UUID
		}
	}
	return out
}

func command(f *Facts) Outcome {
	switch {
	case f.Command != nil:
		return ok("%s lists %d cards", f.Command.Source, len(f.Command.Cards))
	case f.Library == nil && f.Errors[sourceCommand] != "":
		return failed("%s", f.Errors[sourceCommand])
	}
	return unknown("%s", cmp.Or(f.Errors[sourceCommand], "it is not among the sources that are used"))
}

func cardIdentity(f *Facts) Outcome {
	cards := f.cards()
	if len(cards) == 0 {
		return unknown("no card was found")
	}
	for i := range cards {
		if c := &cards[i]; c.UUID == "" || c.BDF == "" || c.Model == "" {
			return failed("card %d has UUID %q, PCI address %q and model %q: none may be empty", c.Minor, c.UUID, c.BDF, c.Model)
		}
	}
	if c := f.offTheBus(cards); c != nil {
		return failed("the driver has card %s at %s, where the PCI bus has none", c.UUID, c.BDF)
	}
	if f.Library == nil || f.Command == nil {
		return ok("%d cards, by one source", len(cards))
	}
	a, b := identities(f.Library), identities(f.Command)
	for _, bdf := range slices.Sorted(maps.Keys(a)) {
		if other, both := b[bdf]; both && other != a[bdf] {
			return failed("at %s the library has card %s, mx-smi has %s", bdf, a[bdf], other)
		}
	}
	return ok("%d cards, library and mx-smi agree", len(cards))
}

// offTheBus returns a card that the PCI bus, as far as it is known, does not have.
func (f *Facts) offTheBus(cards []discover.Card) *discover.Card {
	if f.PCI == nil || len(f.PCI.Cards) == 0 {
		return nil
	}
	for i := range cards {
		if !slices.ContainsFunc(f.PCI.Cards, func(c discover.Card) bool { return c.BDF == cards[i].BDF }) {
			return &cards[i]
		}
	}
	return nil
}

// Limits of what a card may have of memory.
const leastMemory, mostMemory = 4 << 10, 1 << 20 // MiB

func cardMemory(f *Facts) Outcome {
	cards := f.cards()
	if len(cards) == 0 {
		return unknown("no card was found")
	}
	for i := range cards {
		if m := cards[i].Memory; m < leastMemory || m > mostMemory {
			return failed("card %s has %v by the library: that is a unit other than KiB", cards[i].UUID, m)
		}
	}
	if f.Library != nil && f.Command != nil {
		for i := range f.Command.Cards {
			c := &f.Command.Cards[i]
			at := slices.IndexFunc(cards, func(other discover.Card) bool { return other.UUID == c.UUID && c.UUID != "" })
			if at < 0 || c.Figures.MemoryTotalKiB == nil || cards[at].Figures.MemoryTotalKiB == nil {
				continue
			}
			if a, b := *cards[at].Figures.MemoryTotalKiB, *c.Figures.MemoryTotalKiB; a != b {
				return failed("card %s has %d KiB by the library, %d KiB by mx-smi", c.UUID, a, b)
			}
		}
	}
	return ok("%v on the first card", cards[0].Memory)
}

func controlDevice(f *Facts) Outcome {
	switch {
	case len(f.cards()) == 0:
		return unknown("there is no card that needs it")
	case f.Devices.Control != "":
		return failed("%s", f.Devices.Control)
	}
	return ok("it is a character device")
}

func cardDevices(f *Facts) Outcome {
	return f.devices(f.Devices.Cards, "GPU at", "there is no whole GPU", "")
}

// devices compares devices by key, each with what is wrong with it, with the driver's.
func (f *Facts) devices(faults map[string]string, what, none, advice string) Outcome {
	if len(faults) == 0 {
		return unknown("%s", none)
	}
	if key, why := firstFault(faults); why != "" {
		return failed("%s %s: %s", what, key, why)
	}
	for _, key := range slices.Sorted(maps.Keys(faults)) {
		if path := f.Devices.Absent[key]; path != "" {
			return unknown("%s %s: the host has no file %s, so nothing shows that the driver's device is of this name%s", what, key, path, advice)
		}
	}
	return ok("devices that are those of the driver: %d", len(faults))
}
