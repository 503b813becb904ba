package gpu_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestMemosAreSharedByTopologiesJoinedAlike: whatever the cards are called, and
// by no others.
func TestMemosAreSharedByTopologiesJoinedAlike(t *testing.T) {
	var memos gpu.Memos
	shared := func(topology *gpu.Topology) *gpu.Memo {
		memos.Share(topology)
		return topology.Memo
	}
	renamed := gputest.Cards(8)
	for i := range renamed {
		renamed[i].ID = gpu.CardID("other-" + strconv.Itoa(i))
		renamed[i].Healthy = i > 0
	}
	zones := []int{1, 1, 1, 1, 2, 2, 2, 2}
	first := shared(gputest.Zones(4, 4))
	if shared(gputest.MustTopology(renamed, gpu.ZoneLinks(zones))) != first {
		t.Error("two nodes that are joined alike have a memo each")
	}
	switched := gputest.Cards(8)
	for i := range switched {
		switched[i].Switch = "s"
	}
	others := map[string]*gpu.Topology{
		"one zone":    gputest.Zones(8),
		"rings":       gputest.Rings(4, 4),
		"fewer cards": gputest.Zones(4, 3),
		"one switch":  gputest.MustTopology(switched, gpu.ZoneLinks(zones)),
	}
	for name, other := range others {
		if shared(other) == first {
			t.Errorf("%s shares the memo of two zones of four", name)
		}
	}
	memos.Share(nil)
}

// TestMemosAreBounded: a cluster in which no two nodes are alike does not fill
// the memory of who shares.
func TestMemosAreBounded(t *testing.T) {
	var memos gpu.Memos
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for seed := range uint64(2000) {
				topology := gputest.Random(gputest.Rand(seed*4+uint64(worker)), 12).Topology()
				memos.Share(topology)
				topology.Memo.Put([4]uint64{seed}, gpu.MemoAnswer{Cards: gpu.SetOf(1), Complete: true})
				if _, ok := topology.Memo.Get([4]uint64{seed}); !ok {
					t.Error("what was put is not there")
				}
			}
		})
	}
	wait.Wait()
	if n := gpu.MemosKinds(&memos); n > 1024 {
		t.Errorf("%d kinds are remembered, want 1024 at most", n)
	}
}
