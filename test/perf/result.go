package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
)

// Result is what was measured, as bench.json has it.
type Result struct {
	Date    string  `json:"date"`
	Machine Machine `json:"machine"`
	Took    string  `json:"took"`
	Rounds  int     `json:"rounds"`
	Runs    []Run   `json:"runs"`
	Starts  []Start `json:"starts,omitempty"`
	Wakes   []Wake  `json:"wakes,omitempty"`
	// Core is decisions without a cluster.
	Core   []CoreFigures `json:"core,omitempty"`
	Churn  *ChurnFigures `json:"churn,omitempty"`
	Bounds []Verdict     `json:"bounds,omitempty"`
}

// ChurnFigures is what decisions cost while pods come and go, and how often per 1000 of
// them something else is expected of the pods to come.
type ChurnFigures struct {
	Nodes         int     `json:"nodes"`
	Microseconds  float64 `json:"microseconds"`
	DemandChanges float64 `json:"demandChangesPer1000Pods"`
}

// CoreFigures is what one decision costs on a board of so many nodes, in CPU time.
type CoreFigures struct {
	Nodes        int     `json:"nodes"`
	Microseconds float64 `json:"microseconds"`
	Allocations  float64 `json:"allocations"`
}

// Machine is where it was measured.
type Machine struct {
	CPUs   int    `json:"cpus"`
	System string `json:"system"`
	Go     string `json:"go"`
	// Load is the load average before anything was started: above zero, something
	// else used the machine.
	Load float64 `json:"load"`
}

// Run is one workload in one cluster. Figures are medians of all rounds.
type Run struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Policy   string `json:"policy,omitempty"`
	// Pods were bound in addition to Residents, which were there before, and Unfit,
	// which fit nowhere.
	Pods      int `json:"pods"`
	Residents int `json:"residents,omitempty"`
	Unfit     int `json:"unfit,omitempty"`

	DaybreakPodsPerSecond float64   `json:"daybreakPodsPerSecond"`
	PlainPodsPerSecond    float64   `json:"plainPodsPerSecond"`
	Ratio                 float64   `json:"ratio"`
	DaybreakRounds        []float64 `json:"daybreakRounds"`
	PlainRounds           []float64 `json:"plainRounds"`
	Daybreak              Figures   `json:"daybreak"`
	Plain                 Figures   `json:"plain"`
	Peers                 []Peer    `json:"peers,omitempty"`
}

// Peer is how another scheduler did, or plain kube-scheduler with its own limits.
type Peer struct {
	Scheduler side      `json:"scheduler"`
	Limits    limits    `json:"limits"`
	Rounds    []float64 `json:"rounds"`
	Figures
}

// Figures is how one scheduler did.
type Figures struct {
	PodsPerSecond float64 `json:"podsPerSecond"`
	// The cycle is the decision alone, without the binding.
	CycleP50Milliseconds float64 `json:"cycleP50Milliseconds"`
	CycleP99Milliseconds float64 `json:"cycleP99Milliseconds"`
	// CPU of the scheduler's process: in all, and per pod from the first
	// binding to the last.
	CPUSeconds            float64 `json:"cpuSeconds"`
	CPUMillisecondsPerPod float64 `json:"cpuMillisecondsPerPod"`
	PeakMiB               float64 `json:"peakMiB"`
	// Calls at the API server after the first binding, and before it.
	CallsPerPod      float64            `json:"callsPerPod"`
	Calls            map[string]float64 `json:"calls"`
	StartCallsPerPod float64            `json:"startCallsPerPod"`
	// Allocations of the whole process, the binding and all informers included.
	AllocationsPerPod float64 `json:"allocationsPerPod"`
	AttemptsPerPod    float64 `json:"attemptsPerPod"`
	// PostFilterMilliseconds is the mean of what follows a cycle without a node, such
	// as a search for victims, since the start; VictimsPerPod were evicted.
	PostFilterMilliseconds float64 `json:"postFilterMilliseconds,omitempty"`
	VictimsPerPod          float64 `json:"victimsPerPod,omitempty"`
}

// Start is the time from the start of the process to its first binding.
type Start struct {
	Nodes           int     `json:"nodes"`
	BoundPods       int     `json:"boundPods"`
	DaybreakSeconds float64 `json:"daybreakSeconds"`
	PlainSeconds    float64 `json:"plainSeconds"`
	DaybreakPeakMiB float64 `json:"daybreakPeakMiB"`
	PlainPeakMiB    float64 `json:"plainPeakMiB"`
}

// Wake is what the end of a pod does in a full cluster.
type Wake struct {
	Nodes    int         `json:"nodes"`
	Waiting  int         `json:"waiting"`
	Ends     int         `json:"ends"`
	Daybreak WakeFigures `json:"daybreak"`
	Plain    WakeFigures `json:"plain"`
}

// WakeFigures are delays from the end to the binding of the pod that it helps,
// and how many pods were tried.
type WakeFigures struct {
	MedianMilliseconds float64 `json:"medianMilliseconds"`
	MaxMilliseconds    float64 `json:"maxMilliseconds"`
	AttemptsPerEnd     float64 `json:"attemptsPerEnd"`
}

// Verdict reports whether a bound of the plan holds.
type Verdict struct {
	What  string  `json:"what"`
	Bound string  `json:"bound"`
	Got   float64 `json:"got"`
	Holds bool    `json:"holds"`
}

// median returns the middle of the values, or the mean of the two middle ones.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// medians takes the median of each figure by itself.
func medians(all []Figures) (m Figures) {
	of := func(get func(*Figures) float64) float64 {
		var values []float64
		for i := range all {
			values = append(values, get(&all[i]))
		}
		return median(values)
	}
	m.PodsPerSecond = of(func(f *Figures) float64 { return f.PodsPerSecond })
	m.CycleP50Milliseconds = of(func(f *Figures) float64 { return f.CycleP50Milliseconds })
	m.CycleP99Milliseconds = of(func(f *Figures) float64 { return f.CycleP99Milliseconds })
	m.CPUSeconds = of(func(f *Figures) float64 { return f.CPUSeconds })
	m.CPUMillisecondsPerPod = of(func(f *Figures) float64 { return f.CPUMillisecondsPerPod })
	m.PeakMiB = of(func(f *Figures) float64 { return f.PeakMiB })
	m.CallsPerPod = of(func(f *Figures) float64 { return f.CallsPerPod })
	m.StartCallsPerPod = of(func(f *Figures) float64 { return f.StartCallsPerPod })
	m.AllocationsPerPod = of(func(f *Figures) float64 { return f.AllocationsPerPod })
	m.AttemptsPerPod = of(func(f *Figures) float64 { return f.AttemptsPerPod })
	m.PostFilterMilliseconds = of(func(f *Figures) float64 { return f.PostFilterMilliseconds })
	m.VictimsPerPod = of(func(f *Figures) float64 { return f.VictimsPerPod })
	m.Calls = map[string]float64{}
	for i := range all {
		for what := range all[i].Calls {
			m.Calls[what] = of(func(f *Figures) float64 { return f.Calls[what] })
		}
	}
	return m
}

func (r *Result) save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everyone to read
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// loadResult reads what an earlier run has saved.
func loadResult(file string) (*Result, error) {
	r := &Result{}
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// keep adds what an earlier run found and this one did not look at.
func (r *Result) keep(earlier *Result) {
	r.Runs = merge(r.Runs, earlier.Runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Residents, b.Residents), cmp.Compare(a.Workload, b.Workload))
	})
	r.Starts = merge(r.Starts, earlier.Starts, func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.BoundPods, b.BoundPods))
	})
	r.Wakes = merge(r.Wakes, earlier.Wakes, func(a, b Wake) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Waiting, b.Waiting))
	})
	r.Churn = cmp.Or(r.Churn, earlier.Churn)
	r.Core = merge(r.Core, earlier.Core, func(a, b CoreFigures) int { return cmp.Compare(a.Nodes, b.Nodes) })
}

// merge returns both lists in order, with one of two that the order does not
// distinguish: the newer.
func merge[T any](newer, older []T, order func(a, b T) int) []T {
	all := slices.Concat(newer, older)
	slices.SortStableFunc(all, order)
	return slices.CompactFunc(all, func(a, b T) bool { return order(a, b) == 0 })
}

func (r *Result) missed() bool {
	return slices.ContainsFunc(r.Bounds, func(v Verdict) bool { return !v.Holds })
}

// print prints the tables.
func (r *Result) print(to io.Writer) error {
	out := &bytes.Buffer{}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODES\tWORKLOAD\tPODS\tDAYBREAK/s\tPLAIN/s\tRATIO\tCYCLE P99 ms\tCPU ms/POD\tPEAK MiB\tCALLS/POD\tALLOCS/POD")
	for i := range r.Runs {
		x := &r.Runs[i]
		d, p := &x.Daybreak, &x.Plain
		fmt.Fprintf(t, "%d\t%s\t%d\t%.0f\t%.0f\t%.2f\t%.2f : %.2f\t%.2f : %.2f\t%.0f : %.0f\t%.2f : %.2f\t%.0f : %.0f\n",
			x.Nodes, x.Workload, x.Pods, x.DaybreakPodsPerSecond, x.PlainPodsPerSecond, x.Ratio,
			d.CycleP99Milliseconds, p.CycleP99Milliseconds, d.CPUMillisecondsPerPod, p.CPUMillisecondsPerPod,
			d.PeakMiB, p.PeakMiB, d.CallsPerPod, p.CallsPerPod, d.AllocationsPerPod, p.AllocationsPerPod)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.printPeers(out); err != nil {
		return err
	}
	for i := range r.Runs {
		x := &r.Runs[i]
		all := append([]Peer{{Scheduler: daybreak, Figures: x.Daybreak}, {Scheduler: plain, Figures: x.Plain}}, x.Peers...)
		for _, p := range all {
			if p.VictimsPerPod > 0 {
				fmt.Fprintf(out, "%s, %d nodes: %s took %.1f ms to find victims and evicted %.1f pods a pod\n", x.Workload, x.Nodes, p.Scheduler, p.PostFilterMilliseconds, p.VictimsPerPod)
			}
		}
	}
	for _, s := range r.Starts {
		fmt.Fprintf(out, "start with %d bound pods on %d nodes: daybreak %.1f s, %.0f MiB; plain %.1f s, %.0f MiB\n",
			s.BoundPods, s.Nodes, s.DaybreakSeconds, s.DaybreakPeakMiB, s.PlainSeconds, s.PlainPeakMiB)
	}
	for _, w := range r.Wakes {
		fmt.Fprintf(out, "a freed card on %d nodes while %d pods wait for more: daybreak %.0f ms (at most %.0f) and %.1f attempts; plain %.0f ms (at most %.0f) and %.1f attempts\n",
			w.Nodes, w.Waiting, w.Daybreak.MedianMilliseconds, w.Daybreak.MaxMilliseconds, w.Daybreak.AttemptsPerEnd,
			w.Plain.MedianMilliseconds, w.Plain.MaxMilliseconds, w.Plain.AttemptsPerEnd)
	}
	for _, c := range r.Core {
		fmt.Fprintf(out, "core alone, %d nodes: %.0f µs and %.1f allocations a decision\n", c.Nodes, c.Microseconds, c.Allocations)
	}
	if c := r.Churn; c != nil {
		fmt.Fprintf(out, "core alone, %d nodes, pods come and go: %.0f µs a decision, the demand changes %.1f times per 1000 pods\n", c.Nodes, c.Microseconds, c.DemandChanges)
	}
	for _, v := range r.Bounds {
		word := "holds"
		if !v.Holds {
			word = "MISSED"
		}
		fmt.Fprintf(out, "%-6s  %s: %.3g, want %s\n", word, v.What, v.Got, v.Bound)
	}
	fmt.Fprintf(out, "%s, %d CPUs at a load of %.1f before: took %s, medians of %d rounds\n", r.Date, r.Machine.CPUs, r.Machine.Load, r.Took, r.Rounds)
	_, err := out.WriteTo(to)
	return err
}

// judge holds what was measured against the bounds of the plan.
func (r *Result) judge(p *Plan) {
	for i := range r.Runs {
		r.judgeRun(p, &r.Runs[i])
	}
	for _, s := range r.Starts {
		r.atMost(fmt.Sprintf("%d nodes, seconds to the first binding with %d bound pods", s.Nodes, s.BoundPods), p.Bounds.StartSeconds, s.DaybreakSeconds)
	}
	for _, w := range r.Wakes {
		what := fmt.Sprintf("%d nodes, %d pods wait", w.Nodes, w.Waiting)
		r.atMost(what+", seconds until a freed card is used", p.Bounds.WakeSeconds, w.Daybreak.MaxMilliseconds/1000)
		// The first card helps any of those that want one, the last the last.
		r.atMost(what+", attempts for each freed card, of pods that it could help", float64(w.Ends+1)/2, w.Daybreak.AttemptsPerEnd)
	}
	r.judgeGrowth(p)
}

func (r *Result) judgeRun(p *Plan, x *Run) {
	what := fmt.Sprintf("%d nodes, %s", x.Nodes, x.Workload)
	w := p.Workloads[x.Workload]
	least := p.Bounds.Ratio
	switch {
	case w.Preempts:
		least = 0 // pods wait for their victims' ends
		r.atMost(what+", time to find victims to plain kube-scheduler's", p.Bounds.PostFilter, x.Daybreak.PostFilterMilliseconds/max(x.Plain.PostFilterMilliseconds, 1))
	case !p.asksForCards(&w):
		least = p.Bounds.RatioOrdinary
	case x.Residents > 0:
		least = p.Bounds.RatioFull
	}
	r.atLeast(what+", ratio to plain kube-scheduler", least, x.Ratio)
	r.atMost(what+", more calls a pod than plain kube-scheduler", p.Bounds.ExtraCalls, x.Daybreak.CallsPerPod-x.Plain.CallsPerPod)
	r.atMost(what+", peak MiB", p.Bounds.PeakMiB, x.Daybreak.PeakMiB)
	if other := r.find(x.Nodes, w.Beside); w.Beside != "" && other != nil {
		r.atLeast(what+", speed left next to pods that can't fit", p.Bounds.Unfit, x.DaybreakPodsPerSecond/other.DaybreakPodsPerSecond)
	}
}

// asksForCards reports whether any kind of the workload names MetaX.
func (p *Plan) asksForCards(w *Workload) bool {
	for kind := range w.Mix {
		for res := range p.Kinds[kind].Resources {
			if res != "cpu" && res != "memory" {
				return true
			}
		}
	}
	return false
}

// judgeGrowth compares clusters of ten times the nodes.
func (r *Result) judgeGrowth(p *Plan) {
	type point struct {
		nodes int
		p99   float64
	}
	byWorkload := map[string][]point{}
	for i := range r.Runs {
		if x := &r.Runs[i]; x.Residents == 0 {
			byWorkload[x.Workload] = append(byWorkload[x.Workload], point{x.Nodes, x.Daybreak.CycleP99Milliseconds})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byWorkload)) {
		points := byWorkload[name]
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.nodes, b.nodes) })
		for _, a := range points {
			for _, b := range points {
				if b.nodes == 10*a.nodes && a.p99 > 0 {
					r.atMost(fmt.Sprintf("%s, growth of the cycle's p99 from %d to %d nodes", name, a.nodes, b.nodes), p.Bounds.Growth, b.p99/a.p99)
				}
			}
		}
	}
}

func (r *Result) find(nodes int, workload string) *Run {
	for i := range r.Runs {
		if r.Runs[i].Nodes == nodes && r.Runs[i].Workload == workload {
			return &r.Runs[i]
		}
	}
	return nil
}

func (r *Result) atLeast(what string, bound, got float64) {
	if bound > 0 {
		r.Bounds = append(r.Bounds, Verdict{What: what, Bound: fmt.Sprintf("at least %g", bound), Got: got, Holds: got >= bound})
	}
}

func (r *Result) atMost(what string, bound, got float64) {
	if bound > 0 {
		r.Bounds = append(r.Bounds, Verdict{What: what, Bound: fmt.Sprintf("at most %g", bound), Got: got, Holds: got <= bound})
	}
}
