package churn

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// small returns options of a quick study.
func small() Options {
	return Options{
		Rules: Rules(), Shapes: []string{"2x4"}, Mixes: []string{"mixed"}, Loads: []float64{0.85},
		Servers: 6, Jobs: 600, Backfill: 64, Seed: 300, Seeds: 2,
	}
}

// scenarioOf returns a run of our rule with jobs of one size only.
func scenarioOf(cards int, load float64) scenario {
	m := Mix{Name: "test"}
	m.Whole[cards] = 100
	return scenario{rule: rules[0], shape: Shapes()[0], mix: m, load: load, seed: 7}
}

// TestQueueTheory holds the engine against what is known by heart: jobs that
// take a whole server make one server a queue of the kind M/M/1, whose mean wait
// is load/(1-load), and two servers one of the kind M/M/2.
func TestQueueTheory(t *testing.T) {
	const load = 0.7
	cases := map[string]struct {
		servers int
		want    float64
	}{
		"one server":  {1, load / (1 - load)},
		"two servers": {2, load * load / (1 - load*load)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := scenarioOf(8, load)
			run, err := c.play(t.Context(), &Options{Servers: tc.servers, Jobs: 60_000, Backfill: 1}, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			if got := run.MeanWait["8"]; math.Abs(got/tc.want-1) > 0.08 {
				t.Errorf("mean wait %.3f, want %.3f", got, tc.want)
			}
			if math.Abs(run.AllocatedPercent/100-load) > 0.02 {
				t.Errorf("allocated %.1f%%, want %g%%", run.AllocatedPercent, 100*load)
			}
			if run.Measured["8"] != 54_000 {
				t.Errorf("%d jobs measured, want all but the first tenth", run.Measured["8"])
			}
		})
	}
}

// TestBackfill: behind a job that does not fit, smaller ones start only if they
// may overtake.
func TestBackfill(t *testing.T) {
	started := func(backfill int) []bool {
		c := scenarioOf(1, 0.5)
		c.mix.Whole[1], c.mix.Whole[8] = 50, 50
		e, err := newEngine(c, &Options{Servers: 1, Jobs: 100, Backfill: backfill})
		if err != nil {
			t.Fatal(err)
		}
		one, eight := len(e.kinds)-2, len(e.kinds)-1
		// One card is taken; then come a job of eight cards and one of one card.
		e.jobs = []job{{kind: one, lasts: 9}, {kind: eight, arrives: 1, lasts: 1}, {kind: one, arrives: 2, lasts: 1}}
		for j := range e.jobs {
			if err := e.arrive(j); err != nil {
				t.Fatal(err)
			}
		}
		runs := make([]bool, len(e.jobs))
		for _, d := range e.running {
			runs[d.job] = true
		}
		return runs
	}
	if diff := cmp.Diff([]bool{true, false, false}, started(1)); diff != "" {
		t.Errorf("nobody may overtake (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{true, false, true}, started(2)); diff != "" {
		t.Errorf("one may overtake (-want +got):\n%s", diff)
	}
}

// TestBackfillAtDeparture: when cards come free, no more than the first few of
// those who wait are tried.
func TestBackfillAtDeparture(t *testing.T) {
	c := scenarioOf(1, 0.5)
	c.mix.Whole[1], c.mix.Whole[8] = 50, 50
	e, err := newEngine(c, &Options{Servers: 1, Jobs: 100, Backfill: 2})
	if err != nil {
		t.Fatal(err)
	}
	one, eight := len(e.kinds)-2, len(e.kinds)-1
	// A job of eight cards runs; behind it wait two more and two of one card.
	e.jobs = []job{
		{kind: eight, lasts: 9},
		{kind: eight, arrives: 1, lasts: 1}, {kind: eight, arrives: 2, lasts: 1},
		{kind: one, arrives: 3, lasts: 1}, {kind: one, arrives: 4, lasts: 1},
	}
	for j := range e.jobs {
		if err := e.arrive(j); err != nil {
			t.Fatal(err)
		}
	}
	// Of the servers' cards one stays taken, so that no job of eight fits.
	e.servers[0].Release(holder(0))
	e.servers[0].Book(ledger.Holding{Holder: "stays", Parts: []ledger.Part{{Shares: []ledger.Share{{Card: 7, Compute: 100, Exclusive: true}}}}})
	if err := e.depart(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4}, e.waiting); diff != "" {
		t.Errorf("the small jobs are third and fourth, and two are tried; waiting (-want +got):\n%s", diff)
	}
}

// TestBrokenZones: a fractional job breaks a zone without need when its zone was
// idle and a card in use had room.
func TestBrokenZones(t *testing.T) {
	cases := map[string]struct {
		servers []server
		card    int
		want    bool
	}{
		"a used card elsewhere has room":        {[]server{{}, {0: 47}}, 3, true},
		"a used card in the other zone has it":  {[]server{{7: 47}}, 3, true},
		"no used card has room":                 {[]server{{}, {0: 81, 1: 100}}, 3, false},
		"nothing is used":                       {[]server{{}, {}}, 3, false},
		"the zone is in use already":            {[]server{{0: 100}, {0: 47}}, 3, false},
		"the job joins the used card with room": {[]server{{0: 47}}, 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(t, "2x4", tc.servers...)
			if got := newMeter(w, 0).breaksZone(fraction(32), 0, gpu.SetOf(tc.card)); got != tc.want {
				t.Errorf("breaks a zone: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestSameOptionsSameResult: neither the number of workers nor the company of
// other rules changes a run.
func TestSameOptionsSameResult(t *testing.T) {
	o := small()
	var results []Result
	for _, workers := range []int{1, 4} {
		o.Workers = workers
		r, err := Run(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("one worker and four (-one +four):\n%s", diff)
	}
	o.Rules = []string{"fgd"}
	alone, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var among []Outcome
	for _, run := range results[0].Runs {
		if run.Rule == "fgd" {
			among = append(among, run)
		}
	}
	if diff := cmp.Diff(among, alone.Runs); diff != "" {
		t.Errorf("among other rules and alone (-among +alone):\n%s", diff)
	}
	if cmp.Equal(alone.Runs[0].MeanWait, alone.Runs[1].MeanWait) {
		t.Error("two seeds gave the same waits")
	}
	o.RandomTies = true
	random, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(alone.Runs, random.Runs) {
		t.Error("breaking ties at random changed nothing")
	}
}

// TestSameJobs: the jobs depend on seed and mix, and the load only brings them
// closer together.
func TestSameJobs(t *testing.T) {
	kinds := Mixes()[0].kinds()
	a, b := jobs(kinds, 100, 64, 0.5, 1), jobs(kinds, 100, 64, 0.25, 1)
	for i := range a {
		if a[i].kind != b[i].kind || a[i].lasts != b[i].lasts || math.Abs(b[i].arrives-2*a[i].arrives) > 1e-9 {
			t.Fatalf("job %d is %+v at load 0.5 and %+v at half of it", i, a[i], b[i])
		}
	}
}

func TestMixesAreWhole(t *testing.T) {
	for _, m := range Mixes() {
		sum := 0.0
		for _, k := range m.kinds() {
			sum += k.weight
			if k.request.Cards() != k.cards {
				t.Errorf("%s: a job of %d cards asks for %d", m.Name, k.cards, k.request.Cards())
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("the jobs of mix %s add up to %g", m.Name, sum)
		}
	}
}

func TestProgress(t *testing.T) {
	o := small()
	calls, last := 0, 0
	if _, err := Run(t.Context(), o, func(done, total int) {
		if total != 6000 || done <= last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		calls++
		last = done
	}); err != nil {
		t.Fatal(err)
	}
	if last != 6000 || calls != 20 {
		t.Errorf("%d calls up to %d, want 20 up to 6000", calls, last)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := small()
	o.Jobs = 1_000_000
	var calls atomic.Int32
	_, err := Run(ctx, o, func(int, int) {
		calls.Add(1)
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
	if calls.Load() > 100 {
		t.Errorf("went on for %d steps after it was cancelled", calls.Load())
	}
}

// TestRulesAreChecked: a rule that gives away what is taken ends the study.
func TestRulesAreChecked(t *testing.T) {
	c := scenarioOf(4, 0.9)
	c.rule.make = func(*world) rule { return generous{} }
	_, err := c.play(t.Context(), &Options{Servers: 2, Jobs: 100, Backfill: 1}, func(int) {})
	if err == nil || !strings.Contains(err.Error(), "was given cards [0 1 2 3] of server-00000, where [4 5 6 7] have room") {
		t.Errorf("error %v, want that the cards are taken", err)
	}
	c.rule.make = func(*world) rule { return stingy{} }
	if _, err = c.play(t.Context(), &Options{Servers: 2, Jobs: 100, Backfill: 1}, func(int) {}); err == nil || !strings.Contains(err.Error(), "refuses what would fit") {
		t.Errorf("error %v, want that nothing runs", err)
	}
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		change func(*Options)
		want   string // "": fine
	}{
		"the defaults":         {func(*Options) {}, ""},
		"no rule":              {func(o *Options) { o.Rules = nil }, "no policy given: write at least one of daybreak, hami-topology, hami, hami-greedy, fgd"},
		"an unknown rule":      {func(o *Options) { o.Rules = []string{"best"} }, `unknown policy "best": write one of daybreak, `},
		"a load twice":         {func(o *Options) { o.Loads = []float64{0.7, 0.85, 0.70} }, `load 0.7 is given twice`},
		"a rule twice":         {func(o *Options) { o.Rules = []string{"fgd", "fgd"} }, `policy "fgd" is given twice`},
		"an unknown shape":     {func(o *Options) { o.Shapes = []string{"8x1"} }, `unknown zones "8x1": write one of 2x4, 4x2, 1x8, 2x4-ring, 1x8-ring, none`},
		"an unknown mix":       {func(o *Options) { o.Mixes = []string{""} }, `unknown mix "": write one of mixed, training, inference, odd`},
		"no load":              {func(o *Options) { o.Loads = nil }, "no load given"},
		"an endless queue":     {func(o *Options) { o.Loads = []float64{0.5, 1} }, "load 1: write a number above 0 and below 1"},
		"a load of nothing":    {func(o *Options) { o.Loads = []float64{0} }, "load 0: write"},
		"a load in percent":    {func(o *Options) { o.Loads = []float64{85} }, "load 85: write"},
		"a load that is none":  {func(o *Options) { o.Loads = []float64{math.NaN()} }, "load NaN: write"},
		"no server":            {func(o *Options) { o.Servers = 0 }, "0 servers: write 1 to 10000"},
		"too many servers":     {func(o *Options) { o.Servers = 10_001 }, "10001 servers: write 1 to 10000"},
		"too few jobs":         {func(o *Options) { o.Jobs = 99 }, "99 jobs: write 100 to 10000000"},
		"too many jobs":        {func(o *Options) { o.Jobs = 10_000_001 }, "10000001 jobs: write"},
		"nobody may be tried":  {func(o *Options) { o.Backfill = 0 }, "a backfill of 0 lets nobody start: write 1 or more"},
		"no seed":              {func(o *Options) { o.Seeds = 0 }, "0 seeds: write 1 to 1000"},
		"less than no worker":  {func(o *Options) { o.Workers = -1 }, "-1 workers: write 0"},
		"two things are wrong": {func(o *Options) { o.Servers, o.Jobs = 0, 0 }, "0 servers: write 1 to 10000\n0 jobs: write 100 to 10000000"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := Defaults()
			tc.change(&o)
			err := o.Validate()
			if tc.want == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if _, runErr := Run(t.Context(), o, nil); runErr == nil || runErr.Error() != err.Error() {
				t.Errorf("Run's error is %v, want %v", runErr, err)
			}
		})
	}
}

func TestResultIsJSON(t *testing.T) {
	o := small()
	o.Shapes = []string{"4x2", "none"}
	want, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Result
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("written and read back (-want +got):\n%s", diff)
	}
}
