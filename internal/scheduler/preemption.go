package scheduler

import (
	"cmp"
	"context"
	"fmt"
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
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// wakeAfterEvictions has a preemptor tried if its victim is found to be gone when the
// eviction has been sent. kube-scheduler holds preemptors back until then and relies on
// the end of the last victim, which may have come before.
func wakeAfterEvictions(h fwk.Handle, e *preemption.Executor) {
	lister, evict := h.SharedInformerFactory().Core().V1().Pods().Lister(), e.PreemptPod
	e.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *corev1.Pod, plugin string) error {
		err := evict(ctx, c, preemptor, victim, plugin)
		if now, gone := lister.Pods(victim.Namespace).Get(victim.Name); err == nil && (gone != nil || now.UID != victim.UID) {
			h.Activate(klog.FromContext(ctx), preemptor.Pods())
		}
		return err
	}
}

// preempt makes room by the cheapest evictions, if the pod may preempt.
func (p *Plugin) preempt(ctx context.Context, cs fwk.CycleState, c *cycle, pod *corev1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if eligible, _ := p.PodEligibleToPreemptOthers(ctx, pod, m.Get(pod.Status.NominatedNodeName)); !eligible {
		return p.evaluator.Preempt(ctx, cs, pod, m)
	}
	nodes, err := m.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("list nodes: %w", err))
	}
	pdbs, err := p.evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("list disruption budgets: %w", err))
	}
	list, err := p.shortlist(ctx, cs, c, pod, nodes, pdbs)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	return p.evaluator.Preempt(ctx, cs, pod, shortlisted{NodeToStatusReader: m, nodes: list})
}

// shortlist chooses among the nodes on which evicting pods may help the one where it
// costs least, by a [place.Room], and notes its victims in the cycle.
// kube-scheduler's own search, which spares pods one by one by importance, may end with
// three victims on one card where one victim on another would do, and it looks at some
// nodes only. It remains the answer on nodes where cards are not what is missing, or
// not all: these compete if they have victims.
func (p *Plugin) shortlist(ctx context.Context, cs fwk.CycleState, c *cycle, pod *corev1.Pod, nodes []fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]fwk.NodeInfo, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	offset, most := p.DefaultPreemption.GetOffsetAndNumCandidates(int32(len(nodes)))
	want := 1
	if slices.ContainsFunc(p.handle.Extenders(), func(e fwk.Extender) bool { return e.SupportsPreemption() && e.IsInterested(pod) }) {
		want = int(most) // extenders choose among them
	}
	var others, infos []fwk.NodeInfo
	var evictions []*place.Eviction
	p.shared.index.follow()
	charges, room := newCharges(pdbs), p.shared.index.board.Try().Room(&c.ask.Request, &c.ask.Prefer)
	for _, ni := range nodes {
		if e := p.eviction(room, pod, ni, charges); e == nil || e.Fits() {
			others = append(others, ni)
		} else {
			evictions, infos = append(evictions, e), append(infos, ni)
		}
	}
	var failed error
	var rejected []fwk.NodeInfo
	found, tries, exhausted := room.Cheapest(evictions, want, func(i int, victims []*place.Victim) bool {
		if ctx.Err() != nil {
			return false
		}
		status := p.tryWithout(ctx, cs.Clone(), pod, infos[i], victims)
		switch {
		case status.IsSuccess():
			c.noteVictims(infos[i].Node().Name, evicted(infos[i], victims), evictions[i].Cost(victims).Violations)
			return true
		case status.Code() == fwk.Error:
			failed = status.AsError()
		default:
			rejected = append(rejected, infos[i])
		}
		return false
	})
	c.tries = tries
	others = append(others, rejected...)
	if len(found) == 0 && exhausted {
		others = nodes
	}
	var list []fwk.NodeInfo
	for _, i := range found {
		list = append(list, infos[i])
	}
	more, err := p.dryRun(ctx, cs, pod, others, pdbs, offset, most)
	list, failed = append(list, more...), cmp.Or(failed, err)
	if failed != nil && len(list) == 0 {
		return nil, fmt.Errorf("try evictions: %w", failed)
	}
	return list, nil
}

// evicted returns the pods of the node that are the victims.
func evicted(ni fwk.NodeInfo, victims []*place.Victim) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(victims))
	for k, v := range victims {
		pods[k] = ni.GetPods()[v.Index].GetPod()
	}
	return pods
}

// dryRun returns those of the nodes where kube-scheduler's own search finds victims.
func (p *Plugin) dryRun(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget, offset, most int32) (list []fwk.NodeInfo, err error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	candidates, _, err := p.evaluator.DryRunPreemption(ctx, cs, pod, nodes, pdbs, offset%int32(len(nodes)), most)
	for _, candidate := range candidates {
		if i := slices.IndexFunc(nodes, func(ni fwk.NodeInfo) bool { return ni.Node().Name == candidate.Name() }); i >= 0 {
			list = append(list, nodes[i])
		}
	}
	return list, err
}

// eviction returns the search for victims on the node, unless it is not on the board.
func (p *Plugin) eviction(room *place.Room, pod *corev1.Pod, ni fwk.NodeInfo, charges *charges) *place.Eviction {
	id, ok := p.shared.index.row(ni)
	if !ok {
		return nil
	}
	entry := p.shared.index.rows[id].entry
	victims := entry.evictable(corev1helpers.PodPriority(pod))
	e := room.On(id, victims)
	e.Allowed = charges.of(entry, victims)
	if nominated := nominatedBefore(pod, p.handle.NominatedPodsForNode(ni.Node().Name)); len(nominated) > 0 {
		e.Before = func(n *ledger.Node) {
			for _, other := range nominated {
				p.shared.nodes.placeNominated(n, other)
			}
		}
	}
	return e
}

// evictable returns the pods with cards below the priority, the most important first.
// Only scheduling cycles, of which there is one at a time, may call it.
func (e *entry) evictable(priority int32) []*place.Victim {
	if e.lowest >= priority {
		return nil
	}
	if e.victims == nil {
		e.victims = make([]*place.Victim, 0, len(e.read))
		for i := range e.read {
			if e.read[i].asks {
				v := allocation.VictimOf(e.read[i].pod)
				v.Index = i
				e.victims = append(e.victims, v)
			}
		}
		place.SortVictims(e.node, e.victims)
	}
	from := slices.IndexFunc(e.victims, func(v *place.Victim) bool { return v.Priority < priority })
	if from < 0 {
		return nil
	}
	return e.victims[from:]
}

// SelectVictimsOnNode returns the pods to evict from the node: those that were noted,
// or those that kube-scheduler's own search finds.
func (p *Plugin) SelectVictimsOnNode(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	c, err := readState(cs)
	if err != nil {
		return p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, ni, pdbs)
	}
	if known, ok := c.victimsOn(ni.Node().Name); ok {
		return known.pods, known.violations, nil
	}
	victims, violations, status := p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, ni, pdbs)
	if status.IsSuccess() && len(victims) > 0 {
		c.noteVictims(ni.Node().Name, victims, violations)
	}
	return victims, violations, status
}

// GetOffsetAndNumCandidates makes kube-scheduler look at all nodes of the shortlist.
func (p *Plugin) GetOffsetAndNumCandidates(nodes int32) (offset, candidates int32) {
	return 0, nodes
}

// tryWithout runs all filters on a copy of the node without the victims.
func (p *Plugin) tryWithout(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, victims []*place.Victim) *fwk.Status {
	logger, without := klog.FromContext(ctx), ni.Snapshot()
	for _, v := range victims {
		victim := ni.GetPods()[v.Index]
		if err := without.RemovePod(logger, victim.GetPod()); err != nil {
			return fwk.AsStatus(err)
		}
		if status := p.handle.RunPreFilterExtensionRemovePod(ctx, cs, pod, victim, without); !status.IsSuccess() {
			return status
		}
	}
	return p.handle.RunFilterPluginsWithNominatedPods(ctx, cs, pod, without)
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
	return place.CostOf(place.SortVictims(node, victims), int(v.NumPDBViolations))
}

// shortlisted are the statuses of the nodes, of which only those of the shortlist can
// be helped by evictions.
type shortlisted struct {
	fwk.NodeToStatusReader
	nodes []fwk.NodeInfo
}

// NodesForStatusCode returns the shortlist, or no nodes.
func (s shortlisted) NodesForStatusCode(_ fwk.NodeInfoLister, code fwk.Code) ([]fwk.NodeInfo, error) {
	if code == fwk.Unschedulable {
		return s.nodes, nil
	}
	return nil, nil
}

// charges finds the disruption budgets that an eviction is charged to.
type charges struct {
	byNamespace map[string]*namespaceCharges
	nodes       int // that were asked for
}

// namespaceCharges is the budgets of a namespace, and those that cover pods with the
// labels that were asked for.
type namespaceCharges struct {
	all     []*charge
	covers  map[string][]*charge
	matches int // of selectors and labels
}

// maxMatches bounds how often an attempt compares selectors of a namespace with the
// labels of its pods, of which a tenant may create thousands each. Every pod beyond
// counts as protected.
const maxMatches = 200_000

// protected is a budget that allows nothing.
var protected = &policyv1.PodDisruptionBudget{}

// charge is a budget with its selector.
type charge struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	// node is the last one whose victims it covers, and at its position there.
	node, at int
}

func newCharges(pdbs []*policyv1.PodDisruptionBudget) *charges {
	c := &charges{byNamespace: map[string]*namespaceCharges{}}
	for _, pdb := range pdbs {
		if selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err == nil && !selector.Empty() {
			n := c.byNamespace[pdb.Namespace]
			if n == nil {
				n = &namespaceCharges{covers: map[string][]*charge{}}
				c.byNamespace[pdb.Namespace] = n
			}
			n.all = append(n.all, &charge{PodDisruptionBudget: pdb, selector: selector})
		}
	}
	return c
}

// of records which budgets the eviction of each victim on the node is charged to, and
// returns how many evictions these budgets allow.
func (c *charges) of(e *entry, victims []*place.Victim) (allowed []int32) {
	c.nodes++
	for _, v := range victims {
		v.Budgets = nil
	}
	if len(c.byNamespace) == 0 {
		return nil
	}
	for _, v := range victims {
		pod := e.read[v.Index].pod
		for _, b := range c.byNamespace[pod.Namespace].of(pod) {
			if _, charged := b.Status.DisruptedPods[pod.Name]; charged {
				continue
			}
			if b.node != c.nodes {
				b.node, b.at = c.nodes, len(allowed)
				allowed = append(allowed, b.Status.DisruptionsAllowed)
			}
			v.Budgets = append(v.Budgets, b.at)
		}
	}
	return allowed
}

// of returns the budgets that select the pod.
func (n *namespaceCharges) of(pod *corev1.Pod) []*charge {
	if n == nil || len(pod.Labels) == 0 {
		return nil
	}
	set := labels.Set(pod.Labels)
	key := set.String()
	covers, known := n.covers[key]
	if known {
		return covers
	}
	if n.matches += len(n.all); n.matches > maxMatches {
		covers = []*charge{{PodDisruptionBudget: protected}}
	} else {
		for _, b := range n.all {
			if b.selector.Matches(set) {
				covers = append(covers, b)
			}
		}
	}
	n.covers[key] = covers
	return covers
}
