package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// reserveOn reserves cards for the pod and returns the pod as kube-scheduler
// assumes it.
func (r *rig) reserveOn(t *testing.T, pod *corev1.Pod, node string) *corev1.Pod {
	t.Helper()
	if got := r.Reserve(t.Context(), r.cycle(t, pod), pod, node); !got.IsSuccess() {
		t.Fatalf("Reserve(%s, %s) = %v", pod.Name, node, got)
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	return assumed
}

// swapped returns the Device with its first two cards in the other order.
func swapped(d *v1alpha1.Device) *v1alpha1.Device {
	d.Spec.Devices[0].Minor, d.Spec.Devices[1].Minor = new(int32(1)), new(int32(0))
	return d
}

// cardsInUse returns the UUIDs of the cards that somebody holds.
func (r *rig) cardsInUse(ni fwk.NodeInfo) []string {
	node := r.shared.nodes.of(ni, false)
	var used []string
	for i, u := range node.Now().Usage {
		if !u.Idle() {
			used = append(used, string(node.Topology().Card(i).ID))
		}
	}
	return used
}

// TestReservationFollowsItsCard: the inventory is read in another order between
// Reserve and the fold that sees the pod.
func TestReservationFollowsItsCard(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 3))
	r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1")))
	assumed := r.reserveOn(t, makePod("p", whole(1)), "n1")
	r.setDevice(t, swapped(makeDevice("n1", 3)))
	if got := r.cardsInUse(nodeInfo(makeNode("n1"), assumed)); !slices.Equal(got, []string{"GPU-0"}) {
		t.Errorf("cards in use = %v, want the reserved one, GPU-0", got)
	}
}

// countedNode returns a node of the vendor's with n cards that have no identity.
func countedNode(n string) *corev1.Node {
	node := &corev1.Node{}
	node.Name = "n1"
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor}
	node.Status.Capacity = corev1.ResourceList{wire.ResourceGPU: resource.MustParse(n)}
	node.Status.Allocatable = node.Status.Capacity
	return node
}

// TestReservationOnCountedCards: a reserved pod is dealt cards by number like
// the rest, so that no two pods count for one card.
func TestReservationOnCountedCards(t *testing.T) {
	r, node := newRig(t), countedNode("3")
	r.fakes.snapshot = snapshotOf(nodeInfo(node, makePod("a", whole(1), boundTo("n1"))))
	assumed := r.reserveOn(t, makePod("p", whole(1)), "n1")
	c, d := makePod("c", whole(1), boundTo("n1")), makePod("d", whole(1), boundTo("n1"))
	for i, u := range r.shared.nodes.of(nodeInfo(node, c, d, assumed), false).Now().Usage {
		if u.Slots != 1 {
			t.Errorf("card %d counts for %d pods, want 1", i, u.Slots)
		}
	}
}

// TestSiblings: cards that were reserved within one snapshot are taken for the
// next decision on it, whether kube-scheduler has changed the snapshot's
// NodeInfo (and put its generation back) or not.
func TestSiblings(t *testing.T) {
	for name, assume := range map[string]bool{"assumed in the snapshot": true, "not in the snapshot": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 2))
			ni := nodeInfo(makeNode("n1"))
			infos := []fwk.NodeInfo{ni}
			r.fakes.snapshot = snapshotOf(ni)
			first, second, third := makePod("first", whole(1)), makePod("second", whole(2)), makePod("third", whole(1))
			cs := framework.NewCycleState()
			if _, status := r.PreFilter(t.Context(), cs, first, infos); !status.IsSuccess() {
				t.Fatal(status)
			}
			if got := r.Reserve(t.Context(), cs, first, "n1"); !got.IsSuccess() {
				t.Fatal(got)
			}
			assumed := first.DeepCopy()
			assumed.Spec.NodeName = "n1"
			if assume {
				generation := ni.Generation
				ni.AddPodInfo(podInfo(t, assumed))
				ni.Generation = generation
			}
			if got := r.Reserve(t.Context(), r.cycleOver(t, second, infos), second, "n1"); got.Code() != fwk.Unschedulable {
				t.Errorf("Reserve() of two cards where one is left = %v, want Unschedulable", got)
			}
			if got := r.Filter(t.Context(), r.cycleOver(t, second, infos), second, ni); got.Code() != fwk.Unschedulable {
				t.Errorf("Filter() of two cards where one is left = %v, want Unschedulable", got)
			}
			// The second phase of a pod group calls Reserve for one sibling after the
			// other, with no PreFilter in between.
			late := r.cycleOver(t, second, infos)
			r.Unreserve(t.Context(), cs, first, "n1")
			if assume {
				generation := ni.Generation
				if err := ni.RemovePod(testLogger(t), assumed); err != nil {
					t.Fatal(err)
				}
				ni.Generation = generation
			}
			r.reserveOn(t, third, "n1")
			if got := r.Reserve(t.Context(), late, second, "n1"); got.Code() != fwk.Unschedulable {
				t.Errorf("Reserve() after a sibling's = %v, want Unschedulable", got)
			}
		})
	}
}
