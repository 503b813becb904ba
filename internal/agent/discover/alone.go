package discover

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// alone runs work that may hang in the kernel, at most one at a time, and
// doesn't wait for it longer than a context allows.
type alone struct{ sem *semaphore.Weighted }

func newAlone() alone { return alone{sem: semaphore.NewWeighted(1)} }

func (a alone) do(ctx context.Context, work func() (*Snapshot, error)) (*Snapshot, error) {
	if a.sem.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("an earlier look has not ended: %w", context.Cause(ctx))
	}
	type answer struct {
		out *Snapshot
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer a.sem.Release(1)
		out, err := work()
		done <- answer{out, err}
	}()
	select {
	case got := <-done:
		return got.out, got.err
	case <-ctx.Done():
		return nil, errors.Join(errors.New("no answer in time"), context.Cause(ctx))
	}
}
