// Package agent runs on every node with MetaX cards. It finds the cards, says
// in the node's Device which there are and how they are, and keeps that true.
//
// A loop owns all state. It is woken by looks at the hardware, by changes in
// the cluster and by its own timer, works out what should be published, and
// writes what differs; while nothing changes it writes nothing.
//
//	Source ─► looks ─► roster ─► publication ─► Device (server-side apply)
//	                     ▲            │
//	 modes, pods, Device ┘            ├───────► annotations on the Node
//	                                  └───────► kubelet: hands the cards out
//
// What must hold:
//
//   - A look that fails changes nothing. The last good one stays published, for
//     however long the driver does not answer.
//   - A card is never forgotten by itself. One that is not found any more stays
//     in the Device, unhealthy, until an operator declares it gone, and for as
//     long as a pod names it even then. The Device itself is the agent's
//     memory: an agent that restarts reads it first.
//   - A card goes down at once and comes back slowly, the slower the more often
//     it went down.
//   - Nothing is taken from running pods. A mode that would do so waits.
package agent
