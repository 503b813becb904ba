package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSupply: the cards that can be had are counted by model, and again when
// they change. These cards have no model.
func TestSupply(t *testing.T) {
	r := newRig(t)
	n := r.shared.nodes
	want := func(what string, cards int) uint64 {
		t.Helper()
		if got := n.supplied()[""]; got != cards {
			t.Errorf("%s: %d cards, want %d", what, got, cards)
		}
		return n.supplyVersion()
	}
	r.setDevice(t, makeDevice("n1", 8))
	r.setDevice(t, makeDevice("n2", 4))
	n.of(nodeInfo(makeNode("n1")), false)
	n.of(nodeInfo(makeNode("n2")), false)
	version := want("two nodes", 12)
	n.of(nodeInfo(makeNode("n1"), makePod("q", slice(10, 8), holds(0))), false)
	if want("a pod comes", 12) != version {
		t.Error("a pod that comes changes the supply")
	}
	n.of(nodeInfo(makeNode("n2")), true)
	r.setDevice(t, makeDevice("n2", 2))
	n.of(nodeInfo(makeNode("n2")), false)
	if want("two cards are gone", 10) == version {
		t.Error("cards that go do not change the supply")
	}
	n.retain(func(name string) bool { return name == "n2" })
	want("a node is gone", 2)
}

// TestFreeCPU: a node's free CPU is what the scheduler's own cache says.
func TestFreeCPU(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 8))
	node := makeNode("n1")
	if got := r.shared.nodes.of(nodeInfo(node), false); got.CPUKnown {
		t.Errorf("the CPU of a node that reports none is known: %d", got.FreeCPU)
	}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
	pod := makePod("q")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("60500m")}
	if got := r.shared.nodes.of(nodeInfo(node, pod), false); !got.CPUKnown || got.FreeCPU != 3500 {
		t.Errorf("free CPU %d, known %v; want 3500", got.FreeCPU, got.CPUKnown)
	}
}
