package main

import (
	"context"
	"fmt"
	"time"
)

// patience is how long nothing may be bound before a run is given up.
const patience = 3 * time.Minute

// bindAll lets one scheduler bind the pods of a workload and tells how it went.
// It leaves no pods behind.
func (w *world) bindAll(ctx context.Context, name string, s side, pods int) (f Figures, err error) {
	workload := w.bench.plan.Workloads[name]
	if err := w.create(ctx, writers, w.bench.plan.backlog(&workload, pods)); err != nil {
		return f, err
	}
	bound, err := w.watchBindings(ctx)
	if err != nil {
		return f, err
	}
	defer bound.stop()
	r := runner{world: w, bound: bound, workload: name, pods: pods}
	if r.scheduler, err = w.startScheduler(ctx, s, workload.Policy); err != nil {
		return f, err
	}
	f, err = r.run(ctx)
	r.scheduler.Kill()
	if err != nil {
		return f, fmt.Errorf("%w; its log is %s", err, r.scheduler.Log())
	}
	return f, w.clear(ctx)
}

// runner is one run of one scheduler.
type runner struct {
	*world
	scheduler *scheduler
	bound     *bindings
	workload  string
	pods      int
}

// reading is everything that is read at one moment.
type reading struct {
	at        time.Time
	cpu       time.Duration
	api, self samples
}

func (r *runner) read(ctx context.Context) (m reading, err error) {
	m.at = time.Now()
	if m.cpu, err = r.scheduler.cpu(); err != nil {
		return m, err
	}
	if m.self, err = r.scheduler.metrics(ctx); err != nil {
		return m, err
	}
	m.api, err = r.apiMetrics(ctx)
	return m, err
}

func (r *runner) run(ctx context.Context) (f Figures, err error) {
	fresh, err := r.apiMetrics(ctx)
	if err != nil {
		return f, err
	}
	_, first, err := r.bound.next(ctx, patience)
	if err != nil {
		return f, err
	}
	// What a start costs is over with the first binding.
	before, err := r.read(ctx)
	if err != nil {
		return f, err
	}
	if r.profiles != "" {
		go r.saveProfile(ctx, r.scheduler, r.workload, "cpu", "/debug/pprof/profile?seconds=5")
	}
	last := first
	for range r.pods - 1 {
		if _, last, err = r.bound.next(ctx, patience); err != nil {
			return f, err
		}
	}
	cpu, err := r.scheduler.cpu()
	if err != nil {
		return f, err
	}
	r.saveProfile(ctx, r.scheduler, r.workload, "heap", "/debug/pprof/heap")
	// Events come after the bindings that they tell of.
	select {
	case <-ctx.Done():
		return f, context.Cause(ctx)
	case <-time.After(2 * time.Second):
	}
	after, err := r.read(ctx)
	if err != nil {
		return f, err
	}
	if f.PeakMiB, err = r.scheduler.peakMiB(); err != nil {
		return f, err
	}
	took := last.Sub(first)
	f.PodsPerSecond = float64(r.pods-1) / took.Seconds()
	f.CPUMillisecondsPerPod = float64((cpu-before.cpu)/time.Millisecond) / float64(r.pods)
	f.CPUSeconds = cpu.Seconds()
	r.count(&f, fresh, &before, &after)
	return f, nil
}

// count fills in what metrics tell.
func (r *runner) count(f *Figures, fresh samples, before, after *reading) {
	n := float64(r.pods)
	calls := fewer(after.api.calls(), before.api.calls())
	f.Calls = map[string]float64{}
	for what, count := range calls {
		if what == "POST pods/binding" || count >= n/100 { // a few are the measurement's own
			f.Calls[what] = count / n
			f.CallsPerPod += count / n
		}
	}
	for what, count := range fewer(before.api.calls(), fresh.calls()) {
		if what != "POST pods/binding" && what != "POST events" {
			f.StartCallsPerPod += count / n
		}
	}
	const cycle = "scheduler_scheduling_algorithm_duration_seconds"
	f.CycleP50Milliseconds = 1000 * after.self.quantile(0.5, cycle, before.self)
	f.CycleP99Milliseconds = 1000 * after.self.quantile(0.99, cycle, before.self)
	const mallocs = "go_memstats_mallocs_total"
	f.AllocationsPerPod = (after.self.sum(mallocs, nil) - before.self.sum(mallocs, nil)) / n
	const attempts = "scheduler_schedule_attempts_total"
	f.AttemptsPerPod = (after.self.sum(attempts, nil) - before.self.sum(attempts, nil)) / n
}
