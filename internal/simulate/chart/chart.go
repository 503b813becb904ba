// Package chart draws line charts as SVG, and pages of charts and tables as one
// HTML file that needs nothing else: no script, no font, no network.
//
// Pictures follow the reader's choice of light or dark, say what they show to
// those who cannot see them, and can be told apart in black and white: lines
// differ in dash and marker as well as in colour. The first line is the one the
// chart is about; it is drawn strongest and on top.
//
// The same figure gives the same bytes every time, so that pictures can be kept
// in a repository and compared in tests.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// Line is one curve: the points (X[i], Y[i]) in the order they are joined.
type Line struct {
	Name string
	X, Y []float64
}

// Figure is one chart.
type Figure struct {
	// Title says what is shown; XLabel and YLabel say what the axes count, with
	// units.
	Title, XLabel, YLabel string
	Lines                 []Line
	// Notes stand below the chart: where the data came from, what to beware of.
	Notes []string
}

// Table is a table below the charts of a page. Every row has as many cells as
// the header.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
}

// ErrData is what every error about the data of a chart or table wraps.
var ErrData = errors.New("chart: data")

// SVG writes the figure as a file of its own.
func SVG(w io.Writer, f Figure) error {
	if err := f.check(); err != nil {
		return err
	}
	var b bytes.Buffer
	d := newDrawing(&b, &f, "chart")
	d.standalone = true
	d.draw()
	_, err := w.Write(b.Bytes())
	return err
}

// check returns what is wrong with the figure, or nil.
func (f *Figure) check() error {
	if f.Title == "" {
		return fmt.Errorf("%w: a figure has no title", ErrData)
	}
	if len(f.Lines) == 0 {
		return fmt.Errorf("%w: figure %q has no lines", ErrData, f.Title)
	}
	names := map[string]bool{}
	for i := range f.Lines {
		l := &f.Lines[i]
		if l.Name == "" {
			return fmt.Errorf("%w: line %d of figure %q has no name", ErrData, i+1, f.Title)
		}
		if names[l.Name] {
			return fmt.Errorf("%w: two lines of figure %q are called %q", ErrData, f.Title, l.Name)
		}
		names[l.Name] = true
		if err := l.check(); err != nil {
			return fmt.Errorf("%w: line %q of figure %q %w", ErrData, l.Name, f.Title, err)
		}
	}
	return nil
}

func (l *Line) check() error {
	if len(l.X) != len(l.Y) {
		return fmt.Errorf("has %d x values and %d y values", len(l.X), len(l.Y))
	}
	if len(l.X) == 0 {
		return errors.New("has no points")
	}
	for i := range l.X {
		if !drawable(l.X[i]) || !drawable(l.Y[i]) {
			return fmt.Errorf("has no place on paper at point %d: (%g, %g)", i+1, l.X[i], l.Y[i])
		}
	}
	return nil
}

// drawable tells whether a number can be on an axis: it is one, and differences
// to other such numbers are, too.
func drawable(v float64) bool { return !math.IsNaN(v) && math.Abs(v) < 1e300 }

// check returns what is wrong with the table, or nil.
func (t *Table) check() error {
	if len(t.Header) == 0 {
		return fmt.Errorf("%w: table %q has no header", ErrData, t.Title)
	}
	for i, row := range t.Rows {
		if len(row) != len(t.Header) {
			return fmt.Errorf("%w: row %d of table %q has %d cells under %d headings", ErrData, i+1, t.Title, len(row), len(t.Header))
		}
	}
	return nil
}
