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

	mu      sync.Mutex
	nodes   map[string]*rate.Limiter
	written map[string]string // resource versions
}

func newLimiter(clk clock.PassiveClock) *limiter {
	return &limiter{clock: clk, nodes: map[string]*rate.Limiter{}, written: map[string]string{}}
}

// wait says how long to wait before the node may be written; zero means now,
// and then a write is counted.
func (l *limiter) wait(node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, ok := l.nodes[node]
	if !ok {
		bucket = rate.NewLimiter(rate.Every(writeInterval), writeBurst)
		l.nodes[node] = bucket
	}
	now := l.clock.Now()
	reservation := bucket.ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if delay > 0 {
		reservation.CancelAt(now)
	}
	return delay
}

// wrote takes down the version that a write of ours has led to.
func (l *limiter) wrote(node, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[node] = version
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
}
