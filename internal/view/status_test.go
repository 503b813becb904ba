package view

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestFree: what a node has left, with one zone half used and one wholly.
func TestFree(t *testing.T) {
	n := gputest.Node(gputest.Zones(4, 2))
	gputest.Exclusive(n, 0, 4, 5)
	gputest.Slice(n, "a", 1, 30, 16<<10, gpu.BestEffort)
	want := Free{Amounts: Amounts{ComputePercent: 270, MemoryMiB: 176 << 10}, WholeCards: 2, LinkedCards: 2, LargestSlice: Amounts{100, 64 << 10}}
	gputest.Equal(t, "free", want, freeOf(n))
	gputest.Exclusive(n, 2, 3)
	want = Free{Amounts: Amounts{70, 48 << 10}, LargestSlice: Amounts{70, 48 << 10}}
	gputest.Equal(t, "free with a slice alone", want, freeOf(n))
	n.BookUnknown("default/unknown")
	gputest.Equal(t, "free with a pod whose cards are not known", Free{}, freeOf(n))
}
