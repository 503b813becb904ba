package wire

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// Holds reports whether the pod holds the cards it was given: it is bound and
// has not come to its end. A pod that is being deleted still holds.
func Holds(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// HolderOf returns the name under which a pod is booked.
func HolderOf(pod *corev1.Pod) ledger.Holder {
	return ledger.Holder(pod.Namespace + "/" + pod.Name)
}

// VictimOf returns the pod as one that could be evicted.
func VictimOf(pod *corev1.Pod) *place.Victim {
	v := &place.Victim{Holder: HolderOf(pod), Priority: ptr.Deref(pod.Spec.Priority, 0)}
	if pod.Status.StartTime != nil {
		v.Started = pod.Status.StartTime.Time
	}
	return v
}

// NewNode opens the account of the node with the given pods on it, those that
// hold nothing left aside. The notes tell what an operator should know.
func (inv *Inventory) NewNode(pods []*corev1.Pod) (n *ledger.Node, notes []string) {
	n = inv.Open()
	for _, pod := range pods {
		if !Holds(pod) || !Asks(pod) {
			continue
		}
		h, known, said := inv.BookingOf(n, pod)
		notes = append(notes, said...)
		if known {
			n.Book(h)
		} else {
			n.BookUnknown(HolderOf(pod))
		}
	}
	inv.Settle(n)
	return n, notes
}

// BookingOf returns what is booked for a bound pod. It is what [Inventory.HoldingOf]
// reads; a pod of which that can read nothing is unknown only if it may hold
// cards, and is booked with none otherwise. Every account of a node asks here.
func (inv *Inventory) BookingOf(n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	ask, asks := AdmitBound(pod)
	return inv.BookingFor(n, pod, ask, asks)
}

// BookingFor is [Inventory.BookingOf] for a pod whose request is known: ask and
// asks are what [AdmitBound] returned.
func (inv *Inventory) BookingFor(n *ledger.Node, pod *corev1.Pod, ask *Ask, asks bool) (h ledger.Holding, known bool, notes []string) {
	none := ledger.Holding{Holder: HolderOf(pod)}
	if n.Counted && !CanHold(pod) {
		return none, true, nil // nothing but its request could be read
	}
	h, known, notes = inv.holdingFor(n, pod, ask, asks)
	switch {
	case known || inv.mayHold(pod):
		return h, known, notes
	case CanHold(pod):
		notes = append(notes, fmt.Sprintf("pod %s on %s: the node's agent gave it no cards, and kubelet reports none: it holds none", HolderOf(pod), n.Name))
		return none, true, notes
	}
	return none, true, nil
}

// mayHold reports whether a pod without a readable allocation may hold cards. On
// a node that the vendor's plugin serves every pod that can hold cards may. On a
// node that Daybreak serves cards are given to pods with an allocation alone; the
// others hold what another plugin gave them before, which the agent lists on the
// Device.
func (inv *Inventory) mayHold(pod *corev1.Pod) bool {
	if !CanHold(pod) {
		return false
	}
	_, listed := inv.given[pod.UID]
	return listed || inv.unlisted || inv.ServedBy != ServedByDaybreak
}

// CanHold reports whether the pod can hold cards at all: kubelet calls a device
// plugin for what a container has in its limits, and only for these resources.
func CanHold(pod *corev1.Pod) bool { return hasLimit(pod, pluginResources...) }

// hasLimit reports whether a container has some of one of the resources in its
// limits.
func hasLimit(pod *corev1.Pod, names ...corev1.ResourceName) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range names {
				if q, ok := list[i].Resources.Limits[name]; ok && q.Sign() > 0 {
					return true
				}
			}
		}
	}
	return false
}

// pluginResources are the resources that a node's device plugin serves.
var pluginResources = []corev1.ResourceName{ResourceGPU, ResourceSGPU}

// Open opens the account of the node with nothing on it. Whoever books pods by
// hand calls Settle when all are booked.
func (inv *Inventory) Open() *ledger.Node {
	n := ledger.NewNode(inv.Name, inv.Topology, inv.Serves)
	n.Problem, n.Paused, n.Counted, n.Vendor = inv.Problem, inv.Paused, inv.Counted, inv.Vendor
	if len(inv.strangers) > 0 {
		n.SetForeign(inv.strangers)
	}
	return n
}

// Settle books what the node reports in use beyond what its pods account for.
// Coming are those among the booked that the node can't have reported yet.
func (inv *Inventory) Settle(n *ledger.Node, coming ...ledger.Holding) {
	if len(inv.reported) > 0 {
		n.SetForeign(inv.foreign(n, coming))
	}
}

// foreign returns what is in use of each card beyond what pods account for. A
// card that someone has to himself is not looked at: what the node reports of
// it is not defined.
func (inv *Inventory) foreign(n *ledger.Node, coming []ledger.Holding) []ledger.Usage {
	usage := make([]ledger.Usage, n.Topology().Len())
	for i, r := range inv.reported {
		if i >= len(usage) {
			break
		}
		booked := n.Now().Usage[i]
		for k := range coming {
			if coming[k].Cards().Has(i) {
				u := coming[k].On(i)
				booked.Slots, booked.Memory, booked.Compute = booked.Slots-u.Slots, booked.Memory-u.Memory, booked.Compute-u.Compute
			}
		}
		if !r.known || booked.Exclusive || r.used.Slots <= booked.Slots {
			continue
		}
		usage[i] = ledger.Usage{
			Slots:   r.used.Slots - booked.Slots,
			Memory:  max(0, r.used.Memory-booked.Memory),
			Compute: max(0, r.used.Compute-booked.Compute),
			QoS:     r.used.QoS,
		}
	}
	return usage
}

// HoldingOf reads what a bound pod holds on the node, from its annotations. It
// is not known when none can be read; a pod whose counts are all zero holds
// nothing. The notes tell what an operator should know.
func HoldingOf(n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	ask, asks := AdmitBound(pod)
	return holdingFor(n, pod, ask, asks)
}

func holdingFor(n *ledger.Node, pod *corev1.Pod, ask *Ask, asks bool) (h ledger.Holding, known bool, notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("pod %s on %s: ", HolderOf(pod), n.Name)+fmt.Sprintf(format, args...))
	}
	if !asks {
		return ledger.Holding{Holder: HolderOf(pod)}, true, nil
	}
	if n.Counted {
		h, known = countedHolding(n, pod, ask)
		return h, known, nil
	}
	b := booking{node: n, pod: pod, ask: ask, containers: containers(pod)}
	for _, source := range b.sources() {
		read, lost, err := source.read()
		if err != nil {
			note("%s: %v", source.key, err)
			continue
		}
		for _, id := range lost {
			note("%s names card %s, which the node does not have", source.key, id)
		}
		if !known {
			h, known = read, true
			continue
		}
		if !sameCards(&h, &read) {
			note("%s tells other amounts than the annotations before it: booked at the larger", source.key)
			if larger(&read, &h) {
				h = read
			}
		}
	}
	if !known {
		note("no annotation tells its cards")
	}
	return h, known, notes
}

// countedHolding books by number, on a node whose cards have no identity. A
// pod that does not even fit in number leaves nothing for anyone else.
func countedHolding(n *ledger.Node, pod *corev1.Pod, ask *Ask) (ledger.Holding, bool) {
	if ask == nil {
		return ledger.Holding{}, false
	}
	request := ask.Request
	// The pod is there: neither its lists matter any more, nor whether the node
	// takes others.
	request.Allow, request.Deny = nil, nil
	open := *n
	open.Paused = ""
	offer, refusal := place.Fit(&open, &request, &ask.Prefer)
	if refusal.Code != place.Fits {
		return ledger.Holding{}, false
	}
	return n.Holding(&offer, HolderOf(pod), &request), true
}

// booking reads what one pod holds.
type booking struct {
	node       *ledger.Node
	pod        *corev1.Pod
	ask        *Ask // nil when the pod's request makes no sense to us
	containers []container
}

// source is one annotation, or one group, that tells what a pod holds.
type source struct {
	key  string
	read func() (h ledger.Holding, lost []string, err error)
}

// sources lists the annotations that the pod has, the most trusted first.
func (b *booking) sources() []source {
	var list []source
	if text, ok := b.pod.Annotations[AnnotationAllocated]; ok {
		list = append(list, source{AnnotationAllocated, func() (ledger.Holding, []string, error) {
			lists, err := decodeVendor(text)
			if err != nil {
				return ledger.Holding{}, nil, err
			}
			return b.holding(lists)
		}})
	}
	sgpu, gpuText := b.pod.Annotations[AnnotationHAMiSGPU], b.pod.Annotations[AnnotationHAMiGPU]
	if key := AnnotationHAMiSGPU; sgpu != "" || gpuText != "" {
		if sgpu == "" {
			key = AnnotationHAMiGPU
		}
		list = append(list, source{key, func() (ledger.Holding, []string, error) {
			lists, err := decodeHAMi(b.node.Name, sgpu, gpuText)
			if err != nil {
				return ledger.Holding{}, nil, err
			}
			return b.holding(lists)
		}})
	}
	if text, ok := b.pod.Annotations[AnnotationKoordAllocated]; ok {
		list = append(list, source{AnnotationKoordAllocated, func() (ledger.Holding, []string, error) {
			shares, err := decodeKoordinator(text, b.node)
			if err != nil {
				return ledger.Holding{}, nil, err
			}
			return b.podHolding(shares)
		}})
	}
	return list
}

// namedShare is a share as an annotation tells it.
type namedShare struct {
	id      string
	compute int64
	memory  gpu.MiB
}

var (
	errOtherNode = errors.New("was written for another node: " + AnnotationHAMiNode + " differs from spec.nodeName")
	errNoCard    = errors.New("names no card")
)

// holding turns an annotation with a list for each container into a holding,
// no larger than what the pod asked for. Cards that the node does not have are
// returned by name. A list without cards for a container that asks for some
// tells nothing: the container runs, so it has cards.
func (b *booking) holding(lists [][]namedShare) (h ledger.Holding, lost []string, err error) {
	if len(lists) == 1 && len(b.containers) > 1 {
		return b.podHolding(lists[0]) // of a writer that knows pods only
	}
	perPart, err := b.spread(lists)
	if err != nil {
		return h, nil, err
	}
	if h, err = b.empty(); err != nil {
		return h, nil, err
	}
	named := 0
	for i := range h.Parts {
		var most *gpu.Request
		if b.ask != nil {
			most = &b.ask.Request.Requests[i]
			perPart[i] = perPart[i][:min(len(perPart[i]), most.Cards)]
			if most.Cards > 0 && most.Phase != gpu.Init && len(perPart[i]) == 0 {
				return h, nil, fmt.Errorf("%w for container %s", errNoCard, most.Container)
			}
		}
		named += len(perPart[i])
		for _, s := range perPart[i] {
			share, ok := b.share(s)
			if !ok {
				lost = append(lost, s.id)
				continue
			}
			if most != nil {
				share = atMost(share, b.node.ShareOf(most, share.Card))
			}
			h.Parts[i].Shares = append(h.Parts[i].Shares, share)
		}
	}
	if named == 0 {
		return h, nil, errNoCard
	}
	return h, lost, nil
}

// podHolding turns an annotation that tells of the pod as a whole into a
// holding, no larger than what all its containers asked for together. It is
// put down to the first container that asks.
func (b *booking) podHolding(shares []namedShare) (h ledger.Holding, lost []string, err error) {
	if h, err = b.empty(); err != nil {
		return h, nil, err
	}
	if len(shares) == 0 {
		return h, nil, errNoCard
	}
	part := &h.Parts[b.firstAsking()]
	part.Phase = gpu.App
	var left ledger.Share
	if b.ask != nil {
		shares = shares[:min(len(shares), b.ask.Request.Cards())]
		left = b.limit()
	}
	for _, s := range shares {
		share, ok := b.share(s)
		if !ok {
			lost = append(lost, s.id)
			continue
		}
		if b.ask != nil {
			share = atMost(atMost(share, b.limitOn(share.Card)), left)
			left.Compute -= share.Compute
			left.Memory -= share.Memory
		}
		part.Shares = append(part.Shares, share)
	}
	return h, lost, nil
}

// limit returns what the containers asked for together, over all cards.
func (b *booking) limit() ledger.Share {
	all, t := ledger.Share{Exclusive: true}, b.node.Topology()
	var memory gpu.MiB // of the largest card, where a ratio means most
	for i := range t.Len() {
		memory = max(memory, t.Card(i).Memory)
	}
	for i := range b.ask.Request.Requests {
		req := &b.ask.Request.Requests[i]
		all.Compute += gpu.Percent(req.Cards) * req.Compute
		all.Memory += gpu.MiB(req.Cards) * req.Memory.Of(memory)
	}
	return all
}

// limitOn returns what the containers asked for together, should they all be
// on one card.
func (b *booking) limitOn(card int) ledger.Share {
	most := ledger.Share{Card: card}
	for i := range b.ask.Request.Requests {
		if req := &b.ask.Request.Requests[i]; req.Cards > 0 {
			each := b.node.ShareOf(req, card)
			most.Compute = min(gpu.FullCompute, most.Compute+each.Compute)
			most.Memory += each.Memory
			most.Exclusive = most.Exclusive || each.Exclusive
		}
	}
	return most
}

// empty returns the pod's holding without shares.
func (b *booking) empty() (ledger.Holding, error) {
	if node, ok := b.pod.Annotations[AnnotationHAMiNode]; ok && node != b.node.Name {
		return ledger.Holding{}, errOtherNode
	}
	h := ledger.Holding{Holder: HolderOf(b.pod), QoS: gpu.BestEffort}
	if b.ask != nil {
		h.QoS, h.Class = b.ask.Request.QoS, b.ask.Request.Class
	}
	h.Parts = make([]ledger.Part, len(b.containers))
	for i := range b.containers {
		h.Parts[i] = ledger.Part{Container: b.containers[i].name, Phase: b.containers[i].phase}
	}
	return h, nil
}

// share finds the card of a share that an annotation tells of.
func (b *booking) share(s namedShare) (ledger.Share, bool) {
	index, ok := b.node.Topology().Index(gpu.CardID(s.id))
	compute := gpu.Percent(s.compute)
	return ledger.Share{Card: index, Compute: compute, Memory: s.memory.RoundUp(), Exclusive: compute == gpu.FullCompute}, ok
}

// atMost limits a share to what was asked for: nobody holds more than his
// limits by writing it down.
func atMost(s, most ledger.Share) ledger.Share {
	s.Compute = min(s.Compute, most.Compute)
	s.Memory = min(s.Memory, most.Memory)
	s.Exclusive = s.Exclusive && most.Exclusive && s.Compute == gpu.FullCompute
	return s
}

// spread gives each container its list. Annotations have one list for each
// container, init containers first; those of writers that know of no init
// containers have one for each app container.
func (b *booking) spread(lists [][]namedShare) ([][]namedShare, error) {
	all, apps := len(b.containers), len(b.pod.Spec.Containers)
	out := make([][]namedShare, all)
	switch len(lists) {
	case all:
		copy(out, lists)
	case apps:
		copy(out[all-apps:], lists)
	default:
		return nil, fmt.Errorf("has entries for %d containers, the pod has %d", len(lists), all)
	}
	return out, nil
}

func (b *booking) firstAsking() int {
	if b.ask != nil {
		for i := range b.ask.Request.Requests {
			if b.ask.Request.Requests[i].Cards > 0 {
				return i
			}
		}
	}
	return min(len(b.containers)-len(b.pod.Spec.Containers), len(b.containers)-1)
}

// sameCards reports whether two readings book the same amounts.
func sameCards(a, b *ledger.Holding) bool {
	for c := range (a.Cards() | b.Cards()).All() {
		ua, ub := a.On(c), b.On(c)
		if ua.Memory != ub.Memory || ua.Compute != ub.Compute {
			return false
		}
	}
	return true
}

// larger reports whether a books more than b: more cards, then more compute,
// then more memory.
func larger(a, b *ledger.Holding) bool {
	ca, pa, ma := size(a)
	cb, pb, mb := size(b)
	if ca != cb {
		return ca > cb
	}
	if pa != pb {
		return pa > pb
	}
	return ma > mb
}

func size(h *ledger.Holding) (cards int, compute gpu.Percent, memory gpu.MiB) {
	for c := range h.Cards().All() {
		u := h.On(c)
		cards, compute, memory = cards+1, compute+u.Compute, memory+u.Memory
	}
	return cards, compute, memory
}

// isCountedName tells HAMi's made-up card names from real ones.
func isCountedName(node, id string) bool { return strings.HasPrefix(id, node+"-metax-") }
