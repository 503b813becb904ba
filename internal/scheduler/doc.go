// Package scheduler is kube-scheduler with one plugin, Daybreak, which decides
// the node and the cards of pods that ask for MetaX GPUs. The plugin only
// translates: every decision is a call of place.Fit.
//
// # State
//
// The account of a node is folded from the pods that kube-scheduler itself
// believes to be there (fwk.NodeInfo), and kept for as long as the NodeInfo's
// generation stays the same. There is no second ledger fed by events that could
// drift away from it. A pod's cards are those that this process reserved, or
// else those that its annotations tell. Cards come from Device objects and node
// annotations.
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
