package command

import (
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen shows a text that changes. On a terminal it is drawn over the one
// before, line by line, so that nothing flickers; what is left there at the end
// is the last one. Elsewhere each text is printed after the one before, if it
// differs.
type screen struct {
	out      io.Writer
	terminal *os.File // nil where there is none
	last     string
	started  bool
}

func newScreen(out io.Writer) *screen {
	terminal, _ := terminalOf(out)
	return &screen{out: out, terminal: terminal}
}

const (
	// alternate is the alternate screen, without a cursor; long lines are cut.
	alternate  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	back       = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	clearLine  = "\x1b[2K"
	clearBelow = "\x1b[J"
)

func (s *screen) show(text string, now time.Time) error {
	if s.started && text == s.last {
		return nil
	}
	var b strings.Builder
	switch {
	case s.terminal != nil:
		if !s.started {
			b.WriteString(alternate)
		}
		_, height, err := term.GetSize(int(s.terminal.Fd()))
		if err != nil || height <= 0 { // a terminal that does not know its size
			height = 24
		}
		b.WriteString(page(text, height))
	case s.started:
		b.WriteString("\n" + now.Format(time.TimeOnly) + "\n" + text)
	default:
		b.WriteString(text)
	}
	s.started, s.last = true, text
	_, err := io.WriteString(s.out, b.String())
	return err
}

// close leaves the last text where the shell goes on.
func (s *screen) close() {
	if s.terminal == nil || !s.started {
		return
	}
	// An error can't be reported any more.
	_, _ = io.WriteString(s.out, back+s.last)
}

// page draws a text over whatever is there, cut to the height of the terminal.
func page(text string, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	// The last line stays empty, unless it is the only one.
	if rows := max(1, height-1); len(lines) > rows {
		lines = append(lines[:rows-1], "...")
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
