package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench carries out a plan.
type bench struct {
	plan       *Plan
	executable string
	// kubernetes, if set, is a folder with another version's binaries.
	kubernetes string
	// peers is the folder with the binaries of other schedulers.
	peers string
	// old, if set, is the binary of an earlier Daybreak.
	old      string
	profiles string
	log      io.Writer
	begin    time.Time
}

// logf reports progress.
func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, "%6s  %s\n", time.Since(b.begin).Round(time.Second), fmt.Sprintf(format, args...))
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// run measures everything. What was measured before something failed is
// returned with the error.
func (b *bench) run(ctx context.Context) (*Result, error) {
	result := &Result{
		Date: b.begin.UTC().Format(time.DateOnly), Rounds: b.plan.Rounds,
		Machine: Machine{CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Load: load()},
	}
	if err := b.core(ctx, result); err != nil {
		return nil, err
	}
	var err error
	for i := range b.plan.Clusters {
		if err = b.measure(ctx, &b.plan.Clusters[i], result); err != nil {
			err = fmt.Errorf("%d nodes: %w", b.plan.Clusters[i].Nodes, err)
			break
		}
	}
	result.Took = time.Since(b.begin).Round(time.Second).String()
	return result, err
}

// measure measures in one cluster.
func (b *bench) measure(ctx context.Context, plan *ClusterPlan, result *Result) error {
	w, err := b.newWorld(ctx, plan)
	if err != nil {
		return err
	}
	defer w.stop()
	if err := w.workloads(ctx, result); err != nil {
		return err
	}
	if plan.Start {
		if err := w.starts(ctx, result); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	if plan.Wake != nil {
		if err := w.wakes(ctx, result); err != nil {
			return fmt.Errorf("wake: %w", err)
		}
	}
	return nil
}

// load returns how many processes wanted a CPU in the last minute; zero if that is
// not known.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	average, _ := strconv.ParseFloat(first, 64)
	return average
}

// contenders returns all schedulers in an order that changes from round to round, so
// that none always comes first. Next to peers, all but Daybreak have their own limits
// too: Daybreak's are the equal ones, and those of an earlier Daybreak.
func contenders(round int, peers ...side) []contender {
	all := []contender{{daybreak, equalLimits}, {plain, equalLimits}}
	for _, s := range peers {
		all = append(all, contender{s, equalLimits})
	}
	if slices.ContainsFunc(peers, func(s side) bool { return s != earlier }) {
		for _, c := range all[1:] {
			if c.side != earlier {
				all = append(all, contender{c.side, ownLimits})
			}
		}
	}
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// others returns who is measured next to Daybreak and plain kube-scheduler.
func (b *bench) others() []side {
	if b.old == "" {
		return b.plan.Peers
	}
	return slices.Concat([]side{earlier}, b.plan.Peers)
}

// workloads runs the cluster's workloads, round by round, each with both
// schedulers.
func (w *world) workloads(ctx context.Context, result *Result) error {
	if len(w.plan.Workloads) == 0 {
		return nil
	}
	// So that nothing is done for the first time when it counts.
	if _, err := w.bindAll(ctx, w.plan.Workloads[0], contender{plain, equalLimits}, min(w.plan.Pods, 200)); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	figures := map[string]map[contender][]Figures{}
	for round := range w.bench.plan.Rounds {
		for _, name := range w.plan.Workloads {
			if rounds := w.bench.plan.Workloads[name].Rounds; rounds > 0 && round >= rounds {
				continue
			}
			if figures[name] == nil {
				figures[name] = map[contender][]Figures{}
			}
			for _, c := range contenders(round, w.bench.others()...) {
				f, err := w.bindAll(ctx, name, c, w.plan.Pods)
				if err != nil {
					return fmt.Errorf("workload %s with %s: %w", name, c.side, err)
				}
				w.logf("%d nodes, %s, round %d: %s, %s limits: %.0f pods/s, cycle p99 %.2f ms, %.2f calls a pod, %.2f ms CPU a pod, %.0f MiB",
					w.plan.Nodes, name, round+1, c.side, c.limits, f.PodsPerSecond, f.CycleP99Milliseconds, f.CallsPerPod, f.CPUMillisecondsPerPod, f.PeakMiB)
				figures[name][c] = append(figures[name][c], f)
			}
		}
	}
	for _, name := range w.plan.Workloads {
		result.Runs = append(result.Runs, w.summary(name, figures[name]))
	}
	return nil
}

func (w *world) summary(name string, figures map[contender][]Figures) Run {
	workload := w.bench.plan.Workloads[name]
	r := Run{
		Nodes: w.plan.Nodes, Workload: name, Pods: w.plan.Pods, Policy: workload.Policy,
		Daybreak: medians(figures[contender{daybreak, equalLimits}]), Plain: medians(figures[contender{plain, equalLimits}]),
	}
	if res := w.plan.Residents; res != nil {
		r.Residents = w.plan.Nodes * res.Percent / 100 * res.PerNode
	}
	if workload.Unfit != nil {
		r.Unfit = workload.Unfit.Pods
	}
	r.DaybreakPodsPerSecond, r.PlainPodsPerSecond = r.Daybreak.PodsPerSecond, r.Plain.PodsPerSecond
	r.Ratio = r.DaybreakPodsPerSecond / r.PlainPodsPerSecond
	for i, c := range contenders(0, w.bench.others()...) {
		rounds := make([]float64, len(figures[c]))
		for j := range figures[c] {
			rounds[j] = figures[c][j].PodsPerSecond
		}
		switch i {
		case 0:
			r.DaybreakRounds = rounds
		case 1:
			r.PlainRounds = rounds
		default:
			r.Peers = append(r.Peers, Peer{Scheduler: c.side, Limits: c.limits, Rounds: rounds, Figures: medians(figures[c])})
		}
	}
	return r
}

// saveProfile takes a profile of the scheduler, if profiles are wanted.
func (b *bench) saveProfile(ctx context.Context, s *scheduler, workload, kind, path string) {
	if b.profiles == "" {
		return
	}
	text, err := s.get(ctx, path)
	for range 50 { // a process that has just started does not answer yet
		if err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		text, err = s.get(ctx, path)
	}
	if err == nil {
		err = os.MkdirAll(b.profiles, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%s.pprof", workload, s.name, kind)), text, 0o600)
	}
	if err != nil {
		b.logf("no %s profile of %s: %v", kind, s.name, err)
	}
}
