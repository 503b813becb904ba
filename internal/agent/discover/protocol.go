package discover

import (
	"errors"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// HelperCommand is the hidden subcommand that runs the vendor's library.
const HelperCommand = "agent-mxsml"

// HelperService is what that process serves with net/rpc, as JSON over its
// standard input and output. Its methods are those of [MXSML].
const HelperService = "Library"

var (
	// ErrNotInstalled is what a source's error wraps when there is no library or
	// no command. Such a machine may have no cards.
	ErrNotInstalled = errors.New("not installed")
	// ErrBusy means that the driver holds a slice that is in use, or a scheduling
	// class while there are slices.
	ErrBusy = errors.New("the driver reports it as in use")
	// ErrNoSlice means that a slice does not exist, or is another one by now.
	ErrNoSlice = errors.New("there is no such slice")
)

// CardSlices is how a card is sliced.
type CardSlices struct {
	// On reports whether slicing is switched on.
	On bool `json:"on"`
	// QoS is the class that the card runs; empty if the library does not report it.
	QoS gpu.QoS `json:"qos,omitempty"`
	// Slices are those of the card, foreign ones included.
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
