package place_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// BenchmarkDecision measures decisions on a board of the shapes of node that a large
// mixed cluster has: a pod comes, and the best node takes it. The bound that the design
// sets is 1 ms at 50 000 nodes, for a kind of pod that the board knows.
func BenchmarkDecision(b *testing.B) {
	for _, times := range []int{1, 4, 41} {
		for _, used := range []int{0, 50, 90} {
			b.Run(fmt.Sprintf("nodes=%d/used=%d%%", 1213*times, used), func(b *testing.B) {
				r := gputest.Rand(1)
				nodes, demand := largeCluster(r, times, used)
				board, p := boardOf(nodes), place.Preference{Demand: demand}
				for range 2000 {
					board.Ranking(usualPod(r), &p)
				}
				var took []time.Duration
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					pod := usualPod(r)
					start := time.Now()
					for id := range board.Ranking(pod, &p).Best() {
						n, holder := board.Node(id), ledger.Holder(fmt.Sprint("pod-", i))
						offer, _ := place.Fit(n, pod, &p)
						n.Book(n.Holding(&offer, holder, pod))
						board.Set(n)
						took = append(took, time.Since(start))
						n.Release(holder)
						board.Set(n)
						break
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// largeCluster returns nodes with so many percent of their cards in use, and
// what is expected of the pods to come.
func largeCluster(r *rand.Rand, times, percent int) ([]*ledger.Node, *place.Demand) {
	var nodes []*ledger.Node
	total := 0
	for _, s := range []struct {
		count, cards int
		cpu          gpu.MilliCPU
	}{{617, 8, 96_000}, {54, 4, 48_000}, {518, 2, 64_000}, {24, 1, 16_000}} {
		for range times * s.count {
			zones := []int{min(4, s.cards)}
			if s.cards == 8 {
				zones = []int{4, 4}
			}
			n := ledger.NewNode(fmt.Sprintf("node-%05d", len(nodes)), gputest.Zones(zones...), ledger.Serves{Whole: true, Slices: true})
			n.FreeCPU, n.CPUKnown = s.cpu, true
			nodes = append(nodes, n)
			total += s.cards
		}
	}
	c := place.NewCensus()
	for range 4000 {
		c.Add(place.KindsOf(usualPod(r)), 1)
	}
	for i, left := 0, total*percent; left > 0; i++ {
		pod, n := usualPod(r), nodes[r.IntN(len(nodes))]
		if offer, refusal := place.Fit(n, pod, &place.Preference{}); refusal.Code == place.Fits && n.FreeCPU >= pod.CPU {
			n.Book(n.Holding(&offer, ledger.Holder(strconv.Itoa(i)), pod))
			n.FreeCPU -= pod.CPU
			left -= pod.Requests[0].Cards * int(pod.Requests[0].Compute)
		}
		if i > 100*total {
			break // what is left is of no use
		}
	}
	return nodes, c.Demand()
}

// usualPod draws a pod from a mix of about eighty classes.
func usualPod(r *rand.Rand) *gpu.PodRequest {
	cpu := []gpu.MilliCPU{2000, 4000, 8000, 12_000}[r.IntN(4)]
	if r.IntN(100) < 55 {
		cards := 1
		if r.IntN(20) == 0 {
			cards = []int{2, 4, 8}[r.IntN(3)]
		}
		return takes(cpu*gpu.MilliCPU(cards), gputest.AskWhole(cards))
	}
	size := []gpu.Percent{5, 11, 16, 22, 32, 37, 47, 47, 55, 65, 81, 81}[r.IntN(12)]
	qos := gpu.BestEffort
	if r.IntN(4) == 0 {
		qos = gpu.FixedShare
	}
	return with(qos, takes(cpu, part(size)))
}
