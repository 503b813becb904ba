package dashboard

import (
	"encoding/json"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// State is what the page is sent: first all of it, then what changed. What is
// left out is as it was.
type State struct {
	Revision uint64 `json:"revision"`
	// Full means that what is not listed here does not exist any more.
	Full    bool            `json:"full,omitempty"`
	Viewer  *Viewer         `json:"viewer,omitempty"`
	Cluster json.RawMessage `json:"cluster,omitempty"` // a Summary
	// Nodes are those that are new or changed, Gone the names of the others
	// that are no more.
	Nodes    []json.RawMessage `json:"nodes,omitempty"`
	Gone     []string          `json:"gone,omitempty"`
	Pending  json.RawMessage   `json:"pending,omitempty"`  // a list of [view.PendingStatus]
	Findings json.RawMessage   `json:"findings,omitempty"` // a list of Finding
	// Namespaces are those whose pods the viewer may list, a list of
	// [view.NamespaceStatus].
	Namespaces json.RawMessage `json:"namespaces,omitempty"`
}

// Viewer is the user of the page, and how much of it is shown.
type Viewer struct {
	// Name is the user's; empty on a page without a login.
	Name string `json:"name"`
	// Everything: the pods of all namespaces are shown by name.
	Everything bool `json:"everything"`
}

// Summary adds the cluster up.
type Summary struct {
	view.ClusterStatus
	// HiddenPending are pods that wait and that the viewer may not see.
	HiddenPending int `json:"hiddenPending,omitempty"`
}

// Node is a server.
type Node struct {
	view.NodeStatus
	// HiddenUnaccounted counts those of Unaccounted that the viewer may not see.
	HiddenUnaccounted int `json:"hiddenUnaccounted,omitempty"`
}

// Finding is something that is wrong, or that an operator should know.
type Finding struct {
	audit.Finding
	// Note means that it is no violation.
	Note bool `json:"note,omitempty"`
	// Hidden: the message is left out, since it names pods that the viewer may
	// not see.
	Hidden bool `json:"hidden,omitempty"`
}

// Pod is a pod's own view.
type Pod struct {
	view.Explanation
	// HiddenNeighbours and HiddenInTheWay count the pods that are left out of
	// Neighbours and of Help.Room because the viewer may not see them.
	HiddenNeighbours int `json:"hiddenNeighbours,omitempty"`
	HiddenInTheWay   int `json:"hiddenInTheWay,omitempty"`
}
