// Command pictures draws the pictures of the documentation: from results of
// `daybreak simulate -o json` and of `make bench-full`, and those that explain
// cards and slices, which need nothing:
//
//	go run ./hack/pictures -trace trace.json -churn churn.json -bench bench.json -concepts -out docs/images
//
// docs/placement.md and docs/performance.md say which commands made the files.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/simulate/chart"
	"github.com/daybreak-gpu/daybreak/internal/simulate/churn"
)

func main() {
	stderr := os.Stderr
	if err := run(os.Args[1:], stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	flags.SetOutput(stderr)
	trace := flags.String("trace", "", "result of a trace, as JSON")
	study := flags.String("churn", "", "result of a topology study, as JSON")
	bench := flags.String("bench", "", "result of make bench-full, as JSON")
	concepts := flags.Bool("concepts", false, "draw the pictures that explain")
	out := flags.String("out", "docs/images", "folder to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *trace == "" && *study == "" && *bench == "" && !*concepts {
		return errors.New("nothing to draw: give -trace, -churn, -bench or -concepts")
	}
	if *concepts {
		if err := drawConcepts(*out); err != nil {
			return err
		}
	}
	if *bench != "" {
		if err := drawBench(*bench, *out); err != nil {
			return err
		}
	}
	if *trace != "" {
		if err := drawTrace(*trace, *out); err != nil {
			return err
		}
	}
	if *study != "" {
		return drawChurn(*study, *out)
	}
	return nil
}

// traceRun is the part of a run over a trace that is drawn.
type traceRun struct {
	Policy string `json:"policy"`
	Curve  []struct {
		ArrivedPercent   float64 `json:"arrivedPercent"`
		AllocatedPercent float64 `json:"allocatedPercent"`
	} `json:"curve"`
}

const (
	ours = "daybreak"
	// drawnFrom is where the curves of a trace begin: before, hardly anything is
	// refused.
	drawnFrom = 85
)

// drawTrace draws one curve for each policy, the mean over the seeds.
func drawTrace(file, out string) error {
	var result struct {
		Runs []traceRun `json:"runs"`
	}
	if err := read(file, &result); err != nil {
		return err
	}
	f := chart.Figure{
		Title:  "Cards allocated as pods arrive",
		XLabel: "asked for by all pods so far, % of all cards", YLabel: "allocated, % of all cards",
	}
	sums, counts := map[string]map[float64]float64{}, map[string]map[float64]int{}
	for _, run := range result.Runs {
		if sums[run.Policy] == nil {
			sums[run.Policy], counts[run.Policy] = map[float64]float64{}, map[float64]int{}
		}
		for _, p := range run.Curve {
			if p.ArrivedPercent >= drawnFrom {
				sums[run.Policy][p.ArrivedPercent] += p.AllocatedPercent
				counts[run.Policy][p.ArrivedPercent]++
			}
		}
	}
	for policy, sum := range sums {
		l := chart.Line{Name: policy, X: slices.Sorted(maps.Keys(sum))}
		for _, x := range l.X {
			l.Y = append(l.Y, sum[x]/float64(counts[policy][x]))
		}
		f.Lines = append(f.Lines, l)
	}
	// Ours first, since the chart is about it; then the best first.
	slices.SortFunc(f.Lines, func(a, b chart.Line) int {
		if a.Name == ours || b.Name == ours {
			return cmp.Compare(btoi(b.Name == ours), btoi(a.Name == ours))
		}
		return cmp.Or(cmp.Compare(last(b.Y), last(a.Y)), cmp.Compare(a.Name, b.Name))
	})
	return write(filepath.Join(out, "trace-allocation.svg"), f)
}

func last(y []float64) float64 {
	if len(y) == 0 {
		return 0
	}
	return y[len(y)-1]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// drawChurn draws the figures of each mix, at the first zones that were studied.
func drawChurn(file, out string) error {
	var result churn.Result
	if err := read(file, &result); err != nil {
		return err
	}
	mixes := map[string]bool{}
	for i := range result.Runs {
		mixes[result.Runs[i].Mix] = true
	}
	for mix := range mixes {
		part := churn.Result{Servers: result.Servers, Jobs: result.Jobs, Backfill: result.Backfill}
		for i := range result.Runs {
			if run := result.Runs[i]; run.Mix == mix && run.Shape == result.Runs[0].Shape {
				part.Runs = append(part.Runs, run)
			}
		}
		figures := part.Figures()
		if len(figures) != 2 {
			return fmt.Errorf("%s: mix %s was studied at one load only, which makes no curve", file, mix)
		}
		for i, name := range []string{"linked", "wait"} {
			if err := write(filepath.Join(out, "churn-"+mix+"-"+name+".svg"), figures[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchResult is the part of a benchmark that is drawn.
type benchResult struct {
	Runs []struct {
		Nodes    int       `json:"nodes"`
		Workload string    `json:"workload"`
		Daybreak benchSide `json:"daybreak"`
		Plain    benchSide `json:"plain"`
	} `json:"runs"`
	Core []struct {
		Nodes        float64 `json:"nodes"`
		Microseconds float64 `json:"microseconds"`
	} `json:"core"`
}

type benchSide struct {
	CPUMillisecondsPerPod float64 `json:"cpuMillisecondsPerPod"`
}

// drawBench draws how costs grow with the nodes: of the whole scheduler where
// that was measured at two sizes or more, and of the core alone.
func drawBench(file, out string) error {
	var result benchResult
	if err := read(file, &result); err != nil {
		return err
	}
	daybreak, plain := chart.Line{Name: ours}, chart.Line{Name: "plain kube-scheduler"}
	for _, run := range result.Runs {
		if run.Workload == "slices" {
			for line, side := range map[*chart.Line]benchSide{&daybreak: run.Daybreak, &plain: run.Plain} {
				line.X, line.Y = append(line.X, float64(run.Nodes)), append(line.Y, side.CPUMillisecondsPerPod)
			}
		}
	}
	if len(daybreak.X) > 1 {
		f := chart.Figure{
			Title: "CPU time of the scheduler for each pod with a slice", XLabel: "nodes of eight cards", YLabel: "milliseconds",
			Lines: []chart.Line{daybreak, plain},
		}
		if err := write(filepath.Join(out, "performance-nodes.svg"), f); err != nil {
			return err
		}
	}
	core := chart.Line{Name: "core alone, every node asked"}
	for _, c := range result.Core {
		core.X, core.Y = append(core.X, c.Nodes), append(core.Y, c.Microseconds/1000)
	}
	if len(core.X) < 2 {
		return nil
	}
	return write(filepath.Join(out, "performance-core.svg"), chart.Figure{
		Title: "CPU time of one decision of the core", XLabel: "nodes of eight cards", YLabel: "milliseconds",
		Lines: []chart.Line{core},
	})
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

func write(file string, f chart.Figure) error {
	var b bytes.Buffer
	if err := chart.SVG(&b, f); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
