package discover

import (
	"context"
	"errors"
	"fmt"
)

// alone runs work that may hang in the kernel, at most one at a time, and
// doesn't wait for it longer than a context allows.
type alone struct{ turn chan struct{} }

func newAlone() alone { return alone{turn: make(chan struct{}, 1)} }

func (a alone) do(ctx context.Context, work func() (*Snapshot, error)) (*Snapshot, error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("an earlier look has not ended: %w", context.Cause(ctx))
	}
	type answer struct {
		out *Snapshot
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-a.turn }()
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
