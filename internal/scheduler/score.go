package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PreScore skips scoring for pods without cards.
func (*Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	c, err := readState(cs)
	if err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	c.scored = infos
	return nil
}

// Score finds out what the best cards on the node are worth. That is more than
// one number holds, so the score means nothing until NormalizeScore. What the
// index knows is not noted.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) (int64, *fwk.Status) {
	c, err := readState(cs)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	x, name := p.shared.index, ni.Node().Name
	nominated := p.handle.NominatedPodsForNode(name)
	row, known := x.row(ni)
	switch {
	case p.isStuck(pod, ni.Node()):
		c.rank(name, place.Worth{}, false)
	case !known || !x.fresh(row) || len(nominated) > 0:
		worth, room := p.worth(c, pod, ni, nominated)
		c.rank(name, worth, room)
	}
	return 0, nil
}

// worth returns what the best cards of the node are worth to the pod with the
// nominated pods there, if it has room.
func (p *Plugin) worth(c *cycle, pod *corev1.Pod, ni fwk.NodeInfo, nominated []fwk.PodInfo) (worth place.Worth, room bool) {
	offer, refusal := place.Fit(p.withNominated(ni, pod, nominated), &c.ask.Request, &c.prefer)
	if refusal.Code != place.Fits {
		return place.Worth{}, false
	}
	return place.Rank(&offer, &c.prefer), true
}

// ScoreExtensions returns the plugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore turns ranks into scores by order alone: the best node, and it
// only, gets 100. kube-scheduler breaks ties at random, so there are none. Nodes
// that have no room with the pods promised to them, or whose lock does not come
// free, come last.
func (p *Plugin) NormalizeScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c, err := readState(cs)
	if err != nil {
		return fwk.AsStatus(err)
	}
	order := c.ranked(scores, p.shared.index)
	for place, r := range order {
		scores[r.position].Score = (fwk.MaxScore - 1) * int64(len(order)-1-place) / int64(max(1, len(order)-1))
	}
	if len(order) > 0 {
		scores[order[0].position].Score = fwk.MaxScore
	}
	return nil
}

// withNominated returns the node with the pods nominated to it before the given
// pod, so that a preemptor does not lose the room it made to the pods that follow.
// Filter sees them through kube-scheduler.
func (p *Plugin) withNominated(ni fwk.NodeInfo, pod *corev1.Pod, promised []fwk.PodInfo) *ledger.Node {
	node := p.shared.index.entryOf(ni, false).node
	before := nominatedBefore(pod, promised)
	if len(before) > 0 {
		node = node.Clone()
	}
	for _, other := range before {
		p.shared.nodes.placeNominated(node, other)
	}
	return node
}

// nominatedBefore returns those of a node's nominated pods that get their cards
// before the given pod: pods of its priority or higher.
func nominatedBefore(pod *corev1.Pod, nominated []fwk.PodInfo) []*corev1.Pod {
	var before []*corev1.Pod
	for _, pi := range nominated {
		other := pi.GetPod()
		if other.UID != pod.UID && corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod) && wire.Asks(other) {
			before = append(before, other)
		}
	}
	return before
}
