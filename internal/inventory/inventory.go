package inventory

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Inventory is what is known of a node's cards before any pod is looked at. It
// is immutable and may be kept for as long as the node and its Device stay the
// same.
type Inventory struct {
	Name     string
	Topology *gpu.Topology
	Serves   ledger.Serves
	// Mode is what the Device says, or empty.
	Mode gpu.Mode
	// ServedBy is whose plugin serves the node.
	ServedBy string
	// Problem says why the cards can't be read.
	Problem error
	// Paused says why the node takes no pods for now, or is empty.
	Paused string
	// Counted reports whether the cards have no identity.
	Counted bool
	Vendor  ledger.VendorTable
	// Notes are findings that an operator should see, such as a card that only
	// one of two sources knows.
	Notes []string

	// reported is, by card, what the node itself says is in use, slices that belong
	// to no pod included; empty where it does not say. Foreign is what our agent
	// says that foreign slices take.
	reported, foreign []ledger.Usage
	// given is, by pod, what our agent says that kubelet gave. Unlisted means that
	// an agent serves the node, or may do so, and has not said that: it has not
	// asked kubelet yet, or there is no room for the list.
	given    map[types.UID]PluginAllocation
	unlisted bool
}

// ReadInventory reads the cards of a node: from its Device, else from the
// vendor's annotation, else from the number of whole cards it advertises. Node
// or device may be nil, not both. It never fails: what can't be read is the
// inventory's Problem.
func ReadInventory(node *corev1.Node, device *v1alpha1.Device) *Inventory {
	inv := &Inventory{ServedBy: wire.ServedByVendor}
	if node != nil {
		inv.Name = node.Name
		if node.Annotations[wire.AnnotationServedBy] == wire.ServedByDaybreak {
			inv.ServedBy = wire.ServedByDaybreak
		}
	} else {
		// A Device by itself is what our own agent publishes.
		inv.Name = device.Name
		inv.ServedBy = wire.ServedByDaybreak
		node = &corev1.Node{}
	}
	if inv.Problem = inv.read(node, device); inv.Problem != nil {
		inv.Topology = nil
	}
	return inv
}

func (inv *Inventory) read(node *corev1.Node, device *v1alpha1.Device) error {
	annotation, annotated := node.Annotations[wire.AnnotationNodeCards]
	switch {
	case device != nil && DescribesCards(device):
		return inv.fromDevice(node, device)
	case annotated:
		return inv.fromAnnotation(node, annotation)
	case quantity(node, wire.ResourceGPU) > 0:
		return inv.fromCapacity(node)
	case quantity(node, wire.ResourceSGPU) > 0:
		return fmt.Errorf("the node advertises %s, but neither a Device nor the annotation %s describes its cards", wire.ResourceSGPU, wire.AnnotationNodeCards)
	}
	return nil
}

// DescribesCards reports whether the Device is of MetaX cards: Koordinator keeps
// some for other vendors.
func DescribesCards(d *v1alpha1.Device) bool {
	vendor, ok := d.Labels[wire.LabelVendor]
	return !ok || vendor == wire.VendorMetaX
}

// quantity returns how much of the resource the node has.
func quantity(node *corev1.Node, name corev1.ResourceName) int64 {
	q := node.Status.Capacity[name]
	if a := node.Status.Allocatable[name]; q.IsZero() {
		q = a
	}
	return value(q)
}

// value returns q as the nearest int64: Quantity's own Value cuts the upper bits
// off, which can make 8 of a number past all counting.
func value(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) <= 0:
		return math.MinInt64
	}
	return q.Value()
}

// serves works out which kinds of request the node carries out. The vendor's
// plugin serves one kind on a node, and kubelet's counts show which; Daybreak's
// agent serves both.
func (inv *Inventory) serves(node *corev1.Node) {
	whole, slices := quantity(node, wire.ResourceGPU) > 0, quantity(node, wire.ResourceSGPU) > 0
	switch ours := inv.ServedBy == wire.ServedByDaybreak; {
	case inv.Mode == gpu.ModeNative || inv.Mode == gpu.ModeVGPU:
		inv.Serves = ledger.Serves{Whole: true}
	case inv.Mode == gpu.ModeShared:
		inv.Serves = ledger.Serves{Seats: true}
	case inv.Mode == gpu.ModeSGPU:
		inv.Serves = ledger.Serves{Slices: true, Whole: ours}
	case ours || !whole && !slices:
		inv.Serves = ledger.Serves{Whole: true, Slices: true}
	default:
		inv.Serves = ledger.Serves{Whole: whole, Slices: slices}
	}
}

// fromCapacity makes cards without identity: the vendor's plugin picks them.
func (inv *Inventory) fromCapacity(node *corev1.Node) error {
	n := quantity(node, wire.ResourceGPU)
	if n > gpu.MaxCards {
		return fmt.Errorf("the node advertises %d of %s, a node may hold %d cards", n, wire.ResourceGPU, gpu.MaxCards)
	}
	cards := make([]gpu.Card, n)
	for i := range cards {
		cards[i] = gpu.Card{
			Minor: i, Model: gpu.ModelName(node.Labels[wire.LabelProduct]), Memory: countedMemory, Slots: gpu.MaxSlices, Healthy: true,
		}
	}
	inv.Counted = true
	inv.Serves = ledger.Serves{Whole: true}
	var err error
	if inv.Vendor.Scores, err = decodeTable(node.Annotations[wire.AnnotationScores]); err != nil {
		return fmt.Errorf("%s: %w", wire.AnnotationScores, err)
	}
	if inv.Vendor.Losses, err = decodeTable(node.Annotations[wire.AnnotationLosses]); err != nil {
		return fmt.Errorf("%s: %w", wire.AnnotationLosses, err)
	}
	inv.Topology, err = gpu.NewTopology(cards, nil)
	return err
}

// countedMemory is what a card of unknown model is taken to have: a C500's.
// Whole cards are never refused for memory, so it is for show only.
const countedMemory gpu.MiB = 64 << 10

func (inv *Inventory) fromAnnotation(node *corev1.Node, annotation string) error {
	listed, err := DecodeNodeCards(annotation)
	if err != nil {
		return fmt.Errorf("%s: %w", wire.AnnotationNodeCards, err)
	}
	cards := make([]gpu.Card, len(listed))
	zones := make([]int, len(listed))
	reports := reportsUse(listed)
	for i := range listed {
		cards[i] = listed[i].card(i, gpu.ModelName(node.Labels[wire.LabelProduct]))
		zones[i] = listed[i].LinkZone
		if reports {
			inv.reported = append(inv.reported, listed[i].used())
		}
	}
	inv.serves(node)
	inv.Topology, err = gpu.NewTopology(cards, gpu.ZoneLinks(zones))
	return err
}
