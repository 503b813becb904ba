package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Given is what a pod's containers were given of a node's cards by a device
// plugin that picks cards itself. Nothing on such a pod tells; the node's agent
// reads it from kubelet's ids and says so on the Device.
type Given struct {
	// Holder is the pod's name, empty where the writer left it out.
	Holder ledger.Holder
	// Cards are those of each container, by name. A container without any has
	// cards whose names are not known.
	Cards map[string][]gpu.CardID
}

// givenEntry is a [Given] in the annotation. The UID identifies the pod. Its name
// is written for readers of the previous release, which compare it and would take
// the node out of service without; the next release leaves it out, since every
// user of the dashboard may read Devices.
type givenEntry struct {
	UID        types.UID               `json:"uid"`
	Pod        ledger.Holder           `json:"pod,omitempty"`
	Containers map[string][]gpu.CardID `json:"containers"`
}

// maxGiven bounds the list: as many pods as a node has slices.
const maxGiven = gpu.MaxCards * gpu.MaxSlices

// encodeGiven writes our own annotation on a Device. It lists all pods or none: a
// pod that is missing in the list holds no cards. Where there is no room for all,
// the text is empty.
func encodeGiven(given map[types.UID]Given) (string, error) {
	list := make([]givenEntry, 0, len(given))
	for _, uid := range slices.Sorted(maps.Keys(given)) {
		list = append(list, givenEntry{uid, given[uid].Holder, given[uid].Cards})
	}
	text, err := json.Marshal(list)
	if len(list) > maxGiven || len(text) > maxAnnotation/2 {
		return "", err
	}
	return string(text), err
}

// decodeGiven reads it.
func decodeGiven(text string) (map[types.UID]Given, error) {
	if err := checkSize(text); err != nil {
		return nil, err
	}
	var list []givenEntry
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	if len(list) > maxGiven {
		return nil, fmt.Errorf("%d pods, at most %d are read", len(list), maxGiven)
	}
	given := make(map[types.UID]Given, len(list))
	for i := range list {
		e := &list[i]
		if err := e.validate(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if _, ok := given[e.UID]; ok {
			return nil, fmt.Errorf("entry %d: pod %.80q is listed twice", i, e.UID)
		}
		given[e.UID] = Given{Holder: e.Pod, Cards: e.Containers}
	}
	return given, nil
}

func (e *givenEntry) validate() error {
	const longestUID = 128
	switch {
	case e.UID == "" || len(e.UID) > longestUID:
		return fmt.Errorf("uid %.40q: want 1 to %d characters", e.UID, longestUID)
	case e.Pod != "" && strings.Count(string(e.Pod), "/") != 1:
		return fmt.Errorf("pod %.80q: want its namespace and name as pod, or nothing", e.UID)
	case len(e.Containers) == 0 || len(e.Containers) > maxListedContainers:
		return fmt.Errorf("pod %.80q has %d containers, want 1 to %d", e.UID, len(e.Containers), maxListedContainers)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Containers)) {
		cards := e.Containers[name]
		shares := make([]namedShare, len(cards))
		for i, id := range cards {
			if !validUUID(string(id)) {
				return fmt.Errorf("card %.40q: %s", id, wantUUID)
			}
			shares[i].id = string(id)
		}
		if err := distinct(shares); err != nil {
			return err
		}
	}
	return nil
}

// HoldingOf reads what a bound pod holds on the node. Where the node's agent has
// told what kubelet gave the pod, that is it; else the pod's annotations tell,
// see [HoldingOf].
func (inv *Inventory) HoldingOf(n *ledger.Node, pod *corev1.Pod) (h ledger.Holding, known bool, notes []string) {
	ask, asks := AdmitBound(pod)
	return inv.holdingFor(n, pod, ask, asks)
}

func (inv *Inventory) holdingFor(n *ledger.Node, pod *corev1.Pod, ask *Ask, asks bool) (h ledger.Holding, known bool, notes []string) {
	g, ok := inv.given[pod.UID]
	if !ok || !asks || g.Holder != "" && g.Holder != HolderOf(pod) || n.Counted {
		return holdingFor(n, pod, ask, asks)
	}
	b := booking{node: n, pod: pod, ask: ask, containers: containers(pod)}
	h, lost, err := b.holding(b.given(&g))
	if err != nil {
		said := fmt.Sprintf("pod %s on %s: annotation %s of the Device: %v", HolderOf(pod), n.Name, AnnotationGiven, err)
		h, known, notes = holdingFor(n, pod, ask, asks)
		return h, known, append(notes, said)
	}
	for _, id := range lost {
		notes = append(notes, fmt.Sprintf("pod %s on %s: kubelet gave it card %s, which the node does not have", HolderOf(pod), n.Name, id))
	}
	return h, true, notes
}

// given lists what each container has: as much of the cards as it asks for.
func (b *booking) given(g *Given) [][]namedShare {
	lists := make([][]namedShare, len(b.containers))
	for i := range b.containers {
		for _, id := range g.Cards[b.containers[i].name] {
			s := namedShare{id: string(id), compute: int64(gpu.FullCompute)}
			if at, ok := b.node.Topology().Index(id); ok {
				s.memory = b.node.Topology().Card(at).Memory
			}
			lists[i] = append(lists[i], s)
		}
	}
	return lists
}

// CardOfID returns the card that one of the vendor's device ids stands for: the
// card's UUID by itself for a whole card, with "::" and a number for a seat on
// a shared one, with a dash and two numbers for a slice.
func CardOfID(t *gpu.Topology, id string) (card gpu.CardID, ok bool) {
	for i := range t.Len() {
		uuid := t.Card(i).ID
		rest, found := strings.CutPrefix(id, string(uuid))
		if uuid == "" || !found {
			continue
		}
		seat, isSeat := strings.CutPrefix(rest, "::")
		a, b, isSlice := strings.Cut(strings.TrimPrefix(rest, "-"), ":")
		if rest == "" || isSeat && isNumber(seat) || isSlice && rest[0] == '-' && isNumber(a) && isNumber(b) {
			return uuid, true
		}
	}
	return "", false
}

func isNumber(s string) bool {
	return s != "" && len(s) < 10 && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}
