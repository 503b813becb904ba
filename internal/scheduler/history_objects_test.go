package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// opNode adds a node with n cards.
func opNode(w *world, s step) bool {
	if w.api.node(s.who) != nil {
		return false
	}
	w.api.put(kindNode, makeNode(s.who))
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
	for i, card := range cards {
		w.api.everHad[node][card] = true
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: card, Minor: new(int32(i)), Health: !sick[card],
			Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
			Labels:    map[string]string{wire.LabelLinkZone: "1"},
			// The agent has not listed what foreign pods hold.
			Conditions: []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionTrue}},
		})
	}
	w.api.put(kindDevice, &device{ObjectMeta: d.ObjectMeta, spec: d})
}

// opCounted adds a node of the vendor's with n cards that have no identity.
func opCounted(w *world, s step) bool {
	if w.api.node(s.who) != nil {
		return false
	}
	node := makeNode(s.who)
	cards := *resource.NewQuantity(int64(s.n), resource.DecimalSI)
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor, wire.AnnotationScores: "{}"}
	node.Status.Capacity = corev1.ResourceList{wire.ResourceGPU: cards}
	node.Status.Allocatable = corev1.ResourceList{wire.ResourceGPU: cards}
	w.api.put(kindNode, node)
	return true
}

// unreadable is an allocation that can't be read.
const unreadable = `[[{"uuid":`

// opForeign adds a pod that someone else bound to the node, with the node's last
// card to itself, which only becomes known later.
func opForeign(w *world, s step) bool {
	if w.api.node(s.what) == nil || w.api.pod(s.who) != nil || w.starts > 0 {
		return false
	}
	w.births++
	pod := makePod(s.who, whole(1), annotated(wire.AnnotationAllocated, unreadable), boundTo(s.what))
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.who, w.births))
	pod.Spec.SchedulerName = "someone-else"
	w.api.put(kindPod, pod)
	return true
}

// opCure makes known which card a foreign pod holds.
func opCure(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Annotations[wire.AnnotationAllocated] != unreadable {
		return false
	}
	dev := w.api.device(pod.Spec.NodeName)
	if dev == nil || len(dev.spec.Spec.Devices) == 0 {
		return false
	}
	last := fmt.Sprintf("GPU-%s-%d", pod.Spec.NodeName, len(w.api.everHad[pod.Spec.NodeName])-1)
	text, err := json.Marshal([][]map[string]any{{{"uuid": last, "compute": 100, "vRam": 64 << 10}}})
	if err != nil {
		return false
	}
	now := pod.DeepCopy()
	now.Annotations[wire.AnnotationAllocated] = string(text)
	w.api.put(kindPod, now)
	return true
}

// opQuota lets the namespace have n percent of compute. What a scheduler sees when it
// starts may be some changes old, but it always sees a quota.
func opQuota(w *world, s step) bool {
	if w.api.budget == nil {
		if w.starts > 0 {
			return false
		}
		w.api.budget = new(int64)
	}
	*w.api.budget = max(*w.api.budget, int64(s.n))
	for range 4 {
		w.api.put(kindQuota, makeQuota(s.who, map[corev1.ResourceName]string{quota.LimitVCore: strconv.Itoa(s.n)}))
	}
	return true
}

// shapes are what pods ask for.
var shapes = map[string]podOption{
	"small": slice(30, 16), "half": slice(50, 32), "large": slice(60, 40), "one": whole(1), "two": whole(2),
}

// shapeNames has the shapes in order.
var shapeNames = []string{"small", "half", "large", "one", "two"}

// opPod creates a pod of a shape and a priority.
func opPod(w *world, s step) bool {
	if w.api.pod(s.who) != nil || shapes[s.what] == nil {
		return false
	}
	w.births++
	pod := makePod(s.who, shapes[s.what], priority(int32(s.n)))
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.who, w.births))
	pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(w.births) * time.Second))
	w.api.put(kindPod, pod)
	return true
}

func opDelete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	return pod != nil && pod.DeletionTimestamp == nil && w.api.deletePod(s.who, "") == nil
}

// opRemove is kubelet, which has ended a pod that was deleted.
func opRemove(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.DeletionTimestamp == nil {
		return false
	}
	w.api.remove(kindPod, s.who)
	return true
}

// opComplete is a pod that has done its work.
func opComplete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || !wire.Holds(pod) {
		return false
	}
	now := pod.DeepCopy()
	now.Status.Phase = corev1.PodSucceeded
	w.api.put(kindPod, now)
	return true
}

// opAnnotate changes what a waiting pod prefers.
func opAnnotate(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Spec.NodeName != "" {
		return false
	}
	now := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&now.ObjectMeta, wire.AnnotationCardPolicy, s.what)
	w.api.put(kindPod, now)
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
