package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// NodeCard is one card in the vendor's node annotation. Fields that are zero
// may be missing there; a missing healthy is false.
type NodeCard struct {
	UUID              string  `json:"uuid"`
	BDF               string  `json:"bdf,omitempty"`
	Model             string  `json:"model,omitempty"`
	TotalDevCount     int     `json:"totalDevCount,omitempty"`
	TotalCompute      int     `json:"totalCompute,omitempty"`
	TotalVRam         int64   `json:"totalVRam,omitempty"`
	AvailableDevCount *int    `json:"availableDevCount,omitempty"`
	AvailableCompute  *int    `json:"availableCompute,omitempty"`
	AvailableVRam     *int64  `json:"availableVRam,omitempty"`
	NUMA              int     `json:"numa,omitempty"`
	Healthy           bool    `json:"healthy,omitempty"`
	QoSPolicy         gpu.QoS `json:"qosPolicy,omitempty"`
	LinkZone          int     `json:"linkZone,omitempty"`
}

// DecodeNodeCards reads the vendor's node annotation.
func DecodeNodeCards(text string) ([]NodeCard, error) {
	var cards []NodeCard
	if err := wire.DecodeAnnotation(text, &cards); err != nil {
		return nil, err
	}
	if len(cards) > gpu.MaxCards {
		return nil, fmt.Errorf("%d cards, a node may hold %d", len(cards), gpu.MaxCards)
	}
	for i := range cards {
		if err := cards[i].validate(); err != nil {
			return nil, fmt.Errorf("card %d: %w", i, err)
		}
	}
	return cards, nil
}

// EncodeNodeCards writes the vendor's node annotation.
func EncodeNodeCards(cards []NodeCard) (string, error) {
	text, err := json.Marshal(cards)
	return string(text), err
}

func (c *NodeCard) validate() error {
	const most = 1 << 30
	switch {
	case !validUUID(c.UUID):
		return fmt.Errorf("uuid %.40q: %s", c.UUID, wantUUID)
	case c.TotalVRam < 0 || c.TotalVRam > most:
		return fmt.Errorf("totalVRam %d: want MiB from 0 to %d", c.TotalVRam, most)
	case c.TotalDevCount < 0 || c.TotalDevCount > most:
		return fmt.Errorf("totalDevCount %d: want 0 or more", c.TotalDevCount)
	case c.TotalCompute < 0 || c.TotalCompute > 100:
		return fmt.Errorf("totalCompute %d: want percent from 0 to 100", c.TotalCompute)
	case c.QoSPolicy != "" && c.QoSPolicy.Set() == 0:
		return fmt.Errorf("qosPolicy %.40q: want one of %v", c.QoSPolicy, gpu.QoSClasses())
	}
	return nil
}

const wantUUID = "want the card's UUID, 1 to 96 letters, digits and dashes"

// validUUID keeps out of inventories what can't be written in a list of cards.
func validUUID(id string) bool {
	return id != "" && len(id) <= wire.MaxUUID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

func (c *NodeCard) card(index int, model string) gpu.Card {
	slots := gpu.MaxSlices
	if c.TotalDevCount > 0 {
		slots = min(slots, c.TotalDevCount)
	}
	return gpu.Card{
		ID: gpu.CardID(c.UUID), Minor: index, Model: model, Memory: gpu.MiB(c.TotalVRam).RoundDown(),
		Slots: slots, Healthy: c.Healthy, NUMA: c.NUMA, NUMAKnown: c.NUMA >= 0,
	}
}

// reportsUse reports whether the node reports what is in use at all. Figures of
// zero are left out of the annotation, so a card without any is either all in
// use or not reported on; the other cards show which.
func reportsUse(listed []NodeCard) bool {
	return slices.ContainsFunc(listed, func(c NodeCard) bool {
		return c.AvailableDevCount != nil || c.AvailableCompute != nil || c.AvailableVRam != nil
	})
}

// used returns what is in use of the card, on a node that reports it.
func (c *NodeCard) used() ledger.Usage {
	return ledger.Usage{
		Slots:   int16(max(0, min(c.TotalDevCount-ptr.Deref(c.AvailableDevCount, 0), gpu.MaxSlices))),
		Compute: gpu.Percent(max(0, min(c.TotalCompute-ptr.Deref(c.AvailableCompute, 0), 100))),
		Memory:  gpu.MiB(max(0, min(c.TotalVRam-ptr.Deref(c.AvailableVRam, 0), c.TotalVRam))).RoundUp(),
		QoS:     c.QoSPolicy.Set(),
	}
}

// decodeTable reads the vendor's figures for n cards, a JSON object of numbers
// by number. An empty text is an empty table.
func decodeTable(text string) (map[int]int64, error) {
	if text == "" {
		return nil, nil
	}
	var byName map[string]int64
	if err := wire.DecodeAnnotation(text, &byName); err != nil {
		return nil, err
	}
	const most = 1 << 20
	table := make(map[int]int64, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > gpu.MaxCards || strconv.Itoa(n) != name {
			return nil, fmt.Errorf("%.20q: want a number of cards from 1 to %d", name, gpu.MaxCards)
		}
		if v := byName[name]; v < 0 || v > most {
			return nil, fmt.Errorf("%d for %d cards: want 0 to %d", v, n, most)
		}
		table[n] = byName[name]
	}
	return table, nil
}

// EncodeTable writes the figures for 1, 2, ... cards.
func EncodeTable(figures []int64) (string, error) {
	byName := make(map[string]int64, len(figures))
	for i, v := range figures {
		byName[strconv.Itoa(i+1)] = v
	}
	text, err := json.Marshal(byName)
	return string(text), err
}

// NodeCards returns the cards of a node as the vendor's annotation lists them,
// with what its pods leave available. Nothing is available of a card that
// is held exclusively, nor on a node where a pod's cards are unknown.
func NodeCards(p *Publication, n *ledger.Node) []NodeCard {
	t := p.Topology
	cards := make([]NodeCard, t.Len())
	for i := range cards {
		c, used := t.Card(i), n.Now().Usage[i]
		zone, _ := t.ZoneOf(i)
		cards[i] = NodeCard{
			UUID: string(c.ID), BDF: p.Cards[i].BusID, Model: string(p.Mode),
			TotalDevCount: c.Slots, TotalCompute: int(gpu.FullCompute), TotalVRam: int64(c.Memory),
			AvailableDevCount: new(0), AvailableCompute: new(0), AvailableVRam: new(int64(0)),
			NUMA: -1, Healthy: c.Healthy, QoSPolicy: used.QoS.Only(), LinkZone: zone,
		}
		if c.NUMAKnown {
			cards[i].NUMA = c.NUMA
		}
		if !used.Exclusive && len(n.Unknown()) == 0 {
			*cards[i].AvailableDevCount = max(0, c.Slots-int(used.Slots))
			*cards[i].AvailableCompute = max(0, int(gpu.FullCompute-used.Compute))
			*cards[i].AvailableVRam = max(0, int64(c.Memory-used.Memory))
		}
	}
	return cards
}

// Tables returns the vendor's figures for 1, 2, ... whole cards of those that
// are free on the node: what the best set scores, and the least that taking so
// many costs those who come later.
func Tables(n *ledger.Node) (scores, losses []int64) {
	n = n.Clone()
	n.Serves = ledger.Serves{Whole: true}
	for k := 1; k <= n.Topology().Len(); k++ {
		request := gpu.PodRequest{Requests: []gpu.Request{{
			Container: "c", Cards: k, Whole: true, Exclusive: true, Compute: gpu.FullCompute, Memory: gpu.AllMemory(),
		}}}
		best, refusal := place.Fit(n, &request, &place.Preference{Node: place.Spread})
		if refusal.Code != place.Fits {
			break
		}
		cheapest, _ := place.Fit(n, &request, &place.Preference{Node: place.Binpack})
		scores, losses = append(scores, best.Score), append(losses, cheapest.Loss)
	}
	return scores, losses
}
