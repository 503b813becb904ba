package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/agent/kubelet"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// check is one assumption.
type check struct {
	name string
	// matters: a container may get a wrong card, or none, where the assumption
	// does not hold. What the agent refuses by itself for another reason, such as
	// a full disk, does not matter here.
	matters bool
	run     func(*Facts) verdict
	advice  string
}

// verdict is how a check came out and what was found.
type verdict struct {
	result Result
	detail string
}

func ok(format string, args ...any) verdict     { return verdict{OK, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) verdict { return verdict{Failed, fmt.Sprintf(format, args...)} }
func unknown(format string, args ...any) verdict {
	return verdict{Unknown, fmt.Sprintf(format, args...)}
}

// table is every assumption, from the driver up to kubelet.
var table = []check{
	{name: "pci-cards", run: pciCards, advice: "MetaX cards are expected as PCI devices of vendor 0x9999: attach the output of lspci -nn to a report"},
	{name: "driver-module", run: driverModule, advice: "the kernel module is expected as metax: load the vendor's driver, or attach the output of lsmod to a report"},
	{name: "driver-version", run: driverVersion, advice: "slices need driver 2.32.0 or later; older ones serve whole cards"},
	{name: "library", run: libraryLoads, advice: "install the vendor's driver, which brings libmxsml.so, or name its path with --mxsml; the agent's pod mounts agent.driverDirs"},
	{name: "library-functions", run: libraryFunctions, advice: "a library with all functions comes with newer drivers; what is missing is listed in the compatibility page"},
	{name: "library-steady", run: librarySteady, advice: "the library lists other cards from one moment to the next: look for a card that resets in the kernel's log"},
	{name: "mx-smi", run: command, advice: "mx-smi is used where the library is missing; attach the bundle to a report if it is installed and fails"},
	{name: "card-identity", matters: true, run: cardIdentity, advice: "library, mx-smi and the PCI bus name different cards: attach the bundle to a report before you waive it"},
	{name: "card-memory", matters: true, run: cardMemory, advice: "the memory of a card is read in KiB: attach the bundle to a report before you waive it"},
	{name: "control-device", matters: true, run: controlDevice, advice: "every container needs it: load the driver, or name the device with --control-device in agent.extraArgs"},
	{name: "card-devices", matters: true, run: cardDevices, advice: "sysfs and /dev disagree, or a device is of another name: restart udev, or name the devices with --card-device and --render-device"},
	{name: "slice-driver", matters: true, run: sliceDriver, advice: "the major number of slices is expected under the name sgpu in /proc/devices: attach the bundle to a report"},
	{name: "slice-devices", matters: true, run: sliceDevices, advice: "remove the wrong device node, or name the device of slices with --slice-device"},
	{name: "slice-minors", matters: true, run: sliceMinors, advice: "a minor number is expected to be of one slice of the node: attach the bundle to a report before you waive it"},
	{name: "slice-sizes", run: sliceSizes, advice: "slices are expected in steps of 128 MiB, with numbers 0 to 15: attach the bundle to a report"},
	{name: "links", run: linksRead, advice: "cards count as not linked until the links are read: attach the bundle to a report"},
	{name: "container-view", run: containerView, advice: "start a pod with a slice and one with a whole card, run mx-smi -L in both, and attach what they print to a report"},
	{name: "runtime", run: runtimeAnswers, advice: "set agent.runtimeSocket (--runtime-endpoint) to the endpoint that kubelet uses"},
	{name: "runtime-cdi", run: runtimeCDI, advice: "switch CDI on in the container runtime; a node without it is never served, and the check can't be waived"},
	{name: "runtime-of-kubelet", matters: true, run: runtimeOfKubelet, advice: "the endpoint is of a runtime that has none of kubelet's pods: set agent.runtimeSocket to kubelet's containerRuntimeEndpoint"},
	{name: "kubelet-plugins", run: kubeletPlugins, advice: "set agent.kubeletDir to kubelet's folder (k0s: /var/lib/k0s/kubelet)"},
	{name: "kubelet-pod-resources", run: kubeletPodResources, advice: "kubelet 1.33 or later serves it; set agent.kubeletDir to kubelet's folder"},
	{name: "kubelet-checkpoint", run: kubeletCheckpoint, advice: "init containers with cards do not start without it; attach the version of kubelet to a report"},
	{name: "other-plugin", run: otherPlugin, advice: "the agent only observes a node that another plugin serves; remove that plugin to have Daybreak serve it"},
	{name: "folders", run: folders, advice: "the agent writes its journal and CDI specs there: free or remount the disk"},
}

// best returns the answer that tells most of the cards.
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
	return slices.DeleteFunc(slices.Clone(f.best().Cards), func(c discover.Card) bool { return c.Vitals.Available != nil && !*c.Vitals.Available })
}

func pciCards(f *Facts) verdict {
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

func driverModule(f *Facts) verdict {
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

func driverVersion(f *Facts) verdict {
	version := f.best().Driver
	if version == "" {
		return unknown("the driver does not report a version")
	}
	if kubelet.MakesNoSlices(version) {
		return failed("driver %s", version)
	}
	return ok("driver %s", version)
}

func libraryLoads(f *Facts) verdict {
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

func libraryFunctions(f *Facts) verdict {
	switch {
	case f.Functions == nil:
		return unknown("the library was not loaded")
	case len(f.Functions.Missing) > 0:
		return unknown("%s has no %s", f.Functions.Library, strings.Join(f.Functions.Missing, ", "))
	}
	return ok("%s has every function", f.Functions.Library)
}

func librarySteady(f *Facts) verdict {
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

func command(f *Facts) verdict {
	switch {
	case f.Command != nil:
		return ok("%s lists %d cards", f.Command.Source, len(f.Command.Cards))
	case f.Library == nil && f.Errors[sourceCommand] != "":
		return failed("%s", f.Errors[sourceCommand])
	}
	return unknown("%s", cmp.Or(f.Errors[sourceCommand], "it is not among the sources that are used"))
}

func cardIdentity(f *Facts) verdict {
	cards := f.cards()
	if len(cards) == 0 {
		return unknown("there is no card to tell of")
	}
	for i := range cards {
		if c := &cards[i]; c.UUID == "" || c.BDF == "" || c.Model == "" {
			return failed("card %d has UUID %q, PCI address %q and model %q: none may be empty", c.Minor, c.UUID, c.BDF, c.Model)
		}
	}
	if f.PCI != nil && len(f.PCI.Cards) > 0 {
		there := map[string]bool{}
		for i := range f.PCI.Cards {
			there[f.PCI.Cards[i].BDF] = true
		}
		for i := range cards {
			if !there[cards[i].BDF] {
				return failed("the driver has card %s at %s, where the PCI bus has none", cards[i].UUID, cards[i].BDF)
			}
		}
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

// Limits of what a card may have of memory.
const leastMemory, mostMemory = 4 << 10, 1 << 20 // MiB

func cardMemory(f *Facts) verdict {
	cards := f.cards()
	if len(cards) == 0 {
		return unknown("there is no card to tell of")
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

func controlDevice(f *Facts) verdict {
	switch {
	case len(f.cards()) == 0:
		return unknown("there is no card that needs it")
	case f.Devices.Control != "":
		return failed("%s", f.Devices.Control)
	}
	return ok("it is a character device")
}

func cardDevices(f *Facts) verdict {
	if len(f.Devices.Cards) == 0 {
		return unknown("there is no whole card")
	}
	for _, bdf := range slices.Sorted(maps.Keys(f.Devices.Cards)) {
		if why := f.Devices.Cards[bdf]; why != "" {
			return failed("card at %s: %s", bdf, why)
		}
	}
	return ok("cards whose devices are those that the driver has: %d", len(f.Devices.Cards))
}

// sliced reports whether a card is sliced, or is set up to be.
func (f *Facts) sliced() bool {
	for _, s := range f.Slices {
		if s.On || len(s.Slices) > 0 {
			return true
		}
	}
	return false
}

func sliceDriver(f *Facts) verdict {
	switch {
	case f.Devices.SliceDriver == "":
		return ok("the driver of slices has a major number")
	case !f.sliced():
		return unknown("no card is sliced, and %s", f.Devices.SliceDriver)
	}
	return failed("%s", f.Devices.SliceDriver)
}

func sliceDevices(f *Facts) verdict {
	if len(f.Devices.Slices) == 0 {
		return unknown("there is no slice: start a pod with one and check again")
	}
	for _, key := range slices.Sorted(maps.Keys(f.Devices.Slices)) {
		if why := f.Devices.Slices[key]; why != "" {
			return failed("slice %s: %s", key, why)
		}
	}
	return ok("slices whose device is the one that the driver has: %d", len(f.Devices.Slices))
}

func sliceMinors(f *Facts) verdict {
	taken, n := map[int]string{}, 0
	for _, bdf := range slices.Sorted(maps.Keys(f.Slices)) {
		for _, s := range f.Slices[bdf].Slices {
			key := sliceKey(bdf, s.ID)
			if other, twice := taken[s.Minor]; twice {
				return failed("slices %s and %s both have minor number %d", other, key, s.Minor)
			}
			taken[s.Minor], n = key, n+1
		}
	}
	if n < 2 {
		return unknown("slices: %d; it takes two to tell", n)
	}
	return ok("slices: %d, each with a number of its own", n)
}

func sliceSizes(f *Facts) verdict {
	n := 0
	for _, bdf := range slices.Sorted(maps.Keys(f.Slices)) {
		for _, s := range f.Slices[bdf].Slices {
			n++
			if s.ID < 0 || s.ID >= gpu.MaxSlices || s.Memory%gpu.MemoryStep != 0 {
				return failed("slice %s has %v", sliceKey(bdf, s.ID), s.Memory)
			}
		}
	}
	if n == 0 {
		return unknown("%s", cmp.Or(f.Errors[sourceSlices], "there is no slice: start a pod with one and check again"))
	}
	return ok("slices: %d", n)
}

func linksRead(f *Facts) verdict {
	s := f.best()
	switch {
	case len(f.cards()) < 2:
		return unknown("there are no two cards to be linked")
	case s.LinksUnread != "":
		return failed("%s", s.LinksUnread)
	case !s.LinksKnown:
		return unknown("no source reports links")
	case f.Library != nil && f.Command != nil && f.Command.LinksKnown && !slices.Equal(linkNames(f.Library), linkNames(f.Command)):
		return failed("library %v, mx-smi %v", linkNames(f.Library), linkNames(f.Command))
	}
	return ok("links: %d", len(s.Links))
}

// linkNames names links by the PCI addresses of their ends, in order.
func linkNames(s *discover.Snapshot) []string {
	var names []string
	for _, l := range s.Links {
		a, b := s.Cards[l.A].BDF, s.Cards[l.B].BDF
		names = append(names, min(a, b)+"-"+max(a, b))
	}
	slices.Sort(names)
	return names
}

func containerView(*Facts) verdict {
	return unknown("whether MACA_VISIBLE_DEVICES and the device nodes are enough inside a container can be seen only there")
}

func runtimeAnswers(f *Facts) verdict {
	if f.Node.Runtime == nil {
		return failed("%s", f.Node.Fault.Message)
	}
	return ok("%s %s", f.Node.Runtime.Name, f.Node.Runtime.Version)
}

func runtimeCDI(f *Facts) verdict {
	switch fault := f.Node.Fault; {
	case fault == nil:
		return ok("it injects CDI devices")
	case fault.Reason == kubelet.ReasonNoCDI:
		return failed("%s", fault.Message)
	default:
		return unknown("%s", fault.Message)
	}
}

func runtimeOfKubelet(f *Facts) verdict {
	n := f.Node
	switch {
	case n.Runtime == nil || n.PodResources != "" || n.SandboxesError != "":
		return unknown("%s", cmp.Or(n.SandboxesError, n.PodResources, "the runtime does not answer"))
	case n.Pods == 0:
		return unknown("kubelet has no pod")
	case n.Sandboxes == 0:
		return failed("kubelet has %d pods, the runtime has none of them", n.Pods)
	}
	return ok("it has %d of kubelet's %d pods", n.Sandboxes, n.Pods)
}

func kubeletPlugins(f *Facts) verdict { return unless(f.Node.Plugins, "kubelet takes plugins") }

func kubeletPodResources(f *Facts) verdict {
	return unless(f.Node.PodResources, "kubelet lists devices of plugins")
}

func kubeletCheckpoint(f *Facts) verdict {
	return unless(f.Node.Checkpoint, "kubelet's file of devices is read")
}

// unless fails with the reason if there is one.
func unless(why, fine string) verdict {
	if why != "" {
		return failed("%s", why)
	}
	return ok("%s", fine)
}

func otherPlugin(f *Facts) verdict {
	if f.Node.Foreign != "" {
		return unknown("another plugin serves %s", f.Node.Foreign)
	}
	return ok("none serves the vendor's resources")
}

func folders(f *Facts) verdict {
	for _, dir := range slices.Sorted(maps.Keys(f.Node.Folders)) {
		if why := f.Node.Folders[dir]; why != "" {
			return failed("%s", why)
		}
	}
	return ok("%s", strings.Join(slices.Sorted(maps.Keys(f.Node.Folders)), " and "))
}
