package place

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// BenchmarkSearch measures the exact search itself, without what a node
// remembers of earlier searches, on cards of which no two are alike.
func BenchmarkSearch(b *testing.B) {
	for _, size := range []struct{ n, of int }{{4, 8}, {4, 16}, {8, 16}, {8, 24}} {
		b.Run(fmt.Sprintf("%d of %d", size.n, size.of), func(b *testing.B) {
			t := gputest.Unlike(size.of)
			q := subsets{topology: t, candidates: t.All(), free: t.All(), n: size.n}
			b.ReportAllocs()
			for b.Loop() {
				q.search()
			}
		})
	}
}
