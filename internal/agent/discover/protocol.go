package discover

import "encoding/json"

// HelperCommand is the hidden subcommand that runs the vendor's library.
const HelperCommand = "agent-mxsml"

// MaxHelperLine bounds one line between the agent and that process. 64 cards
// with 16 slices each take a tenth of it.
const MaxHelperLine = 4 << 20

// OpLook asks for a [Snapshot]; its parameters are [LookOptions].
const OpLook = "look"

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
}

// LookOptions are the parameters of [OpLook].
type LookOptions struct {
	// Refresh makes the library count the cards again first.
	Refresh bool `json:"refresh,omitempty"`
}
