package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestSupervise: a process that is killed is started again, with its new id in its
// file; one that ends again and again is given up.
func TestSupervise(t *testing.T) {
	c := &Cluster{Config: Config{Dir: t.TempDir()}}
	p := c.NewProcess("part", "sleep", "1000")
	gputest.Must(t, p.Start())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	said := make(chan string, 100)
	say := func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }
	go func() { ended <- p.supervise(ctx, time.Millisecond, say) }()
	first := p.PID()
	p.Kill()
	if got := <-said; got != "part ended (signal: killed), restarting" {
		t.Error(got)
	}
	if got, want := <-said, fmt.Sprintf("part restarted as process %d", p.PID()); got != want || p.PID() == first {
		t.Errorf("%q, want %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, "part.pid"))
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(p.PID()) {
		t.Errorf("the file of its id has %q (%v), want %d", text, err, p.PID())
	}
	cancel()
	gputest.Check(t, <-ended)
	p.Kill()
	if _, err := os.Stat(filepath.Join(c.Dir, "part.pid")); err == nil {
		t.Error("the file of its id stays")
	}

	broken := c.NewProcess("broken", "sh", "-c", "echo out of order; exit 3")
	gputest.Must(t, broken.Start())
	err = broken.supervise(t.Context(), time.Millisecond, say)
	if err == nil || !strings.Contains(err.Error(), "broken ended (exit status 3)") || strings.Count(err.Error(), "out of order") != mostRestarts+1 {
		t.Errorf("given up with %v", err)
	}
}
