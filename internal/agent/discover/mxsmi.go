package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

const (
	defaultMXSMI = "/opt/mxdriver/bin/mx-smi"
	// maxOutput bounds one output; 64 cards with 16 slices print a tenth of it.
	maxOutput = 4 << 20
	// parseErrorWord is what mx-smi prints for an argument that it does not know.
	parseErrorWord = "PARSE ERROR"
)

// MXSMI asks the vendor's command. One look takes several runs, since no output
// is complete; all must list the same cards.
type MXSMI struct {
	path     string
	children *children
	// run is what runs mx-smi: exec, or a test.
	run func(ctx context.Context, args ...string) ([]byte, error)
	// worked are commands that not every version has and this one does.
	worked map[string]bool
}

// NewMXSMI returns the source; an empty path is where the vendor puts it, or
// wherever PATH finds it.
func NewMXSMI(path string) *MXSMI {
	m := &MXSMI{path: path, children: &children{}, worked: map[string]bool{}}
	m.run = m.exec
	return m
}

// Name implements [Source].
func (m *MXSMI) Name() string { return SourceMXSMI }

// Raw returns what mx-smi prints for these arguments.
func (m *MXSMI) Raw(ctx context.Context, args ...string) ([]byte, error) { return m.run(ctx, args...) }

// Look implements [Source].
func (m *MXSMI) Look(ctx context.Context) (*Snapshot, error) {
	out := &Snapshot{Source: SourceMXSMI}
	text, err := m.run(ctx, "-L")
	if err == nil {
		out.Cards, err = parseList(text)
	}
	if err != nil {
		return nil, fmt.Errorf("-L: %w", err)
	}
	out.sort()
	if !slices.ContainsFunc(out.Cards, func(c Card) bool { return !c.Unavailable() }) {
		return out, nil
	}
	text, err = m.run(ctx, "--show-memory")
	if err == nil {
		err = applyMemory(out, text)
	}
	if err != nil {
		return nil, fmt.Errorf("--show-memory: %w", err)
	}
	for _, extra := range extras {
		if err := m.optional(ctx, out, extra.command, extra.apply); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// optional runs a command that not every version has, or not for every card.
// Its output must be valid, and once it has worked it must go on to: a card's
// links or counters don't come and go.
func (m *MXSMI) optional(ctx context.Context, out *Snapshot, command string, apply func(*Snapshot, []byte) error) error {
	text, err := m.run(ctx, strings.Fields(command)...)
	switch {
	case err != nil && (ctx.Err() != nil || m.worked[command]):
		return fmt.Errorf("%s: %w", command, err)
	case err != nil:
		klog.FromContext(ctx).V(4).Info("No answer from mx-smi", "command", command, "reason", err.Error())
		return nil
	}
	if err := apply(out, text); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	m.worked[command] = true
	return nil
}

// exec runs mx-smi and returns what it printed.
func (m *MXSMI) exec(ctx context.Context, args ...string) ([]byte, error) {
	path, err := m.find()
	if err != nil {
		return nil, err
	}
	text, err := m.children.output(ctx, maxOutput, append([]string{path}, args...), append(os.Environ(), "LC_ALL=C"))
	printed := string(text)
	if err != nil {
		printed += err.Error()
	}
	switch {
	case strings.Contains(printed[:min(len(printed), 1024)], parseErrorWord):
		return nil, errors.New("this version does not have it")
	case err != nil && len(text) > 0:
		return nil, fmt.Errorf("%w: %s", err, printable(printed))
	case err != nil:
		return nil, err
	}
	return text, nil
}

func (m *MXSMI) find() (string, error) {
	names := []string{defaultMXSMI, SourceMXSMI}
	if m.path != "" {
		names = []string{m.path}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
			return path, err
		}
	}
	return "", fmt.Errorf("no command %s: %w", strings.Join(names, ", "), ErrNotInstalled)
}
