package command

import (
	"strings"
	"unicode/utf8"
)

// palette paints text for a terminal, if it is true.
type palette bool

// The colours, as the codes that terminals know.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (p palette) paint(color, text string) string {
	if !p || color == plain || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// width returns how many columns the text takes; colour codes take none.
func width(text string) int {
	columns, code := 0, false
	for _, r := range text {
		switch {
		case r == '\x1b':
			code = true
		case code:
			code = r != 'm'
		default:
			columns++
		}
	}
	return columns
}

// table is rows of cells, which may be painted.
type table struct {
	// right has the columns whose text is aligned to the right.
	right map[int]bool
	// gap is how many blanks stand between two columns.
	gap  int
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// header adds a row of column titles.
func (t *table) header(p palette, titles ...string) {
	for i := range titles {
		titles[i] = p.paint(bold, titles[i])
	}
	t.row(titles...)
}

// widths returns how wide each column is.
func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	return widths
}

// fit shortens the names in the first column so that lines take no more columns
// than given, if that is possible. The names must not be painted yet.
func (t *table) fit(columns int) {
	widths := t.widths()
	all := t.gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	if all <= columns {
		return
	}
	for _, row := range t.rows {
		row[0] = shorten(row[0], max(shortestName, widths[0]-(all-columns)))
	}
}

// shortestName is how far a name is cut at most.
const shortestName = 12

// shorten cuts the middle out of a name: those of servers and of pods differ most
// at their ends.
func shorten(name string, room int) string {
	text := []rune(name)
	if len(text) <= room {
		return name
	}
	tail := (room - 2) * 2 / 3
	return string(text[:room-2-tail]) + ".." + string(text[len(text)-tail:])
}

// write renders the table. No line ends in blanks.
func (t *table) write(b *strings.Builder) {
	widths := t.widths()
	for _, row := range t.rows {
		blanks := 0
		for i, cell := range row {
			pad := widths[i] - width(cell)
			if t.right[i] {
				blanks, pad = blanks+pad, 0
			}
			if cell != "" {
				b.WriteString(strings.Repeat(" ", blanks) + cell)
				blanks = 0
			}
			blanks += pad + t.gap
		}
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
