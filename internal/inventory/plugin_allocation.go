package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PluginAllocation is what a pod's containers were given of a node's cards by a device
// plugin that picks cards itself. Such a pod has no allocation; the node's agent
// reads it from kubelet's ids and says so on the Device.
type PluginAllocation struct {
	// Cards are those of each container, by name. A container without any has
	// cards whose names are not known.
	Cards map[string][]gpu.CardID `json:"containers"`
}

// pluginEntry is a [PluginAllocation] in the annotation. The UID identifies the pod; its
// name is not written, since every user of the dashboard may read Devices.
type pluginEntry struct {
	UID types.UID `json:"uid"`
	PluginAllocation
}

// maxGiven bounds the list: as many pods as a node has slices.
const maxGiven = gpu.MaxCards * gpu.MaxSlices

// encodePluginAllocations writes our own annotation on a Device. It lists all pods or none: a
// pod that is missing in the list holds no cards. Where there is no room for all,
// the text is empty.
func encodePluginAllocations(given map[types.UID]PluginAllocation) (string, error) {
	list := make([]pluginEntry, 0, len(given))
	for _, uid := range slices.Sorted(maps.Keys(given)) {
		list = append(list, pluginEntry{uid, given[uid]})
	}
	text, err := json.Marshal(list)
	if len(list) > maxGiven || len(text) > wire.MaxAnnotation/2 {
		return "", err
	}
	return string(text), err
}

// decodePluginAllocations reads it.
func decodePluginAllocations(text string) (map[types.UID]PluginAllocation, error) {
	var list []pluginEntry
	if err := wire.DecodeAnnotation(text, &list); err != nil {
		return nil, err
	}
	if len(list) > maxGiven {
		return nil, fmt.Errorf("%d pods, at most %d are read", len(list), maxGiven)
	}
	given := make(map[types.UID]PluginAllocation, len(list))
	for i := range list {
		e := &list[i]
		if err := e.validate(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if _, ok := given[e.UID]; ok {
			return nil, fmt.Errorf("entry %d: pod %.80q is listed twice", i, e.UID)
		}
		given[e.UID] = e.PluginAllocation
	}
	return given, nil
}

func (e *pluginEntry) validate() error {
	const longestUID = 128
	switch {
	case e.UID == "" || len(e.UID) > longestUID:
		return fmt.Errorf("uid %.40q: want 1 to %d characters", e.UID, longestUID)
	case len(e.Cards) == 0 || len(e.Cards) > wire.MaxListedContainers:
		return fmt.Errorf("pod %.80q has %d containers, want 1 to %d", e.UID, len(e.Cards), wire.MaxListedContainers)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Cards)) {
		for _, id := range e.Cards[name] {
			if !validUUID(string(id)) {
				return fmt.Errorf("card %.40q: %s", id, wantUUID)
			}
		}
		if err := wire.CheckCards(e.Cards[name]); err != nil {
			return err
		}
	}
	return nil
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
