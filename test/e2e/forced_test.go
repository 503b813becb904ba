package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// processOf returns the process that sleeps for this many seconds, 0 for none.
func processOf(seconds string) int {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		if bytes.HasSuffix(text, []byte("sleep\x00"+seconds+"\x00")) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

// keepAlive keeps containerd for a while from ending the container that sleeps
// for this many seconds: its shim does not answer.
func (w *world) keepAlive(seconds string) {
	w.Helper()
	var pid int
	// A container is Running a moment before its command runs.
	w.Eventually("the container's process", time.Minute, func() error {
		if pid = processOf(seconds); pid == 0 {
			return errors.New("it is not to be found")
		}
		return nil
	})
	shim := w.parentOf(pid)
	w.Must(syscall.Kill(shim, syscall.SIGSTOP))
	release := time.AfterFunc(8*time.Second, func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	w.Cleanup(func() {
		if release.Stop() {
			_ = syscall.Kill(shim, syscall.SIGCONT)
		}
	})
}

// secondStarts fails unless the second pod is placed while the container that sleeps
// for this many seconds lives, and starts when it is gone.
func (w *world) secondStarts(seconds string, deleted time.Time) {
	w.Helper()
	const name = "second"
	var gone time.Time
	tried := false
	w.Eventually("the second pod runs", 2*time.Minute, func() error {
		if gone.IsZero() && processOf(seconds) == 0 {
			gone = time.Now()
		}
		p := w.Pod(name)
		tried = tried || gone.IsZero() && p.Spec.NodeName != ""
		started := len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
		switch {
		case p.Status.Phase == corev1.PodFailed:
			w.Fatalf("pod %s failed: %s %s", name, p.Status.Reason, p.Status.Message)
		case started && gone.IsZero():
			w.Fatal("the card was handed out while its holder lives")
		case !started:
			return errors.New("not started")
		}
		return nil
	})
	if lived := gone.Sub(deleted); lived < 5*time.Second || !tried {
		w.Fatalf("the first container lived for %s, and the second was placed meanwhile: %v; nothing was tested", lived, tried)
	}
	w.Logf("the first container ended %s after the deletion, the second pod ran %s later",
		gone.Sub(deleted).Round(time.Millisecond), time.Since(gone).Round(time.Millisecond))
}

// parentOf returns the parent of a process.
func (w *world) parentOf(pid int) int {
	w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	w.Must(err)
	_, rest, _ := strings.Cut(string(text), "PPid:")
	var parent int
	if _, err := fmt.Sscan(rest, &parent); err != nil || parent < 2 {
		w.Fatalf("the parent of process %d is %d (%v)", pid, parent, err)
	}
	return parent
}

// TestForcedDeletion: a pod is deleted by force while its container lives. Its
// card goes to the next pod only when the container is gone.
func TestForcedDeletion(t *testing.T) {
	cases := map[string]struct {
		limits  []string
		seconds string
	}{
		"a whole card":                         {[]string{"gpu=1"}, "86391"},
		"a slice that fills the card's memory": {[]string{"sgpu=1", "vcore=50", "vmemory=64"}, "86392"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cards := w.serve()
			card := cards.machine.Cards[3].UUID
			first := on(pod("first", c.limits...), card)
			first.Spec.Containers[0].Command = []string{"sleep", c.seconds}
			w.create(first)
			w.running(time.Minute, "first")
			w.keepAlive(c.seconds)
			w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			deleted := time.Now()
			w.create(on(pod("second", c.limits...), card))
			w.secondStarts(c.seconds, deleted)
			w.inspect(cards, w.running(time.Minute, "second")...)
		})
	}
}
