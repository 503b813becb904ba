// Command pictures draws the charts of the documentation, in English and in
// Chinese, from results of `daybreak simulate -o json` and of `make bench-full`.
// `make pictures` runs it; docs/placement-results.md and docs/performance-method.md
// have the commands that write the results. Arguments are charts that are there
// already, of which only the Chinese ones are written.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	out := flags.String("out", "docs/images", "folder to write to")
	files := map[string]*string{
		"trace": flags.String("trace", "", "result of a trace, as JSON"),
		"churn": flags.String("churn", "", "result of a topology study, as JSON"),
		"bench": flags.String("bench", "", "result of make bench-full, as JSON"),
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *files["trace"] == "" && *files["churn"] == "" && *files["bench"] == "" && flags.NArg() == 0 {
		return errors.New("nothing to draw: give -trace, -churn, -bench, or charts to translate")
	}
	for _, file := range flags.Args() {
		if err := writeChinese(file); err != nil {
			return err
		}
	}
	for name, charts := range map[string]func(runs) []chart{"trace": traceCharts, "churn": churnCharts, "bench": benchCharts} {
		if *files[name] == "" {
			continue
		}
		var r runs
		data, err := os.ReadFile(*files[name])
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("read %s: %w", *files[name], err)
		}
		for _, c := range charts(r) {
			if err := c.save(*out); err != nil {
				return fmt.Errorf("%s: %w", c.file, err)
			}
		}
	}
	return nil
}

// runs is the part of the results that is drawn.
type runs struct {
	Runs []struct {
		// Of a trace and of a study.
		Policy string
		Curve  []struct{ ArrivedPercent, AllocatedPercent float64 }
		// Of a study.
		Zones, Mix               string
		Load                     float64
		OneZonePercent, MeanWait map[string]float64
		// Of a benchmark.
		Nodes           float64
		Workload        string
		Daybreak, Plain struct{ CPUMillisecondsPerPod float64 }
	}
}

// chart is one picture.
type chart struct {
	file, title, x, y string
	// fromZero has the y axis begin at zero.
	fromZero bool
	// points has the values that were measured, by line and place on the x axis;
	// what is drawn is their mean.
	points map[string]map[float64][]float64
}

func (c *chart) add(line string, x, y float64) {
	if c.points == nil {
		c.points = map[string]map[float64][]float64{}
	}
	if c.points[line] == nil {
		c.points[line] = map[float64][]float64{}
	}
	c.points[line][x] = append(c.points[line][x], y)
}

const (
	ours = "daybreak"
	// legendAt is where the legend begins, from the left.
	legendAt = 520
	// drawnFrom is where the curves of a trace begin: before, hardly any pod is
	// refused.
	drawnFrom = 85
)

func traceCharts(r runs) []chart {
	c := chart{
		file: "trace-allocation.svg", title: "GPUs allocated as pods arrive",
		x: "requested by all pods so far, % of all GPUs", y: "allocated, % of all GPUs",
	}
	for _, run := range r.Runs {
		for _, p := range run.Curve {
			if p.ArrivedPercent >= drawnFrom {
				c.add(run.Policy, p.ArrivedPercent, p.AllocatedPercent)
			}
		}
	}
	return []chart{c}
}

// churnCharts draws two charts for each mix, at the first zones that were studied.
func churnCharts(r runs) []chart {
	charts := map[string]*chart{}
	for _, run := range r.Runs {
		if run.Zones != r.Runs[0].Zones {
			continue
		}
		setting := fmt.Sprintf("(zones %s, mix %s)", run.Zones, run.Mix)
		for _, c := range []struct {
			chart
			value float64
		}{
			{chart{file: "churn-" + run.Mix + "-linked.svg", title: "4-GPU jobs with all GPUs in one zone " + setting, y: "share of the jobs, %"}, run.OneZonePercent["4"]},
			{chart{file: "churn-" + run.Mix + "-wait.svg", title: "Wait of 8-GPU jobs " + setting, y: "mean wait, in mean job durations"}, run.MeanWait["8"]},
		} {
			if charts[c.file] == nil {
				c.x = "load, fraction of all GPUs"
				charts[c.file] = &c.chart
			}
			charts[c.file].add(run.Policy, run.Load, c.value)
		}
	}
	var all []chart
	for _, c := range charts {
		all = append(all, *c)
	}
	return all
}

// benchCharts draws how the cost of a pod grows with the nodes.
func benchCharts(r runs) []chart {
	nodes := chart{file: "performance-nodes.svg", title: "Scheduler CPU time per pod with one slice", x: "nodes with eight GPUs", y: "milliseconds", fromZero: true}
	for _, run := range r.Runs {
		if run.Workload == "slices" {
			nodes.add(ours, run.Nodes, run.Daybreak.CPUMillisecondsPerPod)
			nodes.add("plain kube-scheduler", run.Nodes, run.Plain.CPUMillisecondsPerPod)
		}
	}
	return []chart{nodes}
}

// lines returns the means, ours first since the chart is about it, then the best
// at the right end.
func (c *chart) lines() (names []string, lines map[string]plotter.XYs) {
	lines = map[string]plotter.XYs{}
	for name, points := range c.points {
		for _, x := range slices.Sorted(maps.Keys(points)) {
			sum := 0.0
			for _, y := range points[x] {
				sum += y
			}
			lines[name] = append(lines[name], plotter.XY{X: x, Y: sum / float64(len(points[x]))})
		}
	}
	end := func(name string) float64 { return lines[name][len(lines[name])-1].Y }
	names = slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		switch ours {
		case a:
			return -1
		case b:
			return 1
		}
		return cmp.Or(cmp.Compare(end(b), end(a)), cmp.Compare(a, b))
	})
	return names, lines
}

// few is the number of points that are still marked one by one.
const few = 40

// save draws the chart. Lines differ in dash and marker as well as in colour.
func (c *chart) save(folder string) error {
	names, lines := c.lines()
	if len(names) == 0 || len(lines[names[0]]) < 2 {
		return errors.New("no curve: it needs at least two points")
	}
	p, legend := plot.New(), plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(4)
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, color.Gray{Y: 225}
	p.Add(grid)
	colours := []color.RGBA{
		{31, 95, 191, 255}, {194, 58, 78, 255}, {35, 122, 63, 255}, {138, 101, 0, 255}, {114, 68, 176, 255},
		{11, 116, 133, 255}, {138, 75, 60, 255}, {173, 63, 134, 255}, {85, 96, 109, 255}, {43, 43, 43, 255},
	}
	dashes := [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.SquareGlyph{}}
	var drawn []plot.Plotter
	for i, name := range names {
		line, marks, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return err
		}
		line.Color, line.Dashes, line.Width = colours[i%len(colours)], dashes[i%len(dashes)], vg.Points(1.3)
		marks.Color, marks.Shape, marks.Radius = line.Color, shapes[i%len(shapes)], vg.Points(2.5)
		if name == ours {
			line.Width = vg.Points(2.2)
		}
		if len(lines[name]) > few {
			legend.Add(name, line)
			drawn = append(drawn, line)
			continue
		}
		legend.Add(name, line, marks)
		drawn = append(drawn, line, marks)
	}
	slices.Reverse(drawn) // the first line goes on top of the others
	p.Add(drawn...)
	if c.fromZero {
		p.Y.Min = 0
	}
	file := filepath.Join(folder, c.file)
	if err := write(file, p, &legend); err != nil {
		return err
	}
	return writeChinese(file)
}

// write writes the plot as SVG, with the legend on its right and room around both.
func write(file string, p *plot.Plot, legend *plot.Legend) error {
	canvas := vgsvg.New(24*vg.Centimeter, 11*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	const margin, column = 8, 165
	p.Draw(draw.Crop(all, margin, -column, margin, -margin))
	legend.Draw(draw.Crop(all, all.Rectangle.Size().X-column+margin, 0, 0, -4*margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
