package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// backfill is how many waiting jobs are tried when cards come free.
const backfill = 64

// scenario is one run of the study.
type scenario struct {
	policy namedPolicy
	shape  shape
	mix    mix
	load   float64
	seed   int64
}

// scenarios lists the runs to be made, policies innermost, so that runs to be
// compared are made at about the same time.
func scenarios(o *Options) []scenario {
	var all []scenario
	for _, zones := range o.Zones {
		for _, mix := range o.Mixes {
			for _, load := range o.Loads {
				for s := range o.Seeds {
					for _, policy := range o.Policies {
						all = append(all, scenario{
							policy: find(topologyPolicies, policy), shape: find(shapes, zones), mix: find(mixes, mix),
							load: load, seed: o.Seed + int64(s),
						})
					}
				}
			}
		}
	}
	return all
}

// study is the outcome of a topology study.
type study struct {
	Servers  int       `json:"servers"`
	Jobs     int       `json:"jobs"`
	Backfill int       `json:"backfill"`
	Runs     []outcome `json:"runs"`
}

// outcome is what came of one policy on one seed's jobs. Sizes of jobs are
// "fractional", "1", "2" and so on; percentages go from 0 to 100.
type outcome struct {
	Policy string  `json:"policy"`
	Zones  string  `json:"zones"`
	Mix    string  `json:"mix"`
	Load   float64 `json:"load"`
	Seed   int64   `json:"seed"`

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

// runStudy makes the runs of a study. The result depends on the options alone.
func runStudy(ctx context.Context, o *Options, progress func(done, total int64)) (study, error) {
	all := scenarios(o)
	total := int64(len(all)) * int64(o.Jobs)
	runs, err := runAll(ctx, len(all), total, progress, func(ctx context.Context, i int, arrived func(int)) (outcome, error) {
		c := &all[i]
		run, err := c.play(ctx, o, backfill, arrived)
		if err != nil {
			return run, fmt.Errorf("policy %s, zones %s, mix %s, load %g, seed %d: %w",
				c.policy.name, c.shape.name, c.mix.name, c.load, c.seed, err)
		}
		return run, nil
	})
	if err != nil {
		return study{}, err
	}
	return study{Servers: o.Servers, Jobs: o.Jobs, Backfill: backfill, Runs: runs}, nil
}

// play makes one run.
func (c *scenario) play(ctx context.Context, o *Options, queue int, arrived func(int)) (outcome, error) {
	e, m, err := c.engine(o, queue)
	if err != nil {
		return outcome{}, err
	}
	if err := e.run(ctx, arrived); err != nil {
		return outcome{}, err
	}
	return c.outcome(m), nil
}

// engine prepares a run.
func (c *scenario) engine(o *Options, queue int) (*engine, *churnMeter, error) {
	topology, err := c.shape.topology()
	if err != nil {
		return nil, nil, err
	}
	w := &world{kinds: c.mix.kinds(), ties: o.Ties, rng: rand.New(rand.NewPCG(uint64(c.seed), 0x7ee5))}
	if c.policy.name == ours {
		w.ties = TiesIndex // the core leaves none: the node's name decides
	}
	for i := range o.Servers {
		w.servers = append(w.servers, newServer(i, fmt.Sprintf("server-%05d", i), topology))
	}
	jobs := drawJobs(w.kinds, o.Jobs, float64(o.Servers*serverCards), c.load, uint64(c.seed))
	m := newChurnMeter(w, c.shape, jobs)
	return newEngine(w, c.policy.make(w), jobs, queue, m), m, nil
}

func (c *scenario) outcome(m *churnMeter) outcome {
	o := outcome{
		Policy: c.policy.name, Zones: c.shape.name, Mix: c.mix.name, Load: c.load, Seed: c.seed,
		Pairs: m.got.pairs, BestPairs: m.best.pairs, Weight: m.got.weight, BestWeight: m.best.weight,
		OneZonePercent: map[string]float64{}, MeanWait: map[string]float64{}, Measured: map[string]int{},
		BrokenZones: m.broken,
	}
	for i := range m.kinds {
		k := &m.kinds[i]
		s := m.sizes[k.size]
		if s.jobs == 0 {
			continue
		}
		o.Measured[k.size] = s.jobs
		o.MeanWait[k.size] = s.wait / float64(s.jobs)
		if k.cards > 1 && k.cards <= c.shape.zone {
			o.OneZonePercent[k.size] = 100 * float64(s.oneZone) / float64(s.jobs)
		}
	}
	if m.time > 0 {
		o.AllocatedPercent = 100 * m.area / m.time / float64(len(m.servers)*serverCards)
	}
	return o
}

// churnMeter collects what a run of the study is judged by. The first tenth of
// the jobs fills the empty servers and is not measured.
type churnMeter struct {
	*world
	shape      shape
	exhaustive *exhaustive
	jobs       []job
	warmup     int

	time, area float64 // measured time, and booked cards over it
	got, best  quality
	sizes      map[string]*sizeStats
	broken     int // fractional jobs that broke an idle zone without need
}

// sizeStats is about the jobs of one size.
type sizeStats struct {
	jobs, oneZone int
	wait          float64
}

func newChurnMeter(w *world, s shape, jobs []job) *churnMeter {
	m := &churnMeter{world: w, shape: s, exhaustive: newExhaustive(s), jobs: jobs, warmup: len(jobs) / 10, sizes: map[string]*sizeStats{}}
	for i := range w.kinds {
		m.sizes[w.kinds[i].size] = &sizeStats{}
	}
	return m
}

// pass counts what is booked between the first measured arrival and the last.
func (m *churnMeter) pass(from, to, booked float64) {
	if from >= m.jobs[m.warmup].arrives && to <= m.jobs[len(m.jobs)-1].arrives {
		m.time += to - from
		m.area += (to - from) * booked
	}
}

// refuse has nothing to do: jobs that do not fit wait.
func (m *churnMeter) refuse(*kind) {}

func (m *churnMeter) start(j int, k *kind, wait float64, s *server, cards gpu.Set) {
	if j < m.warmup {
		return
	}
	size := m.sizes[k.size]
	size.jobs++
	size.wait += wait
	switch {
	case k.fractional():
		if m.breaksZone(k, s, cards) {
			m.broken++
		}
	case k.cards > 1:
		if m.shape.oneZone(cards) {
			size.oneZone++
		}
		// The best that any server has to offer now.
		var best quality
		for _, s := range m.servers {
			best = best.atLeast(m.exhaustive.best[s.idle()][k.cards])
		}
		m.got, m.best = m.got.plus(m.exhaustive.of[cards]), m.best.plus(best)
	}
}

// breaksZone reports whether a fractional job goes onto a card in an idle zone
// while a card in use somewhere has room for it.
func (m *churnMeter) breaksZone(k *kind, s *server, cards gpu.Set) bool {
	if m.shape.zone == 0 || m.shape.zoneCards(cards.First())&^s.idle() != 0 {
		return false
	}
	return slices.ContainsFunc(m.servers, func(s *server) bool { return s.room(k)&^s.idle() != 0 })
}
