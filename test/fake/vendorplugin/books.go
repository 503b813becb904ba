package vendorplugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// books is what the plugin has allocated on a node. It does not use Daybreak's
// ledger, so that a mistake there is detected here.
type books struct {
	mode gpu.Mode
	// cards is the node with nothing allocated.
	cards []inventory.NodeCard
	pods  []podCards // in the order they came

	topology *gpu.Topology // for whole cards
}

// podCards is what a pod has.
type podCards struct {
	uid    types.UID
	name   string
	qos    gpu.QoS // empty for pods that are alone on their cards, and online ones
	shares []share
}

// share is what a pod has of one card, all its containers together.
type share struct {
	UUID    string `json:"uuid"`
	Compute int    `json:"compute"`
	VRam    int64  `json:"vRam"`
	slots   int
}

func newBooks(mode gpu.Mode, t *gpu.Topology) *books {
	b := &books{mode: mode, topology: t}
	for i := range t.Len() {
		c := t.Card(i)
		zone, _ := t.ZoneOf(i)
		b.cards = append(b.cards, inventory.NodeCard{
			UUID: string(c.ID), BDF: fmt.Sprintf("0000:%02x:00.0", 0x11+i), Model: "sgpu", TotalDevCount: c.Slots, TotalCompute: 100,
			TotalVRam: int64(c.Memory), NUMA: c.NUMA, Healthy: c.Healthy, LinkZone: zone,
		})
	}
	return b
}

// addForeign books a slice that belongs to no pod.
func (b *books) addForeign(card, compute int, memory gpu.MiB, qos gpu.QoS) {
	b.pods = append(b.pods, podCards{
		name: "foreign", qos: qos,
		shares: []share{{UUID: b.cards[card].UUID, Compute: compute, VRam: int64(memory), slots: 1}},
	})
}

func (b *books) has(uid types.UID) bool {
	return slices.ContainsFunc(b.pods, func(p podCards) bool { return p.uid == uid })
}

func (b *books) release(uid types.UID) {
	b.pods = slices.DeleteFunc(b.pods, func(p podCards) bool { return p.uid == uid })
}

// add books a pod's cards and returns what is wrong with them.
func (b *books) add(pod *corev1.Pod) (problems []string) {
	p := podCards{uid: pod.UID, name: pod.Name, qos: gpu.QoS(pod.Annotations[wire.AnnotationQoS])}
	if b.mode == gpu.ModeNative {
		p.qos = ""
		p.shares, problems = b.pick(pod)
	} else {
		p.shares, problems = sharesOf(pod)
	}
	if gpu.Class(pod.Annotations[wire.AnnotationClass]) == gpu.Online {
		p.qos = ""
	}
	b.pods = append(b.pods, p)
	for _, s := range p.shares {
		problems = append(problems, b.check(s.UUID)...)
	}
	return problems
}

// sharesOf reads the pod's annotation: a list for each container, init
// containers first. The containers after an init container reuse its cards.
func sharesOf(pod *corev1.Pod) (shares []share, problems []string) {
	var lists [][]share
	if err := json.Unmarshal([]byte(pod.Annotations[wire.AnnotationAllocated]), &lists); err != nil {
		return nil, []string{fmt.Sprintf("%s: %v", wire.AnnotationAllocated, err)}
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	if len(lists) != len(containers) {
		return nil, []string{fmt.Sprintf("%d lists for %d containers", len(lists), len(containers))}
	}
	var together, alone []share
	for i := range containers {
		c := &containers[i]
		asked := c.Resources.Limits[wire.ResourceSGPU]
		if int64(len(lists[i])) != asked.Value() {
			problems = append(problems, fmt.Sprintf("container %s requests %s cards and got %d", c.Name, asked.String(), len(lists[i])))
		}
		init := i < len(pod.Spec.InitContainers) && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
		for _, s := range lists[i] {
			s.slots = 1
			if init {
				alone = append(alone, s)
			} else {
				together = plusShare(together, s)
			}
		}
	}
	for _, s := range alone {
		together = atLeast(together, s)
	}
	return together, problems
}

// plusShare adds a share to those of its card.
func plusShare(list []share, s share) []share {
	if i := indexOf(list, s.UUID); i >= 0 {
		list[i].Compute += s.Compute
		list[i].VRam += s.VRam
		list[i].slots += s.slots
		return list
	}
	return append(list, s)
}

// atLeast raises what is allocated of a card to the share.
func atLeast(list []share, s share) []share {
	if i := indexOf(list, s.UUID); i >= 0 {
		list[i].Compute = max(list[i].Compute, s.Compute)
		list[i].VRam = max(list[i].VRam, s.VRam)
		list[i].slots = max(list[i].slots, s.slots)
		return list
	}
	return append(list, s)
}

func indexOf(list []share, uuid string) int {
	return slices.IndexFunc(list, func(s share) bool { return s.UUID == uuid })
}

// used returns what is allocated of a card, to which pods, in which classes.
func (b *books) used(uuid string) (sum share, pods []string, classes map[gpu.QoS]bool, exclusive bool) {
	classes = map[gpu.QoS]bool{}
	for _, p := range b.pods {
		i := indexOf(p.shares, uuid)
		if i < 0 {
			continue
		}
		s := p.shares[i]
		sum.Compute, sum.VRam, sum.slots = sum.Compute+s.Compute, sum.VRam+s.VRam, sum.slots+s.slots
		pods = append(pods, p.name)
		switch {
		case s.Compute == 100:
			exclusive = true
		case p.qos != "":
			classes[p.qos] = true
		}
	}
	return sum, pods, classes, exclusive
}

// check returns what is wrong with a card.
func (b *books) check(uuid string) []string {
	i := slices.IndexFunc(b.cards, func(c inventory.NodeCard) bool { return c.UUID == uuid })
	if i < 0 {
		return []string{"got card " + uuid + ", which the node does not have"}
	}
	card := &b.cards[i]
	used, pods, classes, exclusive := b.used(uuid)
	switch {
	case used.Compute > card.TotalCompute, used.VRam > card.TotalVRam, used.slots > card.TotalDevCount, exclusive && len(pods) > 1, len(classes) > 1, !card.Healthy:
		return []string{fmt.Sprintf("card %d is over-allocated: %+v to %v, classes %v", i, used, pods, classes)}
	}
	return nil
}

// free returns the whole cards without a holder.
func (b *books) free() gpu.Set {
	free := b.topology.Healthy()
	for i := range free.All() {
		if _, pods, _, _ := b.used(b.cards[i].UUID); len(pods) > 0 {
			free &^= gpu.SetOf(i)
		}
	}
	return free
}

// pick chooses whole cards.
func (b *books) pick(pod *corev1.Pod) (shares []share, problems []string) {
	n := 0
	for i := range pod.Spec.Containers {
		q := pod.Spec.Containers[i].Resources.Limits[wire.ResourceGPU]
		n += int(q.Value())
	}
	request := gpu.PodRequest{Requests: []gpu.Request{{Cards: n, Whole: true, Exclusive: true, Compute: gpu.FullCompute, Memory: gpu.AllMemory()}}}
	offer, refusal := place.Fit(b.node(), &request, &place.Preference{Node: place.Binpack})
	if refusal.Code != place.Fits {
		return nil, []string{fmt.Sprintf("%d whole cards are asked for, %d are free", n, b.free().Len())}
	}
	for i := range offer.Cards(0).All() {
		shares = append(shares, share{UUID: b.cards[i].UUID, Compute: 100, VRam: b.cards[i].TotalVRam, slots: 1})
	}
	return shares, nil
}

// node returns the node with what is in use.
func (b *books) node() *ledger.Node {
	node := ledger.NewNode("", b.topology, ledger.Serves{Whole: true})
	for i := range (b.topology.All() &^ b.free()).All() {
		node.Book(ledger.Holding{Holder: ledger.Holder(strconv.Itoa(i)), Parts: []ledger.Part{{Shares: []ledger.Share{{Card: i, Compute: 100, Exclusive: true}}}}})
	}
	return node
}

// annotations returns what the plugin publishes on the node: the cards and what
// is left of them, or the scores of the free ones.
func (b *books) annotations() (map[string]string, error) {
	if b.mode == gpu.ModeNative {
		scores, losses := inventory.Tables(b.node())
		s, err := inventory.EncodeTable(scores)
		l, err2 := inventory.EncodeTable(losses)
		return map[string]string{wire.AnnotationScores: s, wire.AnnotationLosses: l}, cmp.Or(err, err2)
	}
	cards := slices.Clone(b.cards)
	for i := range cards {
		used, _, classes, _ := b.used(cards[i].UUID)
		cards[i].AvailableDevCount = new(cards[i].TotalDevCount - used.slots)
		cards[i].AvailableCompute = new(cards[i].TotalCompute - used.Compute)
		cards[i].AvailableVRam = new(cards[i].TotalVRam - used.VRam)
		for _, q := range gpu.QoSClasses() {
			if classes[q] {
				cards[i].QoSPolicy = q
			}
		}
	}
	text, err := inventory.EncodeNodeCards(cards)
	return map[string]string{wire.AnnotationNodeCards: text}, err
}
