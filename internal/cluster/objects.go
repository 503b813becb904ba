package cluster

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Objects is what was read of a cluster.
type Objects struct {
	Nodes []*corev1.Node
	// Devices has the Device of each node that has one, by the node's name.
	Devices map[string]Device
	// Pods are in the order they were read.
	Pods []*corev1.Pod
	// Notes tell what was passed over.
	Notes []string
}

// Device is a Device object, or why it can't be decoded.
type Device struct {
	*v1alpha1.Device
	Err error
}

// Snapshot is a cluster at one moment, with everything booked that is held.
type Snapshot struct {
	// Nodes and Inventories go together and are ordered by name.
	Nodes       []*ledger.Node
	Inventories []*wire.Inventory
	// Pending are the pods without a node, in the order they were read.
	Pending []*corev1.Pod
	// Notes tell what an operator should know.
	Notes []string
}

// Snapshot opens the ledger: every node, with the pods that hold its cards. A
// Device without a Node counts as a node too, since files need not have both.
func (o *Objects) Snapshot() *Snapshot {
	s := &Snapshot{Notes: slices.Clone(o.Notes)}
	bound := make(map[string][]*corev1.Pod)
	for _, pod := range o.Pods {
		switch {
		case wire.Holds(pod):
			bound[pod.Spec.NodeName] = append(bound[pod.Spec.NodeName], pod)
		case pod.Spec.NodeName == "" && !ended(pod):
			s.Pending = append(s.Pending, pod)
		}
	}
	known := make(map[string]bool, len(o.Nodes))
	for _, node := range o.Nodes {
		known[node.Name] = true
		s.open(readInventory(node, o.Devices[node.Name]), bound[node.Name])
	}
	for name, device := range o.Devices {
		if !known[name] {
			known[name] = true
			s.open(readDevice(name, device), bound[name])
		}
	}
	for name, pods := range bound {
		if !known[name] {
			s.strays(name, pods)
		}
	}
	s.sort()
	return s
}

// ended reports whether the pod has come to its end, which one that was never
// bound can too.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// strays tells of pods that hold cards of a node that was not read. Where the
// node's name is a mistake, the cards they are meant to hold look free.
func (s *Snapshot) strays(node string, pods []*corev1.Pod) {
	for _, pod := range pods {
		if wire.Asks(pod) {
			s.Notes = append(s.Notes, fmt.Sprintf("pod %s is on node %s, which is not there: what it holds is left out", wire.HolderOf(pod), node))
		}
	}
}

func readInventory(node *corev1.Node, d Device) *wire.Inventory {
	if d.Err != nil {
		return wire.BadInventory(node.Name, d.Err)
	}
	return wire.ReadInventory(node, d.Device)
}

func readDevice(name string, d Device) *wire.Inventory {
	if d.Err != nil {
		return wire.BadInventory(name, d.Err)
	}
	return wire.ReadInventory(nil, d.Device)
}

func (s *Snapshot) open(inv *wire.Inventory, pods []*corev1.Pod) {
	// The order in which pods were read must not show in what is booked.
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	node, notes := inv.NewNode(pods)
	s.Nodes = append(s.Nodes, node)
	s.Inventories = append(s.Inventories, inv)
	if inv.Problem != nil {
		// Without cards to look them up in, nothing true is said of the pods.
		s.Notes = append(s.Notes, fmt.Sprintf("node %s takes no pods: its cards can't be read: %v", inv.Name, inv.Problem))
		return
	}
	for _, note := range inv.Notes {
		s.Notes = append(s.Notes, fmt.Sprintf("node %s: %s", inv.Name, note))
	}
	s.Notes = append(s.Notes, notes...)
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Nodes, func(a, b *ledger.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Inventories, func(a, b *wire.Inventory) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(s.Notes)
}
