package discover

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxStuck is how many children may hang in the kernel, where not even a kill
// reaches them, before no more are started.
const maxStuck = 4

// children starts processes and abandons those that don't end. Each gets a
// process group of its own and dies with the agent.
type children struct{ stuck atomic.Int32 }

// command prepares a process; ctx ends it and what it started.
func (c *children) command(ctx context.Context, argv []string) (*exec.Cmd, error) {
	if stuck := c.stuck.Load(); stuck >= maxStuck {
		return nil, fmt.Errorf("%d processes of %s were killed and have not ended, as if the driver held them: no more are started until one does", stuck, argv[0])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// wait starts a process and returns a channel for its end. The thread that
// starts it waits for it too: a process dies with the thread that it was
// started from, not with the whole agent.
func (c *children) wait(cmd *exec.Cmd) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// abandon counts a killed process as stuck until it has ended.
func (c *children) abandon(ended <-chan error) {
	c.stuck.Add(1)
	go func() {
		<-ended
		c.stuck.Add(-1)
	}()
}

// output runs a command to its end and returns what it printed. It returns
// when ctx ends, whatever the command does.
func (c *children) output(ctx context.Context, limit int, argv, env []string) ([]byte, error) {
	cmd, err := c.command(ctx, argv)
	if err != nil {
		return nil, err
	}
	stdout, stderr := &head{limit: limit, strict: true}, &head{limit: 512}
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, env
	ended, err := c.wait(cmd)
	if err != nil {
		return nil, err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		c.abandon(ended)
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
	switch {
	case stdout.over:
		return nil, fmt.Errorf("it printed more than %d bytes", limit)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	case err != nil && stderr.String() != "":
		return nil, fmt.Errorf("%w: %s", err, stderr)
	case err != nil:
		return stdout.text, err
	}
	return stdout.text, nil
}

// head keeps the start of what is written, where a crash is named.
type head struct {
	limit int
	// strict fails a write beyond the limit, which ends the process that writes.
	strict bool

	mu   sync.Mutex
	text []byte
	over bool
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := p[:min(len(p), h.limit-len(h.text))]
	h.text = append(h.text, kept...)
	h.over = h.over || len(kept) < len(p)
	if h.strict && h.over {
		return 0, errors.New("output too long")
	}
	return len(p), nil
}

// String returns the first line that is not empty, made printable.
func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(string(h.text)) {
		if line = printable(line); line != "" {
			return line
		}
	}
	return ""
}
