package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// CorePlan is decisions without a cluster: the best node of a board gets the pod.
type CorePlan struct {
	Nodes    []int  `json:"nodes"`
	Pods     int    `json:"pods"`
	Workload string `json:"workload"`
	// Churn is a workload whose pods come and go on so many nodes.
	Churn *CoreChurn `json:"churn,omitempty"`
}

// CoreChurn is decisions while pods end: one for each that comes, once half of all are
// there.
type CoreChurn struct {
	Nodes    int    `json:"nodes"`
	Pods     int    `json:"pods"`
	Workload string `json:"workload"`
}

func (p *Plan) validateCore() error {
	c := p.Core
	if c == nil {
		return nil
	}
	if _, ok := p.Workloads[c.Workload]; !ok {
		return fmt.Errorf("core: there is no workload %q", c.Workload)
	}
	if churn := c.Churn; churn != nil {
		if _, ok := p.Workloads[churn.Workload]; !ok || churn.Nodes < 1 || churn.Pods < 1 {
			return fmt.Errorf("core: churn: workload %q, %d nodes, %d pods: name a workload, and write 1 or more", churn.Workload, churn.Nodes, churn.Pods)
		}
	}
	if c.Pods < 1 {
		return fmt.Errorf("core: pods: %d: write 1 or more", c.Pods)
	}
	for _, n := range c.Nodes {
		if n < 1 {
			return fmt.Errorf("core: nodes: %d: write 1 or more", n)
		}
	}
	return nil
}

// core measures decisions of the core alone.
func (b *bench) core(ctx context.Context, result *Result) error {
	plan := b.plan.Core
	if plan == nil {
		return nil
	}
	for _, nodes := range plan.Nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := newCore(b.plan, nodes, plan.Workload, plan.Pods)
		if err != nil {
			return err
		}
		figures := c.decide()
		b.logf("core alone, %d nodes: %.0f µs and %.1f allocations a decision", nodes, figures.Microseconds, figures.Allocations)
		result.Core = append(result.Core, figures)
	}
	if plan.Churn == nil {
		return nil
	}
	c, err := newCore(b.plan, plan.Churn.Nodes, plan.Churn.Workload, plan.Churn.Pods)
	if err != nil {
		return err
	}
	figures := c.churn()
	b.logf("core alone, %d nodes, pods come and go: %.0f µs a decision, the demand changes %.1f times per 1000 pods",
		figures.Nodes, figures.Microseconds, figures.DemandChanges)
	result.Churn = &figures
	return nil
}

// core is accounts of nodes and requests that come to them.
type core struct {
	board    *place.Board
	requests []*request.PodRequest
	census   *place.Census
}

// newCore makes nodes that are half full, since empty ones are all alike.
func newCore(p *Plan, nodes int, name string, pods int) (*core, error) {
	kinds, err := discover.LoadProfiles(p.Profile)
	if err != nil {
		return nil, err
	}
	c := &core{board: place.NewBoard(), census: place.NewCensus()}
	workload := p.Workloads[name]
	for _, pod := range p.backlog(&workload, pods) {
		ask, problems := request.Read(pod)
		if ask == nil {
			return nil, fmt.Errorf("core: a pod of workload %s asks for no cards: %w", name, problems.ToAggregate())
		}
		c.requests = append(c.requests, ask)
		c.census.Add(place.KindsOf(&ask.Request), 1)
	}
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same every time
	for i := range nodes {
		t, err := kinds[i%len(kinds)].Topology(fmt.Sprintf("node-%d", i))
		if err != nil {
			return nil, err
		}
		n := ledger.NewNode(fmt.Sprintf("node-%d", i), t, ledger.Serves{Whole: true, Slices: true})
		for k := range random.IntN(2 * t.Len()) {
			c.put(n, c.requests[random.IntN(len(c.requests))], fmt.Sprintf("%d-%d", i, k))
		}
		c.board.Set(n)
	}
	return c, nil
}

func (*core) put(n *ledger.Node, ask *request.PodRequest, name string) {
	if offer, refusal := place.Fit(n, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
		n.Book(n.Holding(&offer, ledger.Holder(name), &ask.Request))
	}
}

// decide places all requests and returns what one cost.
func (c *core) decide() CoreFigures {
	var before, after runtime.MemStats
	runtime.GC()
	demand := c.census.Demand()
	for _, ask := range c.requests { // what is kept of nodes and of kinds of request is made once
		c.best(ask, demand)
	}
	runtime.ReadMemStats(&before)
	start := usedCPU()
	for i, ask := range c.requests {
		if n, offer := c.best(ask, demand); n != nil {
			n.Book(n.Holding(&offer, ledger.Holder(fmt.Sprintf("pod-%d", i)), &ask.Request))
			c.board.Set(n)
		}
	}
	took := usedCPU() - start
	runtime.ReadMemStats(&after)
	count := float64(len(c.requests))
	return CoreFigures{
		Nodes: c.board.Len(), Microseconds: float64(took.Microseconds()) / count,
		Allocations: float64(after.Mallocs-before.Mallocs) / count,
	}
}

// churn places all requests, ends the pod that came first for each once half of them are
// there, and counts how often something else is expected of the pods to come, since all
// nodes with room are then compared again. The pods that the nodes had before stay.
func (c *core) churn() ChurnFigures {
	type placed struct {
		ask    *request.PodRequest
		node   place.NodeID
		holder ledger.Holder
	}
	var running []placed
	figures := ChurnFigures{Nodes: c.board.Len()}
	census, demand := place.NewCensus(), (*place.Demand)(nil)
	count, half := 0, len(c.requests)/2
	var start time.Duration
	for i, ask := range c.requests {
		if i == half {
			start = usedCPU()
		}
		if now := census.Demand(); now != demand {
			demand = now
			if i >= half {
				count++
			}
		}
		if n, offer := c.best(ask, demand); n != nil {
			holder := ledger.Holder(fmt.Sprintf("pod-%d", i))
			n.Book(n.Holding(&offer, holder, &ask.Request))
			running = append(running, placed{ask, c.board.Set(n), holder})
			census.Add(place.KindsOf(&ask.Request), 1)
		}
		if i >= half && len(running) > 0 {
			ended := running[0]
			running = running[1:]
			n := c.board.Node(ended.node)
			n.Release(ended.holder)
			c.board.Set(n)
			census.Add(place.KindsOf(&ended.ask.Request), -1)
		}
	}
	decisions := float64(len(c.requests) - half)
	figures.Microseconds = float64((usedCPU() - start).Microseconds()) / decisions
	figures.DemandChanges = 1000 * float64(count) / decisions
	return figures
}

// usedCPU returns the CPU time that this process has used, which is less at the
// mercy of others than the clock on the wall. 0 where it is not known.
func usedCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// best returns the node that is best for the request, and its cards.
func (c *core) best(ask *request.PodRequest, demand *place.Demand) (*ledger.Node, ledger.Offer) {
	prefer := ask.Prefer
	prefer.Demand = demand
	for id := range c.board.Ranking(&ask.Request, &prefer).Best() {
		offer, _ := place.Fit(c.board.Node(id), &ask.Request, &prefer)
		return c.board.Node(id), offer
	}
	return nil, ledger.Offer{}
}
