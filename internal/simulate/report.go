package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// report is what people see of a study.
type report struct {
	Title   string
	Figures []figure
	Tables  []table
	// compact is how the tables of the topology study are written: they are wide.
	compact bool
}

// figure is a chart of curves, the one it is about first.
type figure struct {
	Title, XLabel, YLabel, Note string
	Lines                       []line
}

// line is one curve: the points (X[i], Y[i]) in the order they are joined.
type line struct {
	Name string
	X, Y []float64
}

// table has as many cells in every row as in the header.
type table struct {
	Title  string
	Header []string
	Rows   [][]string
}

// write writes a study in the given format: the result itself for scripts, or
// the report.
func (r *report) write(w io.Writer, output string, result any) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, result)
	case "html":
		return r.writePage(w)
	default:
		return r.writeText(w)
	}
}

// writeText writes the tables for a terminal.
func (r *report) writeText(w io.Writer) error {
	gap := 3
	if r.compact {
		gap = 2
	}
	tw := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for i, t := range r.Tables {
		header := strings.Join(t.Header, "\t")
		if !r.compact {
			header = "\n" + strings.ToUpper(header)
		}
		if i > 0 {
			fmt.Fprintln(tw)
		}
		fmt.Fprintf(tw, "%s\n%s\n", t.Title, header)
		for _, row := range t.Rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
	}
	return tw.Flush()
}

// group is runs that have something in common.
type group[R any] []R

// groupBy sorts runs into groups of one key, in the order in which the keys
// first appear.
func groupBy[R any, K comparable](runs []R, key func(R) K) []group[R] {
	var groups []group[R]
	known := map[K]int{}
	for _, r := range runs {
		at, ok := known[key(r)]
		if !ok {
			at = len(groups)
			known[key(r)] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], r)
	}
	return groups
}

func (g group[R]) mean(value func(R) float64) float64 {
	sum := 0.0
	for _, r := range g {
		sum += value(r)
	}
	return sum / float64(len(g))
}

// spread writes the mean, and the standard deviation if there are several runs.
func (g group[R]) spread(decimals int, value func(R) float64) string {
	mean := g.mean(value)
	if len(g) == 1 {
		return fixed(mean, decimals)
	}
	squares := 0.0
	for _, r := range g {
		squares += (value(r) - mean) * (value(r) - mean)
	}
	return fixed(mean, decimals) + " ± " + fixed(math.Sqrt(squares/float64(len(g)-1)), decimals)
}

func fixed(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }

// column is a column of a table with a row for each group.
type column[R any] struct {
	header string
	cell   func(group[R]) string
}

func newTable[R any](title string, groups []group[R], columns []column[R]) table {
	t := table{Title: title, Rows: make([][]string, len(groups))}
	for _, c := range columns {
		t.Header = append(t.Header, c.header)
		for i, g := range groups {
			t.Rows[i] = append(t.Rows[i], c.cell(g))
		}
	}
	return t
}

// traceReport compares policies on a trace: a row and a curve for each.
func traceReport(runs []result, interrupted bool) *report {
	groups := groupBy(runs, func(r result) string { return r.Policy })
	setting := fmt.Sprintf("%d nodes, %d cards, ", runs[0].Nodes, runs[0].Cards)
	if len(groups[0]) > 1 || interrupted {
		setting += "mean of "
	}
	setting += seedsOf(groups[0], interrupted, func(r result) int64 { return r.Seed })
	f := figure{
		Title:  "What the cluster holds",
		XLabel: "asked for by the pods that arrived, % of all cards", YLabel: "allocated, % of all cards",
		Note: "Rejected pods count as arrived. " + setting + ".",
	}
	for _, g := range groups {
		at := len(f.Lines)
		if g[0].Policy == ours {
			at = 0
		}
		f.Lines = slices.Insert(f.Lines, at, curve(g))
	}
	return &report{
		Title: "Daybreak: placement policies compared", Figures: []figure{f},
		Tables: []table{allocatedTable(runs, groups, setting, interrupted), refusedTable(runs, groups)},
	}
}

// seedsOf names the seeds of a group, which differ from group to group where a study
// was interrupted.
func seedsOf[R any](g group[R], interrupted bool, seed func(R) int64) string {
	switch first, last := seed(g[0]), seed(g[len(g)-1]); {
	case interrupted:
		return "the seeds that were completed"
	case first == last:
		return fmt.Sprintf("seed %d", first)
	default:
		return fmt.Sprintf("seeds %d to %d", first, last)
	}
}

// seedsColumn counts the runs of each group.
func seedsColumn[R any]() column[R] {
	return column[R]{"seeds", func(g group[R]) string { return strconv.Itoa(len(g)) }}
}

// allocatedTable has a column for each mark that all runs reached, and the number
// of seeds where the study was interrupted.
func allocatedTable(runs []result, groups []group[result], setting string, interrupted bool) table {
	columns := []column[result]{policyColumn}
	if interrupted {
		columns = append(columns, seedsColumn[result]())
	}
	for _, mark := range marks {
		if slices.ContainsFunc(runs, func(r result) bool { return len(r.Curve) <= mark }) {
			continue
		}
		columns = append(columns, column[result]{fmt.Sprintf("%d %%", mark), func(g group[result]) string {
			at := func(r result) float64 { return r.Curve[mark].AllocatedPercent }
			if mark == 100 {
				return g.spread(2, at)
			}
			return fixed(g.mean(at), 2)
		}})
	}
	return newTable("Cards allocated, in percent, when the pods that arrived ask for so many percent of them ("+setting+")", groups, columns)
}

var policyColumn = column[result]{"policy", func(g group[result]) string { return g[0].Policy }}

// refusedTable has a column for each size of pod that was refused somewhere,
// and for the usual ones.
func refusedTable(runs []result, groups []group[result]) table {
	var sizes []int
	for _, r := range runs {
		for size := range r.FailedAt100 {
			if n, err := strconv.Atoi(size); err == nil {
				sizes = append(sizes, n)
			}
		}
	}
	slices.Sort(sizes)
	refused := func(header, size string) column[result] {
		return column[result]{header, func(g group[result]) string {
			mean := g.mean(func(r result) float64 { return float64(r.FailedAt100[size]) })
			return strconv.FormatFloat(math.Round(mean*10)/10, 'f', -1, 64)
		}}
	}
	columns := []column[result]{
		policyColumn, {"first rejected at %", firstRefused}, refused("none", sizeCPU), refused(sizeFractional, sizeFractional),
	}
	for _, n := range slices.Compact(sizes) {
		columns = append(columns, refused(strconv.Itoa(n), strconv.Itoa(n)))
	}
	return newTable("Pods rejected up to 100 % arrived, by requested cards", groups, columns)
}

func firstRefused(g group[result]) string {
	if slices.ContainsFunc(g, func(r result) bool { return r.FirstFailurePercent == nil }) {
		return "never"
	}
	return fixed(g.mean(func(r result) float64 { return *r.FirstFailurePercent }), 1)
}

// interesting is where the curves begin to part.
const interesting = 75

// curve returns the mean curve of a policy, as far as all of its runs go.
func curve(g group[result]) line {
	end := math.MaxInt
	for _, r := range g {
		end = min(end, len(r.Curve)-1)
	}
	l := line{Name: g[0].Policy}
	for x := min(interesting, end/2); x <= end; x++ {
		l.X = append(l.X, float64(x))
		l.Y = append(l.Y, g.mean(func(r result) float64 { return r.Curve[x].AllocatedPercent }))
	}
	return l
}

// churnReport has a table for each shape and mix that was studied, and curves
// over the load for those studied at several loads.
func churnReport(s *study) *report {
	r := &report{Title: "Daybreak: link zones while jobs come and go", compact: true}
	for _, runs := range groupBy(s.Runs, func(o outcome) string { return o.Zones + " " + o.Mix }) {
		p := newPart(s, runs)
		r.Tables = append(r.Tables, p.table())
		r.Figures = append(r.Figures, p.figures()...)
	}
	return r
}

// part is the runs of one shape and mix.
type part struct {
	group[outcome]
	title, setting, seeds string
	interrupted           bool

	settings []group[outcome] // by load and policy
	sizes    []string         // of the jobs that were measured, the smallest first
	linked   []string         // the sizes that a zone can hold
}

func newPart(s *study, runs group[outcome]) *part {
	type setting struct {
		policy string
		load   float64
	}
	p := &part{
		group: runs, title: fmt.Sprintf("zones %s, mix %s", runs[0].Zones, runs[0].Mix),
		setting:  fmt.Sprintf("%d servers of %d cards, %d jobs", s.Servers, serverCards, s.Jobs),
		settings: groupBy(runs, func(o outcome) setting { return setting{o.Policy, o.Load} }),
	}
	p.seeds, p.interrupted = seedsOf(p.settings[0], s.Interrupted, func(o outcome) int64 { return o.Seed }), s.Interrupted
	for n := range serverCards + 1 {
		size := strconv.Itoa(n)
		if n == 0 {
			size = sizeFractional
		}
		if slices.ContainsFunc(runs, func(o outcome) bool { return o.Measured[size] > 0 }) {
			p.sizes = append(p.sizes, size)
		}
		if slices.ContainsFunc(runs, func(o outcome) bool { _, ok := o.OneZonePercent[size]; return ok }) {
			p.linked = append(p.linked, size)
		}
	}
	return p
}

// table has a row for each load and policy: means over the seeds, and standard
// deviations where there are several.
func (p *part) table() table {
	columns := []column[outcome]{
		{"load", func(g group[outcome]) string { return fixed(g[0].Load, 2) }},
		{"policy", func(g group[outcome]) string { return g[0].Policy }},
	}
	if p.interrupted {
		columns = append(columns, seedsColumn[outcome]())
	}
	spread := func(header string, decimals int, value func(outcome) float64) {
		columns = append(columns, column[outcome]{header, func(g group[outcome]) string { return g.spread(decimals, value) }})
	}
	for _, size := range p.linked {
		spread(size+" cards in one zone, %", 1, func(o outcome) float64 { return o.OneZonePercent[size] })
	}
	columns = append(columns, column[outcome]{"pairs, % of best", pairs})
	small, largest := p.sizes[:len(p.sizes)-1], p.sizes[len(p.sizes)-1]
	if len(small) > 0 {
		columns = append(columns, column[outcome]{"wait, " + strings.Join(small, "/"), func(g group[outcome]) string {
			var waits []string
			for _, size := range small {
				waits = append(waits, fixed(g.mean(waitOf(size)), 2))
			}
			return strings.Join(waits, " / ")
		}})
	}
	spread("wait, "+largest, 2, waitOf(largest))
	spread("allocated, %", 1, func(o outcome) float64 { return o.AllocatedPercent })
	columns = append(columns, column[outcome]{"zones broken", func(g group[outcome]) string {
		return fixed(g.mean(func(o outcome) float64 { return float64(o.BrokenZones) }), 0)
	}})
	return newTable("Jobs that come and go, "+p.title+" ("+p.setting+", "+p.seeds+"; waits in mean running times)", p.settings, columns)
}

func waitOf(size string) func(outcome) float64 {
	return func(o outcome) float64 { return o.MeanWait[size] }
}

// pairs writes the pairs of all runs against the best, as percent; 100 only if
// there was never a better choice.
func pairs(g group[outcome]) string {
	var got, best int64
	for _, o := range g {
		got += o.Pairs
		best += o.BestPairs
	}
	switch {
	case best == 0:
		return "-"
	case got == best:
		return "100"
	default:
		// Rounded down, so that what is not the best never looks like it.
		return fixed(math.Floor(1e4*float64(got)/float64(best))/100, 2)
	}
}

// figures returns the curves over the load, if there are several loads.
func (p *part) figures() []figure {
	if !slices.ContainsFunc(p.group, func(o outcome) bool { return o.Load != p.group[0].Load }) {
		return nil
	}
	var figures []figure
	// Where a zone is the whole server nothing can be split: no picture.
	if len(p.linked) > 0 && find(shapes, p.group[0].Zones).zone < serverCards {
		size := p.linked[len(p.linked)-1]
		figures = append(figures, p.figure(fmt.Sprintf("Jobs of %s cards that got all cards in one zone (%s)", size, p.title),
			"share of the jobs, %", func(o outcome) float64 { return o.OneZonePercent[size] }))
	}
	largest := p.sizes[len(p.sizes)-1]
	return append(figures, p.figure(fmt.Sprintf("Wait of %s-card jobs (%s)", largest, p.title),
		"mean wait, in mean running times", waitOf(largest)))
}

func (p *part) figure(title, label string, value func(outcome) float64) figure {
	f := figure{Title: title, XLabel: "load, part of all cards", YLabel: label, Note: p.setting + ", mean over " + p.seeds + "."}
	for _, runs := range groupBy(p.group, func(o outcome) string { return o.Policy }) {
		l := line{Name: runs[0].Policy}
		for _, g := range groupBy(runs, func(o outcome) float64 { return o.Load }) {
			l.X, l.Y = append(l.X, g[0].Load), append(l.Y, g.mean(value))
		}
		f.Lines = append(f.Lines, l)
	}
	return f
}
