package docs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is for one block; a machine that does other things as well may
	// take a while.
	patience = 3 * time.Minute
	// graceful is how long what a page started may take to end.
	graceful = 30 * time.Second
)

// prelude is what is run before each block: it goes on where the last one was,
// and keeps what this one sets. Variables are exported so that they are kept.
const prelude = `set -a
if [ -e "$DOCS_STATE" ]; then . "$DOCS_STATE"; fi
trap '{ export -p; printf "cd %q\n" "$PWD"; } >"$DOCS_STATE"' EXIT
set -eo pipefail
`

// session is the reader's shell.
type session struct {
	dir    string // the copy of the repository
	env    []string
	number int
	groups []int // processes that blocks may have left behind
	open   []*window
}

// newSession makes a session in a folder of its own, with the repository at
// hand. The binaries stand in bin, the clusters' kubeconfig in kubeconfig.
func newSession(ctx context.Context, dir, bin, kubeconfig string) (*session, error) {
	s := &session{dir: filepath.Join(dir, "daybreak")}
	if err := copyRepository(ctx, s.dir); err != nil {
		return nil, err
	}
	if err := linkBinaries(bin, filepath.Join(s.dir, "bin")); err != nil {
		return nil, err
	}
	home, temporary := filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
	for _, folder := range []string{filepath.Join(home, ".kube"), temporary} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	own := filepath.Join(home, ".kube", "config") // a page may change it
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(own, text, 0o600); err != nil {
		return nil, err
	}
	caches, err := goCaches(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := built(ctx, bin)
	if err != nil {
		return nil, err
	}
	s.env = append(slices.Concat(withoutOurs(os.Environ()), caches, versions),
		"HOME="+home, "TMPDIR="+temporary, "KUBECONFIG="+own, "TERM=dumb", "NO_COLOR=1", "LC_ALL=C.UTF-8",
		"PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"), "DOCS_STATE="+filepath.Join(dir, "state"))
	return s, nil
}

// goCaches says where Go keeps what it has compiled: not below the reader's HOME.
func goCaches(ctx context.Context) ([]string, error) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH"}
	out, err := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("ask Go for its caches: %w", err)
	}
	values := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(values) != len(names) {
		return nil, fmt.Errorf("go env says %q", out)
	}
	for i, name := range names {
		values[i] = name + "=" + values[i]
	}
	return values, nil
}

// built is what make takes from outside the sources: with anything else than the
// binaries have `make build` would have something to do.
func built(ctx context.Context, bin string) ([]string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "daybreak"), "version", "--output", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("ask daybreak for its version: %w", err)
	}
	var of struct{ Version, Commit string }
	if err := json.Unmarshal(out, &of); err != nil {
		return nil, fmt.Errorf("daybreak version: %w", err)
	}
	return []string{"VERSION=" + of.Version, "COMMIT=" + of.Commit}, nil
}

// withoutOurs drops what make passes on, and what a reader has of his own.
func withoutOurs(env []string) []string {
	var out []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VERSION", "COMMIT", "HOME", "TMPDIR", "KUBECONFIG", "PATH":
		default:
			out = append(out, entry)
		}
	}
	return out
}

// copyRepository copies the files that are under version control, as they are
// now.
func copyRepository(ctx context.Context, to string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the files of the repository: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		from := filepath.Join(root, name)
		info, err := os.Stat(from)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// linkBinaries makes a bin of links, so that `make build` finds all done; what else
// is in bin a page may write itself.
func linkBinaries(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(from, entry.Name()))
		if err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// command prepares bash with a block, and the file that gets what it prints. A
// file, since a pipe would be held open by what the block leaves running.
func (s *session) command(ctx context.Context, code string) (*exec.Cmd, *os.File, error) {
	s.number++
	out, err := os.OpenFile(filepath.Join(filepath.Dir(s.dir), fmt.Sprintf("block-%d", s.number)), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", prelude+code)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, out, nil
}

// run runs a block and returns what it printed and how it ended.
func (s *session) run(ctx context.Context, code string) (printed string, status int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %s", patience))
	defer cancel()
	cmd, out, err := s.command(ctx, code)
	if err != nil {
		return "", 0, err
	}
	defer out.Close()
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	s.groups = append(s.groups, cmd.Process.Pid)
	err = cmd.Wait()
	text, readErr := os.ReadFile(out.Name())
	if ctx.Err() != nil {
		return string(text), 0, context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode(), readErr
	}
	return string(text), 0, errors.Join(err, readErr)
}

// window is a terminal in which something runs until the page ends.
type window struct {
	cmd   *exec.Cmd
	out   string
	ended chan error
}

// start runs a block in a terminal of its own and returns when it has printed
// what the page says, or at once if it says nothing.
func (s *session) start(ctx context.Context, code string, want *string) (printed string, err error) {
	cmd, out, err := s.command(ctx, code)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if err := cmd.Start(); err != nil {
		return "", err
	}
	w := &window{cmd: cmd, out: out.Name(), ended: make(chan error, 1)}
	s.open = append(s.open, w)
	go func() { w.ended <- cmd.Wait() }()
	limit := time.After(patience)
	for {
		text, err := os.ReadFile(w.out)
		if err != nil || want == nil || matches(*want, string(text), false) {
			return string(text), err
		}
		select {
		case err := <-w.ended:
			w.ended <- err
			return string(text), fmt.Errorf("it has ended: %w", err)
		case <-limit:
			return string(text), fmt.Errorf("it has not printed what the page says after %s", patience)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// close ends what the page has started: terminals by Ctrl-C, the rest as it is.
// It returns what has ended by itself before, or would not end.
func (s *session) close() error {
	var failures []error
	for _, w := range s.open {
		select {
		case err := <-w.ended:
			text, _ := os.ReadFile(w.out)
			failures = append(failures, fmt.Errorf("what ran in a terminal ended before the page did (%w):\n%s", err, text))
			continue
		default:
		}
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-w.ended:
		case <-time.After(graceful):
			failures = append(failures, fmt.Errorf("what ran in a terminal did not end at Ctrl-C within %s", graceful))
		}
	}
	for _, group := range s.groups {
		_ = syscall.Kill(-group, syscall.SIGKILL) // mostly gone
	}
	return errors.Join(failures...)
}
