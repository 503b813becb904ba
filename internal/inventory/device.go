package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// decoded is what a Device says, to the letter. [ReadInventory] and [DecodePublication]
// make their own of it.
type decoded struct {
	mode  gpu.Mode
	cards []deviceCard // in the order of their minor numbers
	links []gpu.Link   // of our own annotation
	// foreign and given are what our agent says is in use beyond what is on the pods;
	// nil where it does not say.
	foreign map[gpu.CardID]ForeignSlice
	given   map[types.UID]PluginAllocation
}

// deviceCard is a card with its zone in the Device.
type deviceCard struct {
	card gpu.Card
	zone int
	info *v1alpha1.DeviceInfo
}

// decodeDevice reads a Device. With an error, what could be read is returned.
func decodeDevice(d *v1alpha1.Device) (out decoded, err error) {
	out.cards, err = cardsOf(d)
	err = cmp.Or(
		decodeAnnotation(d, wire.AnnotationMode, decodeMode, &out.mode),
		err,
		decodeAnnotation(d, wire.AnnotationLinks, func(text string) ([]gpu.Link, error) { return decodeLinks(text, gpuCards(out.cards)) }, &out.links),
		decodeAnnotation(d, wire.AnnotationForeignSlices, decodeForeignSlices, &out.foreign),
		decodeAnnotation(d, wire.AnnotationPluginAllocations, decodePluginAllocations, &out.given),
	)
	return out, err
}

// decodeAnnotation reads an annotation, if it is there.
func decodeAnnotation[T any](d *v1alpha1.Device, key string, decode func(text string) (T, error), into *T) (err error) {
	if text, there := d.Annotations[key]; there {
		if *into, err = decode(text); err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
	}
	return nil
}

func decodeMode(text string) (gpu.Mode, error) {
	if mode := gpu.Mode(text); mode.Valid() {
		return mode, nil
	}
	return "", fmt.Errorf("%.40q is no mode: want native, sgpu, shared or vgpu", text)
}

func gpuCards(list []deviceCard) []gpu.Card {
	cards := make([]gpu.Card, len(list))
	for i := range list {
		cards[i] = list[i].card
	}
	return cards
}

// fromDevice makes an inventory of a Device. Links come from our own annotation on it;
// a Device without, which is not our agent's, is completed from the vendor's annotation
// on the node.
func (inv *Inventory) fromDevice(node *corev1.Node, device *v1alpha1.Device) error {
	d, err := decodeDevice(device)
	inv.Mode = d.mode
	inv.serves(node)
	inv.Paused = pausedBy(device)
	if err != nil {
		return err
	}
	if vendor, ok := node.Annotations[wire.AnnotationNodeCards]; ok && !IsComplete(device) && len(d.cards) > 0 {
		if d.cards, err = inv.complete(d.cards, vendor); err != nil {
			return err
		}
	}
	cards, zones := gpuCards(d.cards), make([]int, len(d.cards))
	for i := range cards {
		zones[i] = d.cards[i].zone
		cards[i].Model = cmp.Or(cards[i].Model, gpu.ModelName(node.Labels[wire.LabelProduct]))
		if t := d.cards[i].info.Topology; t != nil {
			cards[i].Switch = cmp.Or(cards[i].Switch, t.PCIEID)
		}
	}
	switch {
	case d.mode == gpu.ModeVGPU:
		d.links = nil // virtual functions have no links
	case !IsComplete(device):
		d.links = gpu.ZoneLinks(zones)
	}
	if inv.Topology, err = gpu.NewTopology(cards, d.links); err != nil {
		return err
	}
	if inv.given = d.given; d.given == nil {
		_, served := serving(device, "")
		inv.unlisted = served || node.Name == ""
	}
	if d.foreign != nil {
		inv.foreign = usageOf(d.foreign, inv.Topology)
	}
	return nil
}

// pausedBy returns why the node's agent hands no cards out. Devices without the
// condition are of others, or of agents that only look.
func pausedBy(d *v1alpha1.Device) string {
	if c, found := serving(d, metav1.ConditionTrue); found {
		return cmp.Or(c.Message, "its agent does not serve")
	}
	return ""
}

// serving returns a card's condition that says whether the node's agent serves
// it and that has another status than this one.
func serving(d *v1alpha1.Device, not metav1.ConditionStatus) (condition metav1.Condition, found bool) {
	for i := range d.Spec.Devices {
		for _, c := range d.Spec.Devices[i].Conditions {
			if c.Type == wire.ConditionServing && c.Status != not {
				return c, true
			}
		}
	}
	return metav1.Condition{}, false
}

// IsComplete reports whether the Device is an inventory by itself, as our own
// agent's are: then what the vendor's annotations on its node say is not read.
func IsComplete(d *v1alpha1.Device) bool {
	_, linked := d.Annotations[wire.AnnotationLinks]
	return linked && DescribesCards(d)
}

// cardsOf returns the Device's cards in the order of their minor numbers.
func cardsOf(d *v1alpha1.Device) ([]deviceCard, error) {
	var infos []deviceCard
	for i := range d.Spec.Devices {
		info := &d.Spec.Devices[i]
		if info.Type != v1alpha1.DeviceTypeGPU {
			continue
		}
		c, err := cardOf(d, info)
		if err != nil {
			return nil, fmt.Errorf("spec.devices[%d]: %w", i, err)
		}
		infos = append(infos, c)
	}
	if len(infos) > gpu.MaxCards { // their links would be as many as pairs
		return nil, fmt.Errorf("%w: %d cards, a node may hold %d", gpu.ErrTopology, len(infos), gpu.MaxCards)
	}
	slices.SortStableFunc(infos, func(a, b deviceCard) int { return cmp.Compare(a.card.Minor, b.card.Minor) })
	for i := 1; i < len(infos); i++ {
		if a, b := infos[i-1].card, infos[i].card; a.Minor == b.Minor {
			return nil, fmt.Errorf("cards %s and %s have the same minor number %d", a.ID, b.ID, a.Minor)
		}
	}
	return infos, nil
}

func cardOf(d *v1alpha1.Device, info *v1alpha1.DeviceInfo) (deviceCard, error) {
	if !validUUID(info.UUID) {
		return deviceCard{}, fmt.Errorf("id %.40q: %s", info.UUID, wantUUID)
	}
	if info.Minor == nil {
		return deviceCard{}, fmt.Errorf("card %s has no minor number", info.UUID)
	}
	memory := info.Resources[wire.KoordMemory]
	c := gpu.Card{
		ID: gpu.CardID(info.UUID), Minor: int(*info.Minor), Slots: gpu.MaxSlices, Healthy: info.Health,
		Memory: gpu.MiB(value(memory) / wire.Mebibyte).RoundDown(),
		Model:  gpu.ModelName(cmp.Or(info.Labels[wire.LabelModel], d.Labels[wire.LabelModel])),
		Switch: info.Labels[wire.LabelPCIeSwitch],
	}
	if t := info.Topology; t != nil {
		c.NUMA, c.NUMAKnown = int(t.NodeID), t.NodeID >= 0
	}
	zone := 0
	if label, ok := info.Labels[wire.LabelLinkZone]; ok {
		var err error
		if zone, err = strconv.Atoi(label); err != nil || zone < 0 {
			return deviceCard{}, fmt.Errorf("card %s: label %s: %.40q: want 0 or the number of a zone", info.UUID, wire.LabelLinkZone, label)
		}
	}
	return deviceCard{card: c, zone: zone, info: info}, nil
}

// complete adds what only the vendor's annotation knows: zones, slots and what
// is in use. Cards that only one of the two knows are left out.
func (inv *Inventory) complete(infos []deviceCard, annotation string) ([]deviceCard, error) {
	listed, err := DecodeNodeCards(annotation)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wire.AnnotationNodeCards, err)
	}
	byID := make(map[string]*NodeCard, len(listed))
	for i := range listed {
		byID[listed[i].UUID] = &listed[i]
	}
	if len(byID) != len(listed) {
		return nil, fmt.Errorf("%s: a card is listed twice", wire.AnnotationNodeCards)
	}
	reports := reportsUse(listed)
	var both []deviceCard
	for _, d := range infos {
		v, ok := byID[string(d.card.ID)]
		if !ok {
			inv.Notes = append(inv.Notes, fmt.Sprintf("card %s is in the Device but not in %s: left out", d.card.ID, wire.AnnotationNodeCards))
			continue
		}
		delete(byID, v.UUID)
		if d.zone == 0 {
			d.zone = v.LinkZone
		}
		d.card.Slots = v.card(0, "").Slots
		if reports {
			inv.reported = append(inv.reported, v.used())
		}
		both = append(both, d)
	}
	for i := range listed {
		if id := listed[i].UUID; byID[id] != nil {
			inv.Notes = append(inv.Notes, fmt.Sprintf("card %s is in %s but not in the Device: left out", id, wire.AnnotationNodeCards))
		}
	}
	if len(both) == 0 {
		return nil, errors.New("the Device and the annotation " + wire.AnnotationNodeCards + " have no card in common")
	}
	return both, nil
}
