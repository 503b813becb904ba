package deviceplugin

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// givenInterval is how often kubelet is asked what it gave to pods of other plugins.
const givenInterval = 5 * time.Second

// grants is which of the vendor's ids containers have, by pod and container.
type grants struct {
	byUID  map[types.UID]map[string][]string
	byName map[types.NamespacedName]map[string][]string
	// file is false if kubelet's file can't be read.
	file bool
}

// grants reads kubelet's file and, if ask is set, its API, without this agent's
// own tokens. A file that can't be read leaves pods with init containers unknown.
func (h *holders) grants(ctx context.Context, ask bool) (*grants, error) {
	answer := &podresources.ListPodResourcesResponse{}
	if ask {
		var err error
		if answer, err = h.list(ctx); err != nil {
			return nil, err
		}
	}
	entries, err := readCheckpoint(h.checkpoint)
	return &grants{
		byUID:  granted(recorded(entries), func(a *assignment) types.UID { return a.uid }),
		byName: granted(listed(answer), func(a *assignment) types.NamespacedName { return a.pod }),
		file:   err == nil,
	}, nil
}

func granted[K comparable](list []assignment, key func(*assignment) K) map[K]map[string][]string {
	out := map[K]map[string][]string{}
	for i := range list {
		a := &list[i]
		ids := slices.DeleteFunc(slices.Clone(a.ids), isToken)
		if !isVendors(a.resource) || len(ids) == 0 {
			continue
		}
		if out[key(a)] == nil {
			out[key(a)] = map[string][]string{}
		}
		out[key(a)][a.container] = append(out[key(a)][a.container], ids...)
	}
	return out
}

// of returns what a pod's containers have. A pending pod may have the name of one
// that is not quite gone; only kubelet's file distinguishes the two.
func (g *grants) of(pod *corev1.Pod) map[string][]string {
	if ids := g.byUID[pod.UID]; ids != nil {
		return ids
	}
	if pod.Status.Phase == corev1.PodPending && g.file {
		return nil
	}
	return g.byName[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
}

// learnGiven asks which cards pods of other plugins have where no allocation shows
// it, and where kubelet picked whole cards itself.
func (s *Server) learnGiven(ctx context.Context, n *Node) {
	pods, known := s.foreignPods()
	if !known || n.Inventory == nil || n.Inventory.Topology == nil {
		return
	}
	given := map[types.UID]inventory.PluginAllocation{}
	g, err := s.holders.grants(ctx, len(pods) > 0)
	if err != nil {
		return // what was known stays until kubelet is back
	}
	node := n.Inventory.NewNode()
	var records []*record
	for _, pod := range pods {
		ids := g.of(pod)
		if one, ok := givenTo(node, pod, ids); ok {
			given[pod.UID] = one
		}
		records = append(records, foreignRecords(n, node, pod, ids)...)
	}
	orphans, err := s.orphans(ctx, node, g)
	if err == nil {
		err = s.saveForeign(append(records, orphans...))
		s.sawWrite(err)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What other plugins gave is not known")
		return
	}
	s.addRecorded(n, given)
	s.setStatus(func(st *Status) { st.Given, st.GivenKnown = given, true })
}

// forgetGrants requires that kubelet is asked again before anything is given:
// another plugin may have served the node. Only Run's goroutine calls it.
func (s *Server) forgetGrants() {
	s.lastGiven = time.Time{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.GivenKnown = false
}

// foreignPods returns the pods that hold cards of another plugin.
func (s *Server) foreignPods() (pods []*corev1.Pod, known bool) {
	held, known := s.pods.Held()
	ours := map[types.UID]bool{}
	for _, r := range s.journal.now().Records {
		ours[r.PodUID] = true
	}
	for _, pod := range held {
		if !ours[pod.UID] {
			pods = append(pods, pod)
		}
	}
	return pods, known
}

// givenTo returns what the pod has by its ids, unless its allocation has the same.
// Where an id names no card of the node, none of the pod's cards is known.
func givenTo(node *ledger.Node, pod *corev1.Pod, ids map[string][]string) (inventory.PluginAllocation, bool) {
	given := inventory.PluginAllocation{Cards: map[string][]gpu.CardID{}}
	whole, known, cards := true, true, gpu.Set(0)
	for container, list := range ids {
		for _, id := range list {
			card, ok := inventory.CardOfID(node.Topology(), id)
			at, _ := node.Topology().Index(card)
			known, whole, cards = known && ok, whole && id == string(card), cards|gpu.SetOf(at)
			given.Cards[container] = append(given.Cards[container], card)
		}
	}
	h, written, _ := allocation.AnnotatedHolding(node, pod)
	if !known {
		for container := range given.Cards {
			given.Cards[container] = nil
		}
		return given, !written
	}
	return given, cards != 0 && (!written || whole && h.Cards() != cards)
}

// addRecorded adds what this agent gave to pods without a readable allocation.
func (s *Server) addRecorded(n *Node, given map[types.UID]inventory.PluginAllocation) {
	held, _ := s.pods.Held()
	there, node := uids(held), n.Inventory.NewNode()
	for _, r := range s.journal.now().Records {
		pod := there[r.PodUID]
		if pod == nil {
			continue
		}
		if _, written, _ := allocation.AnnotatedHolding(node, pod); written {
			continue
		}
		if _, ok := given[r.PodUID]; !ok {
			given[r.PodUID] = inventory.PluginAllocation{Cards: map[string][]gpu.CardID{}}
		}
		for i := range r.Shares {
			given[r.PodUID].Cards[r.Container] = append(given[r.PodUID].Cards[r.Container], r.Shares[i].Card)
		}
	}
}
