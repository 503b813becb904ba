package report

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// style is how a piece of text looks on a terminal that shows colours.
type style string

// The styles, as the codes that terminals know.
const (
	plainStyle style = ""
	bold       style = "1"
	dim        style = "2"
	red        style = "31"
	green      style = "32"
	yellow     style = "33"
	blue       style = "34"
)

// span is a piece of text in one style.
type span struct {
	text  string
	style style
}

// rich is text in several styles.
type rich []span

func styled(s style, text string) rich { return rich{{text, s}} }

func plainText(text string) rich { return styled(plainStyle, text) }

// width is how many columns the text takes.
func (r rich) width() int {
	n := 0
	for _, s := range r {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// render returns the text, with colours or without.
func (r rich) render(colors bool) string {
	var b strings.Builder
	for _, s := range r {
		if colors && s.style != plainStyle && s.text != "" {
			b.WriteString("\x1b[" + string(s.style) + "m" + s.text + "\x1b[0m")
		} else {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// grid is a table of rich text.
type grid struct {
	// right lists the columns whose text stands at the right.
	right map[int]bool
	rows  [][]rich
}

func (g *grid) row(cells ...rich) { g.rows = append(g.rows, cells) }

// header adds a row of column titles.
func (g *grid) header(titles ...string) {
	cells := make([]rich, len(titles))
	for i, t := range titles {
		cells[i] = styled(bold, t)
	}
	g.row(cells...)
}

const gap = 2 // columns between two columns

// widths returns how wide each column is.
func (g *grid) widths() []int {
	var widths []int
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cell.width())
		}
	}
	return widths
}

// fit shortens the first column so that lines take no more columns than given,
// if that is possible at all.
func (g *grid) fit(columns int) {
	widths := g.widths()
	all := gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	if all <= columns {
		return
	}
	room := max(shortestName, widths[0]-(all-columns))
	for _, row := range g.rows {
		row[0] = shorten(row[0], room)
	}
}

// shortestName is how far a name is cut at most.
const shortestName = 12

// shorten cuts the middle out of a text: names of servers and of pods differ
// most at their ends.
func shorten(r rich, room int) rich {
	if len(r) == 0 || r.width() <= room {
		return r
	}
	var text []rune
	for _, s := range r {
		text = append(text, []rune(s.text)...)
	}
	tail := (room - 2) * 2 / 3
	return styled(r[0].style, string(text[:room-2-tail])+".."+string(text[len(text)-tail:]))
}

// write renders the table. No line ends in blanks.
func (g *grid) write(b *strings.Builder, colors bool) {
	widths := g.widths()
	for _, row := range g.rows {
		var line strings.Builder
		pending := 0
		for i, cell := range row {
			pad := widths[i] - cell.width()
			if g.right[i] {
				pending, pad = pending+pad, 0
			}
			if cell.width() > 0 {
				line.WriteString(strings.Repeat(" ", pending))
				pending = 0
			}
			line.WriteString(cell.render(colors))
			pending += pad + gap
		}
		b.WriteString(line.String())
		b.WriteByte('\n')
	}
}

// lineWidth is what every table fits in.
const lineWidth = 100

// wrap breaks a text into lines that fit, each indented, the second and later
// ones twice as far.
func wrap(indent, text string) string {
	var b strings.Builder
	b.WriteString(indent)
	column := utf8.RuneCountInString(indent)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > lineWidth:
			b.WriteString("\n" + indent + indent)
			column = 2 * utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// colorWords are the values of --color.
var colorWords = []string{"auto", "always", "never"}

// colorsWanted decides whether to colour what goes to the writer. Auto means on
// a terminal that can, unless NO_COLOR says otherwise.
func colorsWanted(flag string, out io.Writer, getenv func(string) string) (bool, error) {
	if err := cli.OneOf("color", flag, colorWords...); err != nil {
		return false, err
	}
	if flag != "auto" {
		return flag == "always", nil
	}
	_, terminal := terminalOf(out)
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", nil
}

// terminalOf returns the terminal behind a writer, if there is one.
func terminalOf(out io.Writer) (*os.File, bool) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, false
	}
	return f, true
}
