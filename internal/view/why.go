package view

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

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
func (j *judge) whyThere(own int, pod *corev1.Pod, ask *request.PodRequest, holding *ledger.Holding) *Why {
	s, prefer := j.snapshot, ask.Prefer
	excluded, avoided := j.excluded(pod)
	since, known := allocation.PredicateTime(pod)
	later := comesAfter(pod)
	prefer.Demand = s.Census(later).Demand()
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
		n := before(s.Nodes[i], s.Facts[i].Pods, later)
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

// comesAfter returns whether another pod was placed later, or is the pod itself.
func comesAfter(pod *corev1.Pod) func(*corev1.Pod) bool {
	since, known := allocation.PredicateTime(pod)
	return func(other *corev1.Pod) bool {
		at, ok := allocation.PredicateTime(other)
		return allocation.HolderOf(other) == allocation.HolderOf(pod) || known && ok && at.After(since)
	}
}

// links says how the cards of a set are joined.
func links(t *gpu.Topology, cards gpu.Set) string {
	pairs, direct := cards.Len()*(cards.Len()-1)/2, t.LinkedPairs(cards)
	zones := map[int]bool{}
	for c := range cards.All() {
		zone, ok := t.ZoneOf(c)
		if !ok {
			zone = -1 - c // a card without links is a zone of its own
		}
		zones[zone] = true
	}
	switch {
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
	return slices.ContainsFunc(ask.Request.Requests, func(r gpu.Request) bool { return r.Exclusive })
}

// before returns the node as it was without the pods that are left out: the node
// itself if it has none of them.
func before(n *ledger.Node, pods []*corev1.Pod, without func(*corev1.Pod) bool) *ledger.Node {
	earlier := n
	for _, p := range pods {
		if !wire.Asks(p) || !without(p) {
			continue
		}
		if earlier == n {
			earlier = n.Clone()
		}
		earlier.Release(allocation.HolderOf(p))
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
