package scheduler

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// SelectVictimsOnNode finds the cheapest pods to evict from the node. Pods that
// hold the wrong cards are of no use, so kube-scheduler's own way, to spare pods
// one by one by importance, may end with three victims on one card where one
// victim on another would do. It remains the answer when cards are not what is
// missing.
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
	s := newSelection(p.shared.nodes.of(ni, true), c.ask, p.evictable(ni, pod), pdbs)
	s.nominated, s.place = nominatedBefore(pod, p.handle.NominatedPodsForNode(ni.Node().Name)), p.shared.nodes.placeNominated
	if victims, ok := s.cheapest(); ok {
		status := p.tryWithout(ctx, cs, pod, ni, victims)
		if status.Code() == fwk.Error {
			return nil, 0, status
		}
		if status.IsSuccess() {
			pods := make([]*corev1.Pod, len(victims))
			for i, v := range victims {
				pods[i] = v.info.GetPod()
			}
			slices.SortFunc(pods, byImportance)
			return pods, s.violations(victims), fwk.NewStatus(fwk.Success)
		}
	}
	return p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, ni, pdbs)
}

// evictable lists the pods of lower priority, in an order that does not depend
// on the NodeInfo's.
func (p *Plugin) evictable(ni fwk.NodeInfo, pod *corev1.Pod) []fwk.PodInfo {
	var list []fwk.PodInfo
	for _, pi := range ni.GetPods() {
		if corev1helpers.PodPriority(pi.GetPod()) < corev1helpers.PodPriority(pod) && p.IsEligiblePod(ni, pi, pod) {
			list = append(list, pi)
		}
	}
	slices.SortFunc(list, func(a, b fwk.PodInfo) int { return byImportance(a.GetPod(), b.GetPod()) })
	return list
}

// byImportance orders pods from the most to the least important.
func byImportance(a, b *corev1.Pod) int {
	switch {
	case util.MoreImportantPod(a, b):
		return -1
	case util.MoreImportantPod(b, a):
		return 1
	}
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// tryWithout asks all plugins whether the pod fits once the victims are gone.
// If not, the node is put back as it was.
func (p *Plugin) tryWithout(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, victims []*victim) *fwk.Status {
	logger := klog.FromContext(ctx)
	for _, v := range victims {
		if err := ni.RemovePod(logger, v.info.GetPod()); err != nil {
			return fwk.AsStatus(err)
		}
		if status := p.handle.RunPreFilterExtensionRemovePod(ctx, cs, pod, v.info, ni); !status.IsSuccess() {
			return status
		}
	}
	status := p.handle.RunFilterPluginsWithNominatedPods(ctx, cs, pod, ni)
	if status.IsSuccess() {
		return status
	}
	for _, v := range victims {
		ni.AddPodInfo(v.info)
		if added := p.handle.RunPreFilterExtensionAddPod(ctx, cs, pod, v.info, ni); !added.IsSuccess() {
			return added
		}
	}
	return status
}

// victim is a pod that could be evicted, with what it costs.
type victim struct {
	info    fwk.PodInfo
	holder  ledger.Holder
	cards   gpu.Set
	budgets []int // the PodDisruptionBudgets that its eviction is charged to
}

// selection is the search for victims on one node. Every set of victims keeps the
// order of the full list.
type selection struct {
	node    *ledger.Node
	ask     *wire.Ask
	victims []*victim // most important first
	// nominated are the pods that place books cards for before the preemptor.
	nominated []*corev1.Pod
	place     func(*ledger.Node, *corev1.Pod)
	// allowed is the number of evictions each budget allows, left the remainder
	// while violations charges a set.
	allowed, left []int32
	tries         int
}

// maxTries bounds the sets of victims that are tried one by one.
const maxTries = 4000

func newSelection(node *ledger.Node, ask *wire.Ask, evictable []fwk.PodInfo, pdbs []*policyv1.PodDisruptionBudget) *selection {
	s := &selection{node: node, ask: ask}
	holdings := make(map[ledger.Holder]gpu.Set, len(node.Holdings()))
	for i := range node.Holdings() {
		h := &node.Holdings()[i]
		holdings[h.Holder] = h.Cards()
	}
	for _, pi := range evictable {
		if !wire.Asks(pi.GetPod()) {
			continue
		}
		holder := wire.HolderOf(pi.GetPod())
		s.victims = append(s.victims, &victim{info: pi, holder: holder, cards: holdings[holder]})
	}
	s.protect(pdbs)
	return s
}

// protect records which budgets the eviction of each victim is charged to.
func (s *selection) protect(pdbs []*policyv1.PodDisruptionBudget) {
	for _, pdb := range pdbs {
		covered := false
		for _, v := range s.victims {
			if covers(pdb, v.info.GetPod()) {
				v.budgets = append(v.budgets, len(s.allowed))
				covered = true
			}
		}
		if covered {
			s.allowed = append(s.allowed, pdb.Status.DisruptionsAllowed)
		}
	}
}

// cheapest returns the victims to evict: the cheapest of all sets, or of the
// smaller sets where there are too many to try; if none of these makes room, the
// pods on the cheapest cards. It returns false when cards are not what is missing
// or evicting all victims makes no room.
func (s *selection) cheapest() ([]*victim, bool) {
	if s.fitsWithout(nil) || !s.fitsWithout(s.victims) {
		return nil, false
	}
	var best []*victim
	for pool := range s.pools {
		best = s.among(pool, best)
		if s.violations(best) == 0 {
			break
		}
	}
	return best, true
}

// pools yields groups of victims that make room together, each a part of the
// next: pods that no budget protects, up to each priority in turn, then all
// victims. A set of one pool that violates no budget is cheaper than every set
// that needs a later pool.
func (s *selection) pools(yield func([]*victim) bool) {
	var free []*victim
	var levels []int32
	for _, v := range s.victims {
		if s.violations([]*victim{v}) == 0 {
			free = append(free, v)
			levels = append(levels, corev1helpers.PodPriority(v.info.GetPod()))
		}
	}
	slices.Sort(levels)
	for _, level := range slices.Compact(levels) {
		pool := slices.DeleteFunc(slices.Clone(free), func(v *victim) bool {
			return corev1helpers.PodPriority(v.info.GetPod()) > level
		})
		if s.fitsWithout(pool) && !yield(pool) {
			return
		}
	}
	yield(s.victims)
}

// among returns the cheapest set of the pool, or best when none is cheaper.
func (s *selection) among(pool, best []*victim) []*victim {
	size := 1
	for size <= len(pool) && combinations(len(pool), size) <= maxTries-s.tries {
		best = s.ofSize(pool, size, best)
		size++
	}
	if size <= len(pool) && (best == nil || s.violations(best) > 0) {
		if set := s.byCards(pool); best == nil || s.compareCost(set, best) < 0 {
			best = set
		}
	}
	return best
}

// fitsWithout reports whether the pod fits once the victims are gone and the
// nominated pods have their cards.
func (s *selection) fitsWithout(victims []*victim) bool {
	s.tries++
	n := s.node.Clone()
	for _, v := range victims {
		n.Release(v.holder)
	}
	for _, pod := range s.nominated {
		s.place(n, pod)
	}
	_, refusal := place.Fit(n, &s.ask.Request, &s.ask.Prefer)
	return refusal.Code == place.Fits
}

// ofSize returns the cheapest set of the given size that makes room, or best
// when none is cheaper. A set costs more than any part of it, so a part that
// costs too much already is left at once.
func (s *selection) ofSize(pool []*victim, size int, best []*victim) []*victim {
	var walk func(from int, chosen []*victim)
	walk = func(from int, chosen []*victim) {
		if len(chosen) > 0 && best != nil && s.compareCost(chosen, best) >= 0 {
			return
		}
		if len(chosen) == size {
			if s.fitsWithout(chosen) {
				best = slices.Clone(chosen)
			}
			return
		}
		for i := from; i <= len(pool)-(size-len(chosen)); i++ {
			walk(i+1, append(chosen, pool[i]))
		}
	}
	walk(0, nil)
	return best
}

// byCards empties one card after the other, always the one that keeps the set
// cheapest, until the pod fits; then it spares the victims that are not needed.
func (s *selection) byCards(pool []*victim) []*victim {
	chosen := map[*victim]bool{}
	with := func(card int) []*victim {
		return slices.DeleteFunc(slices.Clone(pool), func(v *victim) bool { return !chosen[v] && (card < 0 || !v.cards.Has(card)) })
	}
	set := with(-1)
	for !s.fitsWithout(set) {
		var next []*victim
		for c := range s.node.Topology().All().All() {
			on := with(c)
			if len(on) > len(set) && (next == nil || s.compareCost(on, next) < 0) {
				next = on
			}
		}
		if next == nil {
			next = pool // the rest is held on no known card; the whole pool makes room
		}
		for _, v := range next {
			chosen[v] = true
		}
		set = next
	}
	for _, v := range s.sparing(set) {
		delete(chosen, v)
		if !s.fitsWithout(with(-1)) {
			chosen[v] = true
		}
	}
	return with(-1)
}

// sparing returns the order in which members of the set are spared: first pods
// whose budget the set violates, within each group the most important first.
func (s *selection) sparing(set []*victim) []*victim {
	order := slices.Clone(set)
	s.violations(set)
	broken := func(v *victim) int {
		if slices.ContainsFunc(v.budgets, func(b int) bool { return s.left[b] < 0 }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b *victim) int { return cmp.Compare(broken(a), broken(b)) })
	return order
}

// compareCost orders sets of victims as kube-scheduler orders nodes: fewest
// violations of budgets, lowest highest priority, smallest sum of priorities (and so
// fewest pods), then those that started last.
func (s *selection) compareCost(a, b []*victim) int {
	if c := cmp.Compare(s.violations(a), s.violations(b)); c != 0 {
		return c
	}
	highA, sumA := priorities(a)
	highB, sumB := priorities(b)
	return cmp.Or(
		cmp.Compare(highA, highB), cmp.Compare(sumA, sumB), cmp.Compare(len(a), len(b)),
		-earliest(a).Compare(earliest(b).Time))
}

// violations returns the number of pods in the set whose eviction, after those
// before them, exceeds a budget. Pods outside the set are not charged.
func (s *selection) violations(set []*victim) int {
	s.left = append(s.left[:0], s.allowed...)
	n := 0
	for _, v := range set {
		over := false
		for _, b := range v.budgets {
			s.left[b]--
			over = over || s.left[b] < 0
		}
		if over {
			n++
		}
	}
	return n
}

// priorities returns the highest, and the sum of all, made positive so that
// more pods are never cheaper than fewer.
func priorities(set []*victim) (highest int32, sum int64) {
	highest = -1 << 31
	for _, v := range set {
		p := corev1helpers.PodPriority(v.info.GetPod())
		highest = max(highest, p)
		sum += int64(p) + 1<<31
	}
	return highest, sum
}

// earliest returns the start of the pod that has run longest.
func earliest(set []*victim) *metav1.Time {
	var first *metav1.Time
	for _, v := range set {
		if t := util.GetPodStartTime(v.info.GetPod()); first == nil || t.Before(first) {
			first = t
		}
	}
	return first
}

// combinations returns how many sets of k there are among n, or a large number.
func combinations(n, k int) int {
	c := 1
	for i := range k {
		if c = c * (n - i) / (i + 1); c > maxTries {
			return maxTries + 1
		}
	}
	return c
}

// covers reports whether the budget speaks of the pod and has not yet been
// charged for it.
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
