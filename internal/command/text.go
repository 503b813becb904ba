package command

import (
	"regexp"
	"strings"
	"unicode"

	xwidth "golang.org/x/text/width"
)

// palette paints text for a terminal, if it is true.
type palette bool

// The colors, as the codes that terminals know.
const (
	plain   = ""
	bold    = "1"
	dim     = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	blue    = "34"
	magenta = "35"
)

func (p palette) paint(color, text string) string {
	if !p || color == plain || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// dimmed paints lines in place of the colors that they have.
func (p palette) dimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = p.paint(dim, uncolored(line))
	}
	return out
}

// colorCode is a color code in a text.
var colorCode = regexp.MustCompile("\x1b[^m]*m?")

// uncolored returns the text without color codes.
func uncolored(text string) string { return colorCode.ReplaceAllString(text, "") }

// width returns how many columns the text takes; color codes take none.
func width(text string) int {
	columns := 0
	for _, r := range uncolored(text) {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth returns how many columns a terminal gives to a character: two to
// Chinese ones, none to accents that join the one before.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Cc) {
		return 0
	}
	switch xwidth.LookupRune(r).Kind() {
	case xwidth.EastAsianWide, xwidth.EastAsianFullwidth:
		return 2
	}
	return 1
}

// table is rows of cells, which may be painted.
type table struct {
	// right has the columns whose text is aligned to the right.
	right map[int]bool
	// optional are the columns that are left out where lines are too narrow, the
	// first of them first.
	optional []int
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

// fit makes lines take no more columns than given, if that is possible: it
// shortens the names in the first column, leaves out optional columns and narrows
// the gaps. The names must not be painted yet.
func (t *table) fit(columns int) {
	widths := t.widths()
	others := 0 // columns besides the first
	for _, w := range widths[1:] {
		others += t.gap + w
	}
	room := func() int { return columns - others }
	name := min(widths[0], shortestName)
	out := map[int]bool{}
	for _, i := range t.optional {
		if room() >= name {
			break
		}
		out[i] = true
		others -= t.gap + widths[i]
	}
	if gaps := len(widths) - 1 - len(out); room() < name && t.gap > 1 {
		others -= gaps * (t.gap - 1)
		t.gap = 1
	}
	for _, row := range t.rows {
		row[0] = shorten(row[0], max(shortestName, room()))
	}
	t.drop(out)
}

// drop leaves columns out.
func (t *table) drop(out map[int]bool) {
	if len(out) == 0 {
		return
	}
	right := map[int]bool{}
	for r, row := range t.rows {
		var kept []string
		for i, cell := range row {
			if out[i] {
				continue
			}
			if t.right[i] {
				right[len(kept)] = true
			}
			kept = append(kept, cell)
		}
		t.rows[r] = kept
	}
	t.right, t.optional = right, nil
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

// lines renders the table. No line ends in blanks.
func (t *table) lines() []string {
	widths := t.widths()
	lines := make([]string, len(t.rows))
	for r, row := range t.rows {
		var b strings.Builder
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
		lines[r] = b.String()
	}
	return lines
}

// write renders the table.
func (t *table) write(b *strings.Builder) {
	for _, line := range t.lines() {
		b.WriteString(line + "\n")
	}
}

const (
	// lineWidth is what texts fit in where no terminal says how wide it is.
	lineWidth = 100
	// narrowest is what texts are made for at least.
	narrowest = 40
)

// wrap breaks a text into lines of that many columns, each indented, the second
// and later ones by two more. A word that is longer than a line is broken, as are
// texts without blanks, such as Chinese ones.
func wrap(indent, text string, columns int) []string {
	var lines []string
	var b strings.Builder
	b.WriteString(indent)
	begun, column := false, width(indent)
	broken := func() {
		lines = append(lines, b.String())
		b.Reset()
		b.WriteString(indent + "  ")
		begun, column = false, width(indent)+2
	}
	for word := range strings.FieldsSeq(text) {
		n := width(word)
		if begun {
			if column+1+n > columns && (n <= columns-width(indent)-2 || columns-column < columns/4) {
				broken()
			} else {
				b.WriteByte(' ')
				column++
			}
		}
		if column+n <= columns {
			b.WriteString(word)
			begun, column = true, column+n
			continue
		}
		for _, r := range word { // too long for any line
			if w := runeWidth(r); column+w > columns {
				broken()
			}
			b.WriteRune(r)
			begun, column = true, column+runeWidth(r)
		}
	}
	return append(lines, b.String())
}
