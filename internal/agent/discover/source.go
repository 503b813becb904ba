package discover

import (
	"context"
	"fmt"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Source looks at the cards of this machine in one particular way.
type Source interface {
	// Name is for logs and messages: "mxsml", "mx-smi", "sysfs", "simulated".
	Name() string
	// Look reads the hardware once. It returns a complete picture or an error:
	// a card that could not be read makes an error or an unavailable card,
	// never a shorter list. It returns when ctx ends, even while the driver
	// does not answer.
	Look(ctx context.Context) (*Snapshot, error)
}

// LookWithin looks at the cards, for no longer than the given time.
func LookWithin(ctx context.Context, s Source, limit time.Duration) (*Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	return s.Look(ctx)
}

// Snapshot is what one look at a machine gave. It belongs to the caller.
type Snapshot struct {
	// Source names what was looked at: "mx-smi 2.2.12", "mxsml" and the path of
	// the library.
	Source string
	// Driver is the version of the kernel driver, "3.8.30"; empty if unknown.
	Driver string
	// MACA is the version of the vendor's user-space stack; empty if unknown.
	MACA string
	// Cards are in the order of their minor numbers.
	Cards []Card
	// Links are the direct MetaXLinks between cards, by position in Cards, each
	// pair once with A < B, in order. LinksKnown is false where it is
	// not known whether there are any.
	Links      []gpu.Link
	LinksKnown bool
	// NoSlices is why no slices can be made on this machine; empty where they can, or
	// where it is not known.
	NoSlices string
	// LibraryFailed is why slices can't be made for now: the library is there, and has
	// failed since the first look. It may pass.
	LibraryFailed string
	// Missing are the functions that the vendor's library does not have; those without
	// which nothing works are never among them.
	Missing []string
	// LinksUnread is why the links could not be read this time, where they are
	// not known and a source should have reported them.
	LinksUnread string
}

// Card is one card as its machine shows it. What a source does not know is nil,
// or empty where it is a text. A card whose Vitals.Available is false may lack
// everything else but Minor: the driver knows little of a card it has lost.
type Card struct {
	// UUID is the identity of the card; sysfs knows none.
	UUID string
	// Minor is the driver's number of the card.
	Minor int
	// BDF is the PCI address, "0000:0e:00.0", in lower case.
	BDF string
	// Model is the chip's name without the vendor prefix: "C500".
	Model string
	// Memory is what can be handed out, rounded down to gpu.MemoryStep: the
	// driver's quota for slices where it gives one, else all of the memory.
	Memory gpu.MiB
	// NUMA is the NUMA node.
	NUMA *int
	// PCIeRoot is the root complex, "pci0000:3a"; PCIeSwitch the address of the
	// switch's upstream port.
	PCIeRoot, PCIeSwitch string
	// Virtual marks a virtual function. It has no links and takes no slices.
	Virtual bool
	// Sliced reports whether the driver's slicing is switched on.
	Sliced *bool

	Vitals  Vitals
	Figures Figures
}

// Vitals is what a card's health is judged by.
type Vitals struct {
	// Available is the driver's own word.
	Available *bool
	// Reason is why the card is unavailable, in the driver's words.
	Reason string
	// ECC counts memory errors since the driver was loaded.
	ECC *ECC
	// Ports are the MetaXLink ports that are in use or should be; nil if the
	// source does not report them.
	Ports []Port
	// LinkFault is why all of the card's links are off, in the driver's words;
	// empty if they are not, if that is on purpose, or if it is not known.
	LinkFault string
}

// ECC counts memory errors.
type ECC struct {
	SRAMCorrectable, SRAMUncorrectable int64
	DRAMCorrectable, DRAMUncorrectable int64
	RetiredPages                       int64
}

// Port is one MetaXLink port.
type Port struct {
	Number int
	// Up is false for a port that has a peer or a cable but no link.
	Up bool
	// Peer is the PCI address of the card at the other end, if known.
	Peer string
	// SpeedGT and Width are what the port was trained to; 0 if unknown.
	SpeedGT float64
	Width   int
}

// Figures is what is exported of a card and not acted upon.
type Figures struct {
	// UsagePercent is how busy the card's compute units are.
	UsagePercent *float64
	// MemoryTotalKiB and MemoryUsedKiB are the driver's, reserve included.
	MemoryTotalKiB, MemoryUsedKiB *int64
	// PowerMilliwatt is the whole board's.
	PowerMilliwatt *int64
	// HotspotCelsius is the hottest point of the chip.
	HotspotCelsius *float64
	BIOS           string
	Slices         []Slice
}

// Slice is one slice that exists on a card, foreign ones included.
type Slice struct {
	ID    int
	UUID  string
	Alias string
	// Minor is the number of the slice's own character device.
	Minor          int
	Memory         gpu.MiB
	ComputePercent gpu.Percent
	UsagePercent   *float64
	MemoryUsed     *gpu.MiB
}
