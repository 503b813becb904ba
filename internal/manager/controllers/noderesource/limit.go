package noderesource

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// A card whose health goes back and forth must not become a stream of writes:
// every scheduler and every kubelet watches nodes. A node is written a few
// times at once and then once in a while; what it advertises in between is late
// by at most that, and the scheduler goes by the Device anyway.
const (
	writeBurst    = 4
	writeInterval = 10 * time.Second
)

// limiter keeps from writes that are too many: it spaces those to each node, and
// knows which of them the cache has not seen yet.
type limiter struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	nodes     map[string]*rate.Limiter
	written   map[string]string // resource versions
	conflicts map[string]int    // since the last write
}

func newLimiter(clk clock.PassiveClock) *limiter {
	return &limiter{clock: clk, nodes: map[string]*rate.Limiter{}, written: map[string]string{}, conflicts: map[string]int{}}
}

// bucket returns what is left to the node. The lock must be held.
func (l *limiter) bucket(node string) *rate.Limiter {
	bucket, ok := l.nodes[node]
	if !ok {
		bucket = rate.NewLimiter(rate.Every(writeInterval), writeBurst)
		l.nodes[node] = bucket
	}
	return bucket
}

// wait says how long to wait before the node may be written; zero means now.
func (l *limiter) wait(node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	reservation := l.bucket(node).ReserveN(now, 1)
	defer reservation.CancelAt(now) // what is not written does not count
	return reservation.DelayFrom(now)
}

// wrote counts a write of ours, and takes down the version that it has led to.
func (l *limiter) wrote(node, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket(node).AllowN(l.clock.Now(), 1)
	l.written[node] = version
	delete(l.conflicts, node)
}

// conflicted counts a write that came to nothing because the node had changed,
// and says when to try again: while a node starts, several write to it.
func (l *limiter) conflicted(node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.conflicts[node]
	l.conflicts[node] = n + 1
	return min(retryConflict<<min(n, 10), writeInterval)
}

// behind says whether this version of the node is older than our last write to
// it: whatever was decided from it would be decided twice, and end in a
// conflict.
func (l *limiter) behind(node, version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	written, ok := l.written[node]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err == nil && order < 0
}

// forget drops what is remembered of a node that is gone.
func (l *limiter) forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
	delete(l.written, node)
	delete(l.conflicts, node)
}
