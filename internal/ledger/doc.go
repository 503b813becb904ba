// Package ledger keeps what is booked on the cards of a node.
//
// A [Node] is one node's account: its cards (an immutable [gpu.Topology]), the
// [Holding] of every pod on it, and the [Usage] of each card that follows from
// them. Usage is never edited by hand: it is always the fold of the holdings,
// plus the foreign slices that are known to be on a card.
//
// Deciding and booking are two steps. Package place computes an [Offer] and
// changes nothing. [Node.Commit] books the offer, and refuses it when the node
// has changed since it was made. [Node.Book] records what already is, for
// example what a running pod's annotations say, and refuses nothing: reality
// may break the rules, and the account must show it.
//
// # Containers of one pod
//
// Not all containers of a pod run at once, so a pod is booked, card by card and
// amount by amount, at its peak:
//
//	max( each init container + the sidecars started before it,
//	     all app containers + all sidecars )
//
// [Holding.Peak] is the same over all cards together: what a quota counts.
//
// A Node is not safe for concurrent use; give each goroutine a [Node.Clone].
package ledger
