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
// same) are chosen as a set by exhaustive search: every set of free cards
// competes, and symmetry keeps that cheap, since equal cards need not be tried
// twice. Of more than 16 cards the search ends after a million steps with the
// best set found. When a zone can hold the request, only sets inside one zone
// compete. Then [Spread], and the default, take the highest score, then the
// lowest loss; [Binpack] takes the lowest loss, then the highest score; what is
// still tied goes to the lowest indices.
//
// Slices are chosen card by card in the order of the pod's [CardKey]s: fullest
// first unless it says otherwise. A card takes a slice when it is healthy and
// not excluded, runs the same QoS class and pods of a compatible class, no share
// on it is exclusive, and slots, memory and compute suffice.
//
// # Looking ahead
//
// Packing alone leaves cards that no pod wants: a slice of 30 % next to one of
// 50 % leaves 20 %, and if most pods ask for 50 %, it had better gone elsewhere.
// So the default policy asks what the pods to come will be able to use. What
// they are like is known from those that are there: a [Census] counts them by
// class (cards, compute, memory, QoS, CPU, models) and hands out a [Demand], which
// never changes. While there are too few, there is none, and everything is as above.
// A Demand is a function of the pods that run, so a restart changes no decision, and
// whoever sees the same pods decides the same. Shares are rounded: what is expected
// changes rarely, since for another Demand all nodes with room are asked again.
//
// The fragmentation of a node is what is free there and of no use:
//
//	  Σ over cards and classes    value of what is free of the card × weight of
//	                              the class, if the class can't use the card; if
//	                              its slices can, of the rest that they leave
//	+ stranded × 4                the value that the node's free CPU can't feed
//	- linked idle pairs           what joins the idle cards of a zone
//
// An idle card has a value of 2: one for compute, one for memory. A class can
// use a card if a pod of it could go there: there is room, no share on the card
// is exclusive, QoS and model are right, and the node's CPU suffices. A class of
// several whole cards needs so many idle ones, inside one zone if any zone of
// the node is that large. So a card under one QoS class counts as lost to the
// slices of another, and three idle cards of a zone as lost to jobs of four.
//
// Slices leave the same rest on an idle card as on a card that holds one of them:
// slices of 40 % leave 20 %, with 100 % or with 60 % free. So a slice that fills a
// card does no harm to its own kind, and the fuller card gets it.
//
// A class weighs its pods times the cards of each; by pods alone the rare large
// jobs would starve. Two things are not seen one pod ahead, and have terms of
// their own. A node can run out of CPU before it runs out of cards: each card is
// taken to need four fifths of what pods take on average. And a model can run
// out: classes that can run on certain models only weigh more, up to four times
// all others together, as the part of the demand that needs these models comes
// near the part of the cards that they are.
//
// An offer's growth is by how much it makes the node's fragmentation grow; it
// is negative when the pod takes what no other pod could use. It decides between
// places that are equally well linked, within a node and between nodes:
//
//	whole cards    most links, least growth, least loss, fuller node
//	slices         (the pod's own keys,) least growth, fuller card, fuller node
//
// All of it is exact, in whole numbers: equal growth is a true tie. Pods that
// name a policy get what they name; [Binpack] and [Spread] do not look ahead.
//
// What a node looks like to a Demand is kept with the node until something
// changes there, and classes are bits of a mask, so that a decision over a
// thousand nodes takes well under a millisecond.
//
// Containers that run together see each other's shares; init containers reuse
// what the pod will hold anyway (package ledger describes how a pod is booked). They
// are placed in the order of the spec. Where that fails, all other arrangements
// are searched, so a pod is refused only if there is none; a search that ends at
// its budget marks the refusal incomplete.
//
// # Answers
//
// The answer is an offer or a [Refusal]. An offer can be ranked against those
// of other nodes ([Rank]) and booked ([ledger.Node.Commit]). A refusal is a
// value: the code of the card nearest to fitting, what was wanted, what the best
// card had, how many cards gave which code, and whether evicting every pod would
// help. Of containers that would fit one by one, it is what all of them want and
// what the node has. Texts are made of it at the very end.
//
// Everything is deterministic: no decision depends on map order or on the order
// of nodes, pods or cards in the input, and every comparison ends in a total
// order. Deciding changes nothing and, for ordinary pods, allocates nothing.
//
// # Many nodes
//
// A [Board] has the accounts of all nodes. For each kind of request, which its [Key]
// tells, it keeps a [Ranking]: which nodes can take such a pod, what they are worth to
// it ([Rank]), and their order, in a tournament. Whoever changes a node sets it on the
// board again, and a ranking asks the nodes that changed since it was last asked for.
// So a decision costs the few nodes that changed and the logarithm of their number.
// Walking through a ranking changes nothing. Of nodes that are worth the same the first
// by name is the best.
//
// # What if
//
// A [Trial] is the nodes of a board with other pods on them. It copies the nodes that
// are changed in it and can go back to any state it had, so that many sets of pods are
// tried on one copy, and the board and its rankings never notice. A [Room] is the
// search on a trial for the pods whose eviction makes room at the lowest cost. Preemption
// and the advice of the commands are this search. Its work is bounded, and counted in
// what is tried, not in time: what is chosen does not depend on how fast the machine is.
//
// # Where to change what
//
//   - which shares may be on one card: ledger.Usage.Conflict
//   - another rule that a card must obey: check.run, and outlook.remainder, which
//     has the same rules as tables
//   - what is reported of a node that refuses: tally.refusal, and refuseSeveral
//   - what makes a card good for a slice: ranking, and defaultOrder
//   - what makes a set of whole cards good: subsets, and fitter.setAhead
//   - what makes a node good: Rank
//   - which pods are evicted: EvictionCost.Compare
//   - what tells kinds of request apart: appendKey
//   - what is expected of the pods to come: Census
//   - what of a node is of use to them: outlook.fragmentation, and in numbers
//     for people Demand.Waste
package place
