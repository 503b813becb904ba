package main

import (
	"bytes"
	"fmt"
	"io"
)

// showMarkdown prints the results in a file as the documentation quotes them.
func showMarkdown(file string, to io.Writer) error {
	r, err := loadResult(file)
	if err != nil {
		return err
	}
	out := &bytes.Buffer{}
	fmt.Fprintln(out, "| nodes | workload | pods/s | plain | ratio | cycle p99, ms | CPU a pod, ms | peak MiB | calls a pod | allocations a pod |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for i := range r.Runs {
		x := &r.Runs[i]
		d, p := &x.Daybreak, &x.Plain
		fmt.Fprintf(out, "| %d | %s | %.0f | %.0f | %.2f | %.1f (%.1f) | %.2f (%.2f) | %.0f (%.0f) | %.2f (%.2f) | %.0f (%.0f) |\n",
			x.Nodes, x.Workload, x.DaybreakPodsPerSecond, x.PlainPodsPerSecond, x.Ratio, d.CycleP99Milliseconds, p.CycleP99Milliseconds,
			d.CPUMillisecondsPerPod, p.CPUMillisecondsPerPod, d.PeakMiB, p.PeakMiB, d.CallsPerPod, p.CallsPerPod, d.AllocationsPerPod, p.AllocationsPerPod)
	}
	if len(r.Starts) > 0 {
		fmt.Fprint(out, "\n| nodes | bound pods | first binding, s | plain | peak MiB | plain |\n|---|---|---|---|---|---|\n")
	}
	for _, s := range r.Starts {
		fmt.Fprintf(out, "| %d | %d | %.1f | %.1f | %.0f | %.0f |\n", s.Nodes, s.BoundPods, s.DaybreakSeconds, s.PlainSeconds, s.DaybreakPeakMiB, s.PlainPeakMiB)
	}
	if len(r.Wakes) > 0 {
		fmt.Fprint(out, "\n| nodes | pods that wait | bound after, ms | at most | attempts for each freed card | plain: after, ms | at most | attempts |\n|---|---|---|---|---|---|---|---|\n")
	}
	for _, w := range r.Wakes {
		fmt.Fprintf(out, "| %d | %d | %.0f | %.0f | %.1f | %.0f | %.0f | %.1f |\n", w.Nodes, w.Waiting,
			w.Daybreak.MedianMilliseconds, w.Daybreak.MaxMilliseconds, w.Daybreak.AttemptsPerEnd, w.Plain.MedianMilliseconds, w.Plain.MaxMilliseconds, w.Plain.AttemptsPerEnd)
	}
	if len(r.Core) > 0 {
		fmt.Fprint(out, "\n| nodes | a decision of the core, µs | allocations |\n|---|---|---|\n")
	}
	for _, c := range r.Core {
		fmt.Fprintf(out, "| %d | %.0f | %.0f |\n", c.Nodes, c.Microseconds, c.Allocations)
	}
	if c := r.Churn; c != nil {
		fmt.Fprintf(out, "\n| nodes, pods come and go | a decision of the core, µs | changes of the demand per 1000 pods |\n|---|---|---|\n| %d | %.0f | %.1f |\n", c.Nodes, c.Microseconds, c.DemandChanges)
	}
	_, err = out.WriteTo(to)
	return err
}
