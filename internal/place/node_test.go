package place_test

import (
	"fmt"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const gib = gpu.MiB(1024)

// state is something that is so on a node before the pod comes.
type state func(n *ledger.Node)

// node returns a node that serves whole cards and slices, in the given states.
func node(t *gpu.Topology, states ...state) *ledger.Node {
	n := gputest.Node(t)
	for _, s := range states {
		s(n)
	}
	return n
}

// alone: each of the cards is held by a pod of its own.
func alone(cards ...int) state {
	return func(n *ledger.Node) { gputest.Exclusive(n, cards...) }
}

// slice: a pod has a slice of the card.
func slice(card int, compute gpu.Percent, memory gpu.MiB, qos gpu.QoS) state {
	return classed(card, compute, memory, qos, gpu.Normal)
}

// online: a pod of this class has a slice of the card.
func online(card int, memory gpu.MiB) state { return classed(card, 0, memory, "", gpu.Online) }

// offline: a pod of this class has a slice of the card.
func offline(card int, compute gpu.Percent) state {
	return classed(card, compute, gib, gpu.BestEffort, gpu.Offline)
}

func classed(card int, compute gpu.Percent, memory gpu.MiB, qos gpu.QoS, class gpu.Class) state {
	return func(n *ledger.Node) {
		n.Book(ledger.Holding{
			Holder: ledger.Holder(fmt.Sprintf("pod-%d", len(n.Holdings()))), QoS: qos, Class: class,
			Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{{Card: card, Compute: compute, Memory: memory}}}},
		})
	}
}

// times: the same as often as this.
func times(n int, s state) state {
	return func(account *ledger.Node) {
		for range n {
			s(account)
		}
	}
}

// full: all slots of the card are taken by slices that hold next to nothing.
func full(card int) state {
	return func(n *ledger.Node) { times(n.Topology().Card(card).Slots, slice(card, 1, 128, gpu.BestEffort))(n) }
}

// foreign: foreign slices have this of the first cards.
func foreign(usage ...ledger.Usage) state {
	return func(n *ledger.Node) { n.SetForeign(usage) }
}

// serves: the node serves this and nothing else.
func serves(s ledger.Serves) state {
	return func(n *ledger.Node) { n.Serves = s }
}

// cards returns the topology of unlinked cards after a change to them.
func cards(n int, change func(cards []gpu.Card)) *gpu.Topology {
	c := gputest.Cards(n)
	if change != nil {
		change(c)
	}
	return gputest.MustTopology(c, nil)
}

// unhealthy: these cards of the plan are not well.
func unhealthy(indices ...int) func(cards []gpu.Card) {
	return func(cards []gpu.Card) {
		for _, i := range indices {
			cards[i].Healthy = false
		}
	}
}

// counts is how many cards gave which reason.
type counts = [len(place.Refusal{}.Cards)]uint8

// ask changes a request of the pod as a whole.
func ask(r *gpu.PodRequest, change func(r *gpu.PodRequest)) *gpu.PodRequest {
	change(r)
	return r
}

// of returns the request for another class.
func of(class gpu.Class, r *gpu.PodRequest) *gpu.PodRequest {
	r.Class = class
	if class == gpu.Online {
		r.QoS = ""
	}
	return r
}

// with returns the request for another QoS class.
func with(qos gpu.QoS, r *gpu.PodRequest) *gpu.PodRequest {
	r.QoS = qos
	return r
}

// chosen returns the cards of each container of the pod.
func chosen(o *ledger.Offer, r *gpu.PodRequest) [][]int {
	out := make([][]int, len(r.Requests))
	for i := range out {
		out[i] = o.Cards(i).Indices()
	}
	return out
}
