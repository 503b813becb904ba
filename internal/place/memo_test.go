package place_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestSharedMemosChangeNoAnswer: nodes that share what they remember choose the
// cards that a node of its own would, also when many ask at a time.
func TestSharedMemosChangeNoAnswer(t *testing.T) {
	var memos gpu.Memos
	var wait sync.WaitGroup
	for worker := range uint64(4) {
		wait.Go(func() {
			for seed := range uint64(400) {
				// Eight kinds of node, in states of their own.
				kind, r := seed%8, gputest.Rand(1000*worker+seed)
				build := func() *gpu.Topology { return gputest.Random(gputest.Rand(kind), 8+int(kind)).Topology() }
				busy := gputest.Subset(r, 8, 30).Indices()
				shares := build()
				memos.Share(shares)
				ask := gputest.AskWhole(1 + r.IntN(6))
				prefer := place.Preference{Node: place.Policy(r.IntN(3))}
				want, wantRefusal := place.Fit(node(build(), alone(busy...)), ask, &prefer)
				got, refusal := place.Fit(node(shares, alone(busy...)), ask, &prefer)
				if refusal.Code != wantRefusal.Code || got.Cards(0) != want.Cards(0) {
					t.Errorf("cards %v (%v), want %v (%v)", got.Cards(0).Indices(), refusal.Code, want.Cards(0).Indices(), wantRefusal.Code)
				}
			}
		})
	}
	wait.Wait()
}

// TestEqualNodesRememberOnce: the memory of searches does not grow with the
// number of equal nodes.
func TestEqualNodesRememberOnce(t *testing.T) {
	const nodes, states = 200, 100
	own, shared := remembered(nodes, states, false)/nodes, remembered(nodes, states, true)/nodes
	t.Logf("%d bytes a node by itself, %d shared", own, shared)
	if shared > own/10 {
		t.Errorf("%d bytes a node, want a tenth of the %d of nodes that share nothing at most", shared, own)
	}
}

// remembered returns by how many bytes equal nodes grow when they are asked.
func remembered(nodes, states int, share bool) int64 {
	var memos gpu.Memos
	all := make([]*ledger.Node, nodes)
	for i := range all {
		topology := gputest.Zones(8, 8)
		if share {
			memos.Share(topology)
		}
		all[i] = ledger.NewNode(fmt.Sprintf("n%d", i), topology, ledger.Serves{Whole: true, Slices: true})
	}
	before := heap()
	for i, n := range all {
		r := gputest.Rand(uint64(i % 10)) // nodes come through the same states
		for range states {
			busy := gputest.Subset(r, 16, 25)
			ask := gputest.AskWhole(1 + r.IntN(4))
			for c := range busy.All() {
				ask.Deny = append(ask.Deny, n.Topology().Card(c).ID)
			}
			place.Fit(n, ask, &place.Preference{Node: place.Spread})
		}
	}
	after := heap()
	runtime.KeepAlive(all)
	return int64(after) - int64(before)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
