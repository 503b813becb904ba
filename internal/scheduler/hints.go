package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// hintAccounts are the accounts that queueing hints are answered from: the pods
// that decisions last saw on a node, with what events have reported of them
// since. Decisions never use them.
//
// An event may be newer than the snapshot of the refresh that comes next, but not
// than that of the one after it: when that one has ended, the entries show what
// the event reported, and it is forgotten.
type hintAccounts struct {
	nodes *nodes

	mu sync.Mutex
	// events has what became of pods, and version counts its changes.
	events  map[podOnNode]podEvent
	version uint64
	// epoch is the last refresh that has ended.
	epoch uint64
	// update and account are the last answers: all waiting pods are asked about
	// one event, one after the other.
	update struct {
		before, after *corev1.Pod
		matters       bool
	}
	account struct {
		hintBasis
		node *ledger.Node
	}
}

// podOnNode is a pod on one node: one whose Binding failed may go to another.
type podOnNode struct {
	node string
	uid  types.UID
}

// podEvent is what became of a pod.
type podEvent struct {
	pod   *corev1.Pod // its new version, nil if it ended
	epoch uint64
}

// hintBasis is everything that an account for hints depends on.
type hintBasis struct {
	entry            *entry
	node             *corev1.Node
	device           *device
	overlay, version uint64
}

func newHintAccounts(n *nodes) *hintAccounts {
	return &hintAccounts{nodes: n, events: map[podOnNode]podEvent{}}
}

// ended records that the pod is no longer on its node.
func (h *hintAccounts) ended(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record(pod, nil)
}

// updated reports whether the update may change what the pod holds on its node,
// and records it if so.
func (h *hintAccounts) updated(before, after *corev1.Pod) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.update.before != before || h.update.after != after {
		h.update.before, h.update.after = before, after
		h.update.matters = wire.Asks(after) && !sameHolding(before, after)
	}
	if h.update.matters {
		h.record(after, after)
	}
	return h.update.matters
}

// record remembers that there is a new version of the pod, or none when it is nil.
// The lock is held.
func (h *hintAccounts) record(pod, now *corev1.Pod) {
	key, e := podOnNode{node: pod.Spec.NodeName, uid: pod.UID}, podEvent{pod: now, epoch: h.epoch}
	if known, ok := h.events[key]; ok && known == e {
		return // another waiting pod was asked about it
	}
	h.events[key] = e
	h.version++
}

// refreshed notes that a refresh has ended, and forgets the events that the
// entries show.
func (h *hintAccounts) refreshed(epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch = epoch
	for key, e := range h.events {
		if e.epoch+2 <= epoch {
			delete(h.events, key)
			h.version++
		}
	}
}

// now returns the last refresh that has ended.
func (h *hintAccounts) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// of returns the account of the node as it is now, as far as it is known. It is
// shared and must not be changed.
func (h *hintAccounts) of(node *corev1.Node) *ledger.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	basis := hintBasis{
		entry: h.nodes.last(node.Name), node: node, device: h.nodes.devices.get(node.Name),
		overlay: h.nodes.pods.versionOf(node.Name), version: h.version,
	}
	if h.account.node == nil || h.account.hintBasis != basis {
		h.account.hintBasis, h.account.node = basis, h.fold(&basis)
	}
	return h.account.node
}

// fold books the pods that were last seen, with their events. The lock is held.
// Who serves a node without a Device depends on pods that may be newer: unless
// the node says otherwise it is taken to be the vendor's plugin.
func (h *hintAccounts) fold(b *hintBasis) *ledger.Node {
	vendor := !b.device.decides() && b.node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak
	now := h.nodes.open(b.entry, b.node, b.device, vendor)
	if b.entry != nil {
		now.read = make([]reading, 0, len(b.entry.read))
		for i := range b.entry.read {
			pod := b.entry.read[i].pod
			if e, ok := h.events[podOnNode{node: b.node.Name, uid: pod.UID}]; ok {
				pod = e.pod
			}
			if pod != nil {
				now.read = append(now.read, reading{pod: pod})
			}
		}
	}
	h.nodes.bookAll(now, b.entry, lockOf(b.node), ofHint, func(uid types.UID) bool {
		e, ok := h.events[podOnNode{node: b.node.Name, uid: uid}]
		return ok && e.pod == nil
	})
	return now.node
}

// sameHolding reports whether two versions of a bound pod say the same about what
// it holds.
func sameHolding(a, b *corev1.Pod) bool {
	return sameAsk(a, b) && has(a, b.Annotations, allocation.IsAllocation) && has(b, a.Annotations, allocation.IsAllocation)
}
