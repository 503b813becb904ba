package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const (
	defaultMXSMI = "/opt/mxdriver/bin/mx-smi"
	// maxOutput bounds one output; 64 cards with 16 slices print a tenth of it.
	maxOutput = 4 << 20
	// parseErrorWord is what mx-smi says to an argument that it does not know.
	parseErrorWord = "PARSE ERROR"
)

// MXSMI asks the vendor's command. It needs several runs for one look, since
// none tells everything; each must tell of the same cards.
type MXSMI struct {
	path     string
	children *children
	// run is what runs mx-smi: exec, or a test.
	run func(ctx context.Context, args ...string) ([]byte, error)
	// worked are commands that not every version has and this one does.
	mu     sync.Mutex
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
	cards, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	out := &Snapshot{Source: SourceMXSMI, Cards: make([]Card, len(cards))}
	for i := range cards {
		out.Cards[i] = cards[i].card()
	}
	out.sort()
	if !anyAvailable(cards) {
		return out, nil
	}
	text, err := m.run(ctx, "--show-memory")
	if err == nil {
		err = applyMemory(out, text)
	}
	if err != nil {
		return nil, fmt.Errorf("--show-memory: %w", err)
	}
	if lines, err := textLines(text); err == nil {
		if version, err := smiVersion(lines); err == nil {
			out.Source += " " + version
		}
	}
	return out, m.addRest(ctx, out, cards)
}

// addRest adds what some versions and cards can't tell.
func (m *MXSMI) addRest(ctx context.Context, out *Snapshot, cards []listCard) error {
	steps := []struct {
		args  []string
		apply func(*Snapshot, []byte) error
	}{
		{[]string{"topo", "-m"}, func(out *Snapshot, text []byte) error { return applyTopology(out, text, cards) }},
		{[]string{"--show-hwinfo"}, applyHardware},
		{[]string{"--count-ecc"}, applyECC},
		{[]string{"--show-sysinfo"}, applySystem},
		{[]string{"-j"}, applyJSON},
	}
	for _, step := range steps {
		if err := m.optional(ctx, out, step.args, step.apply); err != nil {
			return err
		}
	}
	if hasFigures(out) {
		return nil
	}
	for _, f := range figures {
		if err := m.optional(ctx, out, []string{f.argument}, f.apply); err != nil {
			return err
		}
	}
	return nil
}

// optional runs a command that not every version has, or not for every card.
// What it prints must be right, and once it has worked it must go on to: a
// card's links or counters don't come and go.
func (m *MXSMI) optional(ctx context.Context, out *Snapshot, args []string, apply func(*Snapshot, []byte) error) error {
	name := strings.Join(args, " ")
	text, err := m.run(ctx, args...)
	switch {
	case err != nil && (ctx.Err() != nil || m.has(name)):
		return fmt.Errorf("%s: %w", name, err)
	case err != nil:
		klog.FromContext(ctx).V(4).Info("No answer from mx-smi", "command", name, "reason", err.Error())
		return nil
	}
	if err := apply(out, text); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worked[name] = true
	return nil
}

func (m *MXSMI) has(command string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.worked[command]
}

// Links adds the links to another source's picture of this machine, whose cards
// it finds by their PCI addresses. It is no error if it never could.
func (m *MXSMI) Links(ctx context.Context, out *Snapshot) error {
	cards, err := m.list(ctx)
	if err != nil && !m.has("topo -m") {
		klog.FromContext(ctx).V(4).Info("No links from mx-smi", "reason", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	return m.optional(ctx, out, []string{"topo", "-m"}, func(out *Snapshot, text []byte) error { return applyTopology(out, text, cards) })
}

func (m *MXSMI) list(ctx context.Context) ([]listCard, error) {
	text, err := m.run(ctx, "-L")
	if err != nil {
		return nil, fmt.Errorf("-L: %w", err)
	}
	cards, err := parseList(text)
	if err != nil {
		return nil, fmt.Errorf("-L: %w", err)
	}
	return cards, nil
}

// exec runs mx-smi and returns what it printed.
func (m *MXSMI) exec(ctx context.Context, args ...string) ([]byte, error) {
	path, err := m.find()
	if err != nil {
		return nil, err
	}
	text, err := m.children.output(ctx, maxOutput, append([]string{path}, args...), append(os.Environ(), "LC_ALL=C"))
	said := string(text)
	if err != nil {
		said += err.Error()
	}
	switch {
	case strings.Contains(said[:min(len(said), 1024)], parseErrorWord):
		return nil, errors.New("this version does not have it")
	case err != nil && len(text) > 0:
		return nil, fmt.Errorf("%w: %s", err, printable(said))
	case err != nil:
		return nil, err
	}
	return text, nil
}

func (m *MXSMI) find() (string, error) {
	if m.path != "" {
		if _, err := os.Stat(m.path); errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("no command at %s: %w", m.path, ErrNotInstalled)
		}
		return m.path, nil
	}
	if _, err := os.Stat(defaultMXSMI); err == nil {
		return defaultMXSMI, nil
	}
	path, err := exec.LookPath(SourceMXSMI)
	if err != nil {
		return "", fmt.Errorf("no command at %s nor in PATH: %w", defaultMXSMI, ErrNotInstalled)
	}
	return path, nil
}

// card is what the list says of a card.
func (l *listCard) card() Card {
	name, virtual := strings.CutSuffix(l.chip, " VF")
	c := Card{UUID: l.uuid, Minor: l.number, BDF: l.bdf, Model: gpu.ModelName(name), Virtual: virtual}
	c.Vitals = Vitals{Available: new(l.available), Reason: l.reason}
	c.Figures.Slices = l.slices
	if len(l.slices) > 0 {
		c.Sliced = new(true)
	}
	return c
}

func anyAvailable(cards []listCard) bool {
	for i := range cards {
		if cards[i].available {
			return true
		}
	}
	return false
}
