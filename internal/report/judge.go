package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// verdict is what the core says of a request on the cluster as it is.
type verdict struct {
	fits bool
	// best is the position of the node, when one fits.
	best  int
	offer ledger.Offer
	// refusals are those of each node, when none fits.
	refusals []place.Refusal
	reasons  []place.Reason
	summary  string
}

// judge decides about pods one by one, nothing booked in between. Pods that ask
// for the same are judged once: those of a job usually do.
type judge struct {
	snapshot *cluster.Snapshot
	verdicts map[string]*verdict
}

func newJudge(s *cluster.Snapshot) *judge {
	return &judge{snapshot: s, verdicts: map[string]*verdict{}}
}

func (j *judge) of(ask *wire.Ask) *verdict {
	key := fmt.Sprintf("%+v %+v", ask.Request, ask.Prefer)
	if v, ok := j.verdicts[key]; ok {
		return v
	}
	v := &verdict{}
	v.best, v.offer, v.refusals, v.fits = place.Choose(j.snapshot.Nodes, &ask.Request, &ask.Prefer)
	if !v.fits {
		v.reasons, v.summary = place.Reasons(v.refusals), place.Summarize(v.refusals)
	}
	j.verdicts[key] = v
	return v
}

// pending says why a pod waits. Pods that turn out to ask for no card are not
// told of.
func (j *judge) pending(pod *corev1.Pod) (PendingStatus, bool) {
	p := PendingStatus{Namespace: pod.Namespace, Name: pod.Name}
	if !pod.CreationTimestamp.IsZero() {
		created := pod.CreationTimestamp.UTC()
		p.Created = &created
	}
	ask, problems := wire.Admit(pod)
	switch {
	case len(problems) > 0:
		p.Code, p.Message = CodeInadmissible, "is not admitted: "+problems[0].Error()
		return p, true
	case ask == nil:
		return p, false
	}
	p.Wants = wants(ask)
	v := j.of(ask)
	if !v.fits {
		p.Message, p.Reasons = v.summary, v.reasons
		if len(v.reasons) > 0 {
			p.Code = v.reasons[0].Code.String()
		}
		return p, true
	}
	p.Code, p.Message = CodeOther, fmt.Sprintf("%s: %s", j.free(v, ask), otherReason(pod))
	return p, true
}

// free says where there are cards for the pod: on the best node that takes pods
// or, where there is none, on the best one that does not.
func (j *judge) free(v *verdict, ask *wire.Ask) string {
	name, takes := j.bestTaker(v, ask)
	if !takes {
		return fmt.Sprintf("cards are free on %s, which takes no pods", name)
	}
	return "cards are free on " + name
}

// bestTaker returns the best node that Kubernetes gives pods. Without one it
// returns the best node of all.
func (j *judge) bestTaker(v *verdict, ask *wire.Ask) (name string, takes bool) {
	taker := func(i int) bool {
		node := j.snapshot.Facts[i].Node
		return ready(node) && (node == nil || !node.Spec.Unschedulable)
	}
	if taker(v.best) {
		return j.snapshot.Nodes[v.best].Name, true
	}
	var takers []*ledger.Node
	for i, n := range j.snapshot.Nodes {
		if taker(i) {
			takers = append(takers, n)
		}
	}
	if best, _, _, ok := place.Choose(takers, &ask.Request, &ask.Prefer); ok {
		return takers[best].Name, true
	}
	return j.snapshot.Nodes[v.best].Name, false
}

// otherReason says what a pod waits for that cards can't be the reason of.
func otherReason(pod *corev1.Pod) string {
	if len(pod.Spec.SchedulingGates) > 0 {
		return "it waits for its scheduling gate " + pod.Spec.SchedulingGates[0].Name
	}
	if pod.Status.NominatedNodeName != "" {
		return "it waits until pods on " + pod.Status.NominatedNodeName + " have made room"
	}
	if c := scheduledCondition(pod); c != nil && c.Message != "" {
		return "the scheduler said: " + c.Message
	}
	return "the scheduler has not looked at it yet"
}

// scheduledCondition returns what the scheduler last said of a pod it did not
// bind.
func scheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// wants says in a few words what a pod asks for, container by container.
func wants(ask *wire.Ask) string {
	var parts []string
	for i := range ask.Request.Requests {
		if r := &ask.Request.Requests[i]; r.Cards > 0 {
			parts = append(parts, wantsOf(r))
		}
	}
	text := strings.Join(parts, " and ")
	if len(parts) > 3 {
		text = fmt.Sprintf("%d cards for %d containers", ask.Request.Cards(), len(parts))
	}
	if ask.Request.Class != gpu.Normal {
		text = string(ask.Request.Class) + ", " + text
	}
	if ask.Request.QoS != "" && ask.Request.QoS != gpu.BestEffort {
		text += ", " + string(ask.Request.QoS)
	}
	return text
}

func wantsOf(r *gpu.Request) string {
	memory := r.Memory.Amount.String()
	if r.Memory.Ratio > 0 {
		memory = fmt.Sprintf("%d%% of its memory", r.Memory.Ratio)
	}
	switch {
	case r.Exclusive && r.Cards == 1:
		return "1 whole card"
	case r.Exclusive:
		return fmt.Sprintf("%d whole cards", r.Cards)
	case r.Cards == 1:
		return fmt.Sprintf("%d%% and %s of a card", r.Compute, memory)
	}
	return fmt.Sprintf("%d%% and %s of each of %d cards", r.Compute, memory, r.Cards)
}
