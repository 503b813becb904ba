package view

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Status is the answer of the status command. Its JSON form is a contract:
// fields may be added, none renamed or removed.
type Status struct {
	Cluster ClusterStatus   `json:"cluster"`
	Nodes   []NodeStatus    `json:"nodes"`
	Pending []PendingStatus `json:"pending"`
	Notes   []string        `json:"notes,omitempty"`
}

// ClusterStatus adds the nodes up. Free is what healthy cards of nodes that take
// pods have left.
type ClusterStatus struct {
	Nodes          int            `json:"nodes"`
	NodesWithCards int            `json:"nodesWithCards"`
	Cards          int            `json:"cards"`
	Healthy        int            `json:"healthy"`
	Models         map[string]int `json:"models"`
	Free           Free           `json:"free"`
	Total          Amounts        `json:"total"`
	Pending        int            `json:"pending"`
	// FragmentationPercent is the part of what is free that pods like those in the
	// cluster could not use. It is null where that is not known; FragmentationUnknown
	// says why, with one of the constants below.
	FragmentationPercent *int   `json:"fragmentationPercent"`
	FragmentationUnknown string `json:"fragmentationUnknown,omitempty"`
	// Violations counts the rules of the audit that are broken; it is left out where
	// none was made.
	Violations *int `json:"violations,omitempty"`
	// InUse counts healthy cards with pods on them, and Allocated is what is booked on
	// healthy cards.
	InUse     int     `json:"inUse"`
	Allocated Amounts `json:"allocated"`
	// Zones have two linked cards or more; a whole one is all healthy and idle.
	Zones      int `json:"zones"`
	WholeZones int `json:"wholeZones"`
}

// Why the fragmentation is not known.
const (
	// TooFewPods are in the cluster to say what is of use to pods like them.
	TooFewPods = "TooFewPods"
	// NothingFree: there is nothing that could be fragmented.
	NothingFree = "NothingFree"
)

// Amounts is compute and memory of several cards: 100 percent is one card.
type Amounts struct {
	ComputePercent int64 `json:"computePercent"`
	MemoryMiB      int64 `json:"memoryMiB"`
}

// Free is what can still be handed out.
type Free struct {
	Amounts
	// WholeCards are idle, on a node that hands out whole cards; LinkedCards is the
	// most of them in one zone.
	WholeCards  int `json:"wholeCards"`
	LinkedCards int `json:"linkedCards"`
	// LargestSlice is what the card with the most room has left.
	LargestSlice Amounts `json:"largestSlice"`
}

// NodeStatus is a node with its cards.
type NodeStatus struct {
	Name     string `json:"name"`
	Mode     string `json:"mode"`
	ServedBy string `json:"servedBy"`
	// Ready and Schedulable are Kubernetes' word on the node; a node of which
	// only the Device was read counts as both.
	Ready       bool `json:"ready"`
	Schedulable bool `json:"schedulable"`
	// Taint is the first taint that keeps pods with cards off, unless they tolerate
	// more than admission has them tolerate.
	Taint string       `json:"taint,omitempty"`
	Zones int          `json:"zones"`
	Free  Free         `json:"free"`
	Cards []CardStatus `json:"cards"`
	// Problem says why the cards can't be read; Unaccounted are pods whose
	// cards are not known. Either keeps new pods off the node.
	Problem string `json:"problem,omitempty"`
	// Paused says why the node takes no pods for now, though its cards are well.
	Paused string `json:"paused,omitempty"`
	// MissingDevice says why none of its cards is known, on a node that Daybreak
	// serves.
	MissingDevice string   `json:"missingDevice,omitempty"`
	Unaccounted   []string `json:"unaccounted,omitempty"`
	// Links are the pairs of cards that are joined directly, see [Status.ForPage].
	Links [][2]int `json:"links,omitzero"`
}

// CardStatus is a card with what is on it.
type CardStatus struct {
	UUID    string `json:"uuid"`
	Index   int    `json:"index"`
	Model   string `json:"model"`
	Healthy bool   `json:"healthy"`
	// HealthReason says why a card is not healthy.
	HealthReason string `json:"healthReason,omitempty"`
	// Zone and NUMA are null where there is none or it is not known.
	Zone               *int   `json:"zone"`
	NUMA               *int   `json:"numa"`
	MemoryMiB          int64  `json:"memoryMiB"`
	MemoryFreeMiB      int64  `json:"memoryFreeMiB"`
	ComputeFreePercent int32  `json:"computeFreePercent"`
	Slots              int    `json:"slots"`
	SlotsFree          int    `json:"slotsFree"`
	QoS                string `json:"qos"`
	Exclusive          bool   `json:"exclusive"`
	// Shares are by container. [Status.ForPage] puts Holders in their place.
	Shares  []ShareStatus  `json:"shares,omitzero"`
	Holders []HolderStatus `json:"holders,omitzero"`
	// Free is what can still be handed out of the card: nothing while it is
	// unhealthy, held as a whole, or out of slices or memory.
	Free Amounts `json:"free"`
	// ForeignSlices belong to no pod, and Foreign is what they take.
	ForeignSlices int      `json:"foreignSlices,omitempty"`
	Foreign       *Amounts `json:"foreign,omitempty"`
	// Switch names the PCIe switch, if it is known.
	Switch string `json:"switch,omitempty"`
	// Violations are the rules of the audit that are broken on the card.
	Violations []audit.Rule `json:"violations,omitempty"`
}

// OutOfSlices reports whether the card is shared by as many as it takes: no more
// can join, whatever compute and memory are left.
func (c *CardStatus) OutOfSlices() bool { return c.Slots > 0 && c.SlotsFree == 0 && !c.Exclusive }

// ShareStatus is what a container holds of a card.
type ShareStatus struct {
	Namespace      string `json:"namespace"`
	Pod            string `json:"pod"`
	Container      string `json:"container"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
	QoS            string `json:"qos,omitempty"`
	Class          string `json:"class,omitempty"`
	Exclusive      bool   `json:"exclusive,omitempty"`
	// Init containers give back what they hold before the others start.
	Init bool `json:"init,omitempty"`
}

// PendingStatus is a pod that asks for cards and has no node.
type PendingStatus struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Created   *time.Time `json:"created,omitempty"`
	Wants     string     `json:"wants,omitempty"`
	// Code is the reason that most nodes gave, those without cards left aside, or
	// one of the two constants below. Reasons has all of them.
	Code    string         `json:"code"`
	Reasons []place.Reason `json:"reasons,omitempty"`
	// Message says in one sentence why it waits.
	Message string `json:"message"`

	Asked
}

// Why a pod waits that cards are not refused to.
const (
	// CodeInadmissible: its request is invalid.
	CodeInadmissible = "Inadmissible"
	// CodeOther: cards are free for it; it waits for something else.
	CodeOther = "Other"
)

// NewStatus looks at the cluster. Pending pods of other namespaces than the
// given one are left out; no namespace means all.
func NewStatus(s *cluster.Snapshot, namespace string) *Status {
	st := &Status{Nodes: []NodeStatus{}, Pending: []PendingStatus{}, Notes: s.Notes}
	st.Cluster.Models = map[string]int{}
	filter := cluster.NewNodeFilter(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: s.Tolerations()}})
	for i, n := range s.Nodes {
		node := nodeStatus(n, s.Inventories[i], &s.Facts[i])
		node.Taint = filter.Taint(s.Facts[i].Node)
		if node.MissingDevice = s.MissingDevice(i); node.MissingDevice != "" {
			node.ServedBy = wire.ServedByDaybreak
		}
		st.Cluster.add(n, &node)
		st.Nodes = append(st.Nodes, node)
	}
	st.Cluster.fragmentation(s)
	judge := newJudge(s, place.Default)
	for _, pod := range s.Pending {
		if wire.Asks(pod) && (namespace == "" || namespace == pod.Namespace) {
			if p, ok := judge.pending(pod); ok {
				st.Pending = append(st.Pending, p)
			}
		}
	}
	st.Cluster.Pending = len(st.Pending)
	return st
}

// fragmentation sets the part of what is free that is of no use.
func (c *ClusterStatus) fragmentation(s *cluster.Snapshot) {
	free, useless, known := s.Waste()
	switch {
	case !known:
		c.FragmentationUnknown = TooFewPods
	case free <= 0:
		c.FragmentationUnknown = NothingFree
	default:
		c.FragmentationPercent = new(int(math.Round(100 * useless / free)))
	}
}

// Mark adds what an audit of the same cluster found: how many violations there
// are, and the rules that are broken on each card.
func (s *Status) Mark(report *audit.Report) {
	s.Cluster.Violations = new(len(report.Violations))
	nodes := make(map[string]*NodeStatus, len(s.Nodes))
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range report.Violations {
		f := &report.Violations[i]
		node := nodes[f.Node]
		if node == nil || f.Index == nil || *f.Index >= len(node.Cards) {
			continue // it is not about a card
		}
		c := &node.Cards[*f.Index]
		if !slices.Contains(c.Violations, f.Rule) {
			c.Violations = append(c.Violations, f.Rule)
		}
	}
}

func (c *ClusterStatus) add(n *ledger.Node, node *NodeStatus) {
	c.Nodes++
	if !node.HasCards() {
		return
	}
	c.NodesWithCards++
	c.Cards += len(node.Cards)
	c.Healthy += n.Topology().Healthy().Len()
	for i := range node.Cards {
		c.Models[cmp.Or(node.Cards[i].Model, "unknown")]++
		if node.Cards[i].Healthy {
			c.Total.ComputePercent += int64(gpu.FullCompute)
			c.Total.MemoryMiB += node.Cards[i].MemoryMiB
		}
	}
	c.addUse(n, node)
	if !node.TakesPods() {
		return
	}
	c.Free.ComputePercent += node.Free.ComputePercent
	c.Free.MemoryMiB += node.Free.MemoryMiB
	c.Free.WholeCards += node.Free.WholeCards
	c.Free.LinkedCards = max(c.Free.LinkedCards, node.Free.LinkedCards)
	if larger(node.Free.LargestSlice, c.Free.LargestSlice) {
		c.Free.LargestSlice = node.Free.LargestSlice
	}
}

// addUse adds what is booked on the healthy cards of a node.
func (c *ClusterStatus) addUse(n *ledger.Node, node *NodeStatus) {
	var idle gpu.Set
	for i := range n.Topology().Healthy().All() {
		card := &node.Cards[i]
		c.Allocated.ComputePercent += int64(gpu.FullCompute) - int64(card.ComputeFreePercent)
		c.Allocated.MemoryMiB += card.MemoryMiB - card.MemoryFreeMiB
		if n.Now().Usage[i].Idle() {
			idle |= gpu.SetOf(i)
		} else {
			c.InUse++
		}
	}
	for _, zone := range n.Topology().Zones() {
		c.Zones++
		if zone&idle == zone {
			c.WholeZones++
		}
	}
}

// TakesPods reports whether Kubernetes gives the node pods.
func (n *NodeStatus) TakesPods() bool { return n.Ready && n.Schedulable && n.Taint == "" }

// HasCards reports whether the node has cards, or should have some.
func (n *NodeStatus) HasCards() bool {
	return len(n.Cards) > 0 || n.Problem != "" || n.MissingDevice != ""
}

func nodeStatus(n *ledger.Node, inv *inventory.Inventory, facts *cluster.Facts) NodeStatus {
	node := NodeStatus{
		Name: n.Name, Mode: modeOf(inv), ServedBy: inv.ServedBy, Ready: facts.Node == nil || cluster.Ready(facts.Node) == corev1.ConditionTrue,
		Schedulable: facts.Node == nil || !facts.Node.Spec.Unschedulable, Zones: len(n.Topology().Zones()), Cards: []CardStatus{},
	}
	if n.Problem != nil {
		node.Problem = n.Problem.Error()
	}
	node.Paused = n.Paused
	for _, holder := range n.Unknown() {
		node.Unaccounted = append(node.Unaccounted, string(holder))
	}
	reasons := healthReasons(facts.Device)
	shares := sharesByCard(n)
	for i := range n.Topology().Len() {
		c := cardStatus(n, i)
		c.Shares = append(c.Shares, shares[i]...)
		if !c.Healthy {
			c.HealthReason = reasons[c.UUID]
		}
		node.Cards = append(node.Cards, c)
	}
	node.Free = freeOf(n)
	return node
}

// modeOf returns how the node hands its cards out, from what it serves where
// nothing says so.
func modeOf(inv *inventory.Inventory) string {
	switch {
	case inv.Mode != "":
		return string(inv.Mode)
	case inv.Serves.Seats:
		return string(gpu.ModeShared)
	case inv.Serves.Slices:
		return string(gpu.ModeSGPU)
	case inv.Serves.Whole:
		return string(gpu.ModeNative)
	}
	return ""
}

// healthReasons returns what the Device's conditions say of unhealthy cards, by
// UUID.
func healthReasons(device *v1alpha1.Device) map[string]string {
	reasons := map[string]string{}
	if device == nil {
		return reasons
	}
	for i := range device.Spec.Devices {
		info := &device.Spec.Devices[i]
		for _, c := range info.Conditions {
			if c.Type == "Healthy" && c.Status != "True" {
				reasons[info.UUID] = strings.Trim(c.Reason+": "+c.Message, ": ")
			}
		}
	}
	return reasons
}

func cardStatus(n *ledger.Node, i int) CardStatus {
	t := n.Topology()
	card, usage := t.Card(i), &n.Now().Usage[i]
	c := CardStatus{
		UUID: string(card.ID), Index: i, Model: card.Model, Healthy: card.Healthy,
		MemoryMiB: int64(card.Memory), MemoryFreeMiB: int64(max(0, card.Memory-usage.Memory)),
		ComputeFreePercent: int32(max(0, gpu.FullCompute-usage.Compute)),
		Slots:              card.Slots, SlotsFree: max(0, card.Slots-int(usage.Slots)),
		QoS: string(usage.QoS.Only()), Exclusive: usage.Exclusive, Shares: []ShareStatus{}, Free: freeOfCard(n, i),
		Switch: card.Switch,
	}
	if f := &n.WithoutPods().Usage[i]; f.Slots > 0 {
		c.ForeignSlices, c.Foreign = int(f.Slots), &Amounts{ComputePercent: int64(f.Compute), MemoryMiB: int64(f.Memory)}
	}
	if zone, ok := t.ZoneOf(i); ok {
		c.Zone = new(zone)
	}
	if card.NUMAKnown {
		c.NUMA = new(card.NUMA)
	}
	return c
}

// sharesByCard lists who holds what of each card, in the order of pods.
func sharesByCard(n *ledger.Node) [][]ShareStatus {
	shares := make([][]ShareStatus, n.Topology().Len())
	holdings := slices.Clone(n.Holdings())
	slices.SortFunc(holdings, func(a, b ledger.Holding) int { return cmp.Compare(a.Holder, b.Holder) })
	for i := range holdings {
		h := &holdings[i]
		namespace, pod, _ := strings.Cut(string(h.Holder), "/")
		for _, part := range h.Parts {
			for _, s := range part.Shares {
				qos := h.QoS
				if s.Exclusive {
					qos = ""
				}
				shares[s.Card] = append(shares[s.Card], ShareStatus{
					Namespace: namespace, Pod: pod, Container: part.Container, ComputePercent: int32(s.Compute), MemoryMiB: int64(s.Memory),
					QoS: string(qos), Class: string(h.Class), Exclusive: s.Exclusive, Init: part.Phase == gpu.Init,
				})
			}
		}
	}
	return shares
}

// freeOf returns what the node can still hand out: nothing while its cards are
// not known.
func freeOf(n *ledger.Node) Free {
	var f Free
	if !handsOut(n) {
		return f
	}
	t := n.Topology()
	var idle gpu.Set
	for i := range t.Healthy().All() {
		if n.Now().Usage[i].Idle() && n.Serves.Whole {
			idle |= gpu.SetOf(i)
		}
		left := freeOfCard(n, i)
		f.ComputePercent += left.ComputePercent
		f.MemoryMiB += left.MemoryMiB
		if larger(left, f.LargestSlice) {
			f.LargestSlice = left
		}
	}
	f.WholeCards = idle.Len()
	for _, zone := range t.Zones() {
		if n := (zone & idle).Len(); n > 1 {
			f.LinkedCards = max(f.LinkedCards, n)
		}
	}
	return f
}

// handsOut reports whether the node hands out cards, as far as they are free.
func handsOut(n *ledger.Node) bool {
	return n.Problem == nil && n.Paused == "" && len(n.Unknown()) == 0
}

// freeOfCard returns what the node can still hand out of a card. One that has no
// slice or no memory left can give nothing, whatever else is left.
func freeOfCard(n *ledger.Node, i int) Amounts {
	card, usage := n.Topology().Card(i), &n.Now().Usage[i]
	if !handsOut(n) || !card.Healthy || usage.Exclusive || int(usage.Slots) >= card.Slots || usage.Memory >= card.Memory {
		return Amounts{}
	}
	return Amounts{int64(max(0, gpu.FullCompute-usage.Compute)), int64(card.Memory - usage.Memory)}
}

// larger compares what two cards have left: compute first, since that is what
// usually runs out, then memory.
func larger(a, b Amounts) bool {
	return a.ComputePercent > b.ComputePercent || a.ComputePercent == b.ComputePercent && a.MemoryMiB > b.MemoryMiB
}
