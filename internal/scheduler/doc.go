// Package scheduler is kube-scheduler with the plugin Daybreak, which decides the
// node and the cards of pods that request MetaX GPUs. The plugin only translates:
// every decision is a call of place.Fit. Five of kube-scheduler's own plugins are
// wrapped to treat these pods differently (resources.go, neighbours.go), and on
// Kubernetes 1.23 VolumeBinding is as well (volumes.go).
//
// # State
//
// The account of a node is folded from the pods that kube-scheduler itself
// believes to be there (fwk.NodeInfo). There is no second ledger fed by events
// that could drift away from it. What this process knows beyond that, such as the
// cards that it has reserved, is one [overlay] with a version per node. An account
// is kept for as long as the NodeInfo's generation and the overlay's version stay
// the same. A pod's cards are those that are reserved for it, or else those that
// its annotations name. Cards come from Device objects and node annotations.
//
// Queueing hints are answered from accounts of their own ([hintAccounts]), which
// follow events. Decisions never use them.
//
// # One write
//
// Bind is one API call: the Binding carries the allocation as annotations, and
// the API server merges them into the pod in the write that assigns the node.
// Cards are never given back on an answer that may be wrong: the same Binding
// is sent again until the answer is certain.
//
// # Two leaders
//
// A Binding protects its pod, not a card, so two schedulers must not decide at
// once. Before every Binding the lease must be fresh (see [term]); and a new
// leader, before its first decision, touches every pending pod, so that what
// an old leader has in flight fails on the pod's resourceVersion.
package scheduler
