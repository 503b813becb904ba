package dashboard

import (
	"encoding/json"
	"time"

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
	Pending  json.RawMessage   `json:"pending,omitempty"`  // a list of Pending
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
	// InUse counts healthy cards with pods on them.
	InUse int `json:"inUse"`
	// Allocated is what is booked on healthy cards.
	Allocated view.Amounts `json:"allocated"`
	// Zones have two linked cards or more; a whole one is all healthy and idle.
	Zones      int `json:"zones"`
	WholeZones int `json:"wholeZones"`
	// HiddenPending are pods that wait and that the viewer may not see.
	HiddenPending int `json:"hiddenPending,omitempty"`
}

// Node is a server.
type Node struct {
	view.NodeStatus
	Cards []Card `json:"cards"`
	// Links are the pairs of cards that are joined directly.
	Links [][2]int `json:"links"`
	// HiddenUnaccounted counts those of Unaccounted that the viewer may not see.
	HiddenUnaccounted int `json:"hiddenUnaccounted,omitempty"`
}

// Card is a card of a server.
type Card struct {
	view.CardStatus
	// Shares are left out: Holders has them by pod.
	Shares *struct{} `json:"shares,omitempty"`
	// Switch names the PCIe switch, if it is known.
	Switch  string   `json:"switch,omitempty"`
	Holders []Holder `json:"holders"`
	// Foreign is what slices that belong to no pod take.
	Foreign *view.Amounts `json:"foreign,omitempty"`
}

// Holder is a pod on a card, with what is booked for it there.
type Holder struct {
	Namespace      string `json:"namespace"`
	Pod            string `json:"pod"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
	QoS            string `json:"qos,omitempty"`
	Class          string `json:"class,omitempty"`
	Exclusive      bool   `json:"exclusive,omitempty"`
	// Hidden: the viewer may not see whose it is.
	Hidden bool `json:"hidden,omitempty"`
	// Created is when the pod was created.
	Created    *time.Time        `json:"created,omitempty"`
	Containers []HolderContainer `json:"containers,omitempty"`
}

// HolderContainer is a container of a pod on a card.
type HolderContainer struct {
	Name           string `json:"name"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
	Init           bool   `json:"init,omitempty"`
}

// Request is what a container asks for, in numbers.
type Request struct {
	Container      string `json:"container"`
	Cards          int    `json:"cards"`
	Exclusive      bool   `json:"exclusive,omitempty"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB,omitempty"`
	MemoryPercent  int32  `json:"memoryPercent,omitempty"`
}

// Asked is what a pod asks for, in numbers.
type Asked struct {
	Request []Request `json:"request,omitempty"`
	QoS     string    `json:"qos,omitempty"`
	Class   string    `json:"class,omitempty"`
}

// Pending is a pod that waits for cards.
type Pending struct {
	view.PendingStatus
	Asked
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
	Asked
	Created *time.Time `json:"created,omitempty"`
	// Placed is when the scheduler chose the pod's node.
	Placed *time.Time `json:"placed,omitempty"`
	// Owner is what controls the pod.
	Owner *Owner `json:"owner,omitempty"`
	// HiddenNeighbours and HiddenInTheWay count the pods that are left out of
	// Neighbours and of Help.Room because the viewer may not see them.
	HiddenNeighbours int `json:"hiddenNeighbours,omitempty"`
	HiddenInTheWay   int `json:"hiddenInTheWay,omitempty"`
}

// Owner is the object that controls a pod.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}
