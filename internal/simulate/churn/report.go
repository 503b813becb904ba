package churn

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

// Tables returns one table for each shape and mix, with a row for each load and
// rule: means over the seeds, and standard deviations where there are several.
func (r *Result) Tables() []chart.Table {
	var tables []chart.Table
	for _, part := range r.parts() {
		sizes := part.sizes()
		linked := part.linkedSizes()
		t := chart.Table{Title: "Jobs that come and go, " + part.title() + " (" + r.setting(part.seeds()) + "; waits in mean running times)", Header: []string{"load", "policy"}}
		for _, size := range linked {
			t.Header = append(t.Header, size+" cards in one zone, %")
		}
		small, largest := sizes[:len(sizes)-1], sizes[len(sizes)-1]
		t.Header = append(t.Header, "pairs, % of best")
		if len(small) > 0 {
			t.Header = append(t.Header, "wait, "+strings.Join(small, "/"))
		}
		t.Header = append(t.Header, "wait, "+largest, "allocated, %", "zones broken")
		for _, g := range part.groups {
			row := []string{fixed(g.load, 2), g.rule}
			for _, size := range linked {
				row = append(row, g.spread(1, func(o *Outcome) float64 { return o.OneZonePercent[size] }))
			}
			row = append(row, g.pairs())
			if len(small) > 0 {
				waits := make([]string, len(small))
				for i, size := range small {
					waits[i] = fixed(g.mean(waitOf(size)), 2)
				}
				row = append(row, strings.Join(waits, " / "))
			}
			row = append(row, g.spread(2, waitOf(largest)),
				g.spread(1, func(o *Outcome) float64 { return o.AllocatedPercent }),
				fixed(g.mean(func(o *Outcome) float64 { return float64(o.BrokenZones) }), 0))
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
	}
	return tables
}

// Figures returns curves over the load for each shape and mix that was studied
// at several loads.
func (r *Result) Figures() []chart.Figure {
	var figures []chart.Figure
	for _, part := range r.parts() {
		if !part.severalLoads() {
			continue
		}
		note := r.setting("mean over "+part.seeds()) + "."
		// Where a zone is the whole server nothing can be split: no picture.
		if linked := part.linkedSizes(); len(linked) > 0 && part.splits() {
			size := linked[len(linked)-1]
			figures = append(figures, part.figure(note, fmt.Sprintf("Jobs of %s cards that got all cards in one zone (%s)", size, part.title()),
				"share of the jobs, %", func(o *Outcome) float64 { return o.OneZonePercent[size] }))
		}
		sizes := part.sizes()
		largest := sizes[len(sizes)-1]
		figures = append(figures, part.figure(note, fmt.Sprintf("Wait of %s-card jobs (%s)", largest, part.title()),
			"mean wait, in mean running times", waitOf(largest)))
	}
	return figures
}

// WriteText writes the tables for a terminal.
func (r *Result) WriteText(w io.Writer) error {
	for i, t := range r.Tables() {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, t.Title); err != nil {
			return err
		}
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, strings.Join(t.Header, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// setting says how the study was made, the same for all its parts.
func (r *Result) setting(seeds string) string {
	return fmt.Sprintf("%d servers of %d cards, %d jobs, %s", r.Servers, serverCards, r.Jobs, seeds)
}

// part is the runs of one shape and mix.
type part struct {
	shape, mix string
	groups     []group
}

// group is the runs that differ in their seed only.
type group struct {
	rule string
	load float64
	runs []*Outcome
}

// parts sorts the runs, in the order in which they first appear.
func (r *Result) parts() []*part {
	var parts []*part
	for i := range r.Runs {
		o := &r.Runs[i]
		at := slices.IndexFunc(parts, func(p *part) bool { return p.shape == o.Shape && p.mix == o.Mix })
		if at < 0 {
			at = len(parts)
			parts = append(parts, &part{shape: o.Shape, mix: o.Mix})
		}
		parts[at].add(o)
	}
	return parts
}

func (p *part) add(o *Outcome) {
	at := slices.IndexFunc(p.groups, func(g group) bool { return g.rule == o.Rule && g.load == o.Load })
	if at < 0 {
		at = len(p.groups)
		p.groups = append(p.groups, group{rule: o.Rule, load: o.Load})
	}
	p.groups[at].runs = append(p.groups[at].runs, o)
}

func (p *part) title() string { return fmt.Sprintf("zones %s, mix %s", p.shape, p.mix) }

func (p *part) seeds() string {
	runs := p.groups[0].runs
	if len(runs) == 1 {
		return fmt.Sprintf("seed %d", runs[0].Seed)
	}
	return fmt.Sprintf("seeds %d to %d", runs[0].Seed, runs[len(runs)-1].Seed)
}

// splits tells whether a zone is less than a server.
func (p *part) splits() bool {
	return slices.ContainsFunc(Shapes(), func(s Shape) bool { return s.Name == p.shape && s.Zone < serverCards })
}

func (p *part) severalLoads() bool {
	return slices.ContainsFunc(p.groups, func(g group) bool { return g.load != p.groups[0].load })
}

// sizes lists the sizes of jobs that were measured, the smallest first.
func (p *part) sizes() []string {
	return ordered(p, func(o *Outcome, size string) bool { return o.Measured[size] > 0 })
}

// linkedSizes lists the sizes that a zone can hold.
func (p *part) linkedSizes() []string {
	return ordered(p, func(o *Outcome, size string) bool {
		_, ok := o.OneZonePercent[size]
		return ok
	})
}

func ordered(p *part, has func(o *Outcome, size string) bool) []string {
	var sizes []string
	for n := range serverCards + 1 {
		size := strconv.Itoa(n)
		if n == 0 {
			size = sizeFractional
		}
		if slices.ContainsFunc(p.groups, func(g group) bool {
			return slices.ContainsFunc(g.runs, func(o *Outcome) bool { return has(o, size) })
		}) {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

func (p *part) figure(note, title, label string, value func(*Outcome) float64) chart.Figure {
	f := chart.Figure{Title: title, XLabel: "load, part of all cards", YLabel: label, Notes: []string{note}}
	for i := range p.groups {
		g := &p.groups[i]
		at := slices.IndexFunc(f.Lines, func(l chart.Line) bool { return l.Name == g.rule })
		if at < 0 {
			at = len(f.Lines)
			f.Lines = append(f.Lines, chart.Line{Name: g.rule})
		}
		f.Lines[at].X = append(f.Lines[at].X, g.load)
		f.Lines[at].Y = append(f.Lines[at].Y, g.mean(value))
	}
	return f
}

func waitOf(size string) func(*Outcome) float64 {
	return func(o *Outcome) float64 { return o.MeanWait[size] }
}

func (g *group) mean(value func(*Outcome) float64) float64 {
	sum := 0.0
	for _, o := range g.runs {
		sum += value(o)
	}
	return sum / float64(len(g.runs))
}

// spread writes the mean, and the standard deviation if there are several runs.
func (g *group) spread(decimals int, value func(*Outcome) float64) string {
	mean := g.mean(value)
	if len(g.runs) == 1 {
		return fixed(mean, decimals)
	}
	squares := 0.0
	for _, o := range g.runs {
		squares += (value(o) - mean) * (value(o) - mean)
	}
	return fixed(mean, decimals) + " ± " + fixed(math.Sqrt(squares/float64(len(g.runs)-1)), decimals)
}

// pairs writes the pairs of all runs against the best, as percent; 100 only if
// there was never a better choice.
func (g *group) pairs() string {
	var got, best int64
	for _, o := range g.runs {
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

func fixed(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
