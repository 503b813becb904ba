package nodelock

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
)

// owner is what is known of the pod that a lock names.
type owner uint8

const (
	// unnamed: the lock names no pod, or can't be read.
	unnamed owner = iota
	// binding: this process is about to bind the pod to the node.
	binding
	// left: this scheduler binds the pod, and is not doing so on this node. What an
	// earlier process still has in flight was fenced off before the first decision.
	left
	// pending: another scheduler may be binding the pod.
	pending
	// bound to this node, and not known to be served yet.
	bound
	// served: containers run, so kubelet has called the plugin for all of them.
	served
	// elsewhere: the pod is bound to another node.
	elsewhere
	// gone: the pod does not exist, has finished, or is another of that name.
	gone
)

// servedGrace is how long the plugin gets to take the lock off a pod that runs.
// It is long, as the plugin needs milliseconds, so that a plugin that takes
// whatever lock it finds does not take the next pod's.
const servedGrace = 10 * time.Second

// sighting is a lock as seen on a node.
type sighting struct {
	value string
	lock  allocation.Lock
	// unreadable is true for a value of a format that is not known. It is respected
	// for as long as others.
	unreadable bool
	// first is when this value was first seen, running when its owner was first
	// seen to run.
	first, running time.Time
}

// see reads a lock that was first seen now.
func see(value string, now time.Time) sighting {
	lock, err := allocation.ParseLock(value)
	return sighting{value: value, lock: lock, unreadable: err != nil, first: now}
}

// expires returns when the lock is over whatever its owner does. A time in the
// future is taken for a wrong clock.
func (s *sighting) expires(expiry time.Duration) time.Time {
	since := s.lock.Since
	if s.unreadable || since.After(s.first) {
		since = s.first
	}
	return since.Add(expiry)
}

// verdict is what became of a lock.
type verdict struct {
	// over is true when the lock protects no pod any more, and why is the reason.
	over bool
	why  string
	// until is when it expires; zero when it does not.
	until time.Time
}

// judge decides whether the lock is over. It is a function of what was seen.
func judge(s *sighting, o owner, expiry time.Duration, now time.Time) verdict {
	until := s.expires(expiry)
	switch o {
	case binding:
		// The Binding may be through without our knowing, however long it takes.
		return verdict{why: "being bound"}
	case left:
		return verdict{over: true, why: "its pod is no longer being bound here"}
	case elsewhere:
		return verdict{over: true, why: "its pod is bound elsewhere"}
	case gone:
		return verdict{over: true, why: "its pod is gone"}
	case served:
		if grace := s.running.Add(servedGrace); grace.Before(until) {
			until = grace
		}
		if !now.Before(until) {
			return verdict{over: true, why: "its pod runs, and the plugin has left it behind"}
		}
		return verdict{why: "running, and the plugin is to remove it", until: until}
	}
	if !now.Before(until) {
		return verdict{over: true, why: "it has expired"}
	}
	why := map[owner]string{unnamed: "of no known pod", pending: "not bound yet", bound: "bound, and not served by the plugin yet"}[o]
	return verdict{why: why, until: until}
}

// started reports whether a container of the pod has run. kubelet asks plugins
// for all containers of a pod, init containers too, before it starts the first.
func started(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if s := &list[i].State; s.Running != nil || s.Terminated != nil {
				return true
			}
		}
	}
	return false
}
