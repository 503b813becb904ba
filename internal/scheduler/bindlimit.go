package scheduler

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// firstBinds is how many Bindings may be at the API server at a time to begin
	// with; fewest and mostBinds are the least and the most that this becomes.
	firstBinds, fewestBinds, mostBinds = 64, 16, 512
	// slowBind is how long a Binding takes at an API server that has as much to do
	// as it can.
	slowBind = 250 * time.Millisecond
)

// bindLimit bounds the Bindings that are at the API server at a time: when a whole
// backlog is sent at once, the API server rejects what its queues do not hold
// (429), and both sides spend time on that. How many are right depends on the API
// server and on how far away it is, so the limit grows while Bindings wait for
// their turn and answers come quickly, and shrinks when they come slowly or only
// after a rejection.
type bindLimit struct {
	// slots are mostBinds, of which those beyond the limit are taken.
	slots *semaphore.Weighted

	mu sync.Mutex
	// size is the limit, and excess how many Bindings more are at the API server.
	size, excess int
	// answered counts the Bindings since the limit was last looked at, slow those
	// of them that took long or were rejected, and full whether one had to wait.
	answered, slow int
	full           bool
}

func newBindLimit(size int) *bindLimit {
	l := &bindLimit{slots: semaphore.NewWeighted(mostBinds), size: size}
	l.slots.TryAcquire(int64(mostBinds - size))
	return l
}

// acquire waits until a Binding may be sent.
func (l *bindLimit) acquire(ctx context.Context) error {
	if l.slots.TryAcquire(1) {
		return nil
	}
	l.mu.Lock()
	l.full = true
	l.mu.Unlock()
	if l.slots.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// release notes the answer to a Binding, how long it took and how often it was
// sent.
func (l *bindLimit) release(took time.Duration, tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excess > 0 {
		l.excess--
	} else {
		l.slots.Release(1)
	}
	l.answered++
	if took > slowBind || tries > 1 {
		l.slow++
	}
	if l.answered >= l.size {
		l.adapt()
	}
}

// adapt changes the limit by what the last Bindings showed. The lock is held.
func (l *bindLimit) adapt() {
	before := l.size
	switch {
	case l.slow*4 > l.answered:
		l.size = max(fewestBinds, l.size-l.size/4)
	case l.full:
		l.size = min(mostBinds, l.size+l.size/4)
	}
	if l.excess += before - l.size; l.excess < 0 {
		l.slots.Release(int64(-l.excess))
		l.excess = 0
	}
	for l.excess > 0 && l.slots.TryAcquire(1) { // free slots are no Bindings
		l.excess--
	}
	l.answered, l.slow = 0, 0
	if l.full = !l.slots.TryAcquire(1); !l.full { // no Binding waits
		l.slots.Release(1)
	}
}
