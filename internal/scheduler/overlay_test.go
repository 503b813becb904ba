package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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

// cardsInUse returns the UUIDs of the cards that are held.
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
	r := seen(t, 3)
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

// TestReservationOnCountedCards: where only the number of cards is known they are dealt
// again in each fold, to a reserved pod and to pods that were there before like to the
// rest, so that no two pods count for one card.
func TestReservationOnCountedCards(t *testing.T) {
	r, node := newRig(t), countedNode("3")
	a, b := makePod("a", whole(1), boundTo("n1")), makePod("b", whole(1), boundTo("n1"))
	r.fakes.snapshot = snapshotOf(nodeInfo(node, a))
	assumed := r.reserveOn(t, makePod("p", whole(1)), "n1")
	for i, u := range r.shared.nodes.of(nodeInfo(node, b, a, assumed), false).Now().Usage {
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
			succeeds(t, r.Reserve(t.Context(), cs, first, "n1"))
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
				gputest.Must(t, ni.RemovePod(testLogger(t), assumed))
				ni.Generation = generation
			}
			r.reserveOn(t, third, "n1")
			if got := r.Reserve(t.Context(), late, second, "n1"); got.Code() != fwk.Unschedulable {
				t.Errorf("Reserve() after a sibling's = %v, want Unschedulable", got)
			}
		})
	}
}

// TestHoldFollowsItsCard: cards that are kept for a preemptor stay the same cards
// when the inventory is read in another order, and as many where they are counted.
func TestHoldFollowsItsCard(t *testing.T) {
	preemptor := makePod("q", whole(1), priority(9))
	hold := func(t *testing.T, r *rig, node *ledger.Node) {
		t.Helper()
		offer := node.NewOffer(1)
		offer.SetCards(0, gpu.SetOf(1))
		ask, _ := request.Read(preemptor)
		r.shared.pods.putClaim(claim{kind: heldClaim, pod: preemptor,
			node: "n1", placed: placed{topology: node.Topology(), holding: node.Holding(&offer, allocation.HolderOf(preemptor), &ask.Request)},
		})
	}
	t.Run("by UUID", func(t *testing.T) {
		r := newRig(t)
		r.setDevice(t, makeDevice("n1", 2))
		victim := makePod("v", whole(1), holds(1))
		hold(t, r, r.shared.nodes.of(nodeInfo(makeNode("n1"), victim), false))
		r.setDevice(t, swapped(makeDevice("n1", 2)))
		pod := makePod("p", whole(1))
		if got := r.Filter(t.Context(), r.cycle(t, pod).Clone(), pod, nodeInfo(makeNode("n1"), victim, preemptor)); !got.IsSuccess() {
			t.Errorf("Filter() while the victim of the hold is there = %v, want success: GPU-0 is free", got)
		}
		if got := r.Filter(t.Context(), r.cycle(t, pod).Clone(), pod, nodeInfo(makeNode("n1"), preemptor, makePod("u", whole(1), holds(0)))); got.Code() != fwk.Unschedulable {
			t.Errorf("Filter() when the victim has left = %v, want Unschedulable: GPU-1 is kept", got)
		}
	})
	t.Run("by number", func(t *testing.T) {
		r, node := newRig(t), countedNode("3")
		a, b, c := makePod("a", whole(1), boundTo("n1")), makePod("b", whole(1), boundTo("n1")), makePod("c", whole(1), boundTo("n1"))
		hold(t, r, r.shared.nodes.of(nodeInfo(node, a, b, c), false))
		pod := makePod("p", whole(1))
		for name, tt := range map[string]struct {
			ni   fwk.NodeInfo
			want fwk.Code
		}{
			"one left":  {nodeInfo(node, a, c, preemptor), fwk.Unschedulable},
			"two left":  {nodeInfo(node, b, preemptor), fwk.Success},
			"none left": {nodeInfo(node, a, b, c, preemptor), fwk.Unschedulable},
		} {
			if got := r.Filter(t.Context(), r.cycle(t, pod).Clone(), pod, tt.ni); got.Code() != tt.want {
				t.Errorf("%s: Filter() = %v, want %v", name, got, tt.want)
			}
		}
	})
	t.Run("dropped", func(t *testing.T) {
		r := newRig(t)
		r.setDevice(t, makeDevice("n1", 2))
		node := r.shared.nodes.of(nodeInfo(makeNode("n1")), false)
		hold(t, r, node)
		r.shared.pods.dropClaim(preemptor.UID, heldClaim)
		if _, ok := r.shared.pods.heldOn(preemptor.UID, node); ok {
			t.Error("the hold is still there")
		}
	})
}

// TestReservationThatGetsIdentity: it is not known which cards a pod has that was
// placed by number when the node's cards become known one by one.
func TestReservationThatGetsIdentity(t *testing.T) {
	r, node := newRig(t), countedNode("2")
	r.fakes.snapshot = snapshotOf(nodeInfo(node))
	assumed := r.reserveOn(t, makePod("p", whole(1)), "n1")
	r.setDevice(t, makeDevice("n1", 2))
	for name, ni := range map[string]fwk.NodeInfo{"with the pod": nodeInfo(node, assumed), "without it": nodeInfo(node)} {
		if got := r.shared.nodes.of(ni, false); len(got.Unknown()) != 1 {
			t.Errorf("%s: %d pods hold unknown cards, want 1", name, len(got.Unknown()))
		}
	}
}

// TestReservationOfALostCard: a card that is not in the inventory for a while is
// the pod's when it comes back.
func TestReservationOfALostCard(t *testing.T) {
	r := seen(t, 2)
	assumed := r.reserveOn(t, makePod("p", whole(1)), "n1")
	ni := nodeInfo(makeNode("n1"), assumed)
	less := makeDevice("n1", 2)
	less.Spec.Devices = less.Spec.Devices[1:]
	r.setDevice(t, less)
	if got := r.cardsInUse(ni); len(got) != 0 {
		t.Errorf("cards in use = %v, want none: the pod's is not there", got)
	}
	r.setDevice(t, swapped(makeDevice("n1", 2)))
	if got := r.cardsInUse(ni); !slices.Equal(got, []string{"GPU-0"}) {
		t.Errorf("cards in use = %v, want GPU-0", got)
	}
}

// TestWhatIfHonoursTheOverlay: in a copy of a NodeInfo, a pod that was taken off
// frees what was reserved for it; what was reserved after the snapshot stays.
func TestWhatIfHonoursTheOverlay(t *testing.T) {
	r := seen(t, 3)
	victim := r.reserveOn(t, makePod("v", whole(1)), "n1")
	ni := nodeInfo(makeNode("n1"), victim)
	r.fakes.snapshot = snapshotOf(ni)
	r.reserveOn(t, makePod("sibling", whole(1)), "n1")
	kept := r.shared.nodes.of(ni, false)
	if n := len(kept.Holdings()); n != 2 {
		t.Fatalf("%d pods hold cards, want 2", n)
	}
	without := ni.Snapshot()
	gputest.Must(t, without.RemovePod(testLogger(t), victim))
	if got := r.shared.nodes.of(without, true).Holdings(); len(got) != 1 || got[0].Holder != "ns/sibling" {
		t.Errorf("without the victim %v hold cards, want the sibling alone", got)
	}
	if got := r.shared.nodes.of(ni, false); got != kept {
		t.Error("the what-if changed what is kept")
	}
	// kube-scheduler forgets a pod that is being deleted although its Binding may
	// still succeed.
	forgotten := without.Snapshot()
	forgotten.AddPodInfo(podInfo(t, makePod("other")))
	if got := r.shared.nodes.of(forgotten, false).Holdings(); len(got) != 2 {
		t.Errorf("when the victim is forgotten %v hold cards, want both until its Binding has failed", got)
	}
}

// TestReservationOfANamesake: what is still reserved for an ended pod takes nothing
// from the pod that was created under its name.
func TestReservationOfANamesake(t *testing.T) {
	r := seen(t, 2)
	r.reserveOn(t, makePod("x", whole(1)), "n1")
	again := makePod("x", whole(1), holds(1))
	again.UID = "another"
	if got := r.cardsInUse(nodeInfo(makeNode("n1"), again)); !slices.Equal(got, []string{"GPU-0", "GPU-1"}) {
		t.Errorf("cards in use = %v, want both", got)
	}
}

// TestRefreshOfNothingNew: with nothing changed a refresh allocates nothing, and
// one changed node is all that is looked at again.
func TestRefreshOfNothingNew(t *testing.T) {
	s := newStream(t, 2*smallCluster, 1)
	x := s.shared.index
	x.refresh(s.infos)
	if n := testing.AllocsPerRun(10, func() { x.refresh(s.infos) }); n != 0 {
		t.Errorf("%v allocations a refresh, want none", n)
	}
	s.reserveOn(t, makePod("p", whole(1)), "n7")
	x.refresh(s.infos)
	x.refresh(s.infos)
	s.shared.pods.dropClaim("uid-p", reservedClaim)
	x.refresh(s.infos)
	if !slices.Equal(x.stale, s.infos[7:8]) {
		t.Errorf("%d nodes were made again, want n7 alone", len(x.stale))
	}
	x.refresh(s.infos)
	if len(x.stale) != 0 {
		t.Errorf("rows %v were made again, want none", x.stale)
	}
}
