package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PreFilter reads what the pod asks for. Pods without cards are skipped and
// cost nothing after that.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	ask, problems := wire.Admit(pod)
	if len(problems) > 0 {
		p.shared.figures.inadmissible.Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problems.ToAggregate().Error())
	}
	if ask == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if err := p.shared.term.ready(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	ask.StandIn(p.policy)
	describe(pod, &ask.Request)
	c := &cycle{ask: ask, prefer: ask.Prefer, wants: wantedOf(pod), start: p.shared.clock.Now(), findings: newFindings()}
	cs.Write(stateKey, c)
	narrowed := p.narrow(c, infos)
	c.prefer.Demand = p.shared.forecast.look(pod, &ask.Request, p.handle.SharedInformerFactory().Core().V1().Pods().Lister(), p.shared.nodes)
	return narrowed, nil
}

// PreFilterExtensions is nil: Filter reads the NodeInfo it is given, so there
// is nothing to keep up to date.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// narrow leaves out nodes that could not take the pod whatever is evicted. Nodes
// left out count as hopeless to kube-scheduler, so what is merely full stays in:
// preemption may help there, and its reasons are news. It is done only when it
// spares at least half of the nodes.
func (p *Plugin) narrow(c *cycle, infos []fwk.NodeInfo) *fwk.PreFilterResult {
	keep := sets.New[string]()
	for _, ni := range infos {
		node := p.shared.nodes.of(ni, false)
		if refusal := hopeless(node, &c.ask.Request); refusal.Code != place.Fits {
			c.note(node.Name, refusal)
			continue
		}
		keep.Insert(node.Name)
	}
	if keep.Len() == 0 || keep.Len()*2 >= len(infos) {
		return nil
	}
	return &fwk.PreFilterResult{NodeNames: keep}
}

// hopeless returns why the node's inventory alone rules the pod out.
func hopeless(n *ledger.Node, r *gpu.PodRequest) place.Refusal {
	t := n.Topology()
	most := 0
	for i := range r.Requests {
		most = max(most, r.Requests[i].Cards)
	}
	refuse := func(code place.Code, have int) place.Refusal {
		return place.Refusal{Code: code, Want: int64(most), Have: int64(have), Permanent: true}
	}
	switch {
	case n.Problem != nil:
		return refuse(place.BadInventory, 0)
	case t.Len() == 0:
		return refuse(place.NoCards, 0)
	case n.Paused != "":
		refusal := refuse(place.Unhealthy, 0)
		refusal.Paused = true
		return refusal
	case !place.Served(n.Serves, r):
		return refuse(place.ModeConflict, 0)
	case t.Healthy().Len() < most:
		return refuse(place.TooFewCards, t.Healthy().Len())
	}
	if len(r.Allow)+len(r.Deny) > 0 {
		admitted := 0
		for i := range t.Healthy().All() {
			if r.Admits(t.Card(i).ID) {
				admitted++
			}
		}
		if admitted < most {
			return refuse(place.CardExcluded, admitted)
		}
	}
	return place.Refusal{}
}
