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
}

func (p *Plan) validateCore() error {
	c := p.Core
	if c == nil {
		return nil
	}
	if _, ok := p.Workloads[c.Workload]; !ok {
		return fmt.Errorf("core: there is no workload %q", c.Workload)
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
		c, err := newCore(b.plan, nodes)
		if err != nil {
			return err
		}
		figures := c.decide()
		b.logf("core alone, %d nodes: %.0f µs and %.1f allocations a decision", nodes, figures.Microseconds, figures.Allocations)
		result.Core = append(result.Core, figures)
	}
	return nil
}

// core is accounts of nodes and requests that come to them.
type core struct {
	board    *place.Board
	requests []*request.PodRequest
	census   *place.Census
}

// newCore makes nodes that are half full, since empty ones are all alike.
func newCore(p *Plan, nodes int) (*core, error) {
	kinds, err := discover.LoadProfiles(p.Profile)
	if err != nil {
		return nil, err
	}
	c := &core{board: place.NewBoard(), census: place.NewCensus()}
	workload := p.Workloads[p.Core.Workload]
	for _, pod := range p.backlog(&workload, p.Core.Pods) {
		ask, problems := request.Read(pod)
		if ask == nil {
			return nil, fmt.Errorf("core: a pod of workload %s asks for no cards: %w", p.Core.Workload, problems.ToAggregate())
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
