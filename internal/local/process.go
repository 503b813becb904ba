package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Process is a part of the cluster that runs as a process of its own and can be
// started again after it ended.
type Process struct {
	// Env is added to the environment.
	Env []string

	name string
	path string
	args []string
	log  string
	pid  string // the path of a file with its process id

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// stopTimeout is how long a process may take to end after a signal.
const stopTimeout = 10 * time.Second

// NewProcess returns a process of the cluster, not started yet.
func (c *Cluster) NewProcess(name, path string, args ...string) *Process {
	return &Process{
		name: name, path: path, args: args,
		log: filepath.Join(c.Dir, "logs", name+".log"), pid: filepath.Join(c.Dir, name+".pid"),
	}
}

// Start starts the process; its output goes to its log file, and its id to a file
// of its name in the cluster's folder for as long as it runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(p.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // it ends by Stop or Kill, in order, and not with a context
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	// A Ctrl-C at the terminal is for us: we stop the parts in order. If we die
	// without a chance to, they die too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	// Without the file only its reader fails.
	_ = os.WriteFile(p.pid, fmt.Appendln(nil, cmd.Process.Pid), 0o644)
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait()       // failure returns the state
		_ = os.Remove(p.pid) // the id may become another process's
		close(exited)
	}()
	return nil
}

const (
	// steadyAfter is how long a process has to run for its earlier ends to be
	// forgotten, and mostRestarts how often it may end sooner than that.
	steadyAfter  = 10 * time.Second
	mostRestarts = 5
)

// supervise starts the process again each time that it ends, until the context
// does: after the given delay, which doubles with each end soon after a start. It
// returns why the process has ended when that happens too often.
func (p *Process) supervise(ctx context.Context, first time.Duration, say func(format string, args ...any)) error {
	delay, restarts := first, 0
	for {
		started := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-p.Exited():
		}
		if time.Since(started) > steadyAfter {
			delay, restarts = first, 0
		}
		if restarts == mostRestarts {
			return p.failure()
		}
		restarts++
		say("%s ended (%s), restarting", p.name, p.state())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		delay *= 2
		if err := p.Start(); err != nil {
			return err
		}
		say("%s restarted as process %d", p.name, p.PID())
	}
}

// state returns how the process, which has ended, did so.
func (p *Process) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.ProcessState.String()
}

// PID returns the process's id.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Log returns the path of the log file.
func (p *Process) Log() string { return p.log }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}

// Signal sends a signal, such as SIGSTOP and SIGCONT.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was never started", p.name)
	}
	return p.cmd.Process.Signal(s)
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop asks the process to end and kills it when it takes too long.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(s syscall.Signal) {
	if p == nil {
		return // a part of a cluster whose start failed
	}
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(s)
	_ = cmd.Process.Signal(syscall.SIGCONT) // a paused process handles only SIGKILL until it continues
	select {
	case <-exited:
	case <-time.After(stopTimeout):
		_ = cmd.Process.Kill()
		<-exited
	}
}

// failure returns an error when the process has ended by itself, with the end
// of its log.
func (p *Process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended (%v); the end of its log:\n%s", p.name, p.cmd.ProcessState, tail(p.log, 2000))
	default:
		return nil
	}
}

func tail(path string, most int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

// waitFor polls until the check passes, the process ends, or time is up.
func (p *Process) waitFor(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := p.failure(); err != nil {
			return false, err
		}
		last = check(ctx)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s: waiting for %s: %w (last: %w); the end of its log:\n%s", p.name, what, context.Cause(ctx), last, tail(p.log, 2000))
	}
	return err
}
