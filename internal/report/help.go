package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Help is what would make a pod fit. Each is tried out, so that it is true of
// the cluster as it was read.
type Help struct {
	// Room: the pod would fit on the node if these pods ended. No fewer of them
	// would do; on another node, or with others, it may take fewer.
	Room *Room `json:"room,omitempty"`
	// Smaller: a smaller request would fit now.
	Smaller *Smaller `json:"smaller,omitempty"`
	// Freed: the pod would fit if so much of some cards became free.
	Freed *Freed `json:"freed,omitempty"`
}

// Room is pods whose end makes room.
type Room struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

// Smaller is a request that fits.
type Smaller struct {
	Node           string `json:"node"`
	Cards          int    `json:"cards"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB,omitempty"`
	Message        string `json:"message"`
}

// helper looks for help.
type helper struct {
	nodes    []*ledger.Node
	ask      *wire.Ask
	refusals []place.Refusal
}

func newHelper(nodes []*ledger.Node, ask *wire.Ask, refusals []place.Refusal) *helper {
	return &helper{nodes: nodes, ask: ask, refusals: refusals}
}

func (h *helper) help() *Help {
	help := Help{Room: h.room(), Smaller: h.smaller(), Freed: h.freed()}
	if help == (Help{}) {
		return nil
	}
	return &help
}

// How far the search for room goes: it is for an answer while somebody waits.
const (
	roomNodes    = 64 // for one pod that is in the way
	crowdedNodes = 8  // for several
)

// room finds the fewest pods that are in the way, on the nodes that come nearest
// to taking the pod.
func (h *helper) room() *Room {
	var near []int
	for i := range h.refusals {
		if !h.refusals[i].Permanent && len(h.nodes[i].Unknown()) == 0 {
			near = append(near, i)
		}
	}
	fitting := func(i int) uint8 { return h.refusals[i].Cards[place.TooFewCards] }
	slices.SortFunc(near, func(a, b int) int {
		return cmp.Or(cmp.Compare(fitting(b), fitting(a)), cmp.Compare(len(h.nodes[a].Holdings()), len(h.nodes[b].Holdings())), cmp.Compare(h.nodes[a].Name, h.nodes[b].Name))
	})
	for _, i := range near[:min(roomNodes, len(near))] {
		for _, holder := range bySize(h.nodes[i]) {
			if h.fitsWithout(h.nodes[i], holder) {
				return &Room{Node: h.nodes[i].Name, Pods: []string{string(holder)}}
			}
		}
	}
	var best *Room
	for _, i := range near[:min(crowdedNodes, len(near))] {
		pods := h.inTheWay(h.nodes[i])
		if best == nil || len(pods) < len(best.Pods) {
			best = &Room{Node: h.nodes[i].Name, Pods: pods}
		}
	}
	return best
}

// bySize lists the holders of a node, those who hold least first.
func bySize(n *ledger.Node) []ledger.Holder {
	type held struct {
		holder  ledger.Holder
		compute gpu.Percent
		memory  gpu.MiB
	}
	var list []held
	for i := range n.Holdings() {
		h := &n.Holdings()[i]
		x := held{holder: h.Holder}
		for c := range h.Cards().All() {
			u := h.On(c)
			x.compute, x.memory = x.compute+u.Compute, x.memory+u.Memory
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b held) int {
		return cmp.Or(cmp.Compare(a.compute, b.compute), cmp.Compare(a.memory, b.memory), cmp.Compare(a.holder, b.holder))
	})
	holders := make([]ledger.Holder, len(list))
	for i := range list {
		holders[i] = list[i].holder
	}
	return holders
}

func (h *helper) fitsWithout(n *ledger.Node, holders ...ledger.Holder) bool {
	without := n.Clone()
	for _, holder := range holders {
		without.Release(holder)
	}
	return h.fitsOn(without, &h.ask.Request)
}

func (h *helper) fitsOn(n *ledger.Node, r *gpu.PodRequest) bool {
	_, refusal := place.Fit(n, r, &h.ask.Prefer)
	return refusal.Code == place.Fits
}

// inTheWay returns pods of the node that all have to go: everybody is sent away
// and, the largest first, let back in as long as the pod still fits.
func (h *helper) inTheWay(n *ledger.Node) []string {
	gone := bySize(n)
	for _, holder := range slices.Backward(gone) {
		without := slices.DeleteFunc(slices.Clone(gone), func(x ledger.Holder) bool { return x == holder })
		if h.fitsWithout(n, without...) {
			gone = without
		}
	}
	names := make([]string, len(gone))
	for i, holder := range gone {
		names[i] = string(holder)
	}
	slices.Sort(names)
	return names
}

// smaller finds the largest request of the same kind that fits now. It knows an
// answer for pods in which one container asks.
func (h *helper) smaller() *Smaller {
	asking, ok := h.asking()
	if !ok {
		return nil
	}
	req := h.ask.Request.Requests[asking]
	switch {
	case req.Cards > 1:
		return h.fewerCards(asking, req)
	case req.Exclusive:
		req.Exclusive, req.Whole, req.Compute, req.Memory = false, false, gpu.FullCompute-1, gpu.Memory{Amount: gpu.MemoryStep}
		if !h.shrinkCompute(asking, &req) || !h.shrinkMemory(asking, &req, maxMemory(h.nodes)) {
			return nil
		}
		return h.answer(asking, &req, "a share of %d%% and %v of a card, in place of a whole one", req.Compute, req.Memory.Amount)
	}
	return h.smallerSlice(asking, req)
}

func (h *helper) fewerCards(asking int, req gpu.Request) *Smaller {
	most := uint8(0)
	for i := range h.refusals {
		most = max(most, h.refusals[i].Cards[place.TooFewCards])
	}
	if most == 0 {
		return nil
	}
	wanted := req.Cards
	req.Cards = int(most)
	return h.answer(asking, &req, "%s in place of %d", count(req.Cards, "card"), wanted)
}

// smallerSlice gives way in memory or in compute, whichever of the two helps.
func (h *helper) smallerSlice(asking int, req gpu.Request) *Smaller {
	if less := req; req.Memory.Ratio == 0 && h.shrinkMemory(asking, &less, req.Memory.Amount) {
		return h.answer(asking, &less, "%v of memory in place of %v, with the same compute", less.Memory.Amount, req.Memory.Amount)
	}
	if less := req; h.ask.Request.Class != gpu.Online && h.shrinkCompute(asking, &less) {
		return h.answer(asking, &less, "%d%% of compute in place of %d%%, with the same memory", less.Compute, req.Compute)
	}
	return nil
}

// shrinkMemory sets the memory to the most that fits, if anything does.
func (h *helper) shrinkMemory(asking int, req *gpu.Request, most gpu.MiB) bool {
	steps := int(most / gpu.MemoryStep)
	n := firstThat(steps, func(i int) bool {
		try := *req
		try.Memory = gpu.Memory{Amount: gpu.MiB(steps-i) * gpu.MemoryStep}
		return h.anywhere(asking, &try) >= 0
	})
	req.Memory = gpu.Memory{Amount: gpu.MiB(steps-n) * gpu.MemoryStep}
	return n < steps
}

// shrinkCompute sets the compute to the most that fits, if anything does.
func (h *helper) shrinkCompute(asking int, req *gpu.Request) bool {
	most := int(req.Compute)
	n := firstThat(most, func(i int) bool {
		try := *req
		try.Compute = gpu.Percent(most - i)
		return h.anywhere(asking, &try) >= 0
	})
	req.Compute = gpu.Percent(most - n)
	return n < most
}

// firstThat returns the first number below n of which the answer is yes, or n. It
// must be yes from there on.
func firstThat(n int, yes func(int) bool) int {
	low, high := 0, n
	for low < high {
		if middle := (low + high) / 2; yes(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// anywhere returns the first node that takes the changed request, or -1.
func (h *helper) anywhere(asking int, req *gpu.Request) int {
	changed := h.ask.Request
	changed.Requests = slices.Clone(changed.Requests)
	changed.Requests[asking] = *req
	if changed.QoS == "" && changed.Class != gpu.Online && !req.Exclusive {
		changed.QoS = gpu.BestEffort // what a share gets that names no class
	}
	return slices.IndexFunc(h.nodes, func(n *ledger.Node) bool { return h.fitsOn(n, &changed) })
}

func (h *helper) answer(asking int, req *gpu.Request, format string, args ...any) *Smaller {
	i := h.anywhere(asking, req)
	if i < 0 {
		return nil
	}
	return &Smaller{
		Node: h.nodes[i].Name, Cards: req.Cards, ComputePercent: int32(req.Compute), MemoryMiB: int64(req.Memory.Amount),
		Message: strings.TrimSpace(fmt.Sprintf(format, args...)),
	}
}

func maxMemory(nodes []*ledger.Node) gpu.MiB {
	var most gpu.MiB
	for _, n := range nodes {
		for i := range n.Topology().Len() {
			most = max(most, n.Topology().Card(i).Memory)
		}
	}
	return most
}
