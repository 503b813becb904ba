package view

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// verdict is what is said of a request on the cluster as it is.
type verdict struct {
	fits bool
	// best is the position of the node, when one fits.
	best  int
	offer ledger.Offer
	// trial has the nodes that the offer and the refusals are of.
	trial *place.Trial
	// excluded says of each node whether the pod may use it at all.
	excluded []cluster.Exclusion
	// refusals are those of each node, when none fits.
	refusals []place.Refusal
	reasons  []place.Reason
	summary  string
	// anywhere: the refusal is not about nodes, so that no room on them would help.
	anywhere bool
	// estimate says where the scheduler may know more.
	estimate []string
}

// judge decides where pods can go, over the nodes that they may use at all. Every
// answer of this package comes from it. Pods that ask for the same are judged
// once: those of a job usually do.
type judge struct {
	snapshot *cluster.Snapshot
	// board has the snapshot's nodes: the NodeID is the position.
	board *place.Board
	// policy stands in for pods that name none; Default is the scheduler's own,
	// where the cluster shows it.
	policy place.Policy
	// ignoreState lets pods use all nodes.
	ignoreState bool
	// census counts the pods on the nodes: the scheduler expects more like them.
	census  func() *place.Census
	budgets func() *budgets
	// nominated are the pods for which others are being evicted.
	nominated []nomination
	verdicts  map[string]*verdict
}

func newJudge(s *cluster.Snapshot, policy place.Policy) *judge {
	board := place.NewBoard()
	for _, n := range s.Nodes {
		board.Set(n)
	}
	j := &judge{
		snapshot: s, board: board, policy: policy, verdicts: map[string]*verdict{},
		census:  sync.OnceValue(func() *place.Census { return s.Census(func(*corev1.Pod) bool { return false }) }),
		budgets: sync.OnceValue(func() *budgets { return newBudgets(s) }),
	}
	j.nominated = j.nominations()
	return j
}

// read returns what the pod asks for, as the scheduler reads it.
func (j *judge) read(pod *corev1.Pod) (*request.PodRequest, field.ErrorList) {
	ask, problems := request.ReadPending(pod)
	if ask != nil {
		request.Describe(pod, &ask.Request)
		policy, _ := j.policyFor(pod)
		ask.WithDefaultPolicy(policy)
	}
	return ask, problems
}

// texts returns the problems, one by one and in a sentence.
func texts(problems field.ErrorList) (list []string, sentence string) {
	for _, problem := range problems {
		list = append(list, problem.Error())
	}
	return list, strings.Join(list, "; ")
}

// policyFor returns the policy for a pod that names none, and whether it is known
// to be the scheduler's.
func (j *judge) policyFor(pod *corev1.Pod) (policy place.Policy, known bool) {
	if j.policy != place.Default {
		return j.policy, true
	}
	return j.snapshot.Policy(pod)
}

// of returns the verdict on a pod, nothing booked in between.
func (j *judge) of(pod *corev1.Pod, ask *request.PodRequest) *verdict {
	key := fmt.Sprintf("%q %s %s %s", place.KeyOf(&ask.Request, &ask.Prefer), limitsOf(pod), j.budgets().covering(pod), j.precedence(pod))
	if v, ok := j.verdicts[key]; ok {
		return v
	}
	v := j.decide(pod, ask)
	j.verdicts[key] = v
	return v
}

// limitsOf returns what decides about the nodes that a pod may use, and about the
// policy.
func limitsOf(pod *corev1.Pod) []byte {
	text, err := json.Marshal([]any{pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations, pod.Spec.SchedulerName})
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return text
}

// decide chooses among the nodes that the pod may use.
func (j *judge) decide(pod *corev1.Pod, ask *request.PodRequest) *verdict {
	if refusal := j.overBudget(pod, ask); refusal.Code != place.Fits {
		return j.refuseAll(refusal)
	}
	v := &verdict{}
	var avoided []bool
	v.excluded, avoided = j.excluded(pod)
	prefer := ask.Prefer
	prefer.Demand = j.census().Demand()
	usable := func(i place.NodeID) bool { return v.excluded[i].Kind == 0 }
	trial, ranking := j.promised(pod), j.board.Ranking(&ask.Request, &prefer)
	v.trial = trial
	order := trial.Best(ranking, &ask.Request, &prefer)
	best, ok := first(order, func(i place.NodeID) bool { return usable(i) && !avoided[i] })
	if !ok {
		best, ok = first(order, usable)
	}
	if ok {
		v.fits, v.best = true, int(best)
		v.offer, _ = place.Fit(trial.Node(best), &ask.Request, &prefer)
		v.estimate = j.estimate(pod, ask)
		return v
	}
	v.refusals = make([]place.Refusal, len(j.snapshot.Nodes))
	for i := range v.refusals {
		v.refusals[i] = place.Excluded(v.excluded[i].Kind)
		if id := place.NodeID(i); usable(id) {
			_, v.refusals[i] = place.Fit(trial.Node(id), &ask.Request, &prefer)
		}
	}
	v.reasons, v.summary = place.Reasons(v.refusals), place.Summarize(v.refusals)
	if text := j.unselected(pod, v.excluded); text != "" {
		v.summary += "; " + text
	}
	if i, ok := first(order, func(i place.NodeID) bool { return v.excluded[i].Kind >= place.Cordoned }); ok {
		v.summary += fmt.Sprintf("; %s has room, but %s", j.snapshot.Nodes[i].Name, v.excluded[i].Message)
	} else if i, ok := first(ranking.Best(), usable); ok {
		v.summary += fmt.Sprintf("; %s has room, which is reserved for %s", j.snapshot.Nodes[i].Name, j.nominatedTo(i))
	}
	return v
}

// first returns the first node that is wanted, if there is one.
func first(order iter.Seq2[place.NodeID, place.Worth], wanted func(place.NodeID) bool) (id place.NodeID, ok bool) {
	for id := range order {
		if wanted(id) {
			return id, true
		}
	}
	return 0, false
}

// excluded says of each node whether the pod may use it, and whether it should
// only where no other node has room.
func (j *judge) excluded(pod *corev1.Pod) (excluded []cluster.Exclusion, avoided []bool) {
	excluded, avoided = make([]cluster.Exclusion, len(j.snapshot.Nodes)), make([]bool, len(j.snapshot.Nodes))
	if j.ignoreState {
		return excluded, avoided
	}
	filter := cluster.NewNodeFilter(pod)
	for i := range excluded {
		excluded[i] = filter.Exclusion(&j.snapshot.Facts[i])
		avoided[i] = cluster.Avoids(pod, j.snapshot.Facts[i].Node, false)
	}
	return excluded, avoided
}

// unselected says what no node has of the pod's nodeSelector, if no node matches it.
func (j *judge) unselected(pod *corev1.Pod, excluded []cluster.Exclusion) string {
	if len(excluded) == 0 || slices.ContainsFunc(excluded, func(x cluster.Exclusion) bool { return x.Kind != place.NotSelected }) {
		return ""
	}
	var all, missing []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		value := pod.Spec.NodeSelector[key]
		all = append(all, key+"="+value)
		if !slices.ContainsFunc(j.snapshot.Facts, func(f cluster.Facts) bool {
			have, ok := "", false
			if f.Node != nil {
				have, ok = f.Node.Labels[key]
			}
			return ok && have == value
		}) {
			missing = append(missing, key+"="+value)
		}
	}
	switch len(missing) {
	case 0:
		return "no node has all of the labels " + strings.Join(all, ", ")
	case 1:
		return "no node has the label " + missing[0]
	}
	return "no node has any of the labels " + strings.Join(missing, ", ")
}

// assumedPolicy is what an answer goes by without being sure.
const assumedPolicy = "the cluster does not show the scheduler's policy; the default is assumed"

// estimate says where the scheduler may know more than the cluster shows.
func (j *judge) estimate(pod *corev1.Pod, ask *request.PodRequest) []string {
	if _, known := j.policyFor(pod); !known && j.snapshot.Live && !ask.NodePolicyGiven {
		return []string{assumedPolicy}
	}
	return nil
}

// pending returns why a pod waits, and false for a pod that asks for no card.
func (j *judge) pending(pod *corev1.Pod) (PendingStatus, bool) {
	p := PendingStatus{Namespace: pod.Namespace, Name: pod.Name, Created: created(pod)}
	ask, problems := j.read(pod)
	switch {
	case len(problems) > 0:
		p.Code, p.Message = CodeInadmissible, "is not admitted: "+problems[0].Error()
		return p, true
	case ask == nil:
		return p, false
	}
	p.Wants, p.Asked = wants(ask), askedOf(&ask.Request)
	v := j.of(pod, ask)
	if !v.fits {
		p.Message, p.Reasons = v.summary, v.reasons
		if len(v.reasons) > 0 {
			p.Code = v.reasons[0].Code.String()
		}
		return p, true
	}
	p.Code, p.Message = CodeOther, fmt.Sprintf("cards are free on %s: %s", j.snapshot.Nodes[v.best].Name, otherReason(j.snapshot, pod))
	return p, true
}

// otherReason says what a pod waits for that cards can't be the reason of.
func otherReason(s *cluster.Snapshot, pod *corev1.Pod) string {
	if other := unserved(s, pod); other != "" {
		return other
	}
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
