package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Placements is the answer of the place command. Its JSON form is a contract:
// fields may be added, none renamed or removed.
type Placements struct {
	Pods []Placement `json:"pods"`
}

// Placement is where a pod goes, why it can't, or what is wrong with it.
type Placement struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Node       string      `json:"node"`
	Containers []Container `json:"containers,omitempty"`
	// Annotations is what a scheduler would write on the pod.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Refusals has one entry for each node when none fits, Summary the same in
	// a sentence.
	Refusals []Refusal `json:"refusals,omitempty"`
	Summary  string    `json:"summary,omitempty"`
	// Preempts is what the scheduler would evict for a pod that fits nowhere. Where
	// several nodes are nearly equal it may choose another.
	Preempts *Room `json:"preempts,omitempty"`
	// Error says what is wrong with the pod; Problems is the same, one by one.
	Error    string   `json:"error,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Note is of a pod that asks for no card.
	Note     string   `json:"note,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Estimate says where the scheduler may know more than the cluster shows.
	Estimate []string `json:"estimate,omitempty"`
}

// Container is a container with the cards it gets.
type Container struct {
	Name  string `json:"name"`
	Cards []Card `json:"cards"`
}

// Card is a share of a card.
type Card struct {
	UUID           string `json:"uuid"`
	Index          int    `json:"index"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
}

// Refusal is why a node does not take the pod.
type Refusal struct {
	Node      string         `json:"node"`
	Code      string         `json:"code"`
	Want      int64          `json:"want"`
	Have      int64          `json:"have"`
	Permanent bool           `json:"permanent"`
	Cards     map[string]int `json:"cards"`
	Message   string         `json:"message"`
	// Exclusion is, of the code NodeExcluded, the kind of reason.
	Exclusion string `json:"exclusion,omitempty"`
	// Total: want and have are those of all containers and of the whole node.
	Total bool `json:"total,omitempty"`

	// Cause is the code that the summary counts: that cards are in use does not
	// matter where even free ones would not do.
	Cause place.Code `json:"-"`
}

// OK reports whether every pod found its place.
func (p *Placements) OK() bool {
	for i := range p.Pods {
		if pod := &p.Pods[i]; pod.Error != "" || len(pod.Refusals) > 0 || pod.Node == "" && pod.Note == "" {
			return false
		}
	}
	return true
}

// PlaceOptions are the options of the place command.
type PlaceOptions struct {
	// Policy stands in for pods that name none; Default is the scheduler's own,
	// where the cluster shows it.
	Policy place.Policy
	// IgnoreNodeState lets pods use nodes that are cordoned, not ready, tainted
	// or not selected.
	IgnoreNodeState bool
	// Now is the clock for the annotations.
	Now func() time.Time
}

// Place places the pending pods of the snapshot one after the other, each
// booked before the next.
func Place(s *cluster.Snapshot, o PlaceOptions) (*Placements, error) {
	placer := NewPlacer(s, o)
	out := &Placements{Pods: placer.rejected()}
	for _, pod := range s.Pending {
		p, err := placer.Place(pod)
		if err != nil {
			return nil, fmt.Errorf("place pod %s: %w", allocation.HolderOf(pod), err)
		}
		out.Pods = append(out.Pods, p)
	}
	return out, nil
}

// Placer places pods on a snapshot as the scheduler would: on the same nodes and cards.
type Placer struct {
	judge *judge
	now   func() time.Time
}

// NewPlacer returns a placer on the snapshot, which it books pods in.
func NewPlacer(s *cluster.Snapshot, o PlaceOptions) *Placer {
	j := newJudge(s, o.Policy)
	j.ignoreState = o.IgnoreNodeState
	return &Placer{judge: j, now: o.Now}
}

// Place chooses a node and cards for a pod that has come, and books them.
func (p *Placer) Place(pod *corev1.Pod) (Placement, error) {
	out := Placement{Namespace: pod.Namespace, Name: pod.Name}
	ask, problems := p.judge.read(pod)
	if pod.UID == "" { // no API server has seen it
		wrong, odd := allocation.CheckNew(pod, ask)
		problems, out.Warnings = append(problems, wrong...), odd
	}
	if len(problems) > 0 {
		out.Problems, out.Error = texts(problems)
		return out, nil
	}
	if ask == nil {
		out.Note = "asks for no MetaX card"
		return out, nil
	}
	out.Warnings = append(ask.Warnings, out.Warnings...)
	v := p.judge.decide(pod, ask)
	if !v.fits {
		out.Refusals, out.Summary = p.judge.renderRefusals(v), v.summary
		if !v.anywhere {
			out.Preempts = p.judge.preempts(pod, ask, v)
		}
		return out, nil
	}
	out.Estimate = v.estimate
	node := p.judge.snapshot.Nodes[v.best]
	// The offer may be of a trial of the node: what else is there is booked when it is bound.
	holding := node.Holding(&v.offer, allocation.HolderOf(pod), &ask.Request)
	node.Book(holding)
	p.judge.fulfil(pod)
	p.judge.budgets().used.Add(p.judge.budgets().limits, quota.Pod{Pod: pod, Amounts: quota.Held(node, &ask.Request)})
	node.FreeCPU = max(0, node.FreeCPU-request.CPUOnNode(pod))
	p.judge.board.Set(node)
	p.judge.census().Add(request.CensusKinds(pod), 1)
	out.Node = node.Name
	out.Containers = renderContainers(node, &holding)
	annotations, err := allocation.Annotations(node, ask, &holding, p.now())
	out.Annotations = annotations
	return out, err
}

// rejected returns the pods that come with a node and that admission would reject.
// Pods that an API server has seen have a UID, and running ones an allocation,
// except on nodes that the vendor's plugin serves.
func (p *Placer) rejected() []Placement {
	s, out := p.judge.snapshot, []Placement{}
	for i := range s.Facts {
		for _, pod := range s.Facts[i].Pods {
			if pod.UID != "" || allocated(pod) {
				continue
			}
			_, problems := request.Read(pod)
			if wire.CanHold(pod) && s.Inventories[i].ServedBy == wire.ServedByDaybreak {
				problems = append(problems, request.ComesBound(pod))
			}
			if len(problems) == 0 {
				continue
			}
			r := Placement{Namespace: pod.Namespace, Name: pod.Name}
			r.Problems, r.Error = texts(problems)
			out = append(out, r)
		}
	}
	return out
}

func allocated(pod *corev1.Pod) bool {
	for key := range pod.Annotations {
		if allocation.IsAllocation(key) {
			return true
		}
	}
	return false
}

// preempts returns the cheapest pods that the scheduler would evict for the pod:
// of lower priority, on nodes that it may use.
func (j *judge) preempts(pod *corev1.Pod, ask *request.PodRequest, v *verdict) *Room {
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return nil
	}
	lower := func(i int) []*corev1.Pod {
		return slices.DeleteFunc(slices.Clone(j.snapshot.Facts[i].Pods), func(other *corev1.Pod) bool {
			return corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod)
		})
	}
	a := j.adviser(ask, v, lower)
	return a.room()
}

// adviser returns the search for advice on the nodes that the pod may use, with the
// pods of each node that may end.
func (j *judge) adviser(ask *request.PodRequest, v *verdict, pods func(i int) []*corev1.Pod) *adviser {
	a := &adviser{trial: v.trial, ask: ask}
	for i := range v.refusals {
		if id := place.NodeID(i); v.excluded[i].Kind == 0 {
			a.ids, a.nodes = append(a.ids, id), append(a.nodes, v.trial.Node(id))
			a.pods, a.refusals = append(a.pods, pods(i)), append(a.refusals, v.refusals[i])
		}
	}
	return a
}

func renderContainers(n *ledger.Node, h *ledger.Holding) []Container {
	out := make([]Container, len(h.Parts))
	for i := range h.Parts {
		out[i] = Container{Name: h.Parts[i].Container, Cards: []Card{}}
		for _, s := range h.Parts[i].Shares {
			out[i].Cards = append(out[i].Cards, Card{
				UUID: string(n.Topology().Card(s.Card).ID), Index: s.Card, ComputePercent: int32(s.Compute), MemoryMiB: int64(s.Memory),
			})
		}
	}
	return out
}

// renderRefusals returns the refusals of all nodes, by name.
func (j *judge) renderRefusals(v *verdict) []Refusal {
	out := make([]Refusal, len(v.refusals))
	for i := range v.refusals {
		r, node := &v.refusals[i], j.snapshot.Nodes[i]
		cards := map[string]int{}
		for _, c := range place.Codes() {
			if r.Cards[c] > 0 {
				cards[c.String()] = int(r.Cards[c])
			}
		}
		message := v.excluded[i].Message
		if message == "" {
			message = r.Message(node)
		}
		out[i] = Refusal{
			Node: node.Name, Code: r.Code.String(), Want: r.Want, Have: r.Have,
			Permanent: r.Permanent, Cards: cards, Message: message, Exclusion: r.Exclusion.String(), Total: r.Total,
			Cause: cmp.Or(r.WhenEmpty.Code, r.Code),
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cluster.CompareNames(a.Node, b.Node) })
	return out
}
