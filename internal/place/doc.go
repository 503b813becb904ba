// Package place decides which cards a pod gets, and says why not when it gets
// none. It is the only package that decides: the scheduler, the place command,
// the simulator and every "why is this pod pending" call [Fit].
//
// # The model
//
// A node has up to 64 cards. Some are joined by MetaXLink; cards joined by
// links, directly or through others, form a zone. Every pair of cards has a
// weight:
//
//	110   a direct link
//	 50   the same zone without a direct link, or the same PCIe switch
//	 10   anything else
//
// The score of a set of cards is the sum of the weights inside it: what the
// set is worth to a job that runs on all of it. The loss of taking a set out
// of the free cards is the sum of the weights that the cut goes through: what
// it costs the jobs that come later.
//
//	0 ── 1     4 ── 5      Two zones of four, fully linked. Cards 0 and 1 are
//	│ ╲╱ │     │ ╲╱ │      busy. Four cards: {4,5,6,7} score 660, all others
//	│ ╱╲ │     │ ╱╲ │      360 or less. Two cards: {2,3} and {4,5} both
//	2 ── 3     6 ── 7      score 110, but {2,3} loses 80 and {4,5} loses 480.
//
// # Requests
//
// A pod's containers ask for cards in one of two ways.
//
// Whole cards (and shares with all of a card's compute, which comes to the
// same) are chosen as a set, exactly: every set of free cards competes, and
// symmetry keeps that cheap, since cards that all others see alike need not be
// tried twice. When a zone can hold the request, only sets inside one zone
// compete. Then [Spread], and the default, take the highest score, then the
// lowest loss; [Binpack] takes the lowest loss, then the highest score; what is
// still tied goes to the lowest indices.
//
// Slices are chosen card by card in the order of the pod's [CardKey]s: fullest
// first unless it says otherwise. A card takes a slice when it is healthy and
// not excluded, runs the same QoS class and pods of a compatible class, nobody
// has it alone, and slots, memory and compute suffice.
//
// Containers that run together see each other's shares; init containers reuse
// what the pod will hold anyway (package ledger tells how a pod is booked).
//
// # Answers
//
// The answer is an offer or a [Refusal]. An offer can be ranked against those
// of other nodes ([Rank]) and booked ([ledger.Node.Commit]). A refusal is a
// value: the code that most cards gave, what was wanted, what the best card
// had, how many cards gave which code, and whether evicting every pod would
// help. Texts are made of it at the very end.
//
// Everything is deterministic: no decision depends on map order or on the order
// of nodes, pods or cards in the input, and every comparison ends in a total
// order. Deciding changes nothing and, for ordinary pods, allocates nothing.
//
// # Where to change what
//
//   - a rule that a card must obey: check.run
//   - what makes a card good for a slice: ranking, and defaultOrder
//   - what makes a set of whole cards good: subsets
//   - what makes a node good: Rank
package place
