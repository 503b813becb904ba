package discover

import (
	"context"
	"errors"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

var (
	// ErrBusy is a driver that does not let go: of a slice that is in use, or of
	// a scheduling class while there are slices.
	ErrBusy = errors.New("the driver says that it is in use")
	// ErrNoSlice tells that a slice is not there, or is another one by now.
	ErrNoSlice = errors.New("there is no such slice")
)

// CardSlices is how a card is sliced.
type CardSlices struct {
	// On tells that slicing is switched on.
	On bool `json:"on"`
	// QoS is the class that the card runs; empty if the library can't tell.
	QoS gpu.QoS `json:"qos,omitempty"`
	// Slices are those of the card, whoever made them.
	Slices []Slice `json:"slices"`
}

// SliceRef names a slice: a number may belong to another slice by the time it
// is used, so the UUID is checked where it is given.
type SliceRef struct {
	BDF  string `json:"bdf"`
	ID   int    `json:"id"`
	UUID string `json:"uuid,omitempty"`
}

// SliceOrder is a slice to be made.
type SliceOrder struct {
	BDF string `json:"bdf"`
	// QoS is the class that the card is to run; empty leaves it as it is.
	QoS     gpu.QoS     `json:"qos,omitempty"`
	Memory  gpu.MiB     `json:"memory"`
	Compute gpu.Percent `json:"compute"`
	// Alias is the name that the slice gets.
	Alias string `json:"alias"`
	// Urgent slices go before others on their card.
	Urgent bool `json:"urgent,omitempty"`
}

// SliceChange is what becomes of a slice; what is nil stays as it is.
type SliceChange struct {
	SliceRef
	Alias   *string      `json:"alias,omitempty"`
	Memory  *gpu.MiB     `json:"memory,omitempty"`
	Compute *gpu.Percent `json:"compute,omitempty"`
}

// Slicer makes slices through the vendor's library, in a process of its own
// beside that of the looks: one does not wait for the other.
type Slicer struct{ library *MXSML }

// NewSlicer returns a slicer for the machine that the configuration describes.
func NewSlicer(cfg Config) (*Slicer, error) {
	library, err := NewLibrary(cfg)
	if err != nil {
		return nil, err
	}
	return SlicerOf(library), nil
}

// SlicerOf returns a slicer that asks the process of the looks.
func SlicerOf(library *MXSML) *Slicer { return &Slicer{library: library} }

// Close ends the process.
func (s *Slicer) Close() { s.library.Close() }

// Slices returns how the card at a PCI address is sliced.
func (s *Slicer) Slices(ctx context.Context, bdf string) (*CardSlices, error) {
	var out CardSlices
	if err := s.library.ask(ctx, OpSlices, func() any { return SliceRef{BDF: bdf} }, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Create makes a slice.
func (s *Slicer) Create(ctx context.Context, order SliceOrder) (*Slice, error) {
	var out Slice
	if err := s.library.ask(ctx, OpCreateSlice, func() any { return order }, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Change names or resizes a slice.
func (s *Slicer) Change(ctx context.Context, change SliceChange) (*Slice, error) {
	var out Slice
	if err := s.library.ask(ctx, OpChangeSlice, func() any { return change }, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Remove removes a slice. It is [ErrBusy] while the slice is in use, and
// [ErrNoSlice] when it is gone already.
func (s *Slicer) Remove(ctx context.Context, slice SliceRef) error {
	return s.library.ask(ctx, OpRemoveSlice, func() any { return slice }, nil)
}
