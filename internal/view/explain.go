package view

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Explanations is the answer of the explain command. It has the form of the
// place command's answer, with one pod. Fields may be added, none renamed or
// removed.
type Explanations struct {
	// Workload is the controller whose pods these are, if it was asked about.
	Workload *Workload     `json:"workload,omitempty"`
	Pods     []Explanation `json:"pods"`
}

// Workload is a controller of pods.
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Failures are why its pods could not be created, since the last one was.
	Failures []Event `json:"failures,omitempty"`
}

// Event is what was reported about an object.
type Event struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	Last    time.Time `json:"last"`
	// Quota is the ResourceQuota that a pod would have exceeded.
	Quota string `json:"quota,omitempty"`
}

// exceededQuota is how the API server names a quota.
var exceededQuota = regexp.MustCompile(`exceeded quota: ([a-z0-9.-]+)`)

// NewEvents returns the first few of the events, each message once.
func NewEvents(events []cluster.Event) []Event {
	const most = 5
	var out []Event
	for _, e := range events {
		same := slices.IndexFunc(out, func(x Event) bool { return x.Reason == e.Reason && x.Message == e.Message })
		switch {
		case same >= 0:
			out[same].Count += e.Count
		case len(out) < most:
			event := Event{Reason: e.Reason, Message: e.Message, Count: e.Count, Last: e.Last.UTC()}
			if found := exceededQuota.FindStringSubmatch(e.Message); found != nil {
				event.Quota = found[1]
			}
			out = append(out, event)
		}
	}
	return out
}

// Explanation says why a pod is where it is, or why it is nowhere.
type Explanation struct {
	Placement
	// State is one of the constants below.
	State string `json:"state"`
	Wants string `json:"wants,omitempty"`
	// Help says what would make room for a pod that fits nowhere.
	Help *Help `json:"help,omitempty"`
	// Fits is the node that would take a pending pod now.
	Fits string `json:"fits,omitempty"`
	// Scheduler is what kube-scheduler last said of a pending pod: it looks at
	// more than cards.
	Scheduler string `json:"scheduler,omitempty"`
	// Why is, of a placed pod, what spoke for its node.
	Why *Why `json:"why,omitempty"`
	// Neighbours are the pods that share a card with a placed one.
	Neighbours []Neighbour `json:"neighbours,omitempty"`
	// Evicted are the pods that were preempted for it, as far as events show.
	Evicted []string `json:"evicted,omitempty"`

	// Limited says which rights are missing where the nodes could not be read. The
	// next three are what the pod itself and its events show.
	Limited string `json:"limited,omitempty"`
	// Written are the cards that the pod's annotation names.
	Written []WrittenContainer `json:"written,omitempty"`
	Events  []Event            `json:"events,omitempty"`
	// Unschedulable means that the scheduler found no node for the pod.
	Unschedulable bool `json:"unschedulable,omitempty"`

	Asked
	Created *time.Time `json:"created,omitempty"`
	// Placed is when the scheduler chose the pod's node.
	Placed *time.Time `json:"placed,omitempty"`
	// Owner is what controls the pod.
	Owner *Owner `json:"owner,omitempty"`

	// Reasons has the causes by number of nodes, as the summary does.
	Reasons []place.Reason `json:"-"`
}

// Owner is the object that controls a pod.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// The states of a pod.
const (
	StatePending      = "pending"
	StatePlaced       = "placed"
	StateInadmissible = "inadmissible"
	StateNoCards      = "no-cards" // asks for none, or was bound without any
	StateEnded        = "ended"
	StateUnaccounted  = "unaccounted" // bound, with cards that are not known
)

// Neighbour is another pod on a card of the pod.
type Neighbour struct {
	Index          int    `json:"index"`
	Pod            string `json:"pod"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
}

// OK reports whether the answer is not no: the pod has its place, could have
// one, or needs none.
func (e *Explanations) OK() bool {
	if e.Workload != nil && len(e.Workload.Failures) > 0 {
		return false
	}
	return !slices.ContainsFunc(e.Pods, func(x Explanation) bool { return x.Error != "" || len(x.Refusals) > 0 || x.Unschedulable })
}

// Explain explains one pod of the cluster. The policy is that of pods that name
// none; Default is the scheduler's own, where the cluster shows it.
func Explain(s *cluster.Snapshot, pod *corev1.Pod, policy place.Policy) *Explanation {
	return &ExplainAll(s, []*corev1.Pod{pod}, policy)[0]
}

// ExplainAll explains several pods of the cluster.
func ExplainAll(s *cluster.Snapshot, pods []*corev1.Pod, policy place.Policy) []Explanation {
	j := newJudge(s, policy)
	help := map[*verdict]*Help{}
	out := make([]Explanation, len(pods))
	for i, pod := range pods {
		e := &out[i]
		ask, open := e.begin(j, pod)
		e.Evicted = evictedFor(s.Events, pod)
		switch {
		case !open:
		case pod.Spec.NodeName != "":
			e.placed(j, pod, ask)
		default:
			e.pending(j, pod, ask, help)
		}
	}
	return out
}

// begin explains what the pod alone shows. It returns its request, which is nil
// where a bound pod's is invalid, and whether there is more to say.
func (e *Explanation) begin(j *judge, pod *corev1.Pod) (ask *request.PodRequest, open bool) {
	e.Placement = Placement{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName}
	ask, problems := j.read(pod)
	var invalid string
	e.Problems, invalid = texts(problems)
	if ask != nil && len(problems) == 0 {
		e.Asked = askedOf(&ask.Request)
	}
	e.Created, e.Placed = created(pod), placedAt(pod)
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		e.Owner = &Owner{Kind: owner.Kind, Name: owner.Name}
	}
	switch {
	case wire.HasEnded(pod):
		e.State, e.Note = StateEnded, fmt.Sprintf("has ended (%s) and holds no card", pod.Status.Phase)
		e.Problems = nil
	case ask == nil && len(problems) == 0:
		e.State, e.Note = StateNoCards, "asks for no MetaX card"
		e.scheduler(pod, "") // whichever scheduler it is for
	case pod.Spec.NodeName != "":
		return ask, true
	case len(problems) > 0:
		e.State, e.Error = StateInadmissible, invalid
	default:
		e.State, e.Warnings, e.Wants = StatePending, ask.Warnings, wants(ask)
		e.scheduler(pod, unserved(j.snapshot, pod))
		return ask, true
	}
	return ask, false
}

// placedAt returns when the scheduler chose the pod's node: as the allocation says,
// or else the pod's condition. It is nil for a pod without a node.
func placedAt(pod *corev1.Pod) *time.Time {
	if pod.Spec.NodeName == "" {
		return nil
	}
	if at, ok := allocation.PredicateTime(pod); ok {
		return &at
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return new(c.LastTransitionTime.UTC())
		}
	}
	return nil
}

// evictedFor returns the pods that were preempted for the pod, by name. Events name
// it as the related object, and its UID in their message.
func evictedFor(events []cluster.Event, pod *corev1.Pod) []string {
	var pods []string
	for i := range events {
		e := &events[i]
		if pod.UID != "" && e.Reason == cluster.ReasonPreempted && (e.Related == pod.UID || strings.Contains(e.Message, string(pod.UID))) {
			pods = append(pods, e.Namespace+"/"+e.Name)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// unserved returns a sentence where the pod waits for a scheduler that is none of
// Daybreak's, or is empty. A pod without a schedulerName is yet to be admitted.
func unserved(s *cluster.Snapshot, pod *corev1.Pod) string {
	name := pod.Spec.SchedulerName
	served, known := s.Profiles()
	c := scheduledCondition(pod)
	if name == "" || slices.Contains(served, name) || !known && c != nil {
		return ""
	}
	if !known {
		served = []string{served[0]}
	}
	how := fmt.Sprintf("to serve %[1]s too, add --profile=%[1]s to the chart's scheduler.extraArgs and --scheduler-name=%[1]s to manager.extraArgs", name)
	if name == corev1.DefaultSchedulerName {
		how = "to serve it too, set the chart's scheduler.mode to replace"
	}
	text := fmt.Sprintf("the pod's schedulerName is %s, and Daybreak serves %s: create the pod without a schedulerName or with %s; %s",
		name, strings.Join(served, " and "), served[0], how)
	if c != nil && c.Message != "" {
		text += fmt.Sprintf("; %s last reported: %s", name, c.Message)
	}
	return text
}

// scheduler notes what else a pod without a node may be waiting for.
func (e *Explanation) scheduler(pod *corev1.Pod, other string) {
	switch c := scheduledCondition(pod); {
	case pod.Spec.NodeName != "":
	case other != "":
		e.Scheduler = other
	case len(pod.Spec.SchedulingGates) > 0:
		e.Scheduler = "the pod waits for its scheduling gate " + pod.Spec.SchedulingGates[0].Name
	case c != nil && c.Message != "":
		e.Scheduler = c.Message
	case pod.Status.NominatedNodeName != "":
		e.Scheduler = "room is being made on " + pod.Status.NominatedNodeName
	}
}

func (e *Explanation) pending(j *judge, pod *corev1.Pod, ask *request.PodRequest, help map[*verdict]*Help) {
	v := j.of(pod, ask)
	if problems := j.unbindable(pod, ask, v); len(problems) > 0 {
		e.Error = "is pending and can never be bound"
		e.Problems, _ = texts(problems)
		return
	}
	if v.fits {
		e.Fits, e.Estimate = j.snapshot.Nodes[v.best].Name, v.estimate
		return
	}
	e.Refusals = j.renderRefusals(v)
	e.Summary, e.Reasons = v.summary, v.reasons
	if v.anywhere {
		return
	}
	if _, ok := help[v]; !ok {
		help[v] = j.adviser(ask, v, func(i int) []*corev1.Pod { return j.snapshot.Facts[i].Pods }).help()
	}
	e.Help = help[v]
}

// unbindable returns why the pod can't be bound although it may fit: its
// annotations would be too large. The scheduler checks the same.
func (j *judge) unbindable(pod *corev1.Pod, ask *request.PodRequest, v *verdict) field.ErrorList {
	var written map[string]string
	if v.fits {
		node := j.snapshot.Nodes[v.best]
		holding := node.Holding(&v.offer, allocation.HolderOf(pod), &ask.Request)
		var err error
		if written, err = allocation.Annotations(node, ask, &holding, time.Unix(0, math.MaxInt64)); err != nil {
			return field.ErrorList{field.InternalError(field.NewPath("metadata", "annotations"), err)}
		}
	}
	return allocation.CheckWritten(pod, written)
}

// placed explains a bound pod.
func (e *Explanation) placed(j *judge, pod *corev1.Pod, ask *request.PodRequest) {
	s := j.snapshot
	e.State = StateUnaccounted
	i, ok := slices.BinarySearchFunc(s.Nodes, pod.Spec.NodeName, func(n *ledger.Node, name string) int { return strings.Compare(n.Name, name) })
	if !ok {
		e.Error = fmt.Sprintf("is bound to node %s, which is not there", pod.Spec.NodeName)
		return
	}
	node := s.Nodes[i]
	k := slices.IndexFunc(node.Holdings(), func(h ledger.Holding) bool { return h.Holder == allocation.HolderOf(pod) })
	switch {
	case node.Problem != nil:
		e.Error = fmt.Sprintf("is on node %s, whose cards can't be read: %v", node.Name, node.Problem)
		return
	case k < 0:
		_, _, notes := allocation.BookingOf(s.Inventories[i], node, pod)
		e.Error = "runs, but it is not known on which cards"
		e.Problems = append(e.Problems, notes...)
		return
	case len(node.Holdings()[k].Parts) == 0:
		e.bare(s.Inventories[i], node, pod)
		return
	}
	e.State = StatePlaced
	holding := &node.Holdings()[k]
	e.Containers = renderContainers(node, holding)
	e.Neighbours = neighbours(node, holding)
	if ask != nil {
		e.Wants, e.Warnings = wants(ask), ask.Warnings
		e.Why, e.Estimate = j.whyThere(i, pod, ask, holding), j.estimate(pod, ask)
	}
}

// bare explains a bound pod that asks for cards and holds none.
func (e *Explanation) bare(inv *inventory.Inventory, node *ledger.Node, pod *corev1.Pod) {
	e.State = StateNoCards
	if !wire.CanHold(pod) {
		e.Note = fmt.Sprintf("holds no MetaX card: its limits have neither %s nor %s", wire.ResourceGPU, wire.ResourceSGPU)
		return
	}
	_, _, notes := allocation.BookingOf(inv, node, pod)
	e.Error = fmt.Sprintf("is bound to node %s and holds no cards: its containers do not start", node.Name)
	e.Problems = append(e.Problems, notes...)
}

func neighbours(n *ledger.Node, own *ledger.Holding) []Neighbour {
	var out []Neighbour
	for c := range (own.Cards() & n.Topology().All()).All() {
		first := len(out)
		for k := range n.Holdings() {
			h := &n.Holdings()[k]
			if h.Holder == own.Holder || !h.Cards().Has(c) {
				continue
			}
			u := h.On(c)
			out = append(out, Neighbour{Index: c, Pod: string(h.Holder), ComputePercent: int32(u.Compute), MemoryMiB: int64(u.Memory)})
		}
		slices.SortFunc(out[first:], func(a, b Neighbour) int { return strings.Compare(a.Pod, b.Pod) })
	}
	return out
}
