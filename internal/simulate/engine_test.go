package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// small returns options of a quick study.
func small() Options {
	return Options{
		Policies: names(topologyPolicies), Zones: []string{"2x4"}, Mixes: []string{"mixed"}, Loads: []float64{0.85},
		Servers: 6, Jobs: 600, Seed: 300, Seeds: 2,
	}
}

// scenarioOf returns a run of our policy with jobs of the given sizes, equally
// often.
func scenarioOf(load float64, cards ...int) scenario {
	m := mix{name: "test"}
	for _, n := range cards {
		m.whole[n] = 100 / len(cards)
	}
	return scenario{policy: topologyPolicies[0], shape: shapes[0], mix: m, load: load, seed: 7}
}

// queueOf returns an engine with one server and the given jobs, which arrived.
func queueOf(t *testing.T, queue int, jobs func(one, eight *kind) []job) *engine {
	t.Helper()
	c := scenarioOf(0.5, 1, 8)
	e, _, err := c.engine(&Options{Servers: 1, Jobs: 100}, queue)
	gputest.Must(t, err)
	arriving := jobs(&e.kinds[len(e.kinds)-2], &e.kinds[len(e.kinds)-1])
	copy(e.jobs, arriving)
	for j := range arriving {
		gputest.Must(t, e.arrive(j))
	}
	return e
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
			c := scenarioOf(load, 8)
			run, err := c.play(t.Context(), &Options{Servers: tc.servers, Jobs: 30_000}, 1, func(int) {})
			gputest.Must(t, err)
			if got := run.MeanWait["8"]; math.Abs(got/tc.want-1) > 0.08 {
				t.Errorf("mean wait %.3f, want %.3f", got, tc.want)
			}
			if math.Abs(run.AllocatedPercent/100-load) > 0.02 {
				t.Errorf("allocated %.1f%%, want %g%%", run.AllocatedPercent, 100*load)
			}
			if run.Measured["8"] != 27_000 {
				t.Errorf("%d jobs measured, want all but the first tenth", run.Measured["8"])
			}
		})
	}
}

// TestBackfill: behind a job that does not fit, smaller ones start only if they
// may overtake.
func TestBackfill(t *testing.T) {
	for queue, want := range map[int][]int{1: {1, 2}, 2: {1}} {
		// One card is taken; then come a job of eight cards and one of one card.
		e := queueOf(t, queue, func(one, eight *kind) []job {
			return []job{{kind: one, lasts: 9}, {kind: eight, arrives: 1, lasts: 1}, {kind: one, arrives: 2, lasts: 1}}
		})
		gputest.Equal(t, fmt.Sprintf("of the first %d that wait; waiting", queue), want, e.waiting)
	}
}

// TestBackfillAtDeparture: when cards come free, no more than the first few
// waiting jobs are tried.
func TestBackfillAtDeparture(t *testing.T) {
	// A job of eight cards runs; behind it wait two more and two of one card.
	e := queueOf(t, 2, func(one, eight *kind) []job {
		return []job{
			{kind: eight, lasts: 9},
			{kind: eight, arrives: 1, lasts: 1}, {kind: eight, arrives: 2, lasts: 1},
			{kind: one, arrives: 3, lasts: 1}, {kind: one, arrives: 4, lasts: 1},
		}
	})
	// Of the server's cards one stays taken, so that no job of eight fits.
	e.servers[0].Release(holder(0))
	e.servers[0].Book(ledger.Holding{Holder: "stays", Parts: []ledger.Part{{Shares: []ledger.Share{{Card: 7, Compute: 100, Exclusive: true}}}}})
	gputest.Must(t, e.depart())
	gputest.Equal(t, "the small jobs are third and fourth, and two are tried; waiting", []int{1, 2, 3, 4}, e.waiting)
}

// TestBrokenZones: a fractional job breaks a zone without need when its zone was
// idle and a card in use had room.
func TestBrokenZones(t *testing.T) {
	cases := map[string]struct {
		servers []booked
		card    int
		want    bool
	}{
		"a used card elsewhere has room":        {[]booked{{}, {0: 47}}, 3, true},
		"a used card in the other zone has it":  {[]booked{{7: 47}}, 3, true},
		"no used card has room":                 {[]booked{{}, {0: 81, 1: 100}}, 3, false},
		"nothing is used":                       {[]booked{{}, {}}, 3, false},
		"the zone is in use already":            {[]booked{{0: 100}, {0: 47}}, 3, false},
		"the job joins the used card with room": {[]booked{{0: 47}}, 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := fraction(32)
			m := newChurnMeter(&scenario{shape: shapes[0]}, makeWorld(t, shapes[0], tc.servers...), nil)
			gputest.Equal(t, "breaks a zone", tc.want, m.breaksZone(&k, m.servers[0], gpu.SetOf(tc.card)))
		})
	}
}

// TestSameOptionsSameResult: a run depends on its options alone, not on the
// company of other policies.
func TestSameOptionsSameResult(t *testing.T) {
	run := func(o Options) []outcome {
		t.Helper()
		s, err := runStudy(t.Context(), &o, ignoreProgress)
		gputest.Must(t, err)
		return s.Runs
	}
	o := small()
	all := run(o)
	gputest.Equal(t, "two runs differ", all, run(o))
	o.Policies = []string{"fgd"}
	alone := run(o)
	among := slices.DeleteFunc(all, func(o outcome) bool { return o.Policy != "fgd" })
	gputest.Equal(t, "among other policies and alone", among, alone)
	if cmp.Equal(alone[0].MeanWait, alone[1].MeanWait) {
		t.Error("two seeds gave the same waits")
	}
	o.Ties = TiesRandom
	if cmp.Equal(alone, run(o)) {
		t.Error("breaking ties at random changed nothing")
	}
}

// TestSameJobs: the jobs depend on seed and mix, and the load only brings them
// closer together.
func TestSameJobs(t *testing.T) {
	kinds := mixes[0].kinds()
	a, b := drawJobs(kinds, 100, 64, 0.5, 1), drawJobs(kinds, 100, 64, 0.25, 1)
	for i := range a {
		if a[i].id != b[i].id || a[i].lasts != b[i].lasts || math.Abs(b[i].arrives-2*a[i].arrives) > 1e-9 {
			t.Fatalf("job %d is %+v at load 0.5 and %+v at half of it", i, a[i], b[i])
		}
	}
}

func TestMixesAreWhole(t *testing.T) {
	for _, m := range mixes {
		sum := 0.0
		for _, k := range m.kinds() {
			sum += k.weight
			if k.request.Cards() != k.cards {
				t.Errorf("%s: a job of %d cards asks for %d", m.name, k.cards, k.request.Cards())
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("the jobs of mix %s add up to %g", m.name, sum)
		}
	}
}

func TestStudyProgress(t *testing.T) {
	o := small()
	calls, last := 0, int64(0)
	_, err := runStudy(t.Context(), &o, func(done, total int64) {
		if total != 6000 || done <= last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		calls++
		last = done
	})
	gputest.Must(t, err)
	if last != 6000 || calls != 20 {
		t.Errorf("%d calls up to %d, want 20 up to 6000", calls, last)
	}
}

// TestStudyStops: a run ends soon after its context, in the middle of its jobs.
func TestStudyStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := small()
	o.Jobs = 100_000
	var calls atomic.Int32
	_, err := runStudy(ctx, &o, func(int64, int64) {
		calls.Add(1)
		cancel()
	})
	if !errors.Is(err, context.Canceled) || calls.Load() > 100 {
		t.Errorf("error %v, want that it was cancelled, after %d steps", err, calls.Load())
	}
}

// TestPoliciesAreChecked: a policy that gives away what is taken ends the study.
func TestPoliciesAreChecked(t *testing.T) {
	for want, p := range map[string]policy{
		"was given cards [0 1 2 3] of server-00000, where [4 5 6 7] have room": generous{},
		"rejects jobs that fit": stingy{},
	} {
		c := scenarioOf(0.9, 4)
		c.policy.make = func(*world) policy { return p }
		_, err := c.play(t.Context(), &Options{Servers: 2, Jobs: 100}, 1, func(int) {})
		gputest.ErrorHas(t, "play", want, err)
	}
}

func ignoreProgress(_, _ int64) {}
