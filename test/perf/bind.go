package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// patience is how long nothing may be bound before a run is given up.
const patience = 3 * time.Minute

// bindAll lets one scheduler bind the pods of a workload and returns how it went.
// It leaves no pods behind.
func (w *world) bindAll(ctx context.Context, name string, c contender, pods int) (f Figures, err error) {
	plan := w.bench.plan.as(c.side)
	workload := plan.Workloads[name]
	bound, err := w.watchBindings(ctx)
	if err != nil {
		return f, err
	}
	defer bound.stop()
	removeQuota, err := w.addQuota(ctx, workload.Quota)
	if err != nil {
		return f, err
	}
	r := runner{world: w, bound: bound, workload: name, pods: pods}
	if workload.Unfit != nil {
		err = r.startBeside(ctx, c, &workload)
	} else if err = w.create(ctx, writers, plan.backlog(&workload, pods)); err == nil {
		r.scheduler, err = w.startScheduler(ctx, c, workload.Policy)
	}
	if r.scheduler == nil {
		return f, err
	}
	if err == nil {
		f, err = r.run(ctx, &workload)
	}
	r.scheduler.Stop()
	if err != nil {
		return f, fmt.Errorf("%w; its log is %s", err, r.scheduler.Log())
	}
	if err := w.clear(ctx); err != nil {
		return f, err
	}
	if workload.Preempts {
		victims, err := w.addResidents(ctx)
		if err != nil {
			return f, err
		}
		f.VictimsPerPod = float64(victims) / float64(pods)
	}
	return f, removeQuota()
}

// runner is one run of one scheduler.
type runner struct {
	*world
	scheduler *scheduler
	bound     *bindings
	workload  string
	pods      int
}

// startBeside starts the scheduler among pods that it can't bind. When it has
// tried them all it is held up while the others are made, so that here too they
// are all there when it begins.
func (r *runner) startBeside(ctx context.Context, c contender, workload *Workload) (err error) {
	unfit := r.bench.plan.unfit(workload)
	if err := r.create(ctx, writers, unfit); err != nil {
		return err
	}
	if r.scheduler, err = r.startScheduler(ctx, c, workload.Policy); err != nil {
		return err
	}
	if _, err := r.settle(ctx, r.scheduler, len(unfit)); err != nil {
		return err
	}
	if err := r.scheduler.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := r.create(ctx, writers, r.bench.plan.backlog(workload, r.pods)); err != nil {
		return err
	}
	return r.scheduler.Signal(syscall.SIGCONT)
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

func (r *runner) run(ctx context.Context, workload *Workload) (f Figures, err error) {
	disturb, stop := r.disturb(ctx, workload)
	defer stop()
	fresh, err := r.apiMetrics(ctx)
	if err != nil {
		return f, err
	}
	first, err := r.bound.next(ctx)
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
		if last, err = r.bound.next(ctx); err != nil {
			return f, err
		}
		disturb()
	}
	cpu, err := r.scheduler.cpu()
	if err != nil {
		return f, err
	}
	r.saveProfile(ctx, r.scheduler, r.workload, "heap", "/debug/pprof/heap")
	// Events come after the bindings that they report.
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
	for call, own := range map[string]bool{callRewrite: workload.RewriteDevices, callEnd: workload.Churns} {
		if own {
			f.CallsPerPod -= f.Calls[call]
			delete(f.Calls, call)
		}
	}
	return f, nil
}

// count fills in what metrics show.
func (r *runner) count(f *Figures, fresh samples, before, after *reading) {
	n := float64(r.pods)
	// Bindings and their events count from the very first; of the rest, what came
	// before it belongs to the start.
	f.Calls = map[string]float64{}
	start := fewer(calls(before.api), calls(fresh))
	for what, count := range fewer(calls(after.api), calls(fresh)) {
		if what != "POST pods/binding" && !strings.HasSuffix(what, " events") {
			f.StartCallsPerPod += start[what] / n
			count -= start[what]
		}
		if count >= n/100 { // a few are the measurement's own
			f.Calls[what] = count / n
			f.CallsPerPod += count / n
		}
	}
	const cycle = "scheduler_scheduling_algorithm_duration_seconds"
	f.CycleP50Milliseconds = 1000 * after.self.Quantile(0.5, cycle, before.self)
	f.CycleP99Milliseconds = 1000 * after.self.Quantile(0.99, cycle, before.self)
	// Most searches for victims come before the first binding.
	f.PostFilterMilliseconds = 1000 * after.self.Mean("scheduler_framework_extension_point_duration_seconds", "extension_point", "PostFilter")
	const mallocs = "go_memstats_mallocs_total"
	f.AllocationsPerPod = (after.self.Sum(mallocs) - before.self.Sum(mallocs)) / n
	const attempts = "scheduler_schedule_attempts_total"
	f.AttemptsPerPod = (after.self.Sum(attempts) - before.self.Sum(attempts)) / n
}
