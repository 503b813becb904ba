package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Help is what would make a pod fit. Each is tried out, so that it is true of
// the cluster as it was read.
type Help struct {
	// Room: the pod would fit on the node if these pods ended, the ones that
	// preemption would evict first. No fewer of them would do.
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

// adviser looks for help on the nodes that the pod may use.
type adviser struct {
	nodes    []*ledger.Node
	pods     [][]*corev1.Pod // of each node
	refusals []place.Refusal // of each node
	ask      *wire.Ask
}

func (a *adviser) help() *Help {
	help := Help{Room: a.room(), Smaller: a.smaller(), Freed: a.freed()}
	if help == (Help{}) {
		return nil
	}
	return &help
}

// How far the search for room goes, so that the answer comes at once.
const (
	roomNodes = 64
	roomTries = 20_000
)

// room returns the cheapest pods to evict, as preemption orders them, on the nodes
// that come nearest to taking the pod. Pods that preemption may not evict count
// too: they may end by themselves.
func (a *adviser) room() *Room {
	var near []int
	for i := range a.refusals {
		if !a.refusals[i].Permanent {
			near = append(near, i)
		}
	}
	fitting := func(i int) uint8 { return a.refusals[i].Cards[place.TooFewCards] }
	slices.SortFunc(near, func(i, j int) int {
		return cmp.Or(cmp.Compare(fitting(j), fitting(i)), cmp.Compare(len(a.nodes[i].Holdings()), len(a.nodes[j].Holdings())), cmp.Compare(a.nodes[i].Name, a.nodes[j].Name))
	})
	var best *Room
	var least place.EvictionCost
	tries := 0
	for _, i := range near[:min(roomNodes, len(near))] {
		eviction := place.NewEviction(a.nodes[i], &a.ask.Request, &a.ask.Prefer, victimsOf(a.pods[i]))
		victims, ok := eviction.Cheapest()
		cost := eviction.Cost(victims)
		if ok && (best == nil || cost.Compare(least) < 0) {
			best, least = &Room{Node: a.nodes[i].Name, Pods: namesOf(victims)}, cost
		}
		if tries += eviction.Tries; tries > roomTries {
			break
		}
	}
	return best
}

func victimsOf(pods []*corev1.Pod) []*place.Victim {
	var victims []*place.Victim
	for _, pod := range pods {
		if wire.Asks(pod) {
			victims = append(victims, wire.VictimOf(pod))
		}
	}
	return victims
}

func namesOf(victims []*place.Victim) []string {
	names := make([]string, len(victims))
	for i, v := range victims {
		names[i] = string(v.Holder)
	}
	slices.Sort(names)
	return names
}

func (a *adviser) fitsOn(n *ledger.Node, r *gpu.PodRequest) bool {
	_, refusal := place.Fit(n, r, &a.ask.Prefer)
	return refusal.Code == place.Fits
}

// smaller finds the largest request of the same kind that fits now. It knows an
// answer for pods in which one container asks.
func (a *adviser) smaller() *Smaller {
	asking, ok := a.asking()
	if !ok {
		return nil
	}
	req := a.ask.Request.Requests[asking]
	switch {
	case req.Cards > 1:
		return a.fewerCards(asking, req)
	case req.Exclusive:
		req.Exclusive, req.Whole, req.Compute, req.Memory = false, false, gpu.FullCompute-1, gpu.Memory{Amount: gpu.MemoryStep}
		if !a.shrinkCompute(asking, &req) || !a.shrinkMemory(asking, &req, maxMemory(a.nodes)) {
			return nil
		}
		return a.answer(asking, &req, "a share of %d%% and %v of a card, in place of a whole one", req.Compute, req.Memory.Amount)
	}
	return a.smallerSlice(asking, req)
}

func (a *adviser) fewerCards(asking int, req gpu.Request) *Smaller {
	most := uint8(0)
	for i := range a.refusals {
		most = max(most, a.refusals[i].Cards[place.TooFewCards])
	}
	if most == 0 {
		return nil
	}
	wanted := req.Cards
	req.Cards = int(most)
	return a.answer(asking, &req, "%s in place of %d", Count(req.Cards, "card"), wanted)
}

// smallerSlice gives way in memory or in compute, whichever of the two helps.
func (a *adviser) smallerSlice(asking int, req gpu.Request) *Smaller {
	if less := req; req.Memory.Ratio == 0 && a.shrinkMemory(asking, &less, req.Memory.Amount) {
		return a.answer(asking, &less, "%v of memory in place of %v, with the same compute", less.Memory.Amount, req.Memory.Amount)
	}
	if less := req; a.ask.Request.Class != gpu.Online && a.shrinkCompute(asking, &less) {
		return a.answer(asking, &less, "%d%% of compute in place of %d%%, with the same memory", less.Compute, req.Compute)
	}
	return nil
}

// shrinkMemory sets the memory to the most that fits, if anything does.
func (a *adviser) shrinkMemory(asking int, req *gpu.Request, most gpu.MiB) bool {
	steps := int(most / gpu.MemoryStep)
	n := firstThat(steps, func(i int) bool {
		try := *req
		try.Memory = gpu.Memory{Amount: gpu.MiB(steps-i) * gpu.MemoryStep}
		return a.anywhere(asking, &try) >= 0
	})
	req.Memory = gpu.Memory{Amount: gpu.MiB(steps-n) * gpu.MemoryStep}
	return n < steps
}

// shrinkCompute sets the compute to the most that fits, if anything does.
func (a *adviser) shrinkCompute(asking int, req *gpu.Request) bool {
	most := int(req.Compute)
	n := firstThat(most, func(i int) bool {
		try := *req
		try.Compute = gpu.Percent(most - i)
		return a.anywhere(asking, &try) >= 0
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
func (a *adviser) anywhere(asking int, req *gpu.Request) int {
	changed := a.ask.Request
	changed.Requests = slices.Clone(changed.Requests)
	changed.Requests[asking] = *req
	if changed.QoS == "" && changed.Class != gpu.Online && !req.Exclusive {
		changed.QoS = gpu.BestEffort // what a share gets that names no class
	}
	return slices.IndexFunc(a.nodes, func(n *ledger.Node) bool { return a.fitsOn(n, &changed) })
}

func (a *adviser) answer(asking int, req *gpu.Request, format string, args ...any) *Smaller {
	i := a.anywhere(asking, req)
	if i < 0 {
		return nil
	}
	return &Smaller{
		Node: a.nodes[i].Name, Cards: req.Cards, ComputePercent: int32(req.Compute), MemoryMiB: int64(req.Memory.Amount),
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
