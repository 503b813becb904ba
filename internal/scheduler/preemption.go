package scheduler

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// SelectVictimsOnNode finds the cheapest pods to evict from the node, by
// [place.Eviction]. kube-scheduler's own search, which spares pods one by one by
// importance, may end with three victims on one card where one victim on another
// would do. It remains the answer when cards are not what is missing.
func (p *Plugin) SelectVictimsOnNode(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	c, err := readState(cs)
	if err != nil {
		return p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, ni, pdbs)
	}
	victims, broken, status := p.selectVictims(ctx, cs, c, pod, ni, pdbs)
	if status.IsSuccess() {
		c.noteVictims(ni.Node().Name, victims)
	}
	return victims, broken, status
}

func (p *Plugin) selectVictims(ctx context.Context, cs fwk.CycleState, c *cycle, pod *corev1.Pod, ni fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	infos, victims := p.evictable(ni, pod)
	eviction := place.NewEviction(p.shared.nodes.of(ni, true), &c.ask.Request, &c.ask.Prefer, victims)
	eviction.Allowed = charge(pdbs, infos, victims)
	nominated := nominatedBefore(pod, p.handle.NominatedPodsForNode(ni.Node().Name))
	eviction.Before = func(n *ledger.Node) {
		for _, other := range nominated {
			p.shared.nodes.placeNominated(n, other)
		}
	}
	if cheapest, ok := eviction.Cheapest(); ok {
		var pods []*corev1.Pod
		var evicted []fwk.PodInfo
		for _, v := range cheapest {
			evicted = append(evicted, infos[v.Holder])
			pods = append(pods, infos[v.Holder].GetPod())
		}
		status := p.tryWithout(ctx, cs, pod, ni, evicted)
		if status.Code() == fwk.Error {
			return nil, 0, status
		}
		if status.IsSuccess() {
			return pods, eviction.Cost(cheapest).Violations, fwk.NewStatus(fwk.Success)
		}
	}
	return p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, ni, pdbs)
}

// evictable returns the pods with cards that the pod may preempt.
func (p *Plugin) evictable(ni fwk.NodeInfo, pod *corev1.Pod) (map[ledger.Holder]fwk.PodInfo, []*place.Victim) {
	infos := map[ledger.Holder]fwk.PodInfo{}
	var victims []*place.Victim
	for _, pi := range ni.GetPods() {
		other := pi.GetPod()
		if wire.Asks(other) && corev1helpers.PodPriority(other) < corev1helpers.PodPriority(pod) && p.IsEligiblePod(ni, pi, pod) {
			v := allocation.VictimOf(other)
			infos[v.Holder] = pi
			victims = append(victims, v)
		}
	}
	return infos, victims
}

// charge records which budgets the eviction of each victim is charged to, and
// returns how many evictions these budgets allow.
func charge(pdbs []*policyv1.PodDisruptionBudget, infos map[ledger.Holder]fwk.PodInfo, victims []*place.Victim) (allowed []int32) {
	for _, pdb := range pdbs {
		covered := false
		for _, v := range victims {
			if covers(pdb, infos[v.Holder].GetPod()) {
				v.Budgets = append(v.Budgets, len(allowed))
				covered = true
			}
		}
		if covered {
			allowed = append(allowed, pdb.Status.DisruptionsAllowed)
		}
	}
	return allowed
}

// tryWithout runs all filters on the node without the victims. Unless the pod
// fits, the node is put back as it was.
func (p *Plugin) tryWithout(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, victims []fwk.PodInfo) *fwk.Status {
	logger := klog.FromContext(ctx)
	for _, v := range victims {
		if err := ni.RemovePod(logger, v.GetPod()); err != nil {
			return fwk.AsStatus(err)
		}
		if status := p.handle.RunPreFilterExtensionRemovePod(ctx, cs, pod, v, ni); !status.IsSuccess() {
			return status
		}
	}
	status := p.handle.RunFilterPluginsWithNominatedPods(ctx, cs, pod, ni)
	if status.IsSuccess() {
		return status
	}
	for _, v := range victims {
		ni.AddPodInfo(v)
		if added := p.handle.RunPreFilterExtensionAddPod(ctx, cs, pod, v, ni); !added.IsSuccess() {
			return added
		}
	}
	return status
}

// OrderedScoreFuncs makes kube-scheduler choose among the nodes by what evicting the
// victims costs, in the order in which they were chosen on each node. It ends with the
// nodes' names, so that the choice does not depend on chance.
func (p *Plugin) OrderedScoreFuncs(_ context.Context, nodes map[string]*extenderv1.Victims) []func(node string) int64 {
	costs := make(map[string]place.EvictionCost, len(nodes))
	for name, victims := range nodes {
		costs[name] = p.evictionCost(name, victims)
	}
	order := slices.SortedFunc(maps.Keys(costs), func(a, b string) int {
		return cmp.Or(costs[a].Compare(costs[b]), cmp.Compare(a, b))
	})
	return []func(string) int64{func(node string) int64 { return -int64(slices.Index(order, node)) }}
}

// evictionCost returns what evicting the victims from the node costs.
func (p *Plugin) evictionCost(name string, v *extenderv1.Victims) place.EvictionCost {
	victims := make([]*place.Victim, len(v.Pods))
	for i, pod := range v.Pods {
		victims[i] = allocation.VictimOf(pod)
	}
	node := ledger.NewNode(name, nil, ledger.Serves{})
	if ni, err := p.handle.SnapshotSharedLister().NodeInfos().Get(name); err == nil {
		node = p.shared.nodes.of(ni, false)
	}
	cost := place.NewEviction(node, nil, nil, victims).Cost(victims)
	cost.Violations = int(v.NumPDBViolations)
	return cost
}

// covers reports whether the budget selects the pod and has not been charged for
// it yet.
func covers(pdb *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if pdb.Namespace != pod.Namespace || len(pod.Labels) == 0 {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, charged := pdb.Status.DisruptedPods[pod.Name]
	return !charged
}
