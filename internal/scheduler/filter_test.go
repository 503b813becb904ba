package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestPreFilter(t *testing.T) {
	tests := map[string]struct {
		pod         *corev1.Pod
		wantCode    fwk.Code
		wantMessage string
	}{
		"a pod without cards is skipped": {pod: makePod("p"), wantCode: fwk.Skip},
		"zero cards are no cards":        {pod: makePod("p", whole(0)), wantCode: fwk.Skip},
		"a pod with cards goes on":       {pod: makePod("p", whole(1)), wantCode: fwk.Success},
		"an invalid request is refused for good, with all problems at once": {
			pod: makePod("p", asking(map[corev1.ResourceName]string{
				wire.ResourceSGPU: "1", wire.ResourceVCore: "120", wire.ResourceVMemory: "0",
			})),
			wantCode: fwk.UnschedulableAndUnresolvable,
			wantMessage: `[spec.containers[0].resources.limits[metax-tech.com/vmemory]: Invalid value: "0": a number without a unit is GiB: write 1 to 999, or an amount with a unit such as 512Mi, ` +
				`spec.containers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": is in percent: write a whole number from 0 to 100]`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, cs := newRig(t), framework.NewCycleState()
			_, status := r.PreFilter(t.Context(), cs, tt.pod, nil)
			if status.Code() != tt.wantCode || status.Message() != tt.wantMessage {
				t.Errorf("PreFilter() = %v %s\nwant %v %s", status.Code(), status.Message(), tt.wantCode, tt.wantMessage)
			}
			if _, err := readState(cs); (err == nil) != (tt.wantCode == fwk.Success) {
				t.Errorf("readState() = %v after %v", err, tt.wantCode)
			}
		})
	}
}

// inPodGroup puts the pod into one of Kubernetes' own pod groups.
func inPodGroup(name string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name} }
}

// TestPodGroupsAreRejected: pods with cards can't be in one of Kubernetes' own pod
// groups yet, and report that; others can.
func TestPodGroupsAreRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		pod         *corev1.Pod
		cycle       bool
		wantCode    fwk.Code
		wantMessage string
	}{
		"with cards":                 {pod: makePod("p", whole(1), inPodGroup("g")), cycle: true, wantCode: fwk.UnschedulableAndUnresolvable, wantMessage: podGroupsUnsupported},
		"without cards":              {pod: makePod("p", inPodGroup("g")), cycle: true, wantCode: fwk.Skip},
		"where pod groups are off":   {pod: makePod("p", whole(1), inPodGroup("g"))},
		"with cards and no group":    {pod: makePod("p", whole(1))},
		"an invalid request as well": {pod: makePod("p", whole(-1), inPodGroup("g")), cycle: true, wantCode: fwk.UnschedulableAndUnresolvable},
	} {
		t.Run(name, func(t *testing.T) {
			r, cs := newRig(t), framework.NewCycleState()
			if tt.cycle {
				cs.SetPodGroupSchedulingCycle(framework.NewCycleState())
			}
			_, got := r.PreFilter(t.Context(), cs, tt.pod, nil)
			if got.Code() != tt.wantCode || tt.wantMessage != "" && got.Message() != tt.wantMessage {
				t.Errorf("PreFilter() = %v %s, want %v %s", got.Code(), got.Message(), tt.wantCode, tt.wantMessage)
			}
		})
	}
}

// TestPreFilterNeverBlocks: with the fence closed a pod with cards is rejected,
// and other pods are none of the fence's business.
func TestPreFilterNeverBlocks(t *testing.T) {
	r := newRig(t)
	r.shared.term = newTerm(sinceBoot)
	if _, status := r.PreFilter(t.Context(), framework.NewCycleState(), makePod("p", whole(1)), nil); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("PreFilter() before the fence is open = %v, want that the pod is rejected", status)
	}
	if _, status := r.PreFilter(t.Context(), framework.NewCycleState(), makePod("ordinary"), nil); !status.IsSkip() {
		t.Errorf("PreFilter() of a pod without cards = %v, want Skip", status)
	}
}

func TestNarrow(t *testing.T) {
	sick := func(d *v1alpha1.Device) { d.Spec.Devices[0].Health = false }
	tests := map[string]struct {
		cards  []int // of node n1, n2, ...; a negative number has one sick card
		native []int // nodes that serve whole cards only, counted from 0
		pod    *corev1.Pod
		onN1   []*corev1.Pod
		wantNo bool
		want   []string
	}{
		"one node in three has cards":                      {cards: []int{2, 0, 0}, pod: makePod("p", whole(1)), want: []string{"n1"}},
		"half of the nodes are too many to be worth it":    {cards: []int{2, 0}, pod: makePod("p", whole(1)), wantNo: true},
		"never to nothing":                                 {cards: []int{0, 0, 0}, pod: makePod("p", whole(1)), wantNo: true},
		"too few cards":                                    {cards: []int{2, 4, 2}, pod: makePod("p", whole(4)), want: []string{"n2"}},
		"too few healthy cards":                            {cards: []int{-4, 4, -4}, pod: makePod("p", whole(4)), want: []string{"n2"}},
		"cards that the pod excludes":                      {cards: []int{1, 4, 1}, pod: makePod("p", whole(1), annotated(wire.AnnotationNoUseCards, "GPU-0")), want: []string{"n2"}},
		"cards that the pod does not name":                 {cards: []int{1, 4, 1}, pod: makePod("p", whole(1), annotated(wire.AnnotationUseCards, "GPU-3")), want: []string{"n2"}},
		"cards that are served whole only":                 {cards: []int{2, 2, 2}, native: []int{0, 2}, pod: makePod("p", slice(10, 1)), want: []string{"n2"}},
		"a full node stays: preemption may help there":     {cards: []int{1, 0, 0}, pod: makePod("p", whole(1)), onN1: []*corev1.Pod{makePod("q", whole(1), holds(0))}, want: []string{"n1"}},
		"a node with an unaccounted pod stays, for it too": {cards: []int{1, 0, 0}, pod: makePod("p", whole(1)), onN1: []*corev1.Pod{makePod("q", whole(1), boundTo("n1"))}, want: []string{"n1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var infos []fwk.NodeInfo
			for i, n := range tt.cards {
				node := makeNode(fmt.Sprintf("n%d", i+1))
				d := makeDevice(node.Name, max(n, -n))
				if n < 0 {
					sick(d)
				}
				if slices.Contains(tt.native, i) {
					d.Annotations = map[string]string{wire.AnnotationMode: string(gpu.ModeNative)}
				}
				r.setDevice(t, d)
				ni := nodeInfo(node)
				if i == 0 {
					ni = nodeInfo(node, tt.onN1...)
				}
				infos = append(infos, ni)
			}
			got, status := r.PreFilter(t.Context(), framework.NewCycleState(), tt.pod, infos)
			if !status.IsSuccess() || (got == nil) != tt.wantNo {
				t.Fatalf("PreFilter() = %v, %v", got, status)
			}
			if got != nil {
				gputest.Equal(t, "nodes", sets.New(tt.want...), got.NodeNames)
			}
		})
	}
}

// TestLeftOut: nodes that PreFilter leaves out are, to PostFilter and to all who
// reads the event, as if Filter had been asked.
func TestLeftOut(t *testing.T) {
	tests := map[string]struct {
		cards   []int // of node n0, n1, ...
		full    []int // nodes on which a pod has the first card
		pod     *corev1.Pod
		want    map[string]fwk.Code
		summary string
	}{
		"hopeless nodes": {
			cards: []int{8, 4, 2}, pod: makePod("p", whole(8)),
			want:    map[string]fwk.Code{"n1": fwk.UnschedulableAndUnresolvable, "n2": fwk.UnschedulableAndUnresolvable},
			summary: "0/2 nodes: 2 need 8 idle cards (best has 4)",
		},
		"full nodes, where others could be evicted": {
			cards: []int{1, 1, 1, 0}, full: []int{1, 2}, pod: makePod("p", whole(1)),
			want:    map[string]fwk.Code{"n1": fwk.Unschedulable, "n2": fwk.Unschedulable, "n3": fwk.UnschedulableAndUnresolvable},
			summary: "0/3 nodes: 2 have no idle card, 1 has no MetaX cards",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, cs := newRig(t), framework.NewCycleState()
			var infos []fwk.NodeInfo
			for i, cards := range tt.cards {
				node := makeNode(fmt.Sprintf("n%d", i))
				r.setDevice(t, makeDevice(node.Name, cards))
				var pods []*corev1.Pod
				if slices.Contains(tt.full, i) {
					pods = append(pods, makePod("q"+node.Name, whole(1), holds(0), boundTo(node.Name)))
				}
				infos = append(infos, nodeInfo(node, pods...))
			}
			narrowed, status := r.PreFilter(t.Context(), cs, tt.pod, infos)
			if !status.IsSuccess() || narrowed.AllNodes() || !narrowed.NodeNames.Equal(sets.New("n0")) {
				t.Fatalf("PreFilter() = %v, %v; want n0 alone", narrowed, status)
			}
			statuses := framework.NewDefaultNodeToStatus()
			r.PostFilter(t.Context(), cs, tt.pod, statuses)
			if got := place.Summarize(refusals(statuses)); got != tt.summary {
				t.Errorf("the nodes refuse the pod with %q, want %q", got, tt.summary)
			}
			got := map[string]fwk.Code{}
			statuses.ForEachExplicitNode(func(node string, s *fwk.Status) { got[node] = s.Code() })
			gputest.Equal(t, "nodes", tt.want, got)
		})
	}
}

func TestFilter(t *testing.T) {
	tests := map[string]struct {
		device     *v1alpha1.Device
		onNode     []*corev1.Pod
		pod        *corev1.Pod
		wantCode   fwk.Code
		wantReason string
	}{
		"room": {device: makeDevice("n1", 2), pod: makePod("p", whole(2))},
		"in use, but not for ever": {
			device: makeDevice("n1", 2), onNode: []*corev1.Pod{makePod("q", whole(1), holds(0))}, pod: makePod("p", whole(2)),
			wantCode: fwk.Unschedulable, wantReason: place.TooFewCards.Reason(),
		},
		"no cards": {
			pod: makePod("p", whole(1)), wantCode: fwk.UnschedulableAndUnresolvable, wantReason: place.NoCards.Reason(),
		},
		"more memory than a card has": {
			device: makeDevice("n1", 1), pod: makePod("p", slice(10, 65)),
			wantCode: fwk.UnschedulableAndUnresolvable, wantReason: place.MemoryShort.Reason(),
		},
		"less memory than wanted today": {
			device: makeDevice("n1", 1), onNode: []*corev1.Pod{makePod("q", slice(10, 8), holds(0))}, pod: makePod("p", slice(10, 60)),
			wantCode: fwk.Unschedulable, wantReason: place.MemoryShort.Reason(),
		},
		"another QoS class today": {
			device: makeDevice("n1", 1), onNode: []*corev1.Pod{makePod("q", slice(10, 8), holds(0))},
			pod:      makePod("p", slice(10, 8), annotated(wire.AnnotationQoS, "fixed-share")),
			wantCode: fwk.Unschedulable, wantReason: place.QoSConflict.Reason(),
		},
		"an agent that does not serve": {
			device: paused(makeDevice("n1", 2)), pod: makePod("p", whole(1)),
			wantCode: fwk.UnschedulableAndUnresolvable, wantReason: place.Unhealthy.Reason(),
		},
		"a bound pod whose cards are not known": {
			device: makeDevice("n1", 2), onNode: []*corev1.Pod{makePod("q", whole(1), boundTo("n1"))}, pod: makePod("p", whole(1)),
			wantCode: fwk.Unschedulable, wantReason: place.Unaccounted.Reason(),
		},
		"a bound pod that was given no cards": {
			device: listing(makeDevice("n1", 2), "[]"), onNode: []*corev1.Pod{makePod("q", whole(2), boundTo("n1"))}, pod: makePod("p", whole(2)),
		},
		"a bound pod that can't hold cards": {
			device: makeDevice("n1", 2), onNode: []*corev1.Pod{makePod("q", asking(map[corev1.ResourceName]string{wire.KoordCore: "1"}), boundTo("n1"))}, pod: makePod("p", whole(2)),
		},
		"a bound pod that another plugin gave a card": {
			device: listing(makeDevice("n1", 2), `[{"uid":"uid-q","containers":{"c":["GPU-1"]}}]`), onNode: []*corev1.Pod{makePod("q", whole(1), boundTo("n1"))}, pod: makePod("p", whole(2)),
			wantCode: fwk.Unschedulable, wantReason: place.TooFewCards.Reason(),
		},
		"a bound pod whose annotation is no JSON": {
			device: makeDevice("n1", 2), onNode: []*corev1.Pod{makePod("q", whole(1), boundTo("n1"), annotated(wire.AnnotationAllocated, "[[{"))},
			pod: makePod("p", whole(1)), wantCode: fwk.Unschedulable, wantReason: place.Unaccounted.Reason(),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tt.device != nil {
				r.setDevice(t, tt.device)
			}
			status := r.filter(t, tt.pod, nodeInfo(makeNode("n1"), tt.onNode...))
			if status.Code() != tt.wantCode || status.Message() != tt.wantReason {
				t.Errorf("Filter() = %v, want %v %s", status, tt.wantCode, tt.wantReason)
			}
		})
	}
}

// paused makes the node's agent say that it does not serve.
func paused(d *v1alpha1.Device) *v1alpha1.Device {
	for i := range d.Spec.Devices {
		d.Spec.Devices[i].Conditions = []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionFalse, Reason: "AgentStopping", Message: "the agent is about to end"}}
	}
	return d
}

// TestStatus: what kube-scheduler hears depends on the code and on whether
// evicting would help, and on nothing else.
func TestStatus(t *testing.T) {
	for _, code := range place.Codes() {
		for _, permanent := range []bool{false, true} {
			want := fwk.Unschedulable
			if permanent {
				want = fwk.UnschedulableAndUnresolvable
			}
			for _, r := range []place.Refusal{{Want: 1}, {Want: 8, Have: 3, Container: 2}} {
				r.Code, r.Permanent = code, permanent
				if got := status(&r); got.Code() != want || got.Message() != code.Reason() {
					t.Errorf("status(%v, permanent %v) = %v, want %v %s", code, permanent, got, want, code.Reason())
				}
			}
		}
	}
	if got := status(&place.Refusal{}); !got.IsSuccess() {
		t.Errorf("status() of no refusal = %v", got)
	}
}

func TestFilterWithoutPreFilter(t *testing.T) {
	r := newRig(t)
	if got := r.Filter(t.Context(), framework.NewCycleState(), makePod("p", whole(1)), nodeInfo(makeNode("n1"))); got.Code() != fwk.Error {
		t.Errorf("Filter() = %v, want an error", got)
	}
}

func TestAccountIsKeptByGeneration(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 2))
	ni := nodeInfo(makeNode("n1"))
	first := r.shared.nodes.of(ni, false)
	if again := r.shared.nodes.of(ni.Snapshot(), false); again != first {
		t.Error("the same generation was folded twice")
	}

	ni.AddPod(makePod("q", whole(1), holds(1)))
	second := r.shared.nodes.of(ni, false)
	if second == first || len(second.Holdings()) != 1 || len(first.Holdings()) != 0 {
		t.Error("a pod more has to be another account, and to leave the first as it was")
	}

	r.setDevice(t, makeDevice("n1", 3))
	third := r.shared.nodes.of(ni, false)
	if third == second || third.Topology().Len() != 3 || len(third.Holdings()) != 1 {
		t.Error("a changed Device has to be another account, with the same pods")
	}
	r.shared.nodes.retain(func(string) bool { return false })
	if r.shared.nodes.last("n1") != nil {
		t.Error("a forgotten node is still there")
	}
}

// TestChangedAnnotationIsReadAgain: not only the vendor's annotation shows what
// a pod holds.
func TestChangedAnnotationIsReadAgain(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 2))
	before := makePod("q", whole(1), boundTo("n1"))
	ni := nodeInfo(makeNode("n1"), before)
	if got := r.shared.nodes.of(ni, false).Unknown(); len(got) != 1 {
		t.Fatalf("unknown holders = %v, want one", got)
	}
	after := before.DeepCopy()
	after.Annotations[wire.AnnotationHAMiGPU] = "GPU-1,Metax-GPU,65536,100:;"
	gputest.Must(t, ni.RemovePod(testLogger(t), before))
	ni.AddPod(after)
	if node := r.shared.nodes.of(ni, false); len(node.Unknown()) != 0 || node.Now().Usage[1].Slots != 1 {
		t.Errorf("unknown holders = %v, usage = %+v; want card 1 taken", node.Unknown(), node.Now().Usage)
	}
}

func TestReservation(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 2))
	pod := makePod("p", whole(1), annotated(wire.AnnotationAllocated, `[[{"uuid":"GPU-1","compute":100,"vRam":65536}]]`),
		annotated(wire.AnnotationPredicateTime, "1"))
	r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1")))
	succeeds(t, r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"))
	reserved := r.shared.pods.claimOf(pod.UID, reservedClaim)
	if reserved == nil {
		t.Fatal("nothing was reserved")
	}

	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	if got := usedCards(r, nodeInfo(makeNode("n1"), assumed)); !slices.Equal(got, []int{0}) {
		t.Errorf("cards in use = %v, want the reserved one, not what the pod's author wrote", got)
	}
	if got := len(r.shared.pods.claimsOf(reservedClaim)); got != 1 {
		t.Errorf("%d reservations, want 1 until the pod carries it", got)
	}

	elsewhere := assumed.DeepCopy()
	elsewhere.Spec.NodeName = "n2"
	if res, _ := r.shared.pods.reservationOf(elsewhere, ofSnapshot); res != nil {
		t.Error("the reservation holds on a node that it was not made for")
	}

	bound := assumed.DeepCopy()
	maps.Copy(bound.Annotations, reserved.annotations)
	if got := usedCards(r, nodeInfo(makeNode("n1"), bound)); !slices.Equal(got, []int{0}) {
		t.Errorf("cards in use after Bind = %v, want [0]", got)
	}
	if got := len(r.shared.pods.claimsOf(reservedClaim)); got != 0 {
		t.Errorf("%d reservations after Bind, want 0", got)
	}
}

func usedCards(r *rig, ni fwk.NodeInfo) []int {
	var used []int
	for i, u := range r.shared.nodes.of(ni, false).Now().Usage {
		if !u.Idle() {
			used = append(used, i)
		}
	}
	return used
}

func TestUnreserve(t *testing.T) {
	r := seen(t, 1)
	pod := makePod("p", whole(1))
	succeeds(t, r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"))
	for range 2 { // twice is fine
		r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
	}
	if got := len(r.shared.pods.claimsOf(reservedClaim)); got != 0 {
		t.Errorf("%d reservations, want 0", got)
	}
	plain := makePod("plain")
	if got := r.Reserve(t.Context(), framework.NewCycleState(), plain, "n1"); !got.IsSuccess() || len(r.shared.pods.claimsOf(reservedClaim)) != 0 {
		t.Errorf("Reserve() of a pod without cards = %v, want that nothing happens", got)
	}
}

func TestReserveWhenTheRoomIsGone(t *testing.T) {
	r := seen(t, 1, makePod("q", whole(1), holds(0)))
	pod := makePod("p", whole(1))
	if got := r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"); got.Code() != fwk.Unschedulable {
		t.Errorf("Reserve() = %v, want Unschedulable", got)
	}
	if len(r.fakes.activated) != 1 || <-r.fakes.activated != "p" {
		t.Error("the pod is not tried again: other nodes may have room")
	}
	if got := r.Reserve(t.Context(), r.cycle(t, pod), pod, "n2"); got.Code() != fwk.Error {
		t.Errorf("Reserve() on a node that is not there = %v, want an error", got)
	}
	if got := len(r.shared.pods.claimsOf(reservedClaim)); got != 0 {
		t.Errorf("%d reservations, want 0", got)
	}
}

// TestNominatedInNodeInfo: kube-scheduler adds pods that were promised room to
// a copy of the NodeInfo; they have no node and no cards yet.
func TestNominatedInNodeInfo(t *testing.T) {
	tests := map[string]struct {
		nominated *corev1.Pod
		wantCode  fwk.Code
	}{
		"it takes the last card":                 {nominated: makePod("q", whole(1)), wantCode: fwk.Unschedulable},
		"it has no cards":                        {nominated: makePod("q")},
		"its request is invalid":                 {nominated: makePod("q", slice(120, 8))},
		"it does not fit there itself":           {nominated: makePod("q", whole(3))},
		"what its author wrote is not looked at": {nominated: makePod("q", slice(1, 1), annotated(wire.AnnotationAllocated, `[[{"uuid":"GPU-1"}]]`))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 2))
			used := makePod("u", slice(10, 8), holds(0))
			pod := makePod("p", whole(1))
			cs := r.cycle(t, pod).Clone()
			if got := r.Filter(t.Context(), cs, pod, nodeInfo(makeNode("n1"), tt.nominated, used)); got.Code() != tt.wantCode {
				t.Errorf("Filter() = %v, want %v", got, tt.wantCode)
			}
		})
	}
}
