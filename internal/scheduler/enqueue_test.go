package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// seen returns a rig whose only node n1 has that many cards and the pods, as it was last
// seen and as the snapshot shows it.
func seen(t *testing.T, cards int, onNode ...*corev1.Pod) *rig {
	t.Helper()
	r, node := newRig(t), makeNode("n1")
	r.setDevice(t, makeDevice("n1", cards))
	ni := nodeInfo(node, onNode...)
	r.shared.nodes.of(ni, false)
	r.fakes.snapshot = snapshotOf(ni)
	r.addNode(t, node)
	return r
}

func (r *rig) addNode(t testing.TB, node *corev1.Node) {
	t.Helper()
	gputest.Must(t, r.fakes.informers.Core().V1().Nodes().Informer().GetStore().Add(node))
}

func TestEventsToRegister(t *testing.T) {
	events, err := newRig(t).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[fwk.EventResource]fwk.ActionType{}
	for _, e := range events {
		got[e.Event.Resource] |= e.Event.ActionType
		if e.QueueingHintFn == nil {
			t.Errorf("%v has no hint: every such event would wake every pod", e.Event)
		}
	}
	want := map[fwk.EventResource]fwk.ActionType{
		fwk.Pod: fwk.Delete | fwk.Update,
		"devices.v1alpha1.scheduling.koordinator.sh": fwk.Add | fwk.Update | fwk.Delete,
		fwk.Node: fwk.Add | fwk.Delete | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation | fwk.UpdateNodeTaint,
	}
	gputest.Equal(t, "events", want, got)
}

func TestAfterPodDelete(t *testing.T) {
	q0, q1 := makePod("q0", whole(1), holds(0)), makePod("q1", whole(1), holds(1))
	unknown := makePod("u", whole(1), boundTo("n1"))
	tests := map[string]struct {
		onNode  []*corev1.Pod
		deleted []*corev1.Pod
		pod     *corev1.Pod
		want    []fwk.QueueingHint
	}{
		"it fits where the other one was": {
			onNode: []*corev1.Pod{q0, q1}, deleted: []*corev1.Pod{q0}, pod: makePod("p", whole(1)), want: []fwk.QueueingHint{fwk.Queue},
		},
		"it takes two: they count together": {
			onNode: []*corev1.Pod{q0, q1}, deleted: []*corev1.Pod{q0, q1}, pod: makePod("p", whole(2)), want: []fwk.QueueingHint{fwk.QueueSkip, fwk.Queue},
		},
		"the same one twice counts once": {
			onNode: []*corev1.Pod{q0, q1}, deleted: []*corev1.Pod{q0, q0}, pod: makePod("p", whole(2)), want: []fwk.QueueingHint{fwk.QueueSkip, fwk.QueueSkip},
		},
		"it never fits there": {
			onNode: []*corev1.Pod{q0, q1}, deleted: []*corev1.Pod{q0, q1}, pod: makePod("p", whole(3)), want: []fwk.QueueingHint{fwk.QueueSkip, fwk.QueueSkip},
		},
		"the other one was the last whose cards are unknown": {
			onNode: []*corev1.Pod{unknown, q0}, deleted: []*corev1.Pod{q0, unknown}, pod: makePod("p", whole(1)), want: []fwk.QueueingHint{fwk.QueueSkip, fwk.Queue},
		},
		"the other one had no cards": {
			deleted: []*corev1.Pod{makePod("q", boundTo("n1"))}, pod: makePod("p", whole(1)), want: []fwk.QueueingHint{fwk.QueueSkip},
		},
		"the other one was never bound": {
			onNode: []*corev1.Pod{q0, q1}, deleted: []*corev1.Pod{makePod("q", whole(1))}, pod: makePod("p", whole(2)), want: []fwk.QueueingHint{fwk.Queue},
		},
		"the other one's node was never seen": {
			deleted: []*corev1.Pod{makePod("q", whole(1), boundTo("n2"))}, pod: makePod("p", whole(9)), want: []fwk.QueueingHint{fwk.Queue},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 2, tt.onNode...)
			var got []fwk.QueueingHint
			for _, deleted := range tt.deleted {
				hint, err := r.afterPodDelete(testLogger(t), tt.pod, deleted, nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, hint)
			}
			gputest.Equal(t, "hints", tt.want, got)
		})
	}
}

func TestAfterPodUpdate(t *testing.T) {
	plain := makePod("p", slice(10, 8))
	tests := map[string]struct {
		before, after *corev1.Pod
		want          fwk.QueueingHint
	}{
		"it asks for another class":         {before: plain, after: makePod("p", slice(10, 8), annotated(wire.AnnotationQoS, "fixed-share")), want: fwk.Queue},
		"it excludes a card no more":        {before: makePod("p", slice(10, 8), annotated(wire.AnnotationNoUseCards, "GPU-0")), after: plain, want: fwk.Queue},
		"another annotation of it":          {before: plain, after: makePod("p", slice(10, 8), annotated("a", "b")), want: fwk.QueueSkip},
		"someone else asks for another one": {before: makePod("q", slice(10, 8)), after: makePod("q", slice(10, 8), annotated(wire.AnnotationQoS, "fixed-share")), want: fwk.QueueSkip},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantHint(t, tt.want)(newRig(t).afterPodUpdate(testLogger(t), plain, tt.before, tt.after))
		})
	}
}

// TestAfterPodDeleteOfANamesake: the end of a pod frees nothing of the pod that
// was created under its name.
func TestAfterPodDeleteOfANamesake(t *testing.T) {
	old, again := makePod("x", whole(1), holds(0)), makePod("x", whole(1), holds(0))
	again.UID = "another"
	r := seen(t, 1, again)
	wantHint(t, fwk.QueueSkip)(r.afterPodDelete(testLogger(t), makePod("p", whole(1)), old, nil))
}

// TestHintEventsAreForgotten: what events reported is remembered until the entries
// show it, and no longer.
func TestHintEventsAreForgotten(t *testing.T) {
	x, y := makePod("x", whole(1), holds(0)), makePod("y", whole(1), holds(1))
	r := seen(t, 2, x, y)
	pod, cpu := makePod("p", whole(2)), makePod("other", whole(1))
	ni := nodeInfo(makeNode("n1"), x, y)
	refresh := func() { r.cycleOver(t, cpu, []fwk.NodeInfo{ni}) }
	refresh()
	if _, err := r.afterPodDelete(testLogger(t), pod, x, nil); err != nil {
		t.Fatal(err)
	}
	refresh() // its snapshot may be older than the end of x
	if got := len(r.shared.hints.events); got != 1 {
		t.Errorf("%d pods have events after one refresh, want 1", got)
	}
	wantHint(t, fwk.Queue)(r.afterPodDelete(testLogger(t), pod, y, nil))
	ni = nodeInfo(makeNode("n1"))
	refresh()
	refresh()
	if got := len(r.shared.hints.events); got != 0 {
		t.Errorf("%d pods have events, want none", got)
	}
}

// TestReservationOfAnEndedPod: room that an ended pod left is free for the waiting
// pod that its end wakes, whichever handler of the event runs first; a pod that
// still exists keeps what was reserved for it.
func TestReservationOfAnEndedPod(t *testing.T) {
	for name, exists := range map[string]bool{"gone": false, "being deleted": true} {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 1)
			ended := r.reserveOn(t, makePod("x", whole(1)), "n1")
			r.shared.nodes.of(nodeInfo(makeNode("n1"), ended), false)
			if exists {
				gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(ended))
			}
			pod := makePod("p", whole(1))
			wantHint(t, fwk.Queue)(r.afterPodDelete(testLogger(t), pod, ended, nil))
			if got := r.Filter(t.Context(), r.cycle(t, pod), pod, nodeInfo(makeNode("n1"))); got.IsSuccess() == exists {
				t.Errorf("Filter() = %v, want success: %v", got, !exists)
			}
		})
	}
}

// TestStatusUpdatesCostNothing: kubelet updates the status of every pod again and
// again, and all waiting pods are asked each time.
func TestStatusUpdatesCostNothing(t *testing.T) {
	before := makePod("q", whole(1), holds(0))
	r := seen(t, 2, before)
	after, pod := before.DeepCopy(), makePod("p", whole(2))
	after.Status.Phase = corev1.PodRunning
	logger := testLogger(t)
	if n := testing.AllocsPerRun(100, func() {
		if got, err := r.afterPodUpdate(logger, pod, before, after); err != nil || got != fwk.QueueSkip {
			t.Errorf("afterPodUpdate() = %v, %v; want QueueSkip", got, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for each waiting pod, want none", n)
	}
}

// TestAfterUnaccounted: pods wake when it becomes known which cards another pod
// holds, by any annotation.
func TestAfterUnaccounted(t *testing.T) {
	u, v := makePod("u", whole(1), boundTo("n1")), makePod("v", whole(1), boundTo("n1"))
	known := func(pod *corev1.Pod, card string) *corev1.Pod {
		out := pod.DeepCopy()
		out.Annotations[wire.AnnotationHAMiGPU] = card + ",Metax-GPU,65536,100:;"
		return out
	}
	update := func(t *testing.T, r *rig, pod, before, after *corev1.Pod, want fwk.QueueingHint) {
		t.Helper()
		for range 2 { // it is asked for every waiting pod
			wantHint(t, want)(r.afterPodUpdate(testLogger(t), pod, before, after))
		}
	}
	t.Run("annotations of the pods", func(t *testing.T) {
		r := seen(t, 3, u, v)
		pod := makePod("p", whole(1))
		running := u.DeepCopy()
		running.Status.Phase = corev1.PodRunning
		update(t, r, pod, u, running, fwk.QueueSkip)
		update(t, r, pod, u, known(u, "GPU-0"), fwk.QueueSkip) // v is left
		update(t, r, pod, v, known(v, "GPU-1"), fwk.Queue)
		update(t, r, makePod("q", whole(2)), v, known(v, "GPU-1"), fwk.QueueSkip)
	})
	t.Run("the agent's word on the Device", func(t *testing.T) {
		r := seen(t, 2, u)
		d := makeDevice("n1", 2)
		pod := makePod("p", whole(1))
		wantHint(t, fwk.QueueSkip)(r.afterDevice(testLogger(t), pod, nil, r.setDevice(t, d)))
		d.Annotations = map[string]string{wire.AnnotationPluginAllocations: `[{"uid":"uid-u","containers":{"c":["GPU-1"]}}]`}
		wantHint(t, fwk.Queue)(r.afterDevice(testLogger(t), pod, nil, r.setDevice(t, d)))
	})
	t.Run("the end of another pod where cards are counted", func(t *testing.T) {
		r, node := newRig(t), countedNode("3")
		big, bigger := makePod("big", whole(2), boundTo("n1")), makePod("bigger", whole(2), boundTo("n1"))
		r.addNode(t, node)
		r.shared.nodes.of(nodeInfo(node, big, bigger), false) // the second has no room
		wantHint(t, fwk.Queue)(r.afterPodDelete(testLogger(t), makePod("p", whole(1)), big, nil))
	})
}

// TestInadmissibleSleeps: a pod whose request is invalid wakes when it asks for
// something else, and for nothing else.
func TestInadmissibleSleeps(t *testing.T) {
	bad := makePod("p", slice(120, 8))
	q := makePod("q", whole(1), holds(0))
	r := seen(t, 2, q)
	device := r.setDevice(t, makeDevice("n1", 4))
	changed := bad.DeepCopy()
	changed.Annotations[wire.AnnotationQoS] = "fixed-share"
	for name, hint := range map[string]func() (fwk.QueueingHint, error){
		"a pod ended": func() (fwk.QueueingHint, error) { return r.afterPodDelete(testLogger(t), bad, q, nil) },
		"a pod that was never bound did": func() (fwk.QueueingHint, error) {
			return r.afterPodDelete(testLogger(t), bad, makePod("x", whole(1)), nil)
		},
		"on a node never seen": func() (fwk.QueueingHint, error) {
			return r.afterPodDelete(testLogger(t), bad, makePod("x", whole(1), boundTo("n7")), nil)
		},
		"a Device changed": func() (fwk.QueueingHint, error) { return r.afterDevice(testLogger(t), bad, nil, device) },
		"a node came":      func() (fwk.QueueingHint, error) { return r.afterNode(testLogger(t), bad, nil, makeNode("n1")) },
	} {
		t.Run(name, func(t *testing.T) { wantHint(t, fwk.QueueSkip)(hint()) })
	}
	wantHint(t, fwk.Queue)(r.afterPodUpdate(testLogger(t), changed, bad, changed))
}

// TestPodGroupsSleep: a pod in a pod group is rejected for good, and wakes for
// nothing.
func TestPodGroupsSleep(t *testing.T) {
	q := makePod("q", whole(1), holds(0))
	pod := makePod("p", whole(1), inPodGroup("group"))
	for enabled, want := range map[bool]fwk.QueueingHint{true: fwk.QueueSkip, false: fwk.Queue} {
		r := seen(t, 2, q)
		r.podGroups = enabled
		wantHint(t, want)(r.afterPodDelete(testLogger(t), pod, q, nil))
	}
}

// TestAfterDevice: card 1 gets well, while another pod is on card 0.
func TestAfterDevice(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want fwk.QueueingHint
	}{
		"one card is enough":             {pod: makePod("p", whole(1)), want: fwk.Queue},
		"it takes two":                   {pod: makePod("p", whole(2)), want: fwk.QueueSkip},
		"it wants the card in use":       {pod: makePod("p", whole(1), annotated(wire.AnnotationUseCards, "GPU-0")), want: fwk.QueueSkip},
		"it wants the card that is well": {pod: makePod("p", whole(1), annotated(wire.AnnotationUseCards, "GPU-1")), want: fwk.Queue},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sick := makeDevice("n1", 2)
			sick.Spec.Devices[1].Health = false
			r.setDevice(t, sick)
			r.shared.nodes.of(nodeInfo(makeNode("n1"), makePod("q", whole(1), holds(0))), false)
			r.addNode(t, makeNode("n1"))

			well := makeDevice("n1", 2) // with the cards in another order
			well.Spec.Devices[0].Minor, well.Spec.Devices[1].Minor = new(int32(1)), new(int32(0))
			wantHint(t, tt.want)(r.afterDevice(testLogger(t), tt.pod, nil, r.setDevice(t, well)))
		})
	}
}

// TestAfterServing: a pod that waited for an agent is woken when it serves, and
// not before.
func TestAfterServing(t *testing.T) {
	r := newRig(t)
	r.addNode(t, makeNode("n1"))
	pod := makePod("p", whole(1))
	for _, tt := range []struct {
		device *v1alpha1.Device
		want   fwk.QueueingHint
	}{{paused(makeDevice("n1", 2)), fwk.QueueSkip}, {makeDevice("n1", 2), fwk.Queue}} {
		wantHint(t, tt.want)(r.afterDevice(testLogger(t), pod, nil, r.setDevice(t, tt.device)))
	}
}

func TestAfterDeviceOfNoNode(t *testing.T) {
	r := newRig(t)
	d := r.setDevice(t, makeDevice("n1", 2))
	wantHint(t, fwk.QueueSkip)(r.afterDevice(testLogger(t), makePod("p", whole(1)), nil, d))
}

func TestAfterNode(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node)
		added  bool
		want   map[int]fwk.QueueingHint // by the cards that the pod asks for
	}{
		"nothing changed":     {change: func(*corev1.Node) {}, want: map[int]fwk.QueueingHint{1: fwk.QueueSkip}},
		"another annotation":  {change: func(n *corev1.Node) { n.Annotations["a"] = "b" }, want: map[int]fwk.QueueingHint{1: fwk.QueueSkip}},
		"more processor time": {change: func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("4") }, want: map[int]fwk.QueueingHint{1: fwk.QueueSkip}},
		"cards are advertised now": {change: func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{wire.ResourceGPU: resource.MustParse("2")}
		}, want: map[int]fwk.QueueingHint{1: fwk.Queue, 2: fwk.QueueSkip}},
		"served by someone else": {change: func(n *corev1.Node) { n.Annotations[wire.AnnotationServedBy] = "vendor" }, want: map[int]fwk.QueueingHint{1: fwk.Queue, 2: fwk.QueueSkip}},
		"a taint more":           {change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, want: map[int]fwk.QueueingHint{1: fwk.Queue, 2: fwk.QueueSkip}},
		"in use again":           {change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: map[int]fwk.QueueingHint{1: fwk.Queue}},
		"new":                    {change: func(*corev1.Node) {}, added: true, want: map[int]fwk.QueueingHint{1: fwk.Queue, 2: fwk.QueueSkip}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 2, makePod("q", whole(1), holds(0)))
			before, after := any(makeNode("n1")), makeNode("n1")
			if tt.added {
				before = nil
			}
			tt.change(after)
			r.addNode(t, after)
			for cards, want := range tt.want {
				wantHint(t, want)(r.afterNode(testLogger(t), makePod(fmt.Sprintf("p%d", cards), whole(cards)), before, after))
			}
		})
	}
}

// TestAfterOurOwnAnnotation: what our agent keeps on the node for readers of the
// vendor's changes with every pod, and has nothing that its Device does not.
func TestAfterOurOwnAnnotation(t *testing.T) {
	for name, ours := range map[string]bool{"a Device of ours": true, "a Device of another": false} {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 2)
			d := makeDevice("n1", 2)
			if ours {
				d.Annotations = map[string]string{wire.AnnotationLinks: `{"cards":["GPU-0","GPU-1"],"links":["-.",".-"]}`}
			}
			r.setDevice(t, d)
			before, after := makeNode("n1"), makeNode("n1")
			after.Annotations[wire.AnnotationNodeCards] = `[{"uuid":"GPU-0","healthy":true,"totalVRam":65536},{"uuid":"GPU-1","healthy":true,"totalVRam":65536}]`
			r.addNode(t, after)
			dev := r.shared.devices.get("n1")
			if same := factsOf(before, dev) == factsOf(after, dev); same != ours {
				t.Errorf("same facts: %v, want %v", same, ours)
			}
			want := fwk.Queue
			if ours {
				want = fwk.QueueSkip
			}
			wantHint(t, want)(r.afterNode(testLogger(t), makePod("p", whole(1)), before, after))
		})
	}
}

// TestHintsOfStrangeObjects: who does not understand an event must not let a
// pod sleep over it.
func TestHintsOfStrangeObjects(t *testing.T) {
	r := newRig(t)
	for name, hint := range map[string]fwk.QueueingHintFn{
		"pod delete": r.afterPodDelete, "pod update": r.afterPodUpdate, "device": r.afterDevice, "node": r.afterNode,
	} {
		if got, err := hint(testLogger(t), makePod("p", whole(1)), "strange", "strange"); err == nil || got != fwk.Queue {
			t.Errorf("%s: hint = %v, %v; want Queue and an error", name, got, err)
		}
	}
}

// TestVendorPluginOnNode: who serves a node without a Device is read again when
// the pods on it change, and pods that wait for it wake.
func TestVendorPluginOnNode(t *testing.T) {
	r := newRig(t)
	node := makeNode("n1")
	node.Annotations, node.Labels = nil, map[string]string{"metax-tech.com/gpu.installed": "true"}
	node.Status.Capacity = node.Status.Allocatable
	r.addNode(t, node)
	waits := makePod("p", whole(1))
	plugin := func(phase corev1.PodPhase) *corev1.Pod {
		return makePod("metax-gpu-device-shdr5", boundTo("n1"), func(p *corev1.Pod) {
			p.Namespace, p.GenerateName, p.Status.Phase = wire.VendorNamespace, "metax-gpu-device-", phase
		})
	}
	agent := func(phase corev1.PodPhase) *corev1.Pod {
		return makePod("daybreak-agent-x", boundTo("n1"), func(p *corev1.Pod) {
			p.Namespace, p.Status.Phase = wire.Namespace, phase
			p.Labels = map[string]string{"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": "agent"}
		})
	}
	tenants := plugin(corev1.PodRunning)
	tenants.Namespace = "tenant"
	for _, tt := range []struct {
		when string
		pods []*corev1.Pod
		want fwk.Code
	}{
		{"with labels alone", nil, fwk.UnschedulableAndUnresolvable},
		{"before the plugin runs", []*corev1.Pod{plugin(corev1.PodPending)}, fwk.UnschedulableAndUnresolvable},
		{"while a tenant's pod runs under its name", []*corev1.Pod{tenants}, fwk.UnschedulableAndUnresolvable},
		{"while it runs", []*corev1.Pod{plugin(corev1.PodRunning)}, fwk.Success},
		{"after it", nil, fwk.UnschedulableAndUnresolvable},
	} {
		if got := r.Filter(t.Context(), r.cycle(t, waits), waits, nodeInfo(node, tt.pods...)).Code(); got != tt.want {
			t.Errorf("%s, Filter() = %v, want %v", tt.when, got, tt.want)
		}
	}
	logger := testLogger(t)
	wantHint(t, fwk.Queue)(r.afterPodUpdate(logger, waits, plugin(corev1.PodPending), plugin(corev1.PodRunning)))
	wantHint(t, fwk.QueueSkip)(r.afterPodUpdate(logger, waits, plugin(corev1.PodRunning), plugin(corev1.PodRunning)))
	wantHint(t, fwk.Queue)(r.afterPodDelete(logger, waits, agent(corev1.PodRunning), nil))
	node = node.DeepCopy()
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}
	r.addNode(t, node)
	wantHint(t, fwk.QueueSkip)(r.afterPodDelete(logger, waits, agent(corev1.PodRunning), nil))
}

func TestVendorPluginOfTwoProfiles(t *testing.T) {
	r := newRig(t)
	_, err := r.shared.newPlugin(t.Context(), unknown(`{"vendorPluginSelector":"app=plugin"}`), r.fakes)
	const want = `args of plugin Daybreak: vendorPluginSelector: Invalid value: "app=plugin": another profile has "": write the same in all`
	if message(err) != want {
		t.Errorf("newPlugin() says %q, want %q", message(err), want)
	}
}
