package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/daybreak-gpu/daybreak/internal/simulate/chart"
)

// report is what is printed of the runs.
type report struct {
	Runs []Result `json:"runs"`
}

// ours is the policy that the report is about.
const ours = "daybreak"

// group is the runs of one policy.
type group struct {
	policy string
	runs   []*Result
}

// groups returns the runs by policy, in the order of the runs.
func (r *report) groups() []group {
	var groups []group
	for i := range r.Runs {
		run := &r.Runs[i]
		if len(groups) == 0 || groups[len(groups)-1].policy != run.Policy {
			groups = append(groups, group{policy: run.Policy})
		}
		g := &groups[len(groups)-1]
		g.runs = append(g.runs, run)
	}
	return groups
}

// mean returns the mean of what is told of the runs, and its standard deviation.
func (g *group) mean(of func(*Result) float64) (mean, deviation float64) {
	for _, r := range g.runs {
		mean += of(r) / float64(len(g.runs))
	}
	if len(g.runs) > 1 {
		for _, r := range g.runs {
			deviation += (of(r) - mean) * (of(r) - mean) / float64(len(g.runs)-1)
		}
	}
	return mean, math.Sqrt(deviation)
}

// at returns the mean allocation at a mark, if the runs got that far.
func (g *group) at(mark string) (string, bool) {
	for _, r := range g.runs {
		if _, ok := r.AllocatedPercentAt[mark]; !ok {
			return "", false
		}
	}
	mean, deviation := g.mean(func(r *Result) float64 { return r.AllocatedPercentAt[mark] })
	if len(g.runs) > 1 && mark == "100" {
		return fmt.Sprintf("%.2f ± %.2f", mean, deviation), true
	}
	return fmt.Sprintf("%.2f", mean), true
}

// firstFailure returns the mean of what had arrived at the first refusal.
func (g *group) firstFailure() string {
	never := slices.ContainsFunc(g.runs, func(r *Result) bool { return r.FirstFailurePercent == nil })
	if never {
		return "never"
	}
	mean, _ := g.mean(func(r *Result) float64 { return *r.FirstFailurePercent })
	return fmt.Sprintf("%.1f", mean)
}

// failed returns the mean number of refused pods of a size.
func (g *group) failed(size string) string {
	mean, _ := g.mean(func(r *Result) float64 { return float64(r.FailedAt100[size]) })
	return strconv.FormatFloat(math.Round(mean*10)/10, 'f', -1, 64)
}

// sizes lists the sizes of pods that were refused somewhere, and the usual ones.
func (r *report) sizes() []string {
	order := []string{"cpu", "fractional"}
	var counts []int
	for i := range r.Runs {
		for size := range r.Runs[i].FailedAt100 {
			if n, err := strconv.Atoi(size); err == nil {
				counts = append(counts, n)
			}
		}
	}
	slices.Sort(counts)
	for _, n := range slices.Compact(counts) {
		order = append(order, strconv.Itoa(n))
	}
	return order
}

// tables returns the comparison: a row for each policy.
func (r *report) tables() []chart.Table {
	if len(r.Runs) == 0 {
		return nil
	}
	groups, sizes := r.groups(), r.sizes()
	allocated := chart.Table{Title: "Cards allocated, in percent, when the pods that arrived ask for so many percent of them (" + r.setting() + ")", Header: []string{"policy"}}
	refused := chart.Table{Title: "Pods refused up to 100 % arrived, by the cards they ask for", Header: []string{"policy", "first refused at %"}}
	var reached []string
	for _, mark := range marks {
		m := strconv.Itoa(mark)
		all := !slices.ContainsFunc(groups, func(g group) bool { _, ok := g.at(m); return !ok })
		if all {
			reached = append(reached, m)
			allocated.Header = append(allocated.Header, m+" %")
		}
	}
	for _, size := range sizes {
		if size == "cpu" {
			size = "none"
		}
		refused.Header = append(refused.Header, size)
	}
	for i := range groups {
		g := &groups[i]
		row := []string{g.policy}
		for _, mark := range reached {
			cell, _ := g.at(mark)
			row = append(row, cell)
		}
		allocated.Rows = append(allocated.Rows, row)
		row = []string{g.policy, g.firstFailure()}
		for _, size := range sizes {
			row = append(row, g.failed(size))
		}
		refused.Rows = append(refused.Rows, row)
	}
	return []chart.Table{allocated, refused}
}

// setting says in a few words what was run.
func (r *report) setting() string {
	run := &r.Runs[0]
	seeds := len(r.groups()[0].runs)
	text := fmt.Sprintf("%d nodes, %d cards", run.Nodes, run.Cards)
	if seeds == 1 {
		return text + fmt.Sprintf(", seed %d", run.Seed)
	}
	return text + fmt.Sprintf(", mean of seeds %d to %d", run.Seed, run.Seed+int64(seeds)-1)
}

// writeText writes the tables for a terminal.
func (r *report) writeText(w io.Writer) error {
	for i, t := range r.tables() {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintf(tw, "%s\n\n", t.Title)
		fmt.Fprintln(tw, strings.ToUpper(strings.Join(t.Header, "\t")))
		for _, row := range t.Rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// interesting is where the curves begin to part.
const interesting = 75

// figures returns the curves, ours first.
func (r *report) figures() []chart.Figure {
	if len(r.Runs) == 0 {
		return nil
	}
	f := chart.Figure{
		Title:  "What the cluster holds",
		XLabel: "asked for by the pods that arrived, % of all cards", YLabel: "allocated, % of all cards",
		Notes: []string{"Refused pods count as arrived. " + r.setting() + "."},
	}
	groups := r.groups()
	slices.SortStableFunc(groups, func(a, b group) int {
		return compareBool(b.policy == ours, a.policy == ours)
	})
	for i := range groups {
		f.Lines = append(f.Lines, groups[i].line())
	}
	return []chart.Figure{f}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// line returns the mean curve of a policy, as far as all of its runs go.
func (g *group) line() chart.Line {
	last := math.MaxInt
	for _, r := range g.runs {
		last = min(last, len(r.Curve)-1)
	}
	l := chart.Line{Name: g.policy}
	for x := min(interesting, last/2); x <= last; x++ {
		mean, _ := g.mean(func(r *Result) float64 { return r.Curve[x].AllocatedPercent })
		l.X, l.Y = append(l.X, float64(x)), append(l.Y, mean)
	}
	return l
}
