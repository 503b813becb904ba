package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/local"
	compat "github.com/daybreak-gpu/daybreak/test/compat/koordinator"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// plainConfig is how plain kube-scheduler is configured: as it comes, but for
// the limits on requests and what no node advertises.
//
//go:embed plain.yaml
var plainConfig string

// side is one of the schedulers that are compared.
type side string

const (
	daybreak side = "daybreak"
	plain    side = "plain"
	// earlier is Daybreak of another binary.
	earlier side = "earlier"
)

// limits are those on a scheduler's requests.
type limits string

const (
	// equalLimits are Daybreak's own, for every scheduler.
	equalLimits limits = "equal"
	// ownLimits are each scheduler's default.
	ownLimits limits = "own"
)

// values returns the requests a second and at once; zero for the scheduler's default.
func (l limits) values() (qps, burst int) {
	if l == ownLimits {
		return 0, 0
	}
	return 1000, 2000
}

// contender is a scheduler with its limits.
type contender struct {
	side
	limits
}

// scheduler is a scheduler that is measured.
type scheduler struct {
	*local.Process
	extender *local.Process // or nil
	port     int
	name     string
}

// startScheduler starts one of them.
func (w *world) startScheduler(ctx context.Context, c contender, policy string) (*scheduler, error) {
	ports, err := local.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", c.side, time.Now().UnixNano())
	qps, burst := c.values()
	args := []string{
		"--secure-port=" + strconv.Itoa(ports[0]), "--bind-address=127.0.0.1",
		"--cert-dir=" + filepath.Join(w.dir, "certs"), "--authorization-always-allow-paths=/healthz,/metrics,/debug/pprof/*",
	}
	var process, extender *local.Process
	switch c.side {
	case daybreak, earlier:
		args = append(args, "--profile=default-scheduler")
		if policy != "" {
			args = append(args, "--policy="+policy)
		}
		cluster := *w.cluster
		if c.side == earlier {
			cluster.Executable = w.old
		}
		process = cluster.NewScheduler(name, args...)
	case koordinator:
		if process, err = w.newKoordinator(name, qps, burst, append(args, compat.MetaX)); err != nil {
			return nil, err
		}
	default:
		file := filepath.Join(w.dir, "plain.yaml")
		text := strings.NewReplacer("KUBECONFIG", w.cluster.Kubeconfig("scheduler"), "QPS", strconv.Itoa(qps), "BURST", strconv.Itoa(burst)).Replace(plainConfig)
		if c.side == hami {
			var config string
			if extender, config, err = w.startExtender(ctx, name, qps, burst); err != nil {
				return nil, err
			}
			text += config
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		process = harness.NewPlainScheduler(w.cluster, w.kubernetes, name, append(args, "--config="+file)...)
	}
	if err := process.Start(); err != nil {
		extender.Kill()
		return nil, err
	}
	return &scheduler{Process: process, extender: extender, port: ports[0], name: name}, nil
}

// Stop ends the scheduler, which gives its lease back, and its extender.
func (s *scheduler) Stop() {
	s.Process.Stop()
	s.extender.Kill()
}

// cpu returns the CPU time that the scheduler and its extender have used.
func (s *scheduler) cpu() (time.Duration, error) {
	own, err := cpuOf(s.Process)
	if err != nil || s.extender == nil {
		return own, err
	}
	more, err := cpuOf(s.extender)
	return own + more, err
}

func cpuOf(p *local.Process) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may have blanks in it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("can't read the CPU time in %q", text)
	}
	var ticks int64
	for _, field := range fields[11:13] { // in user and in kernel mode
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("can't read the CPU time in %q: %w", text, err)
		}
		ticks += n
	}
	const perSecond = 100 // as Linux counts for everyone, whatever its own clock
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// peakMiB returns the most memory that the process ever had.
func (s *scheduler) peakMiB() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("can't read %q: %w", line, err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("no peak of memory is known of process %d", s.PID())
}
