package manager

import (
	"errors"
	"maps"
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

// cardIndex has the nodes of a cluster by the memory of their cards. It is kept up
// to date with the caches, so that the webhook reads no Device while a pod waits.
type cardIndex struct {
	nodes, devices cache.SharedIndexInformer
	filled         []cache.InformerSynced

	mu sync.RWMutex
	// byMemory has what each node, by name, has of cards with this memory.
	byMemory map[gpu.MiB]map[string]nodeCards
}

type nodeCards struct {
	node   *corev1.Node
	serves ledger.Serves
	ids    []gpu.CardID
}

// newCardIndex returns an index that fills when the informers do.
func newCardIndex(nodes, devices cache.SharedIndexInformer) (*cardIndex, error) {
	x := &cardIndex{nodes: nodes, devices: devices, byMemory: map[gpu.MiB]map[string]nodeCards{}}
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
	for memory, nodes := range x.byMemory {
		delete(nodes, name)
		if len(nodes) == 0 {
			delete(x.byMemory, memory)
		}
	}
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
	for i := range inv.Topology.Len() {
		card := inv.Topology.Card(i)
		if x.byMemory[card.Memory] == nil {
			x.byMemory[card.Memory] = map[string]nodeCards{}
		}
		cards := x.byMemory[card.Memory][name]
		cards.node, cards.serves, cards.ids = objects.Node, inv.Serves, append(cards.ids, card.ID)
		x.byMemory[card.Memory][name] = cards
	}
}

// largest returns the memory of the largest card that the pod could get: on a node
// that its nodeSelector and required node affinity admit and whose mode serves it,
// and not ruled out by its lists of cards. Taints, cordons and the health of nodes
// and cards don't count: they may change while the pod waits, and its amounts
// stay. It returns false where there is
// none, or before all nodes have been read. Nodes are compared with the pod's node
// affinity, which takes longest, while other requests are answered and the index is
// kept up to date.
func (x *cardIndex) largest(pod *corev1.Pod, r *gpu.PodRequest) (gpu.MiB, bool) {
	if x.ready() != nil {
		return 0, false
	}
	filter := cluster.NewNodeFilter(pod)
	allowed := make(map[gpu.CardID]bool, len(r.Allow)) // a list may be long, and is compared with every card
	for _, id := range r.Allow {
		allowed[id] = true
	}
	admits := func(id gpu.CardID) bool { return (len(allowed) == 0 || allowed[id]) && r.Admits(id) }
	for _, memory := range slices.Backward(x.memories()) {
		nodes := x.nodesWith(memory, func(cards nodeCards) bool {
			return place.Served(cards.serves, r) && slices.ContainsFunc(cards.ids, admits)
		})
		if memory > 0 && slices.ContainsFunc(nodes, filter.Selects) {
			return memory, true
		}
	}
	return 0, false
}

// memories returns the different memories of cards, in order.
func (x *cardIndex) memories() []gpu.MiB {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Sorted(maps.Keys(x.byMemory))
}

// nodesWith returns the nodes that have such cards with this memory.
func (x *cardIndex) nodesWith(memory gpu.MiB, such func(nodeCards) bool) (nodes []*corev1.Node) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, cards := range x.byMemory[memory] {
		if such(cards) {
			nodes = append(nodes, cards.node)
		}
	}
	return nodes
}
