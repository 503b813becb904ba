package agent

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestCleanupStays: with --wait a cleanup goes on until the node is clean and is
// ready from then on.
func TestCleanupStays(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	c := &cleaner{clock: clk, wait: true}
	c.Node, c.health = "n1", Off
	answers := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.stay(ctx, func(ctx context.Context) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	readyz := func() (int, string) {
		w := httptest.NewRecorder()
		probe(503, c.ready)(w, nil)
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, text := range []string{"2 pods", "2 pods", "1 pod"} {
		answers <- errors.New(text)
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		if code, got := readyz(); code != 503 || got != text {
			t.Errorf("/readyz is %d %q, want 503 %q", code, got, text)
		}
		clk.Step(cleanupRetry)
	}
	answers <- nil
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		code, got := readyz()
		if code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz is %d %q after the node is clean", code, got)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("it ended: %v", err)
	default:
	}
	cancel()
	gputest.Check(t, <-ended)
}
