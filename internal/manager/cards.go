package manager

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// cardIndex has the cards of all nodes. It is kept up to date with the caches, so
// that the webhook reads no Device while a pod waits.
type cardIndex struct {
	nodes, devices cache.SharedIndexInformer
	filled         []cache.InformerSynced

	mu     sync.RWMutex
	byNode map[string]nodeCards // of the nodes whose cards can be read
}

type nodeCards struct {
	node   *corev1.Node
	serves ledger.Serves
	cards  []*gpu.Card // the largest first
}

// newCardIndex returns an index that fills when the informers do.
func newCardIndex(nodes, devices cache.SharedIndexInformer) (*cardIndex, error) {
	x := &cardIndex{nodes: nodes, devices: devices, byNode: map[string]nodeCards{}}
	read := func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			x.read(name)
		}
	}
	for _, informer := range []cache.SharedIndexInformer{nodes, devices} {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: read, UpdateFunc: func(_, obj any) { read(obj) }, DeleteFunc: read})
		if err != nil {
			return nil, err
		}
		x.filled = append(x.filled, handler.HasSynced)
	}
	return x, nil
}

// ready returns an error until the cards of all nodes have been read.
func (x *cardIndex) ready() error {
	if slices.ContainsFunc(x.filled, func(synced cache.InformerSynced) bool { return !synced() }) {
		return errors.New("the cards of the nodes have not been read yet")
	}
	return nil
}

// read reads the cards of one node again, as the caches have them.
func (x *cardIndex) read(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byNode, name)
	objects := inventory.NodeObjects{Name: name}
	obj, _, _ := x.nodes.GetStore().GetByKey(name)
	objects.Node, _ = obj.(*corev1.Node)
	if objects.Node == nil {
		return
	}
	obj, _, _ = x.devices.GetStore().GetByKey(name)
	if item, ok := obj.(*unstructured.Unstructured); ok {
		device := cluster.DecodeDevice(item)
		objects.Device, objects.Err = device.Device, device.Err
	}
	inv := objects.Inventory()
	if inv.Topology == nil {
		return
	}
	n := nodeCards{node: objects.Node, serves: inv.Serves}
	for i := range inv.Topology.Len() {
		n.cards = append(n.cards, inv.Topology.Card(i))
	}
	slices.SortFunc(n.cards, func(a, b *gpu.Card) int { return cmp.Compare(b.Memory, a.Memory) })
	x.byNode[name] = n
}

// largest returns the memory of the largest card that the pod could get: on a node
// that its nodeSelector and required node affinity admit and whose mode serves it,
// and not ruled out by its lists of cards. Taints, cordons and the health of nodes
// and cards don't count: they may change while the pod waits, and its amounts
// stay. It returns false where there is none, or before all nodes have been read.
// Nodes are compared with the pod's node affinity, which takes longest, while other
// requests are answered and the index is kept up to date.
func (x *cardIndex) largest(pod *corev1.Pod, r *gpu.PodRequest) (gpu.MiB, bool) {
	if x.ready() != nil {
		return 0, false
	}
	filter := cluster.NewNodeFilter(pod)
	for _, n := range x.admitting(r) {
		if filter.Selects(n.node) {
			return n.cards[0].Memory, true
		}
	}
	return 0, false
}

// admitting returns the nodes that serve the request, each with its cards from the
// largest one on that the request's lists admit. The node with the largest comes first.
func (x *cardIndex) admitting(r *gpu.PodRequest) (nodes []nodeCards) {
	allowed := make(map[gpu.CardID]bool, len(r.Allow)) // a list may be long, and is compared with every card
	for _, id := range r.Allow {
		allowed[id] = true
	}
	admits := func(c *gpu.Card) bool { return c.Memory > 0 && (len(allowed) == 0 || allowed[c.ID]) && r.Admits(c.ID) }
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, n := range x.byNode {
		if !place.Served(n.serves, r) {
			continue
		}
		if i := slices.IndexFunc(n.cards, admits); i >= 0 {
			n.cards = n.cards[i:]
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b nodeCards) int { return cmp.Compare(b.cards[0].Memory, a.cards[0].Memory) })
	return nodes
}
