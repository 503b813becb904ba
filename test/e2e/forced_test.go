package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
			first.Spec.Containers[0].Command = []string{"sleep", c.seconds} // as first process it ignores SIGTERM
			first.Spec.TerminationGracePeriodSeconds = new(int64(15))
			w.create(first)
			w.running(time.Minute, "first")
			if processOf(c.seconds) == 0 {
				t.Fatal("the container's process is not to be found")
			}
			w.must(w.client.CoreV1().Pods("default").Delete(w.ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			deleted := time.Now()
			w.create(on(pod("second", c.limits...), card))
			var gone time.Time
			w.eventually("the second pod runs", 2*time.Minute, func() error {
				if gone.IsZero() && processOf(c.seconds) == 0 {
					gone = time.Now()
				}
				p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "second", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if p.Status.Phase == corev1.PodFailed {
					w.Fatalf("the second pod failed: %s %s", p.Status.Reason, p.Status.Message)
				}
				started := len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
				if started && gone.IsZero() {
					w.Fatal("the card was handed out while its holder lives")
				}
				if !started {
					return errors.New("not started")
				}
				return nil
			})
			if lived := gone.Sub(deleted); lived < 5*time.Second {
				t.Fatalf("the first container lived for %s only: nothing was tested", lived)
			}
			t.Logf("the first container ended %s after the deletion, the second pod ran %s later", gone.Sub(deleted).Round(time.Millisecond), time.Since(gone).Round(time.Millisecond))
			w.inspect(cards, w.running(time.Minute, "second")...)
		})
	}
}
