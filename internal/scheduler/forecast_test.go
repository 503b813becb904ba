package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// known returns whether the pods seen so far are enough to expect something.
func (r *rig) known(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	c := stateOf(t, r.cycle(t, pod))
	if c.ask.Prefer.Demand != nil {
		t.Error("Filter and preemption look ahead; they ask only whether a pod fits")
	}
	return c.prefer.Demand != nil
}

// TestForecastCountsOnce: a pod that is tried again and again is still one pod.
func TestForecastCountsOnce(t *testing.T) {
	r := newRig(t)
	for range 100 {
		if r.known(t, makePod("same", slice(10, 8))) {
			t.Fatal("one pod, tried often, counts as many")
		}
	}
	for i := range 30 {
		if r.known(t, makePod(fmt.Sprintf("p%d", i), slice(10, 8))) {
			t.Fatalf("%d pods are enough to expect something", i+2)
		}
	}
	if !r.known(t, makePod("last", slice(10, 8))) {
		t.Error("32 pods are not enough to expect something")
	}
}

// TestForecastSeed: a scheduler that takes over knows the pods that are there,
// and does not count them twice.
func TestForecastSeed(t *testing.T) {
	r := newRig(t)
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	for i := range 40 {
		pod := makePod(fmt.Sprintf("p%d", i), slice(10, 8))
		pod.CreationTimestamp = metav1.Time{Time: start}
		gputest.Must(t, store.Add(pod))
	}
	gputest.Must(t, store.Add(makePod("ordinary")))
	if !r.known(t, makePod("p7", slice(10, 8))) {
		t.Error("the pods that were there are not known")
	}
	if n := len(r.shared.pods.byUID); n != 40 {
		t.Errorf("%d pods are counted, want 40", n)
	}
}

// TestForecastSeedOfMany: of very many pods the newest are counted.
func TestForecastSeedOfMany(t *testing.T) {
	r := newRig(t)
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	const more = 10
	for i := range request.ArrivalsLimit + more {
		pod := makePod(fmt.Sprintf("p%d", i), slice(10, 8))
		pod.CreationTimestamp = metav1.Time{Time: start.Add(time.Duration(i) * time.Second)}
		gputest.Must(t, store.Add(pod))
	}
	r.known(t, makePod("new", slice(10, 8)))
	if n := len(r.shared.pods.byUID); n != request.ArrivalsLimit+1 {
		t.Errorf("%d pods are counted, want %d and the new one", n, request.ArrivalsLimit)
	}
	for i, want := range map[int]bool{0: false, more - 1: false, more: true, request.ArrivalsLimit + more - 1: true} {
		if got := r.shared.pods.peek(makePod(fmt.Sprintf("p%d", i)).UID).learned; got != want {
			t.Errorf("pod %d is counted: %v, want %v", i, got, want)
		}
	}
}

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
