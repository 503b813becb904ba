package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// figures counts faults by kind, with how long it took each time until what was
// harmed worked again.
type figures struct {
	mu     sync.Mutex
	byKind map[string][]time.Duration
}

func newFigures() *figures { return &figures{byKind: map[string][]time.Duration{}} }

func (f *figures) add(kind string, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byKind[kind] = append(f.byKind[kind], took)
}

func (f *figures) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, list := range f.byKind {
		n += len(list)
	}
	return n
}

// percentile returns the smallest value that p percent of the list, which is
// sorted, do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// String is a table, one kind a line.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %6s %8s %8s %8s\n", "fault", "count", "p50", "p99", "max")
	for _, kind := range slices.Sorted(maps.Keys(f.byKind)) {
		list := slices.Sorted(slices.Values(f.byKind[kind]))
		fmt.Fprintf(&b, "%-34s %6d", kind, len(list))
		for _, d := range []time.Duration{percentile(list, 50), percentile(list, 99), list[len(list)-1]} {
			fmt.Fprintf(&b, " %7.2fs", d.Seconds())
		}
		b.WriteString("\n")
	}
	return b.String()
}
