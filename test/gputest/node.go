package gputest

import (
	"fmt"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Memory is what every card built here has, a C500's.
const Memory gpu.MiB = 64 << 10

// Cards returns n healthy cards named GPU-0, GPU-1 and so on.
func Cards(n int) []gpu.Card {
	cards := make([]gpu.Card, n)
	for i := range cards {
		cards[i] = gpu.Card{
			ID: gpu.CardID(fmt.Sprintf("GPU-%d", i)), Minor: i, Model: "C500", Memory: Memory,
			Slots: gpu.MaxSlices, Healthy: true, NUMA: i * 2 / n, NUMAKnown: true,
		}
	}
	return cards
}

// MustTopology returns the topology of the cards, which must be sound.
func MustTopology(cards []gpu.Card, links []gpu.Link) *gpu.Topology {
	t, err := gpu.NewTopology(cards, links)
	if err != nil {
		panic(err)
	}
	return t
}

// Zones returns a topology of fully linked zones with the given sizes.
func Zones(sizes ...int) *gpu.Topology {
	var zones []int
	for z, size := range sizes {
		for range size {
			zones = append(zones, z+1)
		}
	}
	return MustTopology(Cards(len(zones)), gpu.ZoneLinks(zones))
}

// Rings returns a topology of rings with the given sizes: each card is linked
// to its two neighbours.
func Rings(sizes ...int) *gpu.Topology {
	var links []gpu.Link
	first := 0
	for _, size := range sizes {
		for i := range size {
			links = append(links, gpu.Link{A: first + i, B: first + (i+1)%size})
		}
		first += size
	}
	return MustTopology(Cards(first), links)
}

// Unlike returns the topology of [UnlikePlan].
func Unlike(n int) *gpu.Topology { return UnlikePlan(n).Topology() }

// Node returns a node called n1 that serves whole cards and slices.
func Node(t *gpu.Topology) *ledger.Node {
	return ledger.NewNode("n1", t, ledger.Serves{Whole: true, Slices: true})
}

// Exclusive books each of the cards for a pod of its own that is alone on it.
func Exclusive(n *ledger.Node, cards ...int) {
	for _, c := range cards {
		n.Book(ledger.Holding{
			Holder: ledger.Holder(fmt.Sprintf("exclusive-%d", c)),
			Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{{
				Card: c, Compute: gpu.FullCompute, Memory: n.Topology().Card(c).Memory, Exclusive: true,
			}}}},
		})
	}
}

// Slice books a slice on a card for a pod of the given name and QoS class.
func Slice(n *ledger.Node, pod string, card int, compute gpu.Percent, memory gpu.MiB, qos gpu.QoS) {
	n.Book(ledger.Holding{
		Holder: ledger.Holder(pod), QoS: qos,
		Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{{Card: card, Compute: compute, Memory: memory}}}},
	})
}

// AskWhole returns the request of a pod with one container that wants n whole
// cards.
func AskWhole(n int) *gpu.PodRequest {
	return Ask(Whole(n))
}

// AskSlice returns the request of a pod with one container that wants a slice
// of one card.
func AskSlice(compute gpu.Percent, memory gpu.MiB) *gpu.PodRequest {
	return Ask(Share(compute, memory))
}

// Ask returns the best-effort request of a pod with the given containers.
func Ask(requests ...gpu.Request) *gpu.PodRequest {
	for i := range requests {
		if requests[i].Container == "" {
			requests[i].Container = fmt.Sprintf("c%d", i)
		}
	}
	return &gpu.PodRequest{Requests: requests, QoS: gpu.BestEffort}
}
