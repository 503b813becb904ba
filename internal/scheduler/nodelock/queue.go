package nodelock

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// waiter is a pod in a node's queue.
type waiter struct {
	pod *corev1.Pod
	// turn gets one value, when the pod leaves the queue: nil when the lock is
	// its own.
	turn chan error
}

// node is what is kept of a node that has a lock or a queue.
type node struct {
	// queue has the pods that wait, the first at the front.
	queue []*waiter
	// seen is the lock that was seen last, nil when there was none.
	seen *sighting
	// uid is the owner's, once its pod was seen.
	uid types.UID
	// moved is when the lock last changed.
	moved time.Time
	// stuck tells that a pod gave up waiting since then.
	stuck bool
	// written is what this process wrote last; the informer may not have come
	// to it yet.
	written written
	// timer has the node looked at again; failures counts errors in a row.
	timer    clock.Timer
	failures int
}

// written is the outcome of a write.
type written struct {
	version uint64
	value   string
	locked  bool
}

// head returns the first in the queue, or nil.
func (n *node) head() *waiter {
	if len(n.queue) == 0 {
		return nil
	}
	return n.queue[0]
}

// next returns whose turn it is, or nil: the first in the queue, unless the lock
// names another that waits. An earlier process put it on, or this one before it
// gave up; the pod needs nobody's leave to go on, and all others wait for it.
func (n *node) next() *waiter {
	if n.seen != nil {
		if at := slices.IndexFunc(n.queue, func(w *waiter) bool { return n.seen.lock.Names(w.pod) }); at >= 0 {
			return n.queue[at]
		}
	}
	return n.head()
}

// remove takes the waiter out of the queue and tells it why, unless it is out
// and was told before.
func (n *node) remove(w *waiter, why error) {
	if at := slices.Index(n.queue, w); at >= 0 {
		n.queue = slices.Delete(n.queue, at, at+1)
		w.turn <- why
	}
}

// observe notes the lock that is on the node now.
func (n *node) observe(value string, locked bool, now time.Time) {
	switch {
	case !locked && n.seen == nil, locked && n.seen != nil && n.seen.value == value:
		return
	case locked:
		s := see(value, now)
		n.seen = &s
	default:
		n.seen = nil
	}
	n.uid, n.moved, n.stuck = "", now, false
}

// idle reports whether there is nothing left to keep.
func (n *node) idle() bool { return n.seen == nil && len(n.queue) == 0 }
