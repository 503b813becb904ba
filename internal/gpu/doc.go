// Package gpu holds the nouns of Daybreak's core: what a server's cards are,
// how they are joined, and what a pod may ask of them.
//
//   - A [Card] is one physical GPU, or one virtual function of one.
//   - A link is a MetaXLink between two cards; cards joined by links, directly
//     or through others, form a zone.
//   - A [Topology] is the immutable picture of one node's cards: how they
//     are linked, and what any set of them is worth.
//   - A [Request] is what one container asks; a [PodRequest] is the whole pod's.
//
// Nothing here knows what is in use (package ledger) or which cards are best
// (package place), and nothing here knows Kubernetes: this package and those
// two import the standard library only.
//
// A card is named in two ways. Its [CardID] is the hardware's own UUID and
// outlives restarts. Its index is its position in the node's inventory, and is
// what sets, links and usage tables count with; an index means something only
// together with the Topology it belongs to.
package gpu
