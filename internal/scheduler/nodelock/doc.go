// Package nodelock takes the lock of nodes that the vendor's device plugin
// serves, for one pod after the other.
//
// kubelet does not pass the pod to a plugin's Allocate. So the scheduler that binds
// a pod with slices first writes the pod's name on the node, and the plugin removes
// it when it has served that pod: one pod at a time on each node. Other schedulers
// fail a pod that finds the node locked and try it again seconds later. Here it
// waits for its turn.
//
// # Turns
//
// Each node has a semaphore, first come first served. The pod whose turn it is
// looks at the lock whenever the lock or its owner changes, and writes its own in
// place of none or of one that is over. Every write holds for one version of the
// node, so no lock is overwritten unseen. Nothing is polled: node and pod
// informers wake it. Locks that no pod waits for are looked at by workers, which
// remove those that are over.
//
// # When a lock is over
//
// See [judge]. In short: when its owner is gone, finished, bound elsewhere, or
// given up by this scheduler, at once; when the owner's containers run and the
// plugin left the lock behind, after a short while; and in any case after Expiry,
// counted from the time that it names, or from when it was first seen if that time
// is unreadable or in the future.
package nodelock
