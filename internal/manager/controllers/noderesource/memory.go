package noderesource

import (
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// A card whose health goes back and forth must not become a stream of writes:
// every scheduler and every kubelet watches nodes. A node is written a few
// times at once and then once in a while; what it advertises in between is late
// by at most that, and the scheduler goes by the Device anyway.
const (
	writeBurst    = 4
	writeInterval = 10 * time.Second
)

// memory is what is remembered of a node between two reconciles, which never
// run at the same time.
type memory struct {
	writes *rate.Limiter
	// written is the resource version after the last write.
	written string
	// problem is the one that was last reported.
	problem string
	// advertised distinguishes a kubelet that reset the node from cards that became
	// healthy.
	advertised corev1.ResourceList
}

// delay returns how long to wait before the node may be written.
func (m *memory) delay(now time.Time) time.Duration {
	reservation := m.writes.ReserveN(now, 1)
	defer reservation.CancelAt(now) // only writes count
	return reservation.DelayFrom(now)
}

// wrote records a write and the version that it has led to.
func (m *memory) wrote(now time.Time, version string) {
	m.writes.AllowN(now, 1)
	m.written = version
}

// isStale reports whether this version of the node is older than the last write
// to it: a decision about it would be made twice, and end in a conflict.
func (m *memory) isStale(version string) bool {
	if m.written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, m.written)
	return err == nil && order < 0
}

// remembered returns the memory of the node.
func (r *reconciler) remembered(node string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.nodes[node]
	if !ok {
		m = &memory{writes: rate.NewLimiter(rate.Every(writeInterval), writeBurst)}
		r.nodes[node] = m
	}
	return m
}

// forget drops the memory of a node that is gone.
func (r *reconciler) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, node)
	r.metrics.decided(node, decision{verdict: ignore})
}
