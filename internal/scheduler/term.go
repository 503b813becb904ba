package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
)

var (
	// errStale ends a Bind of a process that may no longer be the leader.
	errStale = errors.New("the lease was not renewed in time: another scheduler may be leading")
	// errTouched ends a Bind of a pod that a later leader has touched.
	errTouched = errors.New("another scheduler is leading: it has touched the pod")
)

// sinceBoot returns the time since the machine started. Unlike the clock of
// package time it counts the time during which the machine was suspended.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // Linux has it since 2.6.39
	}
	return time.Duration(now.Nano())
}

// term is this process's time as leader. It answers two questions: may a
// Binding be sent now, and may a pod be placed.
type term struct {
	// elapsed is a clock that counts suspension.
	elapsed func() time.Duration
	// identity is unique to this process. Touched pods carry it.
	identity string

	mu sync.Mutex
	// deadline is how long a renewal is valid.
	deadline time.Duration
	// renewed is when the lease was last renewed; negative: never, or another
	// process was seen to hold it.
	renewed time.Duration
	// began is when this process began to lead.
	began time.Duration
	// ended is why this process must not decide any more, and stop ends it.
	ended error
	stop  context.CancelCauseFunc
	// held are the pods that an earlier leader may still bind.
	held sets.Set[types.UID]

	// started is closed when this process begins to lead, opened when nothing
	// that an earlier leader decided can come through any more.
	started    chan struct{}
	startOnce  sync.Once
	opened     chan struct{}
	openedOnce sync.Once
}

func newTerm(elapsed func() time.Duration) *term {
	return &term{elapsed: elapsed, renewed: -1, started: make(chan struct{}), opened: make(chan struct{})}
}

// elect makes the term depend on the lease.
func (t *term) elect(lock resourcelock.Interface, deadline time.Duration) resourcelock.Interface {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.identity, t.deadline = lock.Identity(), deadline
	return &watchedLock{Interface: lock, term: t}
}

// renew notes a renewal that was sent at the given time. This process leads since
// the first one.
func (t *term) renew(at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = at
	t.startOnce.Do(func() {
		t.began = at
		close(t.started)
	})
}

// lapse notes that this process does not hold the lease.
func (t *term) lapse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = -1
}

// age returns how long this process has been leading.
func (t *term) age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.elapsed() - t.began
}

// end stops all Bindings for good, and this process.
func (t *term) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = err
	if t.stop != nil {
		t.stop(err)
	}
}

// fresh returns an error unless the lease was renewed recently enough that no
// other process can hold it.
func (t *term) fresh() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended != nil:
		return fmt.Errorf("%w: %w", errStale, t.ended)
	case t.renewed < 0:
		return errStale
	}
	if age := t.elapsed() - t.renewed; age >= t.deadline {
		return fmt.Errorf("%w (last renewed %s ago)", errStale, age.Round(time.Millisecond))
	}
	return nil
}

// foreign reports whether another process has touched the pod. Since a leader
// touches all pending pods before it places one, that process leads now.
func (t *term) foreign(pod *corev1.Pod) bool {
	by := allocation.TermOf(pod)
	return by != "" && by != t.identity
}

// admits reports whether the pod may be placed: the fence is open, and no
// earlier leader may still bind the pod.
func (t *term) admits(pod *corev1.Pod) bool {
	if !t.isOpen() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.held.Has(pod.UID)
}

func (t *term) isOpen() bool {
	select {
	case <-t.opened:
		return true
	default:
		return false
	}
}

// hold sets the pods that an earlier leader may still bind.
func (t *term) hold(held sets.Set[types.UID]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = held
}

// holding returns how many pods are held back.
func (t *term) holding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held.Len()
}

// ready waits until the fence is open.
func (t *term) ready(ctx context.Context) error {
	if t.isOpen() {
		return nil
	}
	select {
	case <-t.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open opens the fence.
func (t *term) open() { t.openedOnce.Do(func() { close(t.opened) }) }

// watchedLock notifies the term of every write of the lease that succeeded. The
// time that counts is the one before the write was sent.
type watchedLock struct {
	resourcelock.Interface
	term *term
}

// Get reads the lease. Where another process holds it, renewals of this process
// no longer count, whatever its clock says.
func (l *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil && r.HolderIdentity != l.Identity() {
		l.term.lapse()
	}
	return r, raw, err
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
	if r.HolderIdentity != l.Identity() {
		l.term.lapse() // the lease is given back
		return do()
	}
	at := l.term.elapsed()
	if err := do(); err != nil {
		return err
	}
	l.term.renew(at)
	return nil
}
