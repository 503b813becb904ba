package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// preemptionPrefix begins what PostFilter reports.
const preemptionPrefix = "preemption: "

// explaining makes the failure handler report, for pods with cards, one sentence
// with the numbers. kube-scheduler builds the event and the pod's condition from
// the one error that it hands to the handler.
func explaining(next scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		var fit *framework.FitError
		if wire.Asks(pod.Pod) && errors.As(status.AsError(), &fit) {
			explain(fit)
		}
		next(ctx, profile, pod, status, nominating, start)
	}
}

// explain replaces the error's list of reasons, which has no numbers, with one
// that has, followed by the outcome of preemption. A FitError prints its
// PreFilterMsg in place of its own list:
//
//	0/12 nodes are available: 9 need 8 GiB more card memory (best has 4 GiB free), 1 runs another QoS class, 2 are cordoned; preemption: evicting 1 pod of lower priority from n3.
func explain(fit *framework.FitError) {
	d := &fit.Diagnosis
	parts := []string{tidy(d.PreFilterMsg), tidy(d.PostFilterMsg)}
	if parts[0] == "" {
		parts[0] = place.ListReasons(refusals(d.NodeToStatus), otherReasons(fit))
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	d.PreFilterMsg, d.PostFilterMsg = strings.Join(parts, "; "), ""
}

// tidy returns a reason of another plugin without punctuation at its ends, which
// would stand in the middle of a sentence here.
func tidy(reason string) string { return strings.Trim(reason, "., ") }

// refusals returns the refusals that the nodes' statuses carry, in the order of
// the nodes' names: equal refusals must give equal events.
func refusals(m fwk.NodeToStatusReader) []place.Refusal {
	statuses, ok := m.(*framework.NodeToStatus)
	if !ok {
		return nil
	}
	byNode := map[string]place.Refusal{}
	statuses.ForEachExplicitNode(func(node string, status *fwk.Status) {
		if r, ok := refusalOf(status); ok {
			byNode[node] = r
		}
	})
	list := make([]place.Refusal, 0, len(byNode))
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		list = append(list, byNode[node])
	}
	return list
}

// refusalOf returns the refusal that the status carries, if any.
func refusalOf(status *fwk.Status) (place.Refusal, bool) {
	var r refusalError
	ok := errors.As(status.AsError(), &r)
	return r.Refusal, ok
}

// otherReasons returns how many nodes gave each reason that is no refusal, as
// kube-scheduler counts them.
func otherReasons(fit *framework.FitError) map[string]int {
	statuses, counts := fit.Diagnosis.NodeToStatus, map[string]int{}
	count := func(status *fwk.Status, nodes int) {
		for _, reason := range status.Reasons() {
			if reason = tidy(strings.TrimPrefix(reason, "node(s) ")); reason != "" {
				counts[reason] += nodes
			}
		}
	}
	statuses.ForEachExplicitNode(func(_ string, status *fwk.Status) {
		if _, ok := refusalOf(status); !ok {
			count(status, 1)
		}
	})
	if absent := fit.NumAllNodes - statuses.Len(); absent > 0 {
		count(statuses.AbsentNodesStatus(), absent)
	}
	return counts
}
