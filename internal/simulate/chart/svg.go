package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes of a drawing, in its own units; a page scales it.
const (
	width      = 900.0
	plotHeight = 340.0
	plotLeft   = 72.0
	lineHeight = 18.0
	margin     = 16.0
	charWidth  = 7.2 // of a narrow letter, a little generous
	labelGap   = 15.0
	// markersUpTo is the number of points that are still marked one by one.
	markersUpTo = 40
	colours     = 10
)

// drawing writes one figure.
type drawing struct {
	out        *bytes.Buffer
	figure     *Figure
	id         string
	standalone bool
	pad        float64 // room around a drawing that stands alone

	x, y   axis
	right  float64 // end of the plot; labels stand beyond
	legend []legendEntry
	top    float64
	bottom float64
	height float64
	notes  []string
}

type legendEntry struct{ x, y float64 }

func newDrawing(out *bytes.Buffer, f *Figure, id string) *drawing {
	return &drawing{out: out, figure: f, id: id}
}

func (d *drawing) draw() {
	if d.standalone {
		d.pad = margin
	}
	d.layout()
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 %s %s" role="img" aria-labelledby="%s-title %s-desc">`+"\n",
		num(width), num(d.height), d.id, d.id)
	d.printf("<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n", d.id, text(d.figure.Title), d.id, text(d.figure.describe()))
	if d.standalone {
		d.printf("<style>\n%s</style>\n", chartStyle)
	}
	d.printf(`<rect class="paper" width="%s" height="%s"/>`+"\n", num(width), num(d.height))
	d.printf(`<text class="title" x="%s" y="%s">%s</text>`+"\n", num(d.pad), num(margin+14), text(d.figure.Title))
	d.drawLegend()
	d.drawAxes()
	// The first line goes on top of the others.
	for i := range slices.Backward(d.figure.Lines) {
		d.drawLine(i)
	}
	d.drawLabels()
	for i, note := range d.notes {
		d.printf(`<text class="note" x="%s" y="%s">%s</text>`+"\n", num(d.pad), num(d.bottom+58+float64(i)*lineHeight), text(note))
	}
	d.printf("</svg>\n")
}

// layout decides where everything goes, from the top down.
func (d *drawing) layout() {
	f := d.figure
	longest := 0.0
	for i := range f.Lines {
		longest = max(longest, textWidth(f.Lines[i].Name))
	}
	d.right = width - d.pad - min(longest, 200) - 24

	x, y := d.pad, margin+lineHeight+20
	for i := range f.Lines {
		w := 38 + textWidth(f.Lines[i].Name) + 16
		if i == 0 {
			w += 10 // its name is set in bold
		}
		if x > d.pad && x+w > width-d.pad {
			x, y = d.pad, y+lineHeight
		}
		d.legend = append(d.legend, legendEntry{x: x, y: y})
		x += w
	}
	d.top = y + 38
	d.bottom = d.top + plotHeight
	d.height = d.bottom + 52
	if d.standalone {
		for _, note := range f.Notes {
			d.notes = append(d.notes, wrap(note, width-2*d.pad)...)
		}
		d.height += float64(len(d.notes)) * lineHeight
	}
	lowX, highX, lowY, highY := f.bounds()
	d.x = newAxis(lowX, highX, plotLeft, d.right, 10, false)
	d.y = newAxis(lowY, highY, d.bottom, d.top, 7, true)
}

// bounds returns the extent of the data.
func (f *Figure) bounds() (lowX, highX, lowY, highY float64) {
	lowX, highX, lowY, highY = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range f.Lines {
		for k := range f.Lines[i].X {
			lowX, highX = min(lowX, f.Lines[i].X[k]), max(highX, f.Lines[i].X[k])
			lowY, highY = min(lowY, f.Lines[i].Y[k]), max(highY, f.Lines[i].Y[k])
		}
	}
	return lowX, highX, lowY, highY
}

// describe says in words what the chart shows.
func (f *Figure) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Line chart of %s against %s.", f.YLabel, f.XLabel)
	for i := range f.Lines {
		l := &f.Lines[i]
		end := len(l.X) - 1
		fmt.Fprintf(&b, " %s: %s at %s", l.Name, short(l.Y[0]), short(l.X[0]))
		if end > 0 {
			fmt.Fprintf(&b, ", %s at %s", short(l.Y[end]), short(l.X[end]))
		}
		b.WriteString(".")
	}
	return b.String()
}

func (d *drawing) drawAxes() {
	for _, v := range d.y.ticks {
		at := d.y.at(v)
		d.printf(`<line class="grid" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", num(plotLeft), num(at), num(d.right), num(at))
		d.printf(`<text class="tick" x="%s" y="%s" text-anchor="end">%s</text>`+"\n", num(plotLeft-8), num(at+4.5), text(d.y.label(v)))
	}
	for _, v := range d.x.ticks {
		at := d.x.at(v)
		d.printf(`<line class="edge" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", num(at), num(d.bottom), num(at), num(d.bottom+5))
		d.printf(`<text class="tick" x="%s" y="%s" text-anchor="middle">%s</text>`+"\n", num(at), num(d.bottom+20), text(d.x.label(v)))
	}
	d.printf(`<line class="edge" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", num(plotLeft), num(d.bottom), num(d.right), num(d.bottom))
	d.printf(`<text class="axis" x="%s" y="%s" text-anchor="end">%s</text>`+"\n", num(d.right), num(d.bottom+40), text(d.figure.XLabel))
	d.printf(`<text class="axis" x="%s" y="%s">%s</text>`+"\n", num(d.pad), num(d.top-15), text(d.figure.YLabel))
}

func (d *drawing) drawLegend() {
	for i, at := range d.legend {
		d.printf(`<g class="%s">`, d.class(i))
		d.printf(`<path class="curve"%s d="M%s %sh28"/>`, dash(i), num(at.x), num(at.y-4.5))
		if d.figure.Lines[i].marked() {
			d.mark(i, at.x+14, at.y-4.5, "")
		}
		d.printf(`<text class="name" x="%s" y="%s">%s</text></g>`+"\n", num(at.x+36), num(at.y), text(d.figure.Lines[i].Name))
	}
}

func (d *drawing) drawLine(i int) {
	l := &d.figure.Lines[i]
	d.printf(`<g class="%s"><title>%s</title>`, d.class(i), text(l.Name))
	d.printf(`<path class="curve"%s d="`, dash(i))
	for k := range l.X {
		command := "L"
		if k == 0 {
			command = "M"
		}
		d.printf("%s%s %s", command, num(d.x.at(l.X[k])), num(d.y.at(l.Y[k])))
	}
	d.printf(`"/>`)
	if l.marked() {
		for k := range l.X {
			d.mark(i, d.x.at(l.X[k]), d.y.at(l.Y[k]), fmt.Sprintf("%s: %s at %s", l.Name, short(l.Y[k]), short(l.X[k])))
		}
	}
	d.printf("</g>\n")
}

// marked tells whether the points of the line are few enough to be marked.
func (l *Line) marked() bool { return len(l.X) <= markersUpTo }

// mark draws the marker of line i: its shape tells lines apart without colour.
// A hint is shown when the pointer rests on it.
func (d *drawing) mark(i int, x, y float64, hint string) {
	r := 3.6
	if i == 0 {
		r = 4.4
	}
	switch i % 4 {
	case 0:
		d.printf(`<circle class="mark" cx="%s" cy="%s" r="%s"`, num(x), num(y), num(r))
	case 1:
		d.printf(`<path class="mark" d="M%s %sh%sv%sh-%sz"`, num(x-r), num(y-r), num(2*r), num(2*r), num(2*r))
	case 2:
		d.printf(`<path class="mark" d="M%s %sl%s %sh-%sz"`, num(x), num(y-1.3*r), num(1.2*r), num(2.2*r), num(2.4*r))
	default:
		d.printf(`<path class="mark" d="M%s %sl%s %sl-%s %sl-%s -%sz"`,
			num(x), num(y-1.4*r), num(1.4*r), num(1.4*r), num(1.4*r), num(1.4*r), num(1.4*r), num(1.4*r))
	}
	if hint == "" {
		d.printf("/>")
		return
	}
	d.printf("><title>%s</title>%s", text(hint), map[bool]string{true: "</circle>", false: "</path>"}[i%4 == 0])
}

// class returns the classes of line i.
func (d *drawing) class(i int) string {
	c := "c" + strconv.Itoa(i%colours)
	if i == 0 {
		c += " main"
	}
	return c
}

// dashes tell lines apart without colour. The first is none.
var dashes = []string{"", "7 3", "2.5 2.5", "10 3 2.5 3", "", "5 2", "1.5 3", "12 3", "8 2 2 2 2 2"}

func dash(i int) string {
	pattern := dashes[i%len(dashes)]
	if pattern == "" {
		return ""
	}
	return ` stroke-dasharray="` + pattern + `"`
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// num writes a coordinate.
func num(v float64) string {
	return strings.TrimSuffix(fixed(v, 1), ".0")
}

// short writes a value for a sentence or a hint.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// text makes any string safe to stand between tags or in quotes.
func text(s string) string {
	var b strings.Builder
	// A strings.Builder takes everything, so there is no error.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// textWidth estimates how wide a text is drawn.
func textWidth(s string) float64 {
	w := 0.0
	for _, r := range s {
		if r >= 0x1100 {
			w += 1.85 * charWidth // Chinese, Japanese, Korean
		} else {
			w += charWidth
		}
	}
	return w
}

// wrap breaks a text into lines of at most the given width, between words
// where there are any.
func wrap(s string, limit float64) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		for {
			joined := strings.TrimSpace(line + " " + word)
			if textWidth(joined) <= limit {
				line = joined
				break
			}
			if line != "" {
				lines = append(lines, line)
				line = ""
				continue
			}
			// A word wider than the line, or a script without spaces.
			head, rest := cut(word, limit)
			lines = append(lines, head)
			word = rest
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// cut splits a word at the given width, after its first letter at the earliest.
func cut(word string, limit float64) (head, rest string) {
	w := 0.0
	for i, r := range word {
		w += textWidth(string(r))
		if w > limit && i > 0 {
			return word[:i], word[i:]
		}
	}
	return word, ""
}
