package command

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

// columns returns how wide lines to the writer may be: as wide as the terminal, or
// as $COLUMNS says.
func columns(out io.Writer) int {
	if terminal, ok := terminalOf(out); ok {
		if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
			return max(narrowest, width)
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(narrowest, n)
	}
	return lineWidth
}

// text is something that can be shown in so many columns and rows. Rows are 0
// where there is no limit.
type text func(columns, rows int) []string

// screen shows a text that changes. On a terminal it is drawn over the one
// before, line by line, so that nothing flickers; what is left there at the end is
// the last one. A terminal that is resized has the next text in its size, which comes
// within a second. Elsewhere each text is printed after the one before, if it differs.
type screen struct {
	out      io.Writer
	terminal *os.File // nil where there is none

	last    text
	printed string
	started bool
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	s.terminal, _ = terminalOf(out)
	return s
}

const (
	// alternate is the alternate screen, without a cursor; long lines are cut.
	alternate  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	back       = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	clearLine  = "\x1b[2K"
	clearBelow = "\x1b[J"
)

func (s *screen) show(t text, now time.Time) error {
	s.last = t
	if s.terminal != nil {
		return s.draw()
	}
	printed := strings.Join(t(columns(s.out), 0), "\n") + "\n"
	if s.started && printed == s.printed {
		return nil
	}
	s.printed = printed
	if s.started {
		printed = "\n" + now.Format(time.TimeOnly) + "\n" + printed
	}
	s.started = true
	_, err := io.WriteString(s.out, printed)
	return err
}

// draw draws the last text on the terminal.
func (s *screen) draw() error {
	_, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || height <= 0 { // a terminal that does not know its size
		height = 24
	}
	drawn := page(s.last(columns(s.out), max(1, height-1)), height)
	if !s.started {
		drawn = alternate + drawn
	}
	s.started = true
	_, err = io.WriteString(s.out, drawn)
	return err
}

// close leaves the last text where the shell goes on.
func (s *screen) close() {
	if s.terminal == nil || !s.started {
		return
	}
	// An error can't be reported any more.
	_, _ = io.WriteString(s.out, back+strings.Join(s.last(columns(s.out), 0), "\n")+"\n")
}

// page draws lines over whatever is there, cut to the height of the terminal.
func page(lines []string, height int) string {
	// The last line stays empty, unless it is the only one.
	if rows := max(1, height-1); len(lines) > rows {
		lines = append(lines[:rows-1:rows-1], "...")
	}
	var b strings.Builder
	b.WriteString(home)
	for _, line := range lines {
		b.WriteString(clearLine + line)
		if height > 1 {
			b.WriteString("\r\n")
		}
	}
	b.WriteString(clearBelow)
	return b.String()
}
