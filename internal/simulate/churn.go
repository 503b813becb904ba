package simulate

import (
	"context"
	"fmt"
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
	// Interrupted means that the study was to have more runs.
	Interrupted bool `json:"interrupted,omitempty"`
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

// runStudy makes the runs of a study. The result depends on the options alone. With
// an [interruptedError] it has the runs that were completed.
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
	return study{Servers: o.Servers, Jobs: o.Jobs, Backfill: backfill, Runs: runs, Interrupted: err != nil}, err
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
	return m.finish(), nil
}

// engine prepares a run.
func (c *scenario) engine(o *Options, queue int) (*engine, *churnMeter, error) {
	topology, err := c.shape.topology()
	if err != nil {
		return nil, nil, err
	}
	w := &world{kinds: c.mix.kinds(), ties: o.Ties, rng: random(c.seed, studyTieStream)}
	if c.policy.name == ours {
		w.ties = TiesIndex // the core leaves none: the node's name decides
	}
	for i := range o.Servers {
		w.servers = append(w.servers, newServer(i, fmt.Sprintf("server-%05d", i), topology))
	}
	jobs := drawJobs(w.kinds, o.Jobs, float64(o.Servers*serverCards), c.load, c.seed)
	m := newChurnMeter(c, w, jobs)
	return newEngine(w, c.policy.make(w), jobs, queue, m), m, nil
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
	// sums has sums where the outcome has percentages and means.
	sums outcome
}

func newChurnMeter(c *scenario, w *world, jobs []job) *churnMeter {
	return &churnMeter{
		world: w, shape: c.shape, exhaustive: newExhaustive(c.shape), jobs: jobs, warmup: len(jobs) / 10,
		sums: outcome{
			Policy: c.policy.name, Zones: c.shape.name, Mix: c.mix.name, Load: c.load, Seed: c.seed,
			OneZonePercent: map[string]float64{}, MeanWait: map[string]float64{}, Measured: map[string]int{},
		},
	}
}

// finish makes percentages and means of the sums, once the run is over.
func (m *churnMeter) finish() outcome {
	o := m.sums
	for size, jobs := range o.Measured {
		o.MeanWait[size] /= float64(jobs)
	}
	for size, inZone := range o.OneZonePercent {
		o.OneZonePercent[size] = 100 * inZone / float64(o.Measured[size])
	}
	if m.time > 0 {
		o.AllocatedPercent = 100 * m.area / m.time / float64(len(m.servers)*serverCards)
	}
	return o
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
	o := &m.sums
	o.Measured[k.size]++
	o.MeanWait[k.size] += wait
	switch {
	case k.fractional():
		if m.breaksZone(k, s, cards) {
			o.BrokenZones++
		}
	case k.cards > 1:
		if m.shape.oneZone(cards) {
			o.OneZonePercent[k.size]++
		} else if k.cards <= m.shape.zone {
			o.OneZonePercent[k.size] += 0
		}
		// The best that any server has to offer now.
		var best quality
		for _, s := range m.servers {
			best = best.atLeast(m.exhaustive.best[s.idle()][k.cards])
		}
		got := m.exhaustive.of[cards]
		o.Pairs, o.BestPairs = o.Pairs+got.pairs, o.BestPairs+best.pairs
		o.Weight, o.BestWeight = o.Weight+got.weight, o.BestWeight+best.weight
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
