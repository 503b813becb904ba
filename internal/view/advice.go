package view

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
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
	trial    *place.Trial
	ids      []place.NodeID
	nodes    []*ledger.Node  // of the ids, as they are in the trial
	pods     [][]*corev1.Pod // of each node
	refusals []place.Refusal // of each node
	ask      *request.PodRequest
	// asking is the only container that asks for cards, if it is a single one.
	asking int
	single bool
}

func (a *adviser) help() *Help {
	a.asking, a.single = place.SingleRequest(&a.ask.Request)
	help := Help{Room: a.room(), Smaller: a.smaller(), Freed: a.freed()}
	if help == (Help{}) {
		return nil
	}
	return &help
}

// room returns the cheapest pods to evict, as preemption finds them. Pods that
// preemption may not evict count too: they may end by themselves.
func (a *adviser) room() *Room {
	search := a.trial.Room(&a.ask.Request, &a.ask.Prefer)
	var nodes []*place.Eviction
	var names []string
	for i, n := range a.nodes {
		if !a.refusals[i].Permanent {
			nodes = append(nodes, search.On(a.ids[i], place.SortVictims(n, victimsOf(a.pods[i]))))
			names = append(names, n.Name)
		}
	}
	var best *Room
	search.Cheapest(nodes, 1, func(i int, victims []*place.Victim) bool {
		best = &Room{Node: names[i], Pods: namesOf(victims)}
		return true
	})
	return best
}

func victimsOf(pods []*corev1.Pod) []*place.Victim {
	var victims []*place.Victim
	for _, pod := range pods {
		if wire.Asks(pod) {
			victims = append(victims, allocation.VictimOf(pod))
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

// smaller finds the largest request of the same kind that fits now, for pods in
// which one container asks.
func (a *adviser) smaller() *Smaller {
	if !a.single {
		return nil
	}
	req := a.ask.Request.Requests[a.asking]
	switch less := req; {
	case req.Cards > 1:
		less.Cards = 0
		for i := range a.refusals {
			less.Cards = max(less.Cards, int(a.refusals[i].Cards[place.TooFewCards]))
		}
		if less.Cards > 0 {
			return a.answer(&less, "%s in place of %d", Count(less.Cards, "card"), req.Cards)
		}
	case req.Exclusive:
		less.Exclusive, less.Whole, less.Memory = false, false, gpu.Memory{Amount: gpu.MemoryStep}
		if a.shrink(&less, int(gpu.FullCompute-1), setCompute) && a.shrink(&less, int(maxMemory(a.nodes)/gpu.MemoryStep), setMemory) {
			return a.answer(&less, "%d%% compute and %v memory of a card in place of a whole one", less.Compute, less.Memory.Amount)
		}
	case req.Memory.Ratio == 0 && a.shrink(&less, int(req.Memory.Amount/gpu.MemoryStep), setMemory):
		return a.answer(&less, "%v of memory in place of %v, with the same compute", less.Memory.Amount, req.Memory.Amount)
	case a.ask.Request.Class != gpu.Online:
		if less = req; a.shrink(&less, int(req.Compute), setCompute) {
			return a.answer(&less, "%d%% of compute in place of %d%%, with the same memory", less.Compute, req.Compute)
		}
	}
	return nil
}

func setCompute(r *gpu.Request, percent int) { r.Compute = gpu.Percent(percent) }

func setMemory(r *gpu.Request, steps int) {
	r.Memory = gpu.Memory{Amount: gpu.MiB(steps) * gpu.MemoryStep}
}

// shrink sets an amount of the request to the largest up to most that fits, and
// reports whether there is one.
func (a *adviser) shrink(req *gpu.Request, most int, set func(*gpu.Request, int)) bool {
	fits, above := 0, most+1 // the largest that is known to fit, the smallest that does not
	for above-fits > 1 {
		try, middle := *req, (fits+above)/2
		set(&try, middle)
		if a.anywhere(&try) >= 0 {
			fits = middle
		} else {
			above = middle
		}
	}
	set(req, fits)
	return fits > 0
}

// anywhere returns the first node that takes the changed request, or -1.
func (a *adviser) anywhere(req *gpu.Request) int {
	changed := a.ask.Request
	changed.Requests = slices.Clone(changed.Requests)
	changed.Requests[a.asking] = *req
	if changed.QoS == "" && changed.Class != gpu.Online && !req.Exclusive {
		changed.QoS = gpu.BestEffort // the default of shares
	}
	return slices.IndexFunc(a.nodes, func(n *ledger.Node) bool { return a.fitsOn(n, &changed) })
}

func (a *adviser) answer(req *gpu.Request, format string, args ...any) *Smaller {
	i := a.anywhere(req)
	if i < 0 {
		return nil
	}
	return &Smaller{
		Node: a.nodes[i].Name, Cards: req.Cards, ComputePercent: int32(req.Compute), MemoryMiB: int64(req.Memory.Amount),
		Message: fmt.Sprintf(format, args...),
	}
}

func maxMemory(nodes []*ledger.Node) gpu.MiB {
	var most gpu.MiB
	for _, n := range nodes {
		most = max(most, n.Topology().LargestCard())
	}
	return most
}
