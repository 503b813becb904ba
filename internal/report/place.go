package report

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Placements is the answer of the place command. Its JSON form is a contract:
// fields may be added, none renamed or removed.
type Placements struct {
	Pods []Placement `json:"pods"`
}

// Placement tells where a pod goes, why it can't, or what is wrong with it.
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
	// Error says what is wrong with the pod; Problems is the same, one by one.
	Error    string   `json:"error,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Note tells of a pod that asks for no card.
	Note     string   `json:"note,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
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

// Place places the pending pods of the snapshot one after the other, each
// booked before the next. The policy stands in for pods that name none.
func Place(s *cluster.Snapshot, policy place.Policy, now func() time.Time) (*Placements, error) {
	out := &Placements{Pods: []Placement{}}
	for _, pod := range s.Pending {
		p, err := placePod(s, pod, policy, now)
		if err != nil {
			return nil, fmt.Errorf("place pod %s: %w", wire.HolderOf(pod), err)
		}
		out.Pods = append(out.Pods, p)
	}
	return out, nil
}

func placePod(s *cluster.Snapshot, pod *corev1.Pod, policy place.Policy, now func() time.Time) (Placement, error) {
	p := Placement{Namespace: pod.Namespace, Name: pod.Name}
	ask, problems := wire.Admit(pod)
	if len(problems) > 0 {
		for _, problem := range problems {
			p.Problems = append(p.Problems, problem.Error())
		}
		p.Error = strings.Join(p.Problems, "; ")
		return p, nil
	}
	if ask == nil {
		p.Note = "asks for no MetaX card"
		return p, nil
	}
	p.Warnings = ask.Warnings
	ask.StandIn(policy)
	best, offer, refusals, ok := place.Choose(s.Nodes, &ask.Request, &ask.Prefer)
	if !ok {
		p.Refusals = renderRefusals(s.Nodes, refusals)
		p.Summary = place.Summarize(refusals)
		return p, nil
	}
	node := s.Nodes[best]
	holding, err := node.Commit(offer, wire.HolderOf(pod), &ask.Request)
	if err != nil {
		return p, err
	}
	p.Node = node.Name
	p.Containers = renderContainers(node, &holding)
	p.Annotations, err = wire.Annotations(node, ask, &holding, now())
	return p, err
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

func renderRefusals(nodes []*ledger.Node, refusals []place.Refusal) []Refusal {
	out := make([]Refusal, len(refusals))
	for i := range refusals {
		r := &refusals[i]
		cards := map[string]int{}
		for _, c := range place.Codes() {
			if r.Cards[c] > 0 {
				cards[c.String()] = int(r.Cards[c])
			}
		}
		out[i] = Refusal{
			Node: nodes[i].Name, Code: r.Code.String(), Want: r.Want, Have: r.Have,
			Permanent: r.Permanent, Cards: cards, Message: r.Message(nodes[i]),
		}
	}
	return out
}
