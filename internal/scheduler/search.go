package scheduler

import (
	"context"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// RunPreFilterPlugins leaves only the best node that every plugin accepts.
// kube-scheduler alone compares a sample of the nodes, which in a large cluster
// misses the best one more often than not, and runs every Filter on each of them.
// The index has all nodes in the order of their worth, so most pods need one node to
// be filtered. Where there is none, kube-scheduler goes on as always: it asks all
// nodes, collects their reasons and preempts.
func (p cardProfile) RunPreFilterPlugins(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	for _, waiting := range p.shared.waiting { // those of the other profiles, too
		waiting.try(pod)
	}
	result, status, plugins := p.Framework.RunPreFilterPlugins(ctx, cs, pod)
	if !status.IsSuccess() || !p.searches {
		return result, status, plugins
	}
	c, err := readState(cs)
	if err != nil || hasPreferences(pod) || p.isPreferred(pod) {
		return result, status, plugins
	}
	s := &search{cardProfile: p, cycle: c, cs: cs, pod: pod, allowed: result}
	if best := s.run(ctx); best != nil {
		c.candidates, c.found = c.ranking.Room(), best
		return &fwk.PreFilterResult{NodeNames: sets.New(best.Node().Name)}, status, plugins
	}
	return result, status, plugins
}

// RunFilterPluginsWithNominatedPods does not ask the node again that the search has
// found. If it were refused now, since a pod was just nominated to it, kube-scheduler
// would take all other nodes for hopeless: Reserve refuses it, and has the pod tried
// again.
func (p cardProfile) RunFilterPluginsWithNominatedPods(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if c, err := readState(cs); err == nil && c.found == info {
		return nil
	}
	return p.Framework.RunFilterPluginsWithNominatedPods(ctx, cs, pod, info)
}

// search is the search for one pod's node.
type search struct {
	cardProfile
	cycle   *cycle
	cs      fwk.CycleState
	pod     *corev1.Pod
	allowed *fwk.PreFilterResult
	// nominated are the candidates so far that other pods are nominated to, the best
	// last.
	nominated []candidate
}

// candidate is a node and what it is worth to the pod.
type candidate struct {
	id    place.NodeID
	worth place.Worth
}

// run returns the best node that every plugin accepts, if there is one. One node is asked first,
// since it mostly is the one, and more at once each time that none was.
func (s *search) run(ctx context.Context) fwk.NodeInfo {
	size, batch := 1, []fwk.NodeInfo(nil)
	for id := range s.candidates() {
		if batch = append(batch, s.shared.index.rows[id].info); len(batch) < size {
			continue
		}
		if found := s.firstAccepted(ctx, batch); found != nil || ctx.Err() != nil {
			return found
		}
		size, batch = 4*size, batch[:0]
	}
	return s.firstAccepted(ctx, batch)
}

// firstAccepted returns the first of the nodes that every plugin accepts, if there is
// one.
func (s *search) firstAccepted(ctx context.Context, batch []fwk.NodeInfo) fwk.NodeInfo {
	accepted := make([]bool, len(batch))
	ask := func(i int) {
		accepted[i] = s.RunFilterPluginsWithNominatedPods(ctx, s.cs, s.pod, batch[i]).IsSuccess()
	}
	if len(batch) == 1 {
		ask(0)
	} else {
		s.Parallelizer().Until(ctx, len(batch), ask, "BestNode")
	}
	if i := slices.Index(accepted, true); i >= 0 && ctx.Err() == nil {
		return batch[i]
	}
	return nil
}

// candidates returns the nodes to choose from, the best first. A node that other pods
// are nominated to is worth what it is worth with them there.
func (s *search) candidates() iter.Seq[place.NodeID] {
	board := s.shared.index.board
	return func(yield func(place.NodeID) bool) {
		for id, worth := range s.cycle.ranking.Best() {
			for n := len(s.nominated); n > 0; n = len(s.nominated) {
				best := s.nominated[n-1]
				if !board.Better(best.id, best.worth, id, worth) {
					break
				}
				if s.nominated = s.nominated[:n-1]; !yield(best.id) {
					return
				}
			}
			if s.isCandidate(id) && !yield(id) {
				return
			}
		}
		for _, c := range slices.Backward(s.nominated) {
			if !yield(c.id) {
				return
			}
		}
	}
}

// isCandidate reports whether the node is the next one to ask. Nodes that had better
// not be used are left to kube-scheduler, in case there are no others.
func (s *search) isCandidate(id place.NodeID) bool {
	info := s.shared.index.rows[id].info
	node := info.Node()
	if !s.allowed.AllNodes() && !s.allowed.NodeNames.Has(node.Name) || s.isAvoided(node) {
		return false
	}
	others := s.NominatedPodsForNode(node.Name)
	if !slices.ContainsFunc(others, func(p fwk.PodInfo) bool { return wire.Asks(p.GetPod()) }) {
		return true
	}
	if worth, room := s.cycle.plugin.worth(s.cycle, s.pod, info, others); room {
		at, _ := slices.BinarySearchFunc(s.nominated, candidate{id, worth}, func(a, b candidate) int {
			if s.shared.index.board.Better(b.id, b.worth, a.id, a.worth) {
				return -1
			}
			return 1
		})
		s.nominated = slices.Insert(s.nominated, at, candidate{id, worth})
	}
	return false
}

// isAvoided reports whether another node is better whatever its cards: the node
// has a taint that asks pods like this one to stay away, or its lock is stuck.
func (s *search) isAvoided(node *corev1.Node) bool {
	return cluster.Avoids(s.pod, node, s.cycle.plugin.compares) || s.cycle.plugin.isStuck(s.pod, node)
}

// ranksByCards reports whether none of the plugins would rank nodes for a pod with
// cards and without preferences.
func ranksByCards(scoring []config.Plugin) bool {
	silent := sets.New(Name, ResourcesName, BalanceName, ImagesName, AffinityName, SpreadName,
		names.TaintToleration, names.NodeAffinity, names.VolumeBinding, VolumesName, names.DynamicResources)
	return !slices.ContainsFunc(scoring, func(p config.Plugin) bool { return !silent.Has(p.Name) })
}

// hasPreferences reports whether the pod says which of the nodes that it can use
// it would rather have.
func hasPreferences(pod *corev1.Pod) bool {
	for i := range pod.Spec.TopologySpreadConstraints {
		if pod.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.ScheduleAnyway {
			return true
		}
	}
	a := pod.Spec.Affinity
	return len(pod.Spec.ResourceClaims) > 0 || a != nil && (a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
}

// isPreferred reports whether a pod that runs would rather have this one near or
// far, which InterPodAffinity then counts for or against its node.
func (p cardProfile) isPreferred(pod *corev1.Pod) bool {
	terms := &p.shared.index.terms
	if len(terms.terms) == 0 {
		return false
	}
	namespace, err := p.SharedInformerFactory().Core().V1().Namespaces().Lister().Get(pod.Namespace)
	return err != nil || terms.match(pod, namespace.Labels)
}
