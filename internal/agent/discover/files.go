package discover

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// files is what sources that read files have in common: a look ends with its
// context, and one that hangs in the kernel is not joined by more.
type files struct{ sem *semaphore.Weighted }

func newFiles() files { return files{semaphore.NewWeighted(1)} }

func (f files) look(ctx context.Context, read func() (*Snapshot, error)) (*Snapshot, error) {
	if f.sem.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("an earlier look has not ended: %w", context.Cause(ctx))
	}
	var out *Snapshot
	var err error
	done := make(chan struct{})
	go func() {
		defer f.sem.Release(1)
		defer close(done)
		out, err = read()
	}()
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
}
