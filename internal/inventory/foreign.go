package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ForeignSlice is what slices that no pod accounts for take of a card.
type ForeignSlice struct {
	Slices  int         `json:"slices"`
	Compute gpu.Percent `json:"compute"`
	Memory  gpu.MiB     `json:"memoryMiB"`
	QoS     gpu.QoS     `json:"qosPolicy,omitempty"`
}

// foreignEntry is a [ForeignSlice] in the annotation.
type foreignEntry struct {
	Card gpu.CardID `json:"card"`
	ForeignSlice
}

// encodeForeignSlices writes our own annotation on a Device: what is in use of its
// cards by slices that Daybreak did not make.
func encodeForeignSlices(byCard map[gpu.CardID]ForeignSlice) (string, error) {
	list := []foreignEntry{}
	for _, id := range slices.Sorted(maps.Keys(byCard)) {
		list = append(list, foreignEntry{id, byCard[id]})
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// decodeForeignSlices reads it.
func decodeForeignSlices(text string) (map[gpu.CardID]ForeignSlice, error) {
	var list []foreignEntry
	if err := wire.DecodeAnnotation(text, &list); err != nil {
		return nil, err
	}
	if len(list) > gpu.MaxCards {
		return nil, fmt.Errorf("%d cards, a node may hold %d", len(list), gpu.MaxCards)
	}
	byCard := make(map[gpu.CardID]ForeignSlice, len(list))
	for _, e := range list {
		switch {
		case e.Slices < 0 || e.Slices > gpu.MaxSlices:
			return nil, fmt.Errorf("card %.40q: %d slices, want 0 to %d", e.Card, e.Slices, gpu.MaxSlices)
		case e.Compute < 0 || e.Compute > gpu.MaxSlices*gpu.FullCompute:
			return nil, fmt.Errorf("card %.40q: %d%% of compute, want 0 or more", e.Card, e.Compute)
		case e.Memory < 0 || e.Memory > 1<<30:
			return nil, fmt.Errorf("card %.40q: %d MiB, want 0 or more", e.Card, e.Memory)
		case e.QoS != "" && e.QoS.Set() == 0:
			return nil, fmt.Errorf("card %.40q: qosPolicy %.40q: want one of %v", e.Card, e.QoS, gpu.QoSClasses())
		}
		byCard[e.Card] = e.ForeignSlice
	}
	return byCard, nil
}

// usageOf returns what they take of each card. Cards that the node does not have are
// passed over.
func usageOf(byCard map[gpu.CardID]ForeignSlice, t *gpu.Topology) []ledger.Usage {
	usage := make([]ledger.Usage, t.Len())
	for i := range usage {
		f := byCard[t.Card(i).ID]
		usage[i] = ledger.Usage{Slots: int16(f.Slices), Compute: f.Compute, Memory: f.Memory.RoundUp(), QoS: f.QoS.Set()}
	}
	return usage
}
