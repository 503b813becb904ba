package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// errStale ends a Bind of a process that may no longer be the leader.
var errStale = errors.New("the lease was not renewed in time: another scheduler may be leading")

// term is this process's time as leader. It answers two questions: may a
// Binding be sent now, and may the first decision be made.
type term struct {
	clock clock.Clock

	mu sync.Mutex
	// deadline is how long a renewal is good for; zero without an election.
	deadline time.Duration
	renewed  time.Time

	// started is closed when this process begins to lead, fenced when nothing
	// that an earlier leader decided can come through any more.
	started    chan struct{}
	startOnce  sync.Once
	fenced     chan struct{}
	fencedOnce sync.Once
}

func newTerm(c clock.Clock) *term {
	return &term{clock: c, started: make(chan struct{}), fenced: make(chan struct{})}
}

// elect makes the term depend on the lease.
func (t *term) elect(lock resourcelock.Interface, deadline time.Duration) resourcelock.Interface {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = deadline
	return &watchedLock{Interface: lock, term: t}
}

// renew notes a renewal that was asked for at the given time.
func (t *term) renew(at time.Time) {
	t.mu.Lock()
	t.renewed = at
	t.mu.Unlock()
	t.begin()
}

// begin tells that this process leads.
func (t *term) begin() { t.startOnce.Do(func() { close(t.started) }) }

// fresh returns an error unless the lease was renewed a short time ago, so that
// nobody else can have taken it.
func (t *term) fresh() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deadline == 0 {
		return nil
	}
	if age := t.clock.Since(t.renewed); age >= t.deadline {
		return fmt.Errorf("%w (last renewed %s ago)", errStale, age.Round(time.Millisecond))
	}
	return nil
}

// ready waits until the first decision may be made.
func (t *term) ready(ctx context.Context) error {
	select {
	case <-t.fenced:
		return nil
	default:
	}
	select {
	case <-t.fenced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fence lets decisions be made.
func (t *term) fence() { t.fencedOnce.Do(func() { close(t.fenced) }) }

// watchedLock tells the term of every write of the lease that succeeded. The
// time that counts is the one before the write was sent.
type watchedLock struct {
	resourcelock.Interface
	term *term
}

// Create creates the lease.
func (l *watchedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Create(ctx, r) })
}

// Update renews or takes the lease.
func (l *watchedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *watchedLock) write(r resourcelock.LeaderElectionRecord, do func() error) error {
	at := l.term.clock.Now()
	err := do()
	if err == nil && r.HolderIdentity == l.Identity() {
		l.term.renew(at)
	}
	return err
}
