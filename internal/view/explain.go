package view

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
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

	// Reasons has the causes by number of nodes, as the summary does.
	Reasons []place.Reason `json:"-"`
	// Request is what the pod asks for, nil where that is nothing or invalid.
	Request *gpu.PodRequest `json:"-"`
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
	for _, problem := range problems {
		e.Problems = append(e.Problems, problem.Error())
	}
	if ask != nil && len(problems) == 0 {
		e.Request = &ask.Request
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case ended:
		e.State, e.Note = StateEnded, fmt.Sprintf("has ended (%s) and holds no card", pod.Status.Phase)
		e.Problems = nil
	case ask == nil && len(problems) == 0:
		e.State, e.Note = StateNoCards, "asks for no MetaX card"
		e.scheduler(pod, "") // whichever scheduler it is for
	case pod.Spec.NodeName != "":
		return ask, true
	case len(problems) > 0:
		e.State, e.Error = StateInadmissible, strings.Join(e.Problems, "; ")
	default:
		e.State, e.Warnings, e.Wants = StatePending, ask.Warnings, wants(ask)
		e.scheduler(pod, unserved(j.snapshot, pod))
		return ask, true
	}
	return ask, false
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
		for _, problem := range problems {
			e.Problems = append(e.Problems, problem.Error())
		}
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
		demand := s.Learner(s.Pending, pod).Demand()
		e.Why, e.Estimate = j.whyThere(i, pod, ask, holding, demand), j.estimate(pod, ask, demand)
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

// Why is what spoke for a pod's node when it was chosen, as far as the pods that
// are still there show.
type Why struct {
	Policy string `json:"policy"`
	// Since is when it was decided, if the pod says so.
	Since *time.Time `json:"since,omitempty"`
	// Score and Loss are the worth of the pod's own cards and what taking them
	// cost those who came later; both are 0 for slices.
	Score int64 `json:"score"`
	Loss  int64 `json:"loss"`
	// Links says how several cards are joined.
	Links string `json:"links,omitempty"`
	// NodesWithRoom counts the nodes that could have taken it, its own among
	// them; RunnerUp is the best of the others.
	NodesWithRoom int    `json:"nodesWithRoom"`
	RunnerUp      string `json:"runnerUp,omitempty"`
	Message       string `json:"message"`
}

func policyName(ask *request.PodRequest) string {
	switch ask.Prefer.Node {
	case place.Binpack:
		return "binpack"
	case place.Spread:
		return "spread"
	}
	return "default"
}

// whyThere computes the offer of every node that the pod should use on the state
// before the pod came: without it, and without the pods that came later.
func (j *judge) whyThere(own int, pod *corev1.Pod, ask *request.PodRequest, holding *ledger.Holding, demand *place.Demand) *Why {
	s, prefer := j.snapshot, ask.Prefer
	excluded, avoided := j.excluded(pod)
	prefer.Demand = demand
	since, known := allocation.PredicateTime(pod)
	w := &Why{Policy: policyName(ask)}
	if known {
		w.Since = &since
	}
	best, ownOffer := -1, (*ledger.Offer)(nil)
	var bestOffer ledger.Offer
	for i := range s.Nodes {
		if i != own && (excluded[i].Kind != 0 || avoided[i]) {
			continue
		}
		n := before(s.Nodes[i], s.Facts[i].Pods, allocation.HolderOf(pod), since, known)
		offer, refusal := place.Fit(n, &ask.Request, &prefer)
		if refusal.Code != place.Fits {
			continue
		}
		w.NodesWithRoom++
		if i == own {
			ownOffer = &offer
			continue
		}
		if best < 0 || place.Rank(&offer, &prefer).Compare(place.Rank(&bestOffer, &prefer)) > 0 {
			best, bestOffer = i, offer
		}
	}
	cards := holding.Cards() & s.Nodes[own].Topology().All()
	if exclusive(ask) && cards.Len() > 1 && !s.Nodes[own].Counted {
		w.Score = s.Nodes[own].Topology().Score(cards)
		w.Links = links(s.Nodes[own].Topology(), cards)
	}
	if best >= 0 {
		w.RunnerUp = s.Nodes[best].Name
	}
	if ownOffer != nil {
		w.Loss = ownOffer.Loss
	}
	w.Message = w.compare(s.Nodes[own].Name, ownOffer, &bestOffer, &prefer)
	return w
}

// links says how the cards of a set are joined.
func links(t *gpu.Topology, cards gpu.Set) string {
	pairs, direct := cards.Len()*(cards.Len()-1)/2, 0
	zones := map[int]bool{}
	for c := range cards.All() {
		direct += (t.Linked(c) & cards).Len()
		zone, ok := t.ZoneOf(c)
		if !ok {
			zone = -1 - c // a card without links is a zone of its own
		}
		zones[zone] = true
	}
	switch direct /= 2; {
	case direct == 0:
		return "not linked"
	case len(zones) > 1:
		return fmt.Sprintf("over %d zones, %d of %d pairs linked", len(zones), direct, pairs)
	case direct == pairs:
		return "in one zone, all linked"
	}
	return fmt.Sprintf("in one zone, %d of %d pairs linked", direct, pairs)
}

func exclusive(ask *request.PodRequest) bool {
	for i := range ask.Request.Requests {
		if ask.Request.Requests[i].Exclusive {
			return true
		}
	}
	return false
}

// before returns the node as it was before the given time, without the pod: the
// node itself if no pod came later.
func before(n *ledger.Node, pods []*corev1.Pod, own ledger.Holder, since time.Time, known bool) *ledger.Node {
	earlier := n
	for _, p := range pods {
		holder := allocation.HolderOf(p)
		at, ok := allocation.PredicateTime(p)
		if holder != own && (!known || !ok || !at.After(since)) || !wire.Asks(p) {
			continue
		}
		if earlier == n {
			earlier = n.Clone()
		}
		earlier.Release(holder)
		earlier.FreeCPU += request.CPUOnNode(p)
	}
	return earlier
}

// compare says what spoke for the pod's own node against the best other one.
func (w *Why) compare(name string, own, other *ledger.Offer, prefer *place.Preference) string {
	const doubt = "pods that have ended since, or what else the scheduler looks at (CPU, affinity, taints), decided"
	switch {
	case own == nil:
		return fmt.Sprintf("from what is known now it would not fit on %s: %s", name, doubt)
	case w.RunnerUp == "":
		return "no other node had room"
	}
	order := place.Rank(own, prefer).Compare(place.Rank(other, prefer))
	switch {
	case order < 0 || order == 0 && w.RunnerUp < name:
		return fmt.Sprintf("from what is known now %s would have been chosen: %s", w.RunnerUp, doubt)
	case order == 0:
		return fmt.Sprintf("%s was as good: the first by name is taken", w.RunnerUp)
	case own.Disturbance != other.Disturbance:
		return "it disturbs fewer pods there than on " + w.RunnerUp
	case prefer.Node == place.Binpack && own.Loss != other.Loss:
		return fmt.Sprintf("taking these cards cost later jobs %d in links, on %s it would have been %d", own.Loss, w.RunnerUp, other.Loss)
	case prefer.Node != place.Binpack && own.Score != other.Score:
		return fmt.Sprintf("the best cards there are worth %d in links, those of %s %d", own.Score, w.RunnerUp, other.Score)
	case prefer.Node == place.Default && own.Growth != other.Growth:
		return "it leaves cards there that are of more use to the pods that are expected than on " + w.RunnerUp
	case prefer.Node == place.Spread:
		return fmt.Sprintf("equally good cards, and emptier than %s: %s", w.RunnerUp, booked(own, other))
	}
	return fmt.Sprintf("equally good cards, and fuller than %s: %s", w.RunnerUp, booked(own, other))
}

// booked says how much is booked on two nodes, as exactly as it takes to show which
// is fuller.
func booked(own, other *ledger.Offer) string {
	percent := func(o *ledger.Offer, digits int) string {
		return fmt.Sprintf("%.*f%%", digits, 100*float64(o.NodeFullness)/float64(ledger.MaxFullness))
	}
	digits := 0
	for digits < 3 && percent(own, digits) == percent(other, digits) {
		digits++
	}
	return percent(own, digits) + " booked against " + percent(other, digits)
}
