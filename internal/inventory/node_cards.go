package inventory

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// NodeCards returns the cards of a node as the vendor's annotation lists them,
// with what its pods leave available. Nothing is available of a card that
// is held exclusively, nor on a node where a pod's cards are unknown.
func NodeCards(p *Publication, n *ledger.Node) []NodeCard {
	t := p.Topology
	cards := make([]NodeCard, t.Len())
	for i := range cards {
		c, used := t.Card(i), n.Now().Usage[i]
		free := NodeCard{
			AvailableDevCount: new(max(0, c.Slots-int(used.Slots))),
			AvailableCompute:  new(max(0, int(gpu.FullCompute-used.Compute))),
			AvailableVRam:     new(max(0, int64(c.Memory-used.Memory))),
		}
		if used.Exclusive || len(n.Unknown()) > 0 {
			free = NodeCard{AvailableDevCount: new(0), AvailableCompute: new(0), AvailableVRam: new(int64(0))}
		}
		numa := -1
		if c.NUMAKnown {
			numa = c.NUMA
		}
		zone, _ := t.ZoneOf(i)
		cards[i] = NodeCard{
			UUID: string(c.ID), BDF: p.Cards[i].BusID, Model: string(p.Mode),
			TotalDevCount: c.Slots, TotalCompute: int(gpu.FullCompute), TotalVRam: int64(c.Memory),
			AvailableDevCount: free.AvailableDevCount, AvailableCompute: free.AvailableCompute, AvailableVRam: free.AvailableVRam,
			NUMA: numa, Healthy: c.Healthy, QoSPolicy: used.QoS.Only(), LinkZone: zone,
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
