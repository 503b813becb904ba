package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestExplaining: the failure handler gets an error that prints as one sentence,
// with one number of nodes and one list of reasons.
func TestExplaining(t *testing.T) {
	memory := &place.Refusal{Code: place.MemoryShort, Want: 12 << 10, Have: 4 << 10}
	compute := &place.Refusal{Code: place.ComputeShort, Want: 50, Have: 30}
	qos := &place.Refusal{Code: place.QoSConflict, Want: 1}
	none := &place.Refusal{Code: place.NoCards, Want: 1, Permanent: true}
	cordoned := new(place.Excluded(place.Cordoned))
	other := func(reasons ...string) *fwk.Status { return fwk.NewStatus(fwk.Unschedulable, reasons...) }
	const taint = "node(s) had untolerated taint(s)"
	tests := map[string]struct {
		pod       *corev1.Pod
		nodes     []*fwk.Status
		all       int
		absent    *fwk.Status
		pre, post string
		want      string
	}{
		"cards alone": {
			nodes: []*fwk.Status{status(qos), status(memory), status(memory)}, all: 3,
			want: "0/3 nodes are available: 2 need 8 GiB more card memory (best has 4 GiB free), 1 runs another QoS class.",
		},
		"reasons of other plugins are in the same list": {
			nodes: []*fwk.Status{status(none), status(none), status(none), status(memory), other(taint), other(taint), other("Insufficient cpu", "Insufficient memory")}, all: 7,
			want: "0/7 nodes are available: 1 needs 8 GiB more card memory (best has 4 GiB free), 2 had untolerated taint(s), 1 Insufficient cpu, 1 Insufficient memory, 3 have no MetaX cards.",
		},
		"nodes that PreFilter left out": {
			nodes: []*fwk.Status{status(memory)}, all: 3, absent: other("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
			want: "0/3 nodes are available: 1 needs 8 GiB more card memory (best has 4 GiB free), 2 didn't satisfy plugin(s) [NodeAffinity].",
		},
		"a node that the pod may not use": {
			nodes: []*fwk.Status{status(memory), status(cordoned), status(cordoned), status(none)}, all: 4,
			want: "0/4 nodes are available: 1 needs 8 GiB more card memory (best has 4 GiB free), 2 are cordoned, 1 has no MetaX cards.",
		},
		"punctuation of other plugins": {
			nodes: []*fwk.Status{other(interpodaffinity.ErrReasonAffinityRulesNotMatch, interpodaffinity.ErrReasonExistingAntiAffinityRulesNotMatch+"."), other(nodeports.ErrReason + ", "), other("")},
			all:   4, absent: other("node(s) didn't satisfy plugin(s) [VolumeBinding]."), post: " , preemption: not eligible due to a terminating pod on the nominated node.",
			want: "0/4 nodes are available: 1 didn't have free ports for the requested pod ports, 1 didn't match pod affinity rules, " +
				"1 didn't satisfy existing pods anti-affinity rules, 1 didn't satisfy plugin(s) [VolumeBinding]; preemption: not eligible due to a terminating pod on the nominated node.",
		},
		"preemption": {
			nodes: []*fwk.Status{status(compute)}, all: 1, post: "preemption: evicting 2 pods of lower priority from n0",
			want: "0/1 nodes are available: 1 needs 20% more card compute (best has 30% free); preemption: evicting 2 pods of lower priority from n0.",
		},
		"PreFilter rejected the pod": {
			all: 4, absent: other("persistentvolumeclaim \"data\" not found"), pre: "persistentvolumeclaim \"data\" not found.", post: "preemption: no.",
			want: "0/4 nodes are available: persistentvolumeclaim \"data\" not found; preemption: no.",
		},
		"a pod without cards gets kube-scheduler's message": {
			pod: makePod("p"), nodes: []*fwk.Status{other(taint)}, all: 1, post: "no new claims to deallocate",
			want: "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fit := &framework.FitError{NumAllNodes: tt.all, Diagnosis: framework.Diagnosis{
				NodeToStatus: framework.NewDefaultNodeToStatus(), PreFilterMsg: tt.pre, PostFilterMsg: tt.post,
			}}
			for i, s := range tt.nodes {
				fit.Diagnosis.NodeToStatus.Set(fmt.Sprintf("n%d", i), s)
			}
			if tt.absent != nil {
				fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(tt.absent)
			}
			pod := tt.pod
			if pod == nil {
				pod = makePod("p", whole(1))
			}
			var got []string
			handle := explaining(func(_ context.Context, _ framework.Framework, _ *framework.QueuedPodInfo, s *fwk.Status, _ *fwk.NominatingInfo, _ time.Time) {
				if _, ok := s.AsError().(*framework.FitError); !ok { //nolint:errorlint // as kube-scheduler asks
					t.Errorf("the handler gets a %T: the plugins to wake the pod by are lost", s.AsError())
				}
				got = append(got, s.Message())
			})
			for range 2 { // the members of a pod group may share an error
				handle(t.Context(), nil, &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}},
					fwk.NewStatus(fwk.Unschedulable).WithError(fit), nil, start)
			}
			gputest.Equal(t, "messages", []string{tt.want, tt.want}, got)
		})
	}
}

// TestExplainingOtherFailures: errors that are not about nodes pass as they are.
func TestExplainingOtherFailures(t *testing.T) {
	want := fwk.AsStatus(errors.New("the API server is away"))
	explaining(func(_ context.Context, _ framework.Framework, _ *framework.QueuedPodInfo, got *fwk.Status, _ *fwk.NominatingInfo, _ time.Time) {
		if got != want {
			t.Errorf("the handler gets %v, want %v", got, want)
		}
	})(t.Context(), nil, &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: makePod("p", whole(1))}}, want, nil, start)
}

// answering is a profile whose PostFilter plugins give the status.
type answering struct {
	framework.Framework
	result *fwk.PostFilterResult
	status *fwk.Status
}

func (a answering) RunPostFilterPlugins(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return a.result, a.status
}

// TestPostFilterOfOthers: nothing of resource claims for pods without claims.
func TestPostFilterOfOthers(t *testing.T) {
	claims := func(pod *corev1.Pod) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic"}} }
	const noClaims, preempting = "no new claims to deallocate", "preemption: evicting pods of lower priority makes no room"
	tests := map[string]struct {
		pod    *corev1.Pod
		status *fwk.Status
		want   string
	}{
		"preemption has nothing to report": {pod: makePod("p", whole(1)), status: fwk.NewStatus(fwk.Unschedulable, noClaims)},
		"preemption has":                   {pod: makePod("p", whole(1)), status: fwk.NewStatus(fwk.Unschedulable, preempting, noClaims), want: preempting},
		"a pod with claims": {
			pod: makePod("p", whole(1), claims), status: fwk.NewStatus(fwk.Unschedulable, "deallocation of ResourceClaim completed"),
			want: "deallocation of ResourceClaim completed",
		},
		"nothing, and no claims":         {pod: makePod("p", whole(1)), status: fwk.NewStatus(fwk.Unschedulable, "", noClaims)},
		"claims, and nothing preempted":  {pod: makePod("p", whole(1), claims), status: fwk.NewStatus(fwk.Unschedulable, "", noClaims), want: noClaims},
		"claims, after another sentence": {pod: makePod("p", whole(1), claims), status: fwk.NewStatus(fwk.Unschedulable, preempting+".", noClaims), want: preempting + ", " + noClaims},
		"a pod without cards":            {pod: makePod("p"), status: fwk.NewStatus(fwk.Unschedulable, noClaims), want: noClaims},
		"an error":                       {pod: makePod("p", whole(1)), status: fwk.AsStatus(errBroken), want: errBroken.Error()},
		"success":                        {pod: makePod("p", whole(1)), status: fwk.NewStatus(fwk.Success, preempting), want: preempting},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cleared, code := framework.NewPostFilterResultWithNominatedNode(""), tt.status.Code()
			profile := cardProfile{Framework: answering{result: cleared, status: tt.status}}
			result, got := profile.RunPostFilterPlugins(t.Context(), framework.NewCycleState(), tt.pod, nil)
			if result != cleared || got.Code() != code || got.Message() != tt.want {
				t.Errorf("RunPostFilterPlugins() = %v, %v %q; want %q", result, got.Code(), got.Message(), tt.want)
			}
		})
	}
}

// TestEventOfFailure: an event's note is the message, percent signs included.
func TestEventOfFailure(t *testing.T) {
	var recorded spy
	const message = "0/1 nodes are available: 1 needs 20% more card compute (best has 30% free)."
	recorder{EventRecorderLogger: &recorded, pods: newPods()}.
		Eventf(makePod("p"), nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", message)
	if got := fmt.Sprintf(recorded.note, recorded.args...); got != message {
		t.Errorf("the event is %q, want %q", got, message)
	}
}

// TestPreemptionOutcome: what PostFilter reports where it evicts no pod, and whether it
// clears the nomination, and with it the promise, as kube-scheduler's own does. Where no
// pod can be evicted the answer comes at once and reports nothing.
func TestPreemptionOutcome(t *testing.T) {
	never := func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = new(corev1.PreemptNever) }
	leaving := makePod("leaving", slice(20, 8), holds(0))
	leaving.DeletionTimestamp = &metav1.Time{Time: start}
	leaving.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	low, important, equal := makePod("low", slice(10, 8), holds(0)), makePod("important", slice(90, 8), holds(0), priority(9)), makePod("equal", whole(1), holds(0), priority(9))
	tests := map[string]struct {
		pod       *corev1.Pod
		onNode    []*corev1.Pod
		wantCode  fwk.Code
		want      string
		wantClear bool
	}{
		"no set of victims makes room":                {pod: makePod("p", whole(1), priority(9)), onNode: []*corev1.Pod{important, low}, wantCode: fwk.Unschedulable, want: "preemption: evicting pods of lower priority makes no room", wantClear: true},
		"the pod never preempts":                      {pod: makePod("p", whole(1), priority(9), never), onNode: []*corev1.Pod{low}, wantCode: fwk.Unschedulable, want: "preemption: the pod's preemptionPolicy is Never"},
		"its victims are terminating":                 {pod: makePod("p", whole(1), priority(9)), onNode: []*corev1.Pod{leaving}, wantCode: fwk.Unschedulable, want: "preemption: waiting for evicted pods on n1 to terminate"},
		"no lower priority":                           {pod: makePod("p", whole(1), priority(9)), onNode: []*corev1.Pod{equal}, wantCode: fwk.Unschedulable, wantClear: true},
		"no lower priority, and it never preempts":    {pod: makePod("p", whole(1), priority(9), never), onNode: []*corev1.Pod{equal}, wantCode: fwk.Unschedulable},
		"an invalid request, which PreFilter rejects": {pod: makePod("p", slice(120, 8), priority(9)), onNode: []*corev1.Pod{equal}, wantCode: fwk.UnschedulableAndUnresolvable, wantClear: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 1, tt.onNode...)
			gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetIndexer().Add(tt.pod))
			tt.pod.Status.NominatedNodeName = "n1"
			r.shared.pods.putClaim(claim{kind: heldClaim, pod: tt.pod, node: "n1"})
			cs, statuses := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
			if _, status := r.PreFilter(t.Context(), cs, tt.pod, r.nodes(t)); status.IsSuccess() {
				statuses.Set("n1", r.Filter(t.Context(), cs, tt.pod, r.nodes(t)[0]))
			}
			result, status := r.PostFilter(t.Context(), cs, tt.pod, statuses)
			if status.Code() != tt.wantCode || status.Message() != tt.want {
				t.Errorf("PostFilter() = %v %q, want %v %q", status.Code(), status.Message(), tt.wantCode, tt.want)
			}
			if cleared := result != nil && result.Mode() == fwk.ModeOverride && result.NominatedNodeName == ""; cleared != tt.wantClear {
				t.Errorf("the nomination is cleared: %v", cleared)
			}
			if kept := r.shared.pods.claimOf(tt.pod.UID, heldClaim) != nil; kept == tt.wantClear {
				t.Errorf("the promise is kept: %v", kept)
			}
		})
	}
}
