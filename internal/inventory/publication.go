package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Publication is everything that an agent says of its node's cards.
// [EncodeDevice] makes a Device of it and [DecodePublication] reads it back,
// which is how an agent that restarts remembers.
type Publication struct {
	Node    string
	NodeUID types.UID
	// Driver is the version of the kernel driver, or empty.
	Driver string
	Mode   gpu.Mode
	// Pending is the mode that waits for pods to end, or empty.
	Pending gpu.Mode
	// ForeignSlices is what foreign slices take, card by card.
	ForeignSlices map[gpu.CardID]ForeignSlice
	// PluginAllocations is what kubelet gave to pods without an allocation: all of
	// them, or nil while that is not known.
	PluginAllocations map[types.UID]PluginAllocation
	// Topology has the cards in the order of their minor numbers, lost ones
	// among them, and the links that work.
	Topology *gpu.Topology
	// Cards says of each card of the topology what the topology does not.
	Cards []CardStatus
}

// CardStatus is what is published of a card in addition to what placement needs.
type CardStatus struct {
	// BusID is the PCI address, PCIeRoot the root complex; empty if unknown.
	BusID, PCIeRoot string
	// Errors counts the uncorrectable memory errors seen so far; nil if unknown.
	Errors *int64
	// Conditions are Healthy and others, see [wire.ConditionHealthy].
	Conditions []metav1.Condition
}

// EncodeDevice returns the Device that says all this. The order of the cards
// is the topology's.
func EncodeDevice(p *Publication) (*v1alpha1.Device, error) {
	if len(p.Cards) != p.Topology.Len() {
		return nil, fmt.Errorf("device of %s: %d cards with the status of %d", p.Node, p.Topology.Len(), len(p.Cards))
	}
	links, err := EncodeLinks(p.Topology)
	if err != nil {
		return nil, fmt.Errorf("device of %s: %w", p.Node, err)
	}
	d := &v1alpha1.Device{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        p.Node,
			Labels:      map[string]string{wire.LabelVendor: wire.VendorMetaX},
			Annotations: map[string]string{wire.AnnotationLinks: links},
		},
	}
	if p.NodeUID != "" {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.Node, UID: p.NodeUID}}
	}
	for key, mode := range map[string]gpu.Mode{wire.AnnotationMode: p.Mode, wire.AnnotationModePending: p.Pending} {
		if mode != "" {
			d.Annotations[key] = string(mode)
		}
	}
	if len(p.ForeignSlices) > 0 {
		if d.Annotations[wire.AnnotationForeignSlices], err = encodeForeignSlices(p.ForeignSlices); err != nil {
			return nil, fmt.Errorf("device of %s: %w", p.Node, err)
		}
	}
	if p.PluginAllocations != nil {
		text, err := encodePluginAllocations(p.PluginAllocations)
		if err != nil {
			return nil, fmt.Errorf("device of %s: %w", p.Node, err)
		}
		if text != "" {
			d.Annotations[wire.AnnotationPluginAllocations] = text
		}
	}
	if model := CommonestModel(p.Topology); model != "" {
		d.Labels[wire.LabelModel] = model
	}
	if driver := labelValue(p.Driver); driver != "" {
		d.Labels[wire.LabelDriver] = driver
	}
	for i := range p.Cards {
		d.Spec.Devices = append(d.Spec.Devices, encodeCard(p.Topology, i, &p.Cards[i]))
	}
	return d, nil
}

func encodeCard(t *gpu.Topology, i int, s *CardStatus) v1alpha1.DeviceInfo {
	c := t.Card(i)
	zone, _ := t.ZoneOf(i)
	numa := int32(-1)
	if c.NUMAKnown {
		numa = int32(c.NUMA)
	}
	labels := map[string]string{wire.LabelLinkZone: strconv.Itoa(zone)}
	for key, value := range map[string]string{wire.LabelModel: c.Model, wire.LabelPCIeSwitch: c.Switch} {
		if value = labelValue(value); value != "" {
			labels[key] = value
		}
	}
	if s.Errors != nil {
		labels[wire.LabelErrors] = strconv.FormatInt(*s.Errors, 10)
	}
	return v1alpha1.DeviceInfo{
		Type: v1alpha1.DeviceTypeGPU, UUID: string(c.ID), Minor: new(int32(c.Minor)), Health: c.Healthy, Labels: labels,
		Resources: corev1.ResourceList{
			wire.KoordCore:        *resource.NewQuantity(int64(gpu.FullCompute), resource.DecimalSI),
			wire.KoordMemory:      *resource.NewQuantity(int64(c.Memory)*wire.Mebibyte, resource.BinarySI),
			wire.KoordMemoryRatio: *resource.NewQuantity(100, resource.DecimalSI),
		},
		Topology:   &v1alpha1.DeviceTopology{SocketID: -1, NodeID: numa, PCIEID: s.PCIeRoot, BusID: s.BusID},
		Conditions: s.Conditions,
	}
}

// CommonestModel returns the model that most cards have, as a label; of equals
// the one that comes first.
func CommonestModel(t *gpu.Topology) string {
	count := map[string]int{}
	for i := range t.Len() {
		count[t.Card(i).Model]++
	}
	best := ""
	for i := range t.Len() {
		if model := t.Card(i).Model; best == "" || count[model] > count[best] {
			best = model
		}
	}
	return labelValue(best)
}

// labelValue makes a text fit for a label: what a label can't have becomes a
// dash. "C500 VF" is C500-VF, "0000:3b:00.0" is 0000-3b-00.0.
func labelValue(s string) string {
	const most = 63
	plain := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	s = strings.Map(func(r rune) rune {
		if plain(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	s = s[:min(len(s), most)]
	return strings.TrimFunc(s, func(r rune) bool { return !plain(r) })
}

// DecodePublication reads a Device that an agent wrote, to the letter: unlike
// an inventory it is not completed from anywhere.
func DecodePublication(device *v1alpha1.Device) (*Publication, error) {
	d, err := decodeDevice(device)
	if err != nil {
		return nil, err
	}
	p := &Publication{
		Node: device.Name, Driver: device.Labels[wire.LabelDriver],
		Mode: d.mode, ForeignSlices: d.foreign, PluginAllocations: d.given,
	}
	if err := decodeAnnotation(device, wire.AnnotationModePending, decodeMode, &p.Pending); err != nil {
		return nil, err
	}
	for _, o := range device.OwnerReferences {
		if o.Kind == "Node" && o.Name == device.Name {
			p.NodeUID = o.UID
		}
	}
	for i := range d.cards {
		p.Cards = append(p.Cards, statusOf(d.cards[i].info))
	}
	p.Topology, err = gpu.NewTopology(gpuCards(d.cards), d.links)
	return p, err
}

func statusOf(info *v1alpha1.DeviceInfo) CardStatus {
	s := CardStatus{Conditions: info.Conditions}
	if t := info.Topology; t != nil {
		s.BusID, s.PCIeRoot = t.BusID, t.PCIEID
	}
	if n, err := strconv.ParseInt(info.Labels[wire.LabelErrors], 10, 64); err == nil && n >= 0 {
		s.Errors = &n
	}
	return s
}

// KeepTransitions gives every condition that was there before with the same
// status the time of its last transition, so that an unchanged card is written
// as it was.
func KeepTransitions(now []metav1.Condition, before []metav1.Condition) {
	for i := range now {
		if c := meta.FindStatusCondition(before, now[i].Type); c != nil && c.Status == now[i].Status {
			now[i].LastTransitionTime = c.LastTransitionTime
		}
	}
}

// CardList reads a list of UUIDs that an operator wrote, with commas or spaces
// in between.
func CardList(text string) []gpu.CardID {
	var ids []gpu.CardID
	for _, id := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		if validUUID(id) && len(ids) < gpu.MaxCards {
			ids = append(ids, gpu.CardID(id))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
