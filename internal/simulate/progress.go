package simulate

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	// quiet is how long a run prints nothing.
	quiet = 2 * time.Second
	// A terminal's line is written over again and again; elsewhere each report
	// is a line of its own, so there are fewer.
	terminalEvery = 200 * time.Millisecond
	plainEvery    = 10 * time.Second
)

// progress prints how far a long run is and when it will be done. When that
// fails, the run goes on. One goroutine at a time may call it.
type progress struct {
	out      io.Writer
	now      func() time.Time
	terminal bool
	start    time.Time
	last     time.Time
	printed  bool
}

func newProgress(out io.Writer, now func() time.Time) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, now: now, terminal: ok && term.IsTerminal(int(f.Fd())), start: now()}
}

// report is called every now and then with what is done of what there is to do.
func (p *progress) report(done, total int64) {
	now, every := p.now(), plainEvery
	if p.terminal {
		every = terminalEvery
	}
	if now.Sub(p.start) < quiet || now.Sub(p.last) < every || done <= 0 || total <= 0 {
		return
	}
	p.last, p.printed = now, true
	left := time.Duration(float64(now.Sub(p.start)) / float64(done) * float64(total-done))
	line := fmt.Sprintf("%3d %% done, about %s left", 100*done/total, left.Round(time.Second))
	if p.terminal {
		_, _ = fmt.Fprintf(p.out, "\r%-40s", line)
		return
	}
	_, _ = fmt.Fprintln(p.out, line)
}

// end clears the line.
func (p *progress) end() {
	if p.terminal && p.printed {
		_, _ = fmt.Fprintf(p.out, "\r%-40s\r", "")
	}
}
