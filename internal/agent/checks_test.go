package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/check"
	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// reportWith is a report in which these checks failed.
func reportWith(failed ...string) *check.Report {
	r := &check.Report{}
	for _, name := range check.Waivable() {
		o := check.Outcome{Name: name, Result: check.OK}
		if slices.Contains(failed, name) {
			o = check.Outcome{Name: name, Result: check.Failed, Detail: "it is not so", Advice: "do this"}
		}
		r.Checks = append(r.Checks, o)
	}
	return r
}

// condition returns a condition of the first card, as status, reason and message.
func (s *scene) condition(kind string) string {
	for _, c := range s.seen.device.Spec.Devices[0].Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}

// The node is served when its checks have ended and none that matters failed; a
// waived one is shown.
func TestChecksKeepFromServing(t *testing.T) {
	s := newScene(t)
	s.agent.server = &fakeServer{status: deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, GivenKnown: true, RuntimeKnown: true}}
	s.agent.checks.run = func(context.Context) (*check.Report, error) { return nil, errors.New("not in this test") }
	s.looks(3, seen("a", "b"))
	if got := s.serving(); got != "False ChecksRunning" || s.agent.Ready() == nil {
		t.Errorf("before the checks have ended: %q, ready %v", got, s.agent.Ready())
	}
	s.agent.checks.report = reportWith("card-devices", "slice-minors")
	s.agent.step(t.Context())
	s.agent.step(t.Context())
	if got := s.condition(wire.ConditionServing); !strings.HasPrefix(got, "False CheckFailed check card-devices failed: it is not so; do this; check slice-minors failed") || !strings.Contains(got, "agent.waive") {
		t.Errorf("two failed: %q", got)
	}
	gputest.ErrorHas(t, "ready", "card-devices", s.agent.Ready())
	s.agent.checks.waived = []string{"card-devices"}
	s.agent.step(t.Context())
	if got := s.condition(wire.ConditionServing); !strings.HasPrefix(got, "False CheckFailed check slice-minors failed") {
		t.Errorf("one waived: %q", got)
	}
	s.agent.checks.report = reportWith("card-devices")
	s.looks(2, seen("a", "b"))
	if got := s.serving(); got != "True PluginsRegistered" || s.agent.Ready() != nil {
		t.Errorf("all that failed is waived: %q, ready %v", got, s.agent.Ready())
	}
	gputest.Equal(t, "shown as", "True WaivedByAdministrator the node is served regardless of these checks: card-devices (failed: it is not so)", s.condition(wire.ConditionWaived))
	reported := s.reported("CheckFailed", "ChecksPassed")
	if len(reported) != 3 || !strings.Contains(reported[2], "ChecksPassed") {
		t.Errorf("reported %q", reported)
	}
}

// The checks run at the start and again, sooner while one fails; what fails once
// and not again at once is no failure.
func TestChecksRunAgain(t *testing.T) {
	s := newScene(t)
	bad, good := reportWith("control-device"), reportWith()
	answers := []*check.Report{bad, good, bad, bad, good}
	s.agent.checks.run = func(context.Context) (*check.Report, error) {
		next := answers[0]
		answers = answers[1:]
		return next, nil
	}
	if r := s.agent.checkTwice(t.Context()); len(r.Blocking(nil)) != 0 {
		t.Error("a failure that was gone at once counts")
	}
	if r := s.agent.checkTwice(t.Context()); len(r.Blocking(nil)) != 1 {
		t.Error("a failure that stays does not count")
	}
	if r := s.agent.checkTwice(t.Context()); len(r.Blocking(nil)) != 0 || len(answers) != 0 {
		t.Error("what is well is asked twice")
	}
	s.agent.checks.run = func(context.Context) (*check.Report, error) { return nil, errors.New("no") }
	if s.agent.checkTwice(t.Context()) != nil {
		t.Error("a report without checks")
	}
}

// The time between two runs is short while a check fails.
func TestChecksInterval(t *testing.T) {
	s := newScene(t)
	answers := make(chan *check.Report, 10)
	s.agent.checks.run = func(context.Context) (*check.Report, error) { return <-answers, nil }
	reports := s.agent.checkNode(t.Context())
	next := func(after time.Duration, failed ...string) {
		t.Helper()
		for range 1 + len(failed) { // what failed is asked again at once
			answers <- reportWith(failed...)
		}
		for after > 0 && !s.clock.HasWaiters() {
			runtime.Gosched()
		}
		if after > 0 {
			s.clock.Step(after - time.Millisecond)
			if !s.clock.HasWaiters() {
				t.Fatalf("the checks ran again before %s", after)
			}
			s.clock.Step(time.Millisecond)
		}
		if r := <-reports; r.Failed() != (len(failed) > 0) {
			t.Errorf("report %+v", r)
		}
	}
	next(0, "control-device")
	next(checkRetry, "control-device")
	next(checkRetry)
	next(checkInterval)
}

// The check command takes the flags of the agent whose container it runs in.
func TestCheckInherits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cmdline")
	write := func(args ...string) {
		gputest.Must(t, os.WriteFile(path, []byte(strings.Join(args, "\x00")+"\x00"), 0o600))
	}
	write("/usr/bin/daybreak", "agent", "--runtime-root=/host", "--serve=auto", "--device-plugin-dir=/data/plugins", "--assume-cdi=docker", "--assume-cdi=podman", "--v=2")
	cmd := newCheckCommand()
	gputest.Must(t, cmd.ParseFlags([]string{"--device-plugin-dir=/mine"}))
	inherit(cmd.Flags(), agentArguments(path))
	for name, want := range map[string]string{"runtime-root": "/host", "device-plugin-dir": "/mine", "assume-cdi": "[docker,podman]", "state-dir": "/var/lib/daybreak"} {
		gputest.Equal(t, "--"+name, want, cmd.Flag(name).Value.String())
	}
	write("/sbin/init", "agent", "--runtime-root=/host")
	if got := agentArguments(path); got != nil {
		t.Errorf("of another process: %q", got)
	}
}

// The check command prints a line for each check and fails when one did.
func TestCheckCommand(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"check", "--source=sysfs", "--sysfs=" + dir, "--procfs=" + dir, "--runtime-root=" + dir, "--device-plugin-dir=" + dir, "--pod-resources-socket=" + filepath.Join(dir, "r.sock"),
		"--state-dir=" + dir, "--cdi-dir=" + dir,
	}
	bundle := filepath.Join(dir, "bundle.tar.gz")
	out, failure := execute(t, append(args, "--bundle="+bundle)...)
	if failure != cli.ErrNo.Error() {
		t.Errorf("a node without a runtime: %q", failure)
	}
	for _, want := range []string{"CHECK ", "runtime ", "failed   the container runtime does not answer at unix:///run/containerd/containerd.sock", "set agent.runtimeSocket", "card-devices "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if info, err := os.Stat(bundle); err != nil || info.Size() == 0 {
		t.Errorf("bundle: %v", err)
	}
	if out, _ = execute(t, append(args, "--bundle=-")...); !strings.HasPrefix(out, "\x1f\x8b") || !strings.Contains(out, "CHECK ") {
		t.Errorf("standard output begins with %.20q", out)
	}
	out, _ = execute(t, append(args, "-o", "json")...)
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Failed() {
		t.Errorf("%v in\n%s", err, out)
	}
	for name, tc := range map[string]struct{ arg, want string }{
		"simulated cards": {"--source=simulated", "--source simulated: there is no hardware to check"},
		"a form":          {"--output=xml", `--output "xml": write "table" or "json"`},
		"no folder":       {"--bundle=" + filepath.Join(dir, "none", "b"), "--bundle: open "},
	} {
		if _, failure := execute(t, append(args, tc.arg)...); !strings.HasPrefix(failure, tc.want) {
			t.Errorf("%s: %q, want %q", name, failure, tc.want)
		}
	}
}
