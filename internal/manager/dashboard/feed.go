package dashboard

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

const (
	// debounce is how long a feed waits after a change for more of them.
	debounce = 200 * time.Millisecond
	// idleShare times as long as a world took to make is waited before the next:
	// in a large and busy cluster the page must not use a whole processor.
	idleShare = 2
	// confirmAfter is when an audit that found something new is repeated.
	confirmAfter = time.Second
)

// feed makes worlds of a source, on demand.
type feed struct {
	source cluster.Source
	clock  clock.Clock

	mu       sync.Mutex
	revision uint64        // counts changes
	changed  chan struct{} // closed at the next change

	making  sync.Mutex // held while a world is made
	latest  *world     // under making
	took    time.Duration
	audited *audit.Report // of an audit that is old enough to confirm another
	auditAt time.Time
}

func newFeed(source cluster.Source, clk clock.Clock) (*feed, error) {
	f := &feed{source: source, clock: clk, revision: 1, changed: make(chan struct{})}
	return f, source.OnChange(f.change)
}

// change marks the latest world as out of date.
func (f *feed) change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	close(f.changed)
	f.changed = make(chan struct{})
}

// now returns the present revision, and a channel that is closed at the next.
func (f *feed) now() (uint64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision, f.changed
}

// world returns the world as it is. Concurrent callers share one.
func (f *feed) world() (*world, error) {
	f.making.Lock()
	defer f.making.Unlock()
	revision, _ := f.now()
	if f.latest != nil && f.latest.revision == revision {
		return f.latest, nil
	}
	objects, err := f.source.Objects()
	if err != nil {
		return nil, err
	}
	start := f.clock.Now()
	w := newWorld(objects, revision, f.audited, start)
	if f.audited == nil || start.Sub(f.auditAt) >= confirmAfter {
		f.audited, f.auditAt = w.audited, start
	}
	f.latest, f.took = w, f.clock.Since(start)
	if w.unconfirmed {
		again := f.clock.After(confirmAfter)
		go func() { <-again; f.change() }()
	}
	return w, nil
}

// after waits until there is a later revision than the given one, and a moment
// more, so that changes which come together are shown together.
func (f *feed) after(ctx context.Context, revision uint64) error {
	for {
		latest, changed := f.now()
		if latest > revision {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.clock.After(f.pause()):
		return nil
	}
}

func (f *feed) pause() time.Duration {
	f.making.Lock()
	defer f.making.Unlock()
	return max(debounce, idleShare*f.took)
}
