package check

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// Where an answer comes from, as [Facts.Errors] has it.
const (
	sourcePCI     = "pci"
	sourceLibrary = "library"
	sourceCommand = "mx-smi"
	sourceSlices  = "slices"
)

// Facts is what a node answered. What could not be asked is nil, with the reason in
// Errors. No pod and no namespace is named.
type Facts struct {
	// PCI is what sysfs shows.
	PCI *discover.Snapshot `json:"pci,omitempty"`
	// Library and LibraryAgain are two answers of the library.
	Library      *discover.Snapshot `json:"library,omitempty"`
	LibraryAgain *discover.Snapshot `json:"libraryAgain,omitempty"`
	// Command is what was parsed of mx-smi's output, Printed the output by arguments.
	Command *discover.Snapshot `json:"mxSmi,omitempty"`
	Printed map[string]string  `json:"-"`
	// Slices is how each card is sliced, by PCI address.
	Slices map[string]*discover.CardSlices `json:"slices,omitempty"`
	// Errors is why something could not be asked, by source.
	Errors  map[string]string    `json:"errors,omitempty"`
	Kernel  Kernel               `json:"kernel"`
	Devices deviceplugin.Devices `json:"devices"`
	Node    *deviceplugin.Facts  `json:"node"`
}

// Kernel is what the kernel reports.
type Kernel struct {
	// Version is the kernel's own.
	Version string `json:"version"`
	// Module reports whether the driver's module is loaded.
	Module        bool   `json:"module"`
	ModuleVersion string `json:"moduleVersion,omitempty"`
	// Drivers is /proc/devices.
	Drivers string `json:"drivers"`
	// Files are the device nodes that may be of cards, with their numbers.
	Files []string `json:"files"`
}

// Asker asks a node.
type Asker struct {
	// Discover is how the cards are looked at, Node where the rest of the node is.
	Discover discover.Config
	Node     deviceplugin.Config
	// Timeout is how long one source may take.
	Timeout time.Duration
	Clock   clock.Clock
}

// Ask asks every source of the node once. It makes, changes and removes no slice.
func (a *Asker) Ask(ctx context.Context) (*Facts, error) {
	f := &Facts{Errors: map[string]string{}, Slices: map[string]*discover.CardSlices{}, Printed: map[string]string{}}
	sources := a.Discover.Sources
	if len(sources) == 0 {
		sources = discover.DefaultSources()
	}
	sys := cmp.Or(a.Discover.Sys, "/sys")
	f.PCI = look(ctx, a, f, sourcePCI, discover.NewSysfs(sys))
	if slices.Contains(sources, discover.SourceMXSML) {
		if err := a.askLibrary(ctx, f); err != nil {
			return nil, err
		}
	}
	if slices.Contains(sources, discover.SourceMXSMI) {
		a.askCommand(ctx, f)
	}
	f.Kernel = a.askKernel(sys)
	a.tryDevices(f)
	var err error
	f.Node, err = deviceplugin.Examine(ctx, &a.Node, a.Clock)
	return f, err
}

func look(ctx context.Context, a *Asker, f *Facts, name string, source discover.Source) *discover.Snapshot {
	s, err := discover.LookWithin(ctx, source, a.Timeout)
	if err != nil {
		f.Errors[name] = err.Error()
		return nil
	}
	for i := range s.Cards {
		hideAliases(s.Cards[i].Figures.Slices)
	}
	return s
}

// hideAliases hides the names of foreign slices: they may have names of tenants.
func hideAliases(list []discover.Slice) {
	for i := range list {
		if list[i].Alias != "" && !deviceplugin.IsOurs(&list[i]) {
			list[i].Alias = hidden
		}
	}
}

const hidden = "(hidden)"

func (a *Asker) askLibrary(ctx context.Context, f *Facts) error {
	library, err := discover.NewLibrary(a.Discover)
	if err != nil {
		return err
	}
	defer library.Close()
	if f.Library = look(ctx, a, f, sourceLibrary, library); f.Library == nil {
		return nil
	}
	f.LibraryAgain = look(ctx, a, f, sourceLibrary, library)
	for i := range f.Library.Cards {
		c := &f.Library.Cards[i]
		if c.BDF == "" || c.Virtual {
			continue
		}
		s, err := library.Slices(ctx, c.BDF)
		if err != nil {
			f.Errors[sourceSlices] = fmt.Sprintf("card at %s: %v", c.BDF, err)
			continue
		}
		hideAliases(s.Slices)
		f.Slices[c.BDF] = s
	}
	return nil
}

// printed are the outputs of mx-smi that are kept as they are. None has processes.
var printed = [][]string{{"-L"}, {"--show-version"}, {"--show-memory"}, {"topo", "-m"}}

// sliceLine is a slice in mx-smi's list, up to the name that it was given.
var sliceLine = regexp.MustCompile(`(?m)^(\s+SGPU#.*\)).*$`)

func (a *Asker) askCommand(ctx context.Context, f *Facts) {
	m := discover.NewMXSMI(a.Discover.Command)
	f.Command = look(ctx, a, f, sourceCommand, m)
	if f.Command == nil && strings.Contains(f.Errors[sourceCommand], discover.ErrNotInstalled.Error()) {
		return
	}
	for _, args := range printed {
		within, cancel := context.WithTimeout(ctx, a.Timeout)
		text, err := m.Raw(within, args...)
		cancel()
		out := sliceLine.ReplaceAllString(string(text), "$1")
		if err != nil {
			out = "error: " + err.Error() + "\n"
		}
		f.Printed[strings.Join(args, " ")] = out
	}
}

var deviceFiles = []string{"/dev/mx*", "/dev/sgpu*", "/dev/metax*", "/dev/dri/*"}

func (a *Asker) askKernel(sys string) Kernel {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	k := Kernel{
		Version: read(filepath.Join(a.Node.Layout.Procfs, "sys", "kernel", "osrelease")), Drivers: read(filepath.Join(a.Node.Layout.Procfs, "devices")),
		ModuleVersion: read(filepath.Join(sys, "module", "metax", "version")),
	}
	_, err := os.Stat(filepath.Join(sys, "module", "metax"))
	k.Module = err == nil
	for _, pattern := range deviceFiles {
		paths, _ := filepath.Glob(filepath.Join(cmp.Or(a.Node.Layout.Root, "/"), pattern))
		for _, path := range paths {
			k.Files = append(k.Files, deviceplugin.DescribeDevice(path))
		}
	}
	return k
}

// tryDevices finds the device nodes that containers would get.
func (a *Asker) tryDevices(f *Facts) {
	var cards []string
	for _, c := range f.cards() {
		if c.BDF != "" {
			cards = append(cards, c.BDF)
		}
	}
	minors := map[string]int{}
	for bdf, s := range f.Slices {
		for _, slice := range s.Slices {
			minors[sliceKey(bdf, slice.ID)] = slice.Minor
		}
	}
	f.Devices = a.Node.Layout.Check(cards, minors)
}

func sliceKey(bdf string, id int) string { return fmt.Sprintf("%s#%d", bdf, id) }
