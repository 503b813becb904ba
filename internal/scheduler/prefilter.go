package scheduler

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// podGroupsUnsupported is why a pod with cards in one of Kubernetes' own pod groups
// is rejected.
const podGroupsUnsupported = "pod groups of Kubernetes are not supported yet for pods with MetaX cards: remove spec.schedulingGroup from the pod"

// PreFilter reads what the pod asks for. Pods without cards are skipped and
// cost nothing after that.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	ask, problems := p.shared.pods.request(pod)
	if len(problems) > 0 {
		p.shared.metrics.inadmissible.Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problems.ToAggregate().Error())
	}
	if ask == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if cs.IsPodGroupSchedulingCycle() {
		p.shared.metrics.inadmissible.Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, podGroupsUnsupported)
	}
	if !p.shared.term.admits(pod) {
		return nil, notYet() // PreEnqueue lets no such pod through
	}
	start := p.shared.clock.Now()
	p.shared.index.refresh(infos)
	p.shared.hints.refreshed(p.shared.index.epoch)
	if refusal := p.checkQuota(ctx, pod, &ask.Request); refusal.Code != place.Fits {
		p.shared.metrics.refuse([]place.Refusal{refusal}, p.shared.clock.Since(start))
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, refusal.Message(nil))
	}
	ask = withDefaultPolicy(ask, p.policy)
	c := &cycle{plugin: p, ask: ask, prefer: ask.Prefer, start: start, findings: &findings{}}
	cs.Write(stateKey, c)
	c.prefer.Demand = p.shared.index.demand()
	c.ranking = p.shared.index.board.Ranking(&ask.Request, &c.prefer)
	return p.narrow(c, pod), nil
}

// PreFilterExtensions is nil: Filter reads the NodeInfo it is given, so there
// is nothing to keep up to date.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// narrow leaves out nodes that can't take the pod, when that spares at least half
// of them. Where nodes can, only these stay; where none can, those that could if
// others were evicted. Nodes that were left out count as hopeless to
// kube-scheduler: PostFilter puts that right.
func (p *Plugin) narrow(c *cycle, pod *corev1.Pod) *fwk.PreFilterResult {
	if narrowsItself(pod) {
		return nil
	}
	x, n := p.shared.index, c.ranking.Room()
	hopes := n == 0
	keeps := func(id place.NodeID) bool {
		_, fits, hope := c.ranking.At(id)
		return fits || hopes && hope
	}
	if hopes {
		for _, id := range x.listed {
			if keeps(id) {
				n++
			}
		}
	}
	if n == 0 || n*2 >= len(x.listed) {
		return nil
	}
	c.kept = make(sets.Set[string], n)
	for _, id := range x.listed {
		if keeps(id) {
			c.kept.Insert(x.board.Node(id).Name)
		}
	}
	return &fwk.PreFilterResult{NodeNames: c.kept}
}

// narrowsItself reports whether other plugins may leave out nodes for this pod,
// too. If nothing were left of both, kube-scheduler would go no further, and
// no plugin could report why or make room.
func narrowsItself(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		return true
	}
	required := wire.RequiredNodes(&pod.Spec)
	return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchFields) > 0 })
}
