package scheduler

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// nodes keeps the account of every node for as long as the node stays the same.
type nodes struct {
	devices      *devices
	reservations *reservations
	promises     *promises

	mu      sync.RWMutex
	entries map[string]*entry
	// supply counts the healthy cards of each model, and version its changes.
	supply  map[string]int
	version uint64
}

// entry is the account of one node at one generation. Its node is shared by
// readers and must not be changed.
type entry struct {
	generation int64
	facts      facts
	inventory  *wire.Inventory
	// read has what was read of each pod at this inventory, to be used again.
	read map[types.UID]reading
	node *ledger.Node
}

// reading is what a pod holds, as its annotations tell.
type reading struct {
	pod     *corev1.Pod // from which it was read
	holding ledger.Holding
	known   bool
}

// facts is everything that a node's inventory depends on; equal facts give an
// equal inventory.
type facts struct {
	device                            *device
	cards, servedBy, scores, losses   string
	product                           string
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
	// Beside a Device of our own agent these say nothing new, and they change
	// with every pod that comes and goes.
	if d == nil || d.spec == nil || !wire.TellsAll(d.spec) {
		f.cards, f.scores, f.losses = node.Annotations[wire.AnnotationNodeCards], node.Annotations[wire.AnnotationScores], node.Annotations[wire.AnnotationLosses]
	}
	return f
}

func newNodes(d *devices, r *reservations, p *promises) *nodes {
	return &nodes{devices: d, reservations: r, promises: p, entries: map[string]*entry{}, supply: map[string]int{}}
}

// of returns the account of the node as the NodeInfo shows it. A NodeInfo of a
// what-if, with pods added or taken away, is folded but not kept.
func (n *nodes) of(ni fwk.NodeInfo, whatIf bool) *ledger.Node {
	name := ni.Node().Name
	n.mu.RLock()
	before := n.entries[name]
	n.mu.RUnlock()

	dev := n.devices.get(name)
	if before != nil && before.generation == ni.GetGeneration() && before.facts.device == dev {
		return before.node
	}
	now := n.fold(before, ni, dev)
	if !whatIf {
		n.mu.Lock()
		n.stock(n.entries[name], now)
		n.entries[name] = now
		n.mu.Unlock()
	}
	return now.node
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

// supplyVersion tells whether the supply of cards is the same as before.
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

// fold opens the account anew, with what was read before where it still holds.
func (n *nodes) fold(before *entry, ni fwk.NodeInfo, dev *device) *entry {
	now := &entry{generation: ni.GetGeneration(), facts: factsOf(ni.Node(), dev), read: map[types.UID]reading{}}
	if before != nil && before.facts == now.facts {
		now.inventory = before.inventory
	} else {
		now.inventory = readInventory(ni.Node(), dev)
		before = nil
	}
	now.node = now.inventory.Open()
	if cpu := ni.GetAllocatable().GetMilliCPU(); cpu > 0 {
		now.node.FreeCPU, now.node.CPUKnown = gpu.MilliCPU(max(0, cpu-ni.GetRequested().GetMilliCPU())), true
	}
	var nominated []*corev1.Pod
	// Pods that are yet to be bound, and the one that the vendor's plugin is yet
	// to serve, which it takes the lock off for.
	var coming []ledger.Holding
	lock, _ := wire.ParseLock(ni.Node().Annotations[wire.AnnotationLock])
	for _, pi := range ni.GetPods() {
		pod := pi.GetPod()
		if !wire.Asks(pod) {
			continue
		}
		if pod.Spec.NodeName == "" {
			nominated = append(nominated, pod)
			continue
		}
		if h, ok := n.reservations.holding(pod); ok {
			now.node.Book(h)
			coming = append(coming, h)
			continue
		}
		if h, known := n.book(now, before, pod); known && lock.Names(pod) {
			coming = append(coming, h)
		}
	}
	now.inventory.Settle(now.node, coming...)
	for _, pod := range nominated {
		n.placeNominated(now.node, pod)
	}
	return now
}

// readInventory reads the node's cards. A node that our own agent serves has a
// Device: while it is missing, what else the node says of its cards may be old,
// so nothing new goes there.
func readInventory(node *corev1.Node, dev *device) *wire.Inventory {
	switch {
	case dev == nil && node.Annotations[wire.AnnotationServedBy] == wire.ServedByDaybreak:
		return wire.NoInventory(node.Name)
	case dev == nil:
		return wire.ReadInventory(node, nil)
	case dev.err != nil:
		return wire.BadInventory(node.Name, dev.err)
	default:
		return wire.ReadInventory(node, dev.spec)
	}
}

// book books what a pod's annotations tell. It is not for pods that this process
// has reserved cards for: until the Binding is through, their annotations are
// only what their author wrote.
func (*nodes) book(now, before *entry, pod *corev1.Pod) (h ledger.Holding, known bool) {
	var r reading
	// Cards without identity are dealt out anew: who has which is of no
	// account, but no two pods may count for one.
	if before != nil && !now.node.Counted {
		r = before.read[pod.UID]
	}
	if r.pod != pod {
		r.pod = pod
		r.holding, r.known, _ = wire.HoldingOf(now.node, pod)
	}
	now.read[pod.UID] = r
	if r.known {
		now.node.Book(r.holding)
	} else {
		now.node.BookUnknown(wire.HolderOf(pod))
	}
	return r.holding, r.known
}

// placeNominated books a pod that the node is kept for but that has no cards
// yet: those that were promised to it when others were evicted for it, who may
// still be there, else as if it came now.
func (n *nodes) placeNominated(node *ledger.Node, pod *corev1.Pod) {
	if h, ok := n.promises.get(pod.UID, node); ok {
		node.Book(h)
		return
	}
	ask, _ := wire.Admit(pod)
	if ask == nil {
		return
	}
	if offer, refusal := place.Fit(node, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
		node.Book(node.Holding(&offer, wire.HolderOf(pod), &ask.Request))
	}
}

// last returns the account of the node as last seen, or nil.
func (n *nodes) last(name string) *entry {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.entries[name]
}

// forget drops a node that is gone.
func (n *nodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stock(n.entries[name], nil)
	delete(n.entries, name)
}

// replace puts another account in the place of the one last seen, unless a
// newer one is there already.
func (n *nodes) replace(old, with *entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name := old.node.Name; n.entries[name] == old {
		n.entries[name] = with
	}
}

// moved returns the holding with the cards' positions in another inventory of
// the same node. Shares of cards that are not there any more are left out.
func moved(h ledger.Holding, from, to *gpu.Topology) ledger.Holding {
	out := h
	out.Parts = make([]ledger.Part, len(h.Parts))
	for i, part := range h.Parts {
		out.Parts[i] = ledger.Part{Container: part.Container, Phase: part.Phase}
		for _, s := range part.Shares {
			if index, ok := to.Index(from.Card(s.Card).ID); ok {
				s.Card = index
				out.Parts[i].Shares = append(out.Parts[i].Shares, s)
			}
		}
	}
	return out
}
