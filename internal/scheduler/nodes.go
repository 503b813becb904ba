package scheduler

import (
	"iter"
	"maps"
	"math"
	"sync"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// nodes keeps the account of every node for as long as the node stays the same.
type nodes struct {
	devices *devices
	pods    *pods
	// memos are of searches for cards, shared by nodes that are joined alike.
	memos gpu.Memos
	// vendor finds what serves a node without a Device. It is set before the
	// scheduler runs.
	vendor inventory.VendorPlugin

	mu      sync.RWMutex
	entries map[string]*entry
	// supply counts the healthy cards of each model, and version its changes.
	supply  map[string]int
	version uint64
}

// entry is the account of one node at one generation of its NodeInfo and one
// version of its overlay. Its node is shared by readers and must not be changed.
type entry struct {
	generation int64
	overlay    uint64
	facts      facts
	inventory  *inventory.Inventory
	// read has what was read of each pod at this inventory, in the order of the
	// NodeInfo, to be used again.
	read []reading
	// beyond are the reservations on the node of pods that are not among those read.
	beyond []*claim
	// lowest is the lowest priority of a pod on the node.
	lowest int32
	node   *ledger.Node
	// victims are the pods with cards, once preemption has asked for them.
	victims []*place.Victim
}

// reading is what a pod holds according to its annotations. It stands for all
// versions of the pod that hold the same.
type reading struct {
	pod     *corev1.Pod
	asks    bool // for cards; the rest is empty otherwise
	read    bool // its annotations were; those of a reserved pod are not
	holding ledger.Holding
	known   bool
	// amounts is what quotas count of the pod, and kinds what the census does.
	amounts ledger.Amounts
	kinds   []place.Kind
	// ask is kept where cards have no identity: the holding is found again in
	// every fold.
	ask *request.PodRequest
}

// facts is everything that a node's inventory depends on; equal facts give an
// equal inventory. All but vendor are known without the node's pods.
type facts struct {
	device                            *device
	cards, servedBy, scores, losses   string
	product                           string
	vendor                            bool // its plugin serves the node
	whole, slices, allWhole, allShare int64
}

func factsOf(node *corev1.Node, d *device) facts {
	q := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
		v := list[name]
		return v.Value()
	}
	f := facts{
		device: d, servedBy: node.Annotations[wire.AnnotationServedBy], product: node.Labels[wire.LabelProduct],
		whole: q(node.Status.Capacity, wire.ResourceGPU), slices: q(node.Status.Capacity, wire.ResourceSGPU),
		allWhole: q(node.Status.Allocatable, wire.ResourceGPU), allShare: q(node.Status.Allocatable, wire.ResourceSGPU),
	}
	// With a Device of our own agent these add nothing, and they change
	// with every pod that comes and goes.
	if d == nil || d.spec == nil || !inventory.IsComplete(d.spec) {
		f.cards, f.scores, f.losses = node.Annotations[wire.AnnotationNodeCards], node.Annotations[wire.AnnotationScores], node.Annotations[wire.AnnotationLosses]
	}
	return f
}

func newNodes(d *devices, p *pods) *nodes {
	return &nodes{devices: d, pods: p, entries: map[string]*entry{}, supply: map[string]int{}}
}

// of returns the account of the node as the NodeInfo shows it. A NodeInfo of a
// what-if, with pods added or taken away, is folded but not kept.
func (n *nodes) of(ni fwk.NodeInfo, whatIf bool) *ledger.Node {
	return n.entryOf(ni, whatIf).node
}

func (n *nodes) entryOf(ni fwk.NodeInfo, whatIf bool) *entry {
	name := ni.Node().Name
	n.mu.RLock()
	before := n.entries[name]
	n.mu.RUnlock()

	dev := n.devices.get(name)
	if before != nil && before.generation == ni.GetGeneration() && before.overlay == n.pods.versionOf(name) && before.facts.device == dev {
		return before
	}
	if whatIf {
		return n.fold(before, ni, dev, ofWhatIf)
	}
	now := n.fold(before, ni, dev, ofSnapshot)
	n.mu.Lock()
	n.stock(n.entries[name], now)
	n.entries[name] = now
	n.mu.Unlock()
	return now
}

// stock brings the supply of cards up to date when a node's cards change. Both
// entries may be nil.
func (n *nodes) stock(before, now *entry) {
	if before != nil && now != nil && before.inventory == now.inventory {
		return
	}
	n.version++
	n.tally(before, -1)
	n.tally(now, 1)
}

// tally adds the entry's cards to the supply, or takes them off it.
func (n *nodes) tally(e *entry, sign int) {
	if e == nil {
		return
	}
	t := e.node.Topology()
	for c := range t.Healthy().All() {
		n.supply[t.Card(c).Model] += sign
	}
}

// supplyVersion changes with the supply of cards.
func (n *nodes) supplyVersion() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.version
}

// supplied returns how many healthy cards of each model there are.
func (n *nodes) supplied() map[string]int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return maps.Clone(n.supply)
}

// fold books the pods of the NodeInfo, with what was read before where it still
// holds.
func (n *nodes) fold(before *entry, ni fwk.NodeInfo, dev *device, mode foldMode) *entry {
	now := n.open(before, ni.Node(), dev, !dev.decides() && n.vendor.Serves(ni.Node(), podsOf(ni)))
	now.generation = ni.GetGeneration()
	if cpu := ni.GetAllocatable().GetMilliCPU(); cpu > 0 {
		now.node.FreeCPU, now.node.CPUKnown = gpu.MilliCPU(max(0, cpu-ni.GetRequested().GetMilliCPU())), true
	}
	if pods := ni.GetPods(); len(pods) > 0 {
		now.read = make([]reading, len(pods))
		for i, pi := range pods {
			now.read[i].pod = pi.GetPod()
			now.lowest = min(now.lowest, corev1helpers.PodPriority(pi.GetPod()))
		}
	}
	n.bookAll(now, before, lockOf(ni.Node()), mode, nil)
	return now
}

// open returns an entry of the node with no pods on it. Vendor is true when the
// vendor's plugin serves the node, which matters where the Device does not decide.
func (n *nodes) open(before *entry, node *corev1.Node, dev *device, vendor bool) *entry {
	now := &entry{overlay: n.pods.versionOf(node.Name), facts: factsOf(node, dev), lowest: math.MaxInt32}
	now.facts.vendor = vendor
	if before != nil && before.facts == now.facts {
		now.inventory = before.inventory
	} else {
		now.inventory = readInventory(node, dev, vendor)
		n.memos.Share(now.inventory.Topology)
	}
	now.node = now.inventory.NewNode()
	return now
}

// readInventory reads the node's cards; vendor is true when the vendor's plugin
// serves it if it has no Device.
func readInventory(node *corev1.Node, dev *device, vendor bool) *inventory.Inventory {
	objects := inventory.NodeObjects{Name: node.Name, Node: node, Vendor: vendor}
	if dev != nil {
		objects.Device, objects.Err = dev.spec, dev.err
	}
	return objects.Inventory()
}

// podsOf returns the pods of the node.
func podsOf(ni fwk.NodeInfo) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, pi := range ni.GetPods() {
			if !yield(pi.GetPod()) {
				return
			}
		}
	}
}

// last returns the account of the node as last seen, or nil.
func (n *nodes) last(name string) *entry {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.entries[name]
}

// retain drops the nodes that the snapshot does not list any more: a cycle on an older
// one would bring them back if an event did.
func (n *nodes) retain(listed func(name string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, e := range n.entries {
		if !listed(name) {
			n.stock(e, nil)
			delete(n.entries, name)
		}
	}
	n.pods.retain(listed)
}
