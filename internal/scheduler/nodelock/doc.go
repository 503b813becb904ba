// Package nodelock takes the lock of nodes that the vendor's device plugin
// serves, for one pod after the other.
//
// kubelet does not tell a plugin which pod it allocates for. So whoever binds a
// pod with slices first writes the pod's name on the node, and the plugin takes
// it off when it has served that pod: one pod at a time on each node. Others
// fail a pod that finds the node locked, and try it again seconds later. Here
// it waits for its turn.
//
// # The queue
//
// Each node has a queue, first come first served. One worker at a time looks at
// a node, whenever its lock, the lock's owner or the queue changes, and writes
// at most once: the lock of the first in the queue, in place of nothing or of a
// lock that is over. Every write holds for one version of the node, so nobody's
// lock is overwritten unseen. Nothing is polled; node and pod informers tell.
//
// # When a lock is over
//
// See [judge], which is all of it. In short: when its owner is gone, finished,
// bound elsewhere, or given up by this scheduler, at once; when the owner's
// containers run and the plugin left the lock behind, after a short while; and
// whatever it says after Expiry, counted from the time that it names, or from
// when it was first seen if it names none that can be right.
package nodelock
