package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// cardSizes are the sizes of cards that nodes may have.
var cardSizes = map[string]gpu.MiB{"": 64 << 10, "small": 32 << 10}

// modelNode is a node with room for all pods of a history but their cards.
func modelNode(name string) *corev1.Node {
	node := makeNode(name)
	node.Labels = map[string]string{corev1.LabelHostname: name}
	node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	node.Status.Capacity = node.Status.Allocatable
	return node
}

// opNode adds a node with n cards of a size.
func opNode(w *world, s step) bool {
	if w.api.node(s.who) != nil || w.left[s.who] != nil || cardSizes[s.what] == 0 {
		return false
	}
	w.api.put(kindNode, modelNode(s.who))
	w.api.memory[s.who] = cardSizes[s.what]
	var cards []string
	for i := range s.n {
		cards = append(cards, fmt.Sprintf("GPU-%s-%d", s.who, i))
	}
	w.publish(s.who, cards, nil)
	return true
}

// publish stores a Device with the cards in this order.
func (w *world) publish(node string, cards []string, sick map[string]bool) {
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("device-" + node)}}
	if w.api.everHad[node] == nil {
		w.api.everHad[node] = map[string]bool{}
	}
	memory := *resource.NewQuantity(int64(w.api.memory[node])*wire.Mebibyte, resource.BinarySI)
	for i, card := range cards {
		w.api.everHad[node][card] = true
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: card, Minor: new(int32(i)), Health: !sick[card],
			Resources: corev1.ResourceList{wire.KoordMemory: memory},
			Labels:    map[string]string{wire.LabelLinkZone: "1"},
			// The agent has not listed what foreign pods hold.
			Conditions: []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionTrue}},
		})
	}
	w.api.put(kindDevice, &device{ObjectMeta: d.ObjectMeta, spec: d})
}

// opCounted adds a node of the vendor's with n cards that have no identity.
func opCounted(w *world, s step) bool {
	if w.api.node(s.who) != nil || w.left[s.who] != nil {
		return false
	}
	node := modelNode(s.who)
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor, wire.AnnotationScores: "{}"}
	cards := *resource.NewQuantity(int64(s.n), resource.DecimalSI)
	node.Status.Allocatable = corev1.ResourceList{wire.ResourceGPU: cards, corev1.ResourcePods: resource.MustParse("110")}
	node.Status.Capacity = node.Status.Allocatable
	w.api.memory[s.who] = cardSizes[""]
	w.api.put(kindNode, node)
	return true
}

// opLeave takes a node out of the cluster. Its pods stay until they are deleted, and
// its Device until its agent ends.
func opLeave(w *world, s step) bool {
	node := w.api.node(s.who)
	if node == nil {
		return false
	}
	w.left[s.who] = node
	w.api.remove(kindNode, s.who)
	return true
}

// opJoin brings a node back.
func opJoin(w *world, s step) bool {
	node := w.left[s.who]
	if node == nil {
		return false
	}
	delete(w.left, s.who)
	w.births++
	now := node.DeepCopy()
	now.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.who, w.births))
	now.Spec.Unschedulable, now.Spec.Taints = false, nil
	w.api.put(kindNode, now)
	return true
}

// opCordon cordons a node, or uncordons it.
func opCordon(w *world, s step) bool {
	return w.retaint(s.who, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, func(node *corev1.Node, cordoned bool) {
		node.Spec.Unschedulable = cordoned
	})
}

// opTaint taints a node, or removes the taint.
func opTaint(w *world, s step) bool {
	return w.retaint(s.who, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}, nil)
}

// retaint puts the taint on the node if it is not there, or takes it off.
func (w *world) retaint(name string, taint corev1.Taint, more func(node *corev1.Node, on bool)) bool {
	node := w.api.node(name)
	if node == nil {
		return false
	}
	now := node.DeepCopy()
	at := slices.IndexFunc(now.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
	if at < 0 {
		now.Spec.Taints = append(now.Spec.Taints, taint)
	} else {
		now.Spec.Taints = slices.Delete(now.Spec.Taints, at, at+1)
	}
	if more != nil {
		more(now, at < 0)
	}
	w.api.put(kindNode, now)
	return true
}

// opDevice is an agent that reads its cards again.
func opDevice(w *world, s step) bool {
	dev := w.api.device(s.who)
	if dev == nil {
		if s.what == "back" && w.api.everHad[s.who] != nil {
			w.publish(s.who, w.cardsOf(s.who), nil)
			return true
		}
		return false
	}
	var cards []string
	sick := map[string]bool{}
	for i := range dev.spec.Spec.Devices {
		card := &dev.spec.Spec.Devices[i]
		cards = append(cards, card.UUID)
		sick[card.UUID] = !card.Health
	}
	card := fmt.Sprintf("GPU-%s-%d", s.who, s.n)
	at := slices.Index(cards, card)
	switch {
	case s.what == "turn" && len(cards) > 1:
		cards = append(cards[1:], cards[0])
	case s.what == "swap" && len(cards) > 1:
		cards[0], cards[1] = cards[1], cards[0]
	case s.what == "sick" && at >= 0 && !sick[card], s.what == "well" && at >= 0 && sick[card]:
		sick[card] = s.what == "sick"
	case s.what == "lose" && at >= 0 && len(cards) > 1:
		cards = slices.Delete(cards, at, at+1)
	case s.what == "find" && at < 0 && w.api.everHad[s.who][card]:
		cards = append(cards, card)
	case s.what == "gone":
		w.api.remove(kindDevice, s.who)
		return true
	default:
		return false
	}
	w.publish(s.who, cards, sick)
	return true
}

// cardsOf returns all cards that the node ever had.
func (w *world) cardsOf(node string) []string {
	cards := make([]string, len(w.api.everHad[node]))
	for i := range cards {
		cards[i] = fmt.Sprintf("GPU-%s-%d", node, i)
	}
	return cards
}

// opLabel changes a node in a way that means nothing.
func opLabel(w *world, s step) bool {
	node := w.api.node(s.who)
	if node == nil {
		return false
	}
	now := node.DeepCopy()
	metav1.SetMetaDataLabel(&now.ObjectMeta, "seen", formatVersion(w.api.version))
	w.api.put(kindNode, now)
	return true
}
