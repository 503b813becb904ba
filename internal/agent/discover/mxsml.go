package discover

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/wait"
)

// MXSML asks the vendor's library, which runs in a process of its own: what it
// does there costs the look, never the agent. The process is kept from look to
// look. One that crashed is started again at the next look, with back-off after
// several failures in a row; one that does not answer in time is killed.
type MXSML struct {
	argv     []string
	now      func() time.Time
	children *children
	refresh  atomic.Bool

	// sem is held by the call that uses the process and what follows.
	sem     *semaphore.Weighted
	process *helper
	// After a failure, no process is started before notBefore.
	backoff   wait.Backoff
	notBefore time.Time
	last      error
}

// Limits of the process that runs the library.
const (
	// lookLimit ends a look whose context has no end of its own.
	lookLimit = 30 * time.Second
	// changeLimit ends every other call, whatever its caller's context.
	changeLimit = 15 * time.Second
)

func restartBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
}

// NewLibrary returns the vendor's library that the configuration describes.
func NewLibrary(cfg Config) (*MXSML, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	argv := []string{self, HelperCommand}
	if cfg.Library != "" {
		argv = append(argv, "--library", cfg.Library)
	}
	return newMXSML(argv), nil
}

// newMXSML returns the library that a process of these arguments serves.
func newMXSML(argv []string) *MXSML {
	return &MXSML{argv: argv, now: time.Now, children: &children{}, sem: semaphore.NewWeighted(1), backoff: restartBackoff()}
}

// Name implements [Source].
func (m *MXSML) Name() string { return SourceMXSML }

// Refresh makes the library count the cards again at the next look.
func (m *MXSML) Refresh() { m.refresh.Store(true) }

// Look implements [Source].
func (m *MXSML) Look(ctx context.Context) (*Snapshot, error) {
	refresh := m.refresh.Swap(false)
	out, err := ask[Snapshot](ctx, m, "Look", refresh)
	if err != nil && refresh {
		m.Refresh()
	}
	return out, err
}

// Slices returns how the card at a PCI address is sliced.
func (m *MXSML) Slices(ctx context.Context, bdf string) (*CardSlices, error) {
	return ask[CardSlices](ctx, m, "Slices", SliceRef{BDF: bdf})
}

// Create makes a slice.
func (m *MXSML) Create(ctx context.Context, order SliceOrder) (*Slice, error) {
	return ask[Slice](ctx, m, "Create", order)
}

// Remove removes a slice. It is [ErrBusy] while the slice is in use, and
// [ErrNoSlice] when it is gone already.
func (m *MXSML) Remove(ctx context.Context, slice SliceRef) error {
	_, err := ask[struct{}](ctx, m, "Remove", slice)
	return err
}

// Close ends the process.
func (m *MXSML) Close() {
	_ = m.sem.Acquire(context.Background(), 1) // this context never ends
	defer m.sem.Release(1)
	m.end()
}

// ask calls one method of the process.
func ask[R any](ctx context.Context, m *MXSML, method string, args any) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if m.sem.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("the library is still busy with an earlier call: %w", context.Cause(ctx))
	}
	defer m.sem.Release(1)
	if err := m.ready(); err != nil {
		return nil, err
	}
	if method != "Look" {
		// A change of a card is not abandoned half-way when its caller stops
		// waiting.
		var end context.CancelFunc
		ctx, end = context.WithTimeout(context.WithoutCancel(ctx), changeLimit)
		defer end()
	}
	out := new(R)
	err := m.process.call(ctx, method, args, out)
	var answer rpc.ServerError
	switch {
	case errors.As(err, &answer):
		return nil, knownError(string(answer))
	case err != nil:
		m.giveUp(err)
		return nil, err
	}
	m.backoff = restartBackoff()
	return out, nil
}

// knownError returns the error of which the process sent the text.
func knownError(text string) error {
	for _, known := range []error{ErrNotInstalled, ErrBusy, ErrNoSlice} {
		if start, ok := strings.CutSuffix(text, known.Error()); ok {
			return fmt.Errorf("%s%w", start, known)
		}
	}
	return errors.New(text)
}

// ready makes sure that there is a process to call.
func (m *MXSML) ready() error {
	if m.process != nil {
		return nil
	}
	if left := m.notBefore.Sub(m.now()); left > 0 {
		return fmt.Errorf("the library's process is started again in %s; last time: %w", left.Round(time.Second/10), m.last)
	}
	process, err := startHelper(m.children, m.argv)
	if err != nil {
		err = fmt.Errorf("start the library's process: %w", err)
		m.giveUp(err)
		return err
	}
	m.process = process
	return nil
}

// giveUp ends the process and sets the time before which there is no other.
func (m *MXSML) giveUp(err error) {
	m.end()
	m.notBefore, m.last = m.now().Add(m.backoff.Step()), err
}

func (m *MXSML) end() {
	if m.process != nil {
		m.process.end()
		m.process = nil
	}
}
