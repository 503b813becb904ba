package discover

import "encoding/json"

// HelperCommand is the hidden subcommand that runs the vendor's library.
const HelperCommand = "agent-mxsml"

// MaxHelperLine bounds one line between the agent and that process. 64 cards
// with 16 slices each take a tenth of it.
const MaxHelperLine = 4 << 20

// Operations of that process.
const (
	// OpLook asks for a [Snapshot]; its parameters are [LookOptions].
	OpLook = "look"
	// OpFunctions asks for the [Functions] of the library; it has no parameters.
	OpFunctions = "functions"
	// OpSlices asks for the [CardSlices] of a card; its parameters are a
	// [SliceRef] without id.
	OpSlices = "slices"
	// OpCreateSlice makes a slice and returns it as a [Slice]; its parameters
	// are a [SliceOrder].
	OpCreateSlice = "create-slice"
	// OpChangeSlice names or resizes a slice and returns it; its parameters are a
	// [SliceChange].
	OpChangeSlice = "change-slice"
	// OpRemoveSlice removes a slice; its parameters are a [SliceRef].
	OpRemoveSlice = "remove-slice"
)

// HelperRequest is one line from the agent: an operation and its parameters.
type HelperRequest struct {
	// ID comes back in the reply.
	ID     int64           `json:"id"`
	Op     string          `json:"op"`
	Params json.RawMessage `json:"params,omitempty"`
}

// HelperReply is one line back: a result, or why there is none.
type HelperReply struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
	// NotInstalled says that the error is [ErrNotInstalled].
	NotInstalled bool `json:"notInstalled,omitempty"`
	// Busy says that the error is [ErrBusy], and Gone that it is [ErrNoSlice].
	Busy bool `json:"busy,omitempty"`
	Gone bool `json:"gone,omitempty"`
}

// Functions is what the library has of the functions that are called.
type Functions struct {
	// Library is its path.
	Library string `json:"library"`
	// Missing are the functions that it does not have; those without which
	// nothing works are never among them.
	Missing []string `json:"missing,omitempty"`
}

// LookOptions are the parameters of [OpLook].
type LookOptions struct {
	// Refresh makes the library count the cards again first.
	Refresh bool `json:"refresh,omitempty"`
}
