package churn

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// scenario is one run to be made.
type scenario struct {
	rule  ruleDef
	shape Shape
	mix   Mix
	load  float64
	seed  uint64
}

// Result is the outcome of a study.
type Result struct {
	Servers  int       `json:"servers"`
	Jobs     int       `json:"jobs"`
	Backfill int       `json:"backfill"`
	Runs     []Outcome `json:"runs"`
}

// Outcome is what came of one rule on one seed's jobs. Sizes of jobs are
// "fractional", "1", "2" and so on; percentages go from 0 to 100.
type Outcome struct {
	Rule  string  `json:"policy"`
	Shape string  `json:"zones"`
	Mix   string  `json:"mix"`
	Load  float64 `json:"load"`
	Seed  uint64  `json:"seed"`

	// OneZonePercent is, by size, the share of the jobs that got all their cards
	// in one zone. Sizes that no zone can hold are left out.
	OneZonePercent map[string]float64 `json:"oneZonePercent"`
	// Pairs counts the pairs of cards in one zone that the multi-card jobs got,
	// and BestPairs the most that could be had each time. Weight and BestWeight
	// are the same with every pair counted at its weight.
	Pairs      int64 `json:"pairs"`
	BestPairs  int64 `json:"bestPairs"`
	Weight     int64 `json:"weight"`
	BestWeight int64 `json:"bestWeight"`
	// MeanWait is, by size, how long jobs waited, in mean running times.
	MeanWait map[string]float64 `json:"meanWait"`
	// AllocatedPercent is the part of all cards that was booked, over time.
	AllocatedPercent float64 `json:"allocatedPercent"`
	// BrokenZones counts fractional jobs that went into an idle zone although a
	// card in use had room for them.
	BrokenZones int `json:"brokenZones"`
	// Measured is, by size, how many jobs the figures are about.
	Measured map[string]int `json:"measured"`
}

// PairsPercent returns the pairs against the optimum. It is 100 where there was
// nothing to be had.
func (r *Outcome) PairsPercent() float64 {
	if r.BestPairs == 0 {
		return 100
	}
	return 100 * float64(r.Pairs) / float64(r.BestPairs)
}

// Run makes the runs of a study, as many at a time as there are processors. The
// result depends on the options alone. Progress, which may be nil, is called
// from one goroutine at a time with the number of jobs that have arrived and
// the number that will.
func Run(ctx context.Context, o Options, progress func(done, total int)) (Result, error) {
	if progress == nil {
		progress = func(int, int) {}
	}
	scenarios, err := o.scenarios()
	if err != nil {
		return Result{}, err
	}
	runs := make([]Outcome, len(scenarios))
	var mu sync.Mutex
	done, total := 0, len(scenarios)*o.Jobs
	arrived := func(jobs int) {
		mu.Lock()
		defer mu.Unlock()
		done += jobs
		progress(done, total)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.workers())
	for i := range scenarios {
		g.Go(func() error {
			c := &scenarios[i]
			run, err := c.play(ctx, &o, arrived)
			if err != nil {
				return fmt.Errorf("policy %s, zones %s, mix %s, load %g, seed %d: %w",
					c.rule.name, c.shape.Name, c.mix.Name, c.load, c.seed, err)
			}
			runs[i] = run
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	return Result{Servers: o.Servers, Jobs: o.Jobs, Backfill: o.Backfill, Runs: runs}, nil
}

// play makes one run.
func (c *scenario) play(ctx context.Context, o *Options, arrived func(int)) (Outcome, error) {
	e, err := newEngine(*c, o)
	if err != nil {
		return Outcome{}, err
	}
	if err := e.run(ctx, arrived); err != nil {
		return Outcome{}, err
	}
	return c.result(e.meter), nil
}

func (c *scenario) result(m *meter) Outcome {
	r := Outcome{
		Rule: c.rule.name, Shape: c.shape.Name, Mix: c.mix.Name, Load: c.load, Seed: c.seed,
		Pairs: m.got.pairs, BestPairs: m.best.pairs, Weight: m.got.weight, BestWeight: m.best.weight,
		OneZonePercent: map[string]float64{}, MeanWait: map[string]float64{}, Measured: map[string]int{},
		BrokenZones: m.opened,
	}
	for i := range m.kinds {
		k := &m.kinds[i]
		s := m.sizes[k.size()]
		if s == nil {
			continue
		}
		r.Measured[k.size()] = s.jobs
		r.MeanWait[k.size()] = s.wait / float64(s.jobs)
		if k.cards > 1 && k.cards <= c.shape.Zone {
			r.OneZonePercent[k.size()] = 100 * float64(s.oneZone) / float64(s.jobs)
		}
	}
	if m.time > 0 {
		r.AllocatedPercent = 100 * m.area / m.time / float64(len(m.servers)*serverCards)
	}
	return r
}
