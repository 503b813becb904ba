package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var update = flag.Bool("update", false, "write the golden files")

// runCommand runs the command and returns what it prints.
func runCommand(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := NewCommand()
	var out, messages bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&messages)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(t.Context())
	if messages.Len() > 0 {
		t.Errorf("messages of a short run: %q", messages.String())
	}
	return out.String(), err
}

var trace = []string{"--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv"}

// TestOutput: all policies side by side, as people see them.
func TestOutput(t *testing.T) {
	got, err := runCommand(t, append(trace, "--seeds", "2")...)
	gputest.Must(t, err)
	golden := filepath.Join("testdata", "output.table")
	if *update {
		gputest.Must(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	gputest.Must(t, err)
	gputest.Equal(t, "output", string(want), got)
}

// TestContract: the fields that scripts read.
func TestContract(t *testing.T) {
	type run struct {
		Policy, Mix         string
		Seed                int64
		Nodes, Cards, Pods  int
		AllocatedPercentAt  map[string]float64
		FirstFailurePercent *float64
		FailedAt100         map[string]int
	}
	runs := func(args ...string) []run {
		t.Helper()
		text, err := runCommand(t, append(args, "--policy", "daybreak", "--seed", "7", "-o", "json")...)
		gputest.Must(t, err)
		var got struct{ Runs []run }
		gputest.Must(t, json.Unmarshal([]byte(text), &got))
		return got.Runs
	}
	if got := runs("--topology", "--jobs", "200", "--servers", "2", "--mix", "training", "--load", "0.5", "--seeds", "2"); len(got) != 2 || got[1].Policy != "daybreak" || got[1].Mix != "training" || got[1].Seed != 8 {
		t.Errorf("runs of the topology study %+v", got)
	}
	got := runs(trace...)
	if len(got) != 1 {
		t.Fatalf("%d runs, want one", len(got))
	}
	r := got[0]
	if r.Policy != "daybreak" || r.Seed != 7 || r.Nodes != 4 || r.Cards != 20 || r.Pods == 0 {
		t.Errorf("run %+v", r)
	}
	for _, mark := range []string{"80", "90", "95", "100", "110"} {
		if v := r.AllocatedPercentAt[mark]; v <= 0 || v > 100 {
			t.Errorf("%v %% allocated at %s", v, mark)
		}
	}
	for _, size := range []string{"fractional", "1", "2", "4", "8", "cpu"} {
		if _, ok := r.FailedAt100[size]; !ok {
			t.Errorf("failedAt100 has no %q", size)
		}
	}
}

// TestHTML: the page has the tables, the data of the charts, and nothing that is
// read from elsewhere.
func TestHTML(t *testing.T) {
	for name, args := range map[string][]string{
		"a trace":  append(trace, "--policy", "fgd", "--policy", "daybreak", "-o", "html"),
		"topology": {"--topology", "--jobs", "200", "--servers", "2", "--mix", "mixed", "--load", "0.5,0.9", "-o", "html"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := runCommand(t, args...)
			gputest.Must(t, err)
			for _, want := range []string{"<!DOCTYPE html>", "default-src 'none'", "<td>daybreak</td>", `"Name":"daybreak","X":[`, `"Name":"fgd","X":[`} {
				if !strings.Contains(got, want) {
					t.Errorf("no %q on the page", want)
				}
			}
			for _, not := range []string{"src=", "href=", "@import", "url(", "fetch("} {
				if strings.Contains(got, not) {
					t.Errorf("%q on the page: it must need nothing else", not)
				}
			}
		})
	}
}

// TestInterrupted: a study that is interrupted prints the runs that are completed,
// in every format, and how many those are.
func TestInterrupted(t *testing.T) {
	trace := &command{nodes: "testdata/nodes.csv", pods: "testdata/pods.csv", Options: Options{
		Policies: names(tracePolicies), Seed: 42, Seeds: 10, Inflate: 1.3, Ties: TiesIndex,
	}}
	topology := &command{topology: true, Options: Options{
		Policies: names(topologyPolicies), Seed: 42, Seeds: 10, Ties: TiesIndex,
		Zones: []string{"2x4"}, Mixes: []string{"mixed"}, Loads: []float64{0.5}, Servers: 2, Jobs: 100,
	}}
	for name, tt := range map[string]struct {
		c     *command
		study func(context.Context, func(done, total int64)) (any, *report, error)
		runs  int
	}{
		"a trace":  {trace, trace.runTrace, 90},
		"topology": {topology, topology.runTopology, 50},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			result, report, err := tt.study(ctx, func(done, total int64) {
				if done > total/3 {
					cancel()
				}
			})
			var stderr bytes.Buffer
			for output, want := range map[string]string{"table": "mean of the seeds that were completed", "json": `"interrupted": true`, "html": "<td>"} {
				if tt.c.topology && output == "table" {
					want = "jobs, the seeds that were completed"
				}
				var stdout bytes.Buffer
				stderr.Reset()
				tt.c.output = output
				if got := tt.c.printAnswer(&stdout, &stderr, result, report, err); !errors.Is(got, context.Canceled) {
					t.Errorf("%s: error %v, want that it was interrupted", output, got)
				}
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("%s: no %q in\n%s", output, want, stdout.String())
				}
			}
			var completed, of int
			if _, err := fmt.Sscanf(stderr.String(), "interrupted: %d of %d runs were completed\n", &completed, &of); err != nil {
				t.Fatalf("message %q: %v", stderr.String(), err)
			}
			if completed < tt.runs/4 || completed >= tt.runs || of != tt.runs {
				t.Errorf("%d of %d runs, want about a third of %d", completed, of, tt.runs)
			}
			if s, ok := result.(*study); ok && len(s.Runs) != completed {
				t.Errorf("%d runs in the result, want %d", len(s.Runs), completed)
			}
		})
	}
}

// TestInterruptedEarly: a study without a completed run has no result.
func TestInterruptedEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := NewCommand()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append(trace, "--seeds", "3"))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was interrupted", err)
	}
	if want := "interrupted: 0 of 27 runs were completed\n"; stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("printed %q and %q, want nothing and %q", stdout.String(), stderr.String(), want)
	}
}

// TestPageEscapes: names in a trace cannot become markup or script.
func TestPageEscapes(t *testing.T) {
	const hostile = `</script><script>alert("1")</script>`
	r := report{Title: hostile, Figures: []figure{{Title: hostile, Note: hostile}}, Tables: []table{{Title: hostile, Header: []string{hostile}, Rows: [][]string{{hostile}}}}}
	var b strings.Builder
	gputest.Must(t, r.writePage(&b))
	if strings.Contains(b.String(), "<script>alert") || strings.Count(b.String(), "</script>") != 1 {
		t.Errorf("a name became markup:\n%s", b.String())
	}
}

func TestBadFlags(t *testing.T) {
	churn := func(args ...string) []string { return append([]string{"--topology"}, args...) }
	tests := map[string]struct {
		args []string
		want string
	}{
		"no nodes":                {args: []string{"--pods", "p"}, want: "no servers: name the file that lists them with --nodes"},
		"no pods":                 {args: []string{"--nodes", "n"}, want: "no pods: name the file that lists them with --pods"},
		"an unknown policy":       {args: append(trace, "--policy", "best"), want: `--policy "best": write "random", "first-fit", "best-fit", "dot-product", "packing", "clustering", "fgd", "hami" or "daybreak"; did you mean "best-fit"?`},
		"a policy twice":          {args: append(trace, "--policy", "fgd", "--policy", "daybreak", "--policy", "fgd"), want: `--policy "fgd" is given twice: leave one out`},
		"an unknown format":       {args: append(trace, "-o", "yaml"), want: `--output "yaml": write "table", "json" or "html"`},
		"an unknown tie":          {args: append(trace, "--ties", "coin"), want: `--ties "coin": write "index" or "random"`},
		"no seed":                 {args: append(trace, "--seeds", "0"), want: "--seeds 0: write 1 to 1000"},
		"nothing asked for":       {args: append(trace, "--inflate", "0"), want: "--inflate 0: write a number above 0, up to 10"},
		"no number":               {args: append(trace, "--inflate", "NaN"), want: "--inflate NaN: write a number above 0, up to 10"},
		"a trace with --topology": {args: append(trace, "--topology"), want: "--nodes is about a trace: leave it out, or leave out --topology"},
		"a mix with a trace":      {args: append(trace, "--mix", "mixed"), want: "--mix goes with --topology only: leave it out, or add --topology"},
		"an unknown rule":         {args: churn("--policy", "best"), want: `--policy "best": write "daybreak", "hami-topology", "hami", "hami-greedy" or "fgd"`},
		"a rule twice":            {args: churn("--policy", "fgd", "--policy", "fgd"), want: `--policy "fgd" is given twice: leave one out`},
		"unknown zones":           {args: churn("--zones", "8x1"), want: `--zones "8x1": write "2x4", "4x2", "1x8", "2x4-ring", "1x8-ring" or "none"`},
		"no zones":                {args: churn("--zones", ""), want: `--zones "": write "2x4", "4x2", "1x8", "2x4-ring", "1x8-ring" or "none"`},
		"an unknown mix":          {args: churn("--mix", "mixed,all"), want: `--mix "all": write "mixed", "training", "inference" or "odd"`},
		"a load twice":            {args: churn("--load", "0.7,0.85,0.70"), want: "--load 0.7 is given twice: leave one out"},
		"an endless queue":        {args: churn("--load", "0.5,1"), want: "--load 1: write a number above 0 and below 1; at 1 the queue grows indefinitely"},
		"a load of nothing":       {args: churn("--load", "0"), want: "--load 0: write a number above 0 and below 1; at 1 the queue grows indefinitely"},
		"a load that is none":     {args: churn("--load", "NaN"), want: "--load NaN: write a number above 0 and below 1; at 1 the queue grows indefinitely"},
		"a seed below nothing":    {args: churn("--seed", "-1"), want: "--seed -1: write 0 or more"},
		"no server":               {args: churn("--servers", "0"), want: "--servers 0: write 1 to 10000"},
		"too many servers":        {args: churn("--servers", "10001"), want: "--servers 10001: write 1 to 10000"},
		"too few jobs":            {args: churn("--jobs", "99"), want: "--jobs 99: write 100 to 10000000"},
		"too many jobs":           {args: churn("--jobs", "10000001"), want: "--jobs 10000001: write 100 to 10000000"},
		"a file that is not there": {
			args: []string{"--nodes", "testdata/none.csv", "--pods", "testdata/pods.csv"},
			want: "read the trace: open testdata/none.csv: no such file or directory",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := runCommand(t, tt.args...)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v\nwant  %s", err, tt.want)
			}
		})
	}
}

// TestProgress: nothing for the first two seconds, then a line now and then.
func TestProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		terminal bool
		want     []string
	}{
		"on a terminal":     {terminal: true, want: []string{"", "20 % done, about 8s left", "30 % done, about 7s left", "40 % done, about 6s left", ""}},
		"into a file, less": {want: []string{"20 % done, about 8s left", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			var out bytes.Buffer
			p := newProgress(&out, func() time.Time { return now })
			p.terminal = tt.terminal
			for done := int64(1); done <= 4; done++ {
				now = now.Add(time.Second)
				p.report(done, 10)
				p.report(done, 10) // too soon
				if done == 1 && out.Len() > 0 {
					t.Errorf("%q after a second", out.String())
				}
			}
			p.end()
			var got []string
			for line := range strings.FieldsFuncSeq(out.String()+" ", func(r rune) bool { return r == '\r' || r == '\n' }) {
				got = append(got, strings.TrimSpace(line))
			}
			if tt.terminal {
				got = append([]string{""}, got[:len(got)-1]...)
			}
			gputest.Equal(t, "lines", tt.want, got)
		})
	}
}
