package deviceplugin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// givenInterval is how often kubelet is asked what it gave to pods that someone
// else served.
const givenInterval = 5 * time.Second

// grants is which of the vendor's ids containers have, by pod and container.
// kubelet's file knows pods by UID and has init containers too; its API knows
// them by name.
type grants struct {
	byUID  map[types.UID]map[string][]string
	byName map[types.NamespacedName]map[string][]string
	// file is false if kubelet's file can't be read.
	file bool
}

// grants reads kubelet's file and, if it is to, asks its API. Tokens of our own are
// left aside.
func (h *holders) grants(ctx context.Context, ask bool) (*grants, error) {
	answer := &podresources.ListPodResourcesResponse{}
	if ask {
		var err error
		if answer, err = h.list(ctx); err != nil {
			return nil, err
		}
	}
	g := &grants{byUID: map[types.UID]map[string][]string{}, byName: map[types.NamespacedName]map[string][]string{}}
	for _, pod := range answer.GetPodResources() {
		name := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
		for _, c := range pod.GetContainers() {
			for _, d := range c.GetDevices() {
				grant(g.byName, name, c.GetName(), d.GetResourceName(), d.GetDeviceIds())
			}
		}
	}
	// A file that can't be read leaves pods with init containers unknown.
	entries, err := readCheckpoint(h.checkpoint)
	g.file = err == nil
	for i := range entries {
		for _, ids := range entries[i].DeviceIDs {
			grant(g.byUID, types.UID(entries[i].PodUID), entries[i].ContainerName, entries[i].ResourceName, ids)
		}
	}
	return g, nil
}

func grant[K comparable](to map[K]map[string][]string, pod K, container, resource string, ids []string) {
	for _, id := range ids {
		if !isVendors(resource) || isToken(id) {
			continue
		}
		if to[pod] == nil {
			to[pod] = map[string][]string{}
		}
		to[pod][container] = append(to[pod][container], id)
	}
}

// of returns what a pod's containers have. A pending pod may have the name of one
// that is not quite gone: only kubelet's file distinguishes the two, and without
// it the devices count as the pending pod's.
func (g *grants) of(pod *corev1.Pod) map[string][]string {
	if ids := g.byUID[pod.UID]; ids != nil {
		return ids
	}
	if pod.Status.Phase == corev1.PodPending && g.file {
		return nil
	}
	return g.byName[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
}

// learnGiven finds out which cards pods have that someone else served, where
// nothing on them tells, and where kubelet knows better: whole cards of the
// vendor's plugin are picked by kubelet, whatever a scheduler wrote.
func (s *Server) learnGiven(ctx context.Context, n *Node) {
	pods, known := s.foreignPods()
	if !known || n.Inventory == nil || n.Inventory.Topology == nil {
		return
	}
	given, granted := map[types.UID]wire.Given{}, map[types.UID]bool{}
	g, err := s.holders.grants(ctx, len(pods) > 0)
	if err != nil {
		return // what was known stays until kubelet is back
	}
	node := n.Inventory.Open()
	var records []*record
	for _, pod := range pods {
		ids := g.of(pod)
		granted[pod.UID] = len(ids) > 0
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
	s.setStatus(func(st *Status) {
		st.Given, st.GivenKnown = given, true
		s.granted, s.grantsKnown = granted, true
	})
}

// forgetGrants notes that another plugin may have served the node: what it gave
// is to be known before anything is given here. Run's goroutine alone calls it.
func (s *Server) forgetGrants() {
	s.lastGiven = time.Time{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grantsKnown, s.status.GivenKnown = false, false
}

// foreignPods returns the pods that hold cards and were not served by us.
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

// givenTo returns what the pod has by its ids, unless its allocation says the
// same. Where an id names no card of the node, the cards of the pod
// are not known; half of them would be a guess.
func givenTo(node *ledger.Node, pod *corev1.Pod, ids map[string][]string) (wire.Given, bool) {
	given := wire.Given{Holder: wire.HolderOf(pod), Cards: map[string][]gpu.CardID{}}
	whole, known, cards := true, true, gpu.Set(0)
	for container, list := range ids {
		for _, id := range list {
			card, ok := wire.CardOfID(node.Topology(), id)
			at, _ := node.Topology().Index(card)
			known, whole, cards = known && ok, whole && id == string(card), cards|gpu.SetOf(at)
			given.Cards[container] = append(given.Cards[container], card)
		}
	}
	h, written, _ := wire.HoldingOf(node, pod)
	if !known {
		for container := range given.Cards {
			given.Cards[container] = nil
		}
		return given, !written
	}
	return given, cards != 0 && (!written || whole && h.Cards() != cards)
}

// addRecorded adds what this agent gave to pods whose allocation can't be read any
// more.
func (s *Server) addRecorded(n *Node, given map[types.UID]wire.Given) {
	held, _ := s.pods.Held()
	there, node := uids(held), n.Inventory.Open()
	for _, r := range s.journal.now().Records {
		pod := there[r.PodUID]
		if pod == nil {
			continue
		}
		if _, written, _ := wire.HoldingOf(node, pod); written {
			continue
		}
		if _, ok := given[r.PodUID]; !ok {
			given[r.PodUID] = wire.Given{Holder: wire.HolderOf(pod), Cards: map[string][]gpu.CardID{}}
		}
		for i := range r.Shares {
			given[r.PodUID].Cards[r.Container] = append(given[r.PodUID].Cards[r.Container], r.Shares[i].Card)
		}
	}
}
