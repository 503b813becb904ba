package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// firstBinds is how many Bindings may be at the API server at a time to begin
	// with; fewest and mostBinds are the least and the most that this becomes.
	firstBinds, fewestBinds, mostBinds = 64, 16, 512
	// slowBind is how long a Binding takes at an API server that has as much to do
	// as it can.
	slowBind = 250 * time.Millisecond
)

// bindLimit bounds the Bindings that are at the API server at a time. A backlog is
// decided on more quickly than it is written; when all of it is sent at once, the
// API server rejects what its queues do not hold (429), and both sides spend time
// on that. How many are right depends on the API server and on how far away it is,
// so the limit follows: it grows while Bindings wait for their turn and answers
// come quickly, and shrinks when they come slowly or only after a rejection.
type bindLimit struct {
	mu sync.Mutex
	// size is the limit, and sent how many Bindings are at the API server.
	size, sent int
	// waiting has those whose turn has not come, the first first.
	waiting []chan struct{}
	// answered counts the Bindings since the limit was last looked at, slow those
	// of them that took long or were rejected, and full whether one had to wait.
	answered, slow int
	full           bool
}

func newBindLimit() *bindLimit { return &bindLimit{size: firstBinds} }

// acquire waits until a Binding may be sent.
func (l *bindLimit) acquire(ctx context.Context) error {
	l.mu.Lock()
	if l.sent < l.size {
		l.sent++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting, l.full = append(l.waiting, turn), true
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else { // its turn came at the same moment
		l.sent--
		l.next()
	}
	return context.Cause(ctx)
}

// release notes the answer to a Binding, how long it took and how often it was
// sent.
func (l *bindLimit) release(took time.Duration, tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent--
	l.answered++
	if took > slowBind || tries > 1 {
		l.slow++
	}
	if l.answered >= l.size {
		l.adapt()
	}
	l.next()
}

// adapt changes the limit by what the last Bindings showed. The lock is held.
func (l *bindLimit) adapt() {
	switch {
	case l.slow*4 > l.answered:
		l.size = max(fewestBinds, l.size-l.size/4)
	case l.full:
		l.size = min(mostBinds, l.size+l.size/4)
	}
	l.answered, l.slow, l.full = 0, 0, len(l.waiting) > 0
}

// next lets those whose turn has come be sent. The lock is held.
func (l *bindLimit) next() {
	for l.sent < l.size && len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.sent++
	}
}
