//go:build !race

package request_test

import (
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: what is read of a pod costs less than decoding it, and of a pod without
// cards a cache keeps next to nothing, whatever a tenant writes into it.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	for _, pod := range hostile.Pods() {
		cases["read/"+pod.Name] = cost.Case{Size: pod.Stored(), Bounds: cost.Bounds{MiB: 48, Allocs: 400_000, Times: 3}, Make: func(_ testing.TB, size int) cost.Work {
			object := pod.Make(size)
			return cost.Work{Object: object, Do: func() int {
				_, _ = request.Read(object)
				request.CheckKeys(object)
				return 0
			}}
		}}
		// The answer is what is kept: of a pod with cards, what admission bounds.
		most := 64 << 10
		if !slices.Contains([]string{"annotation", "environment", "gates", "labels", "preferred-nodes", "preferred-pods"}, pod.Name) {
			most = 1600 << 10
		}
		cases["keep/"+pod.Name] = keeps(&pod, pod.Make, most)
		cases["keep-without-cards/"+pod.Name] = keeps(&pod, pod.MakeWithoutCards, 64<<10)
	}
	return cases
}

func keeps(pod *hostile.Pod, build func(int) *corev1.Pod, most int) cost.Case {
	return cost.Case{Size: pod.Stored(), Bounds: cost.Bounds{MiB: 12, Allocs: 50_000, Answer: most}, Make: func(tb testing.TB, size int) cost.Work {
		object := build(size)
		return cost.Work{Object: object, Do: func() int {
			_, err := request.Trim(object)
			gputest.Must(tb, err)
			return object.Size()
		}}
	}}
}

// TestTrimmedHeap: what is kept of a pod in memory is bounded too, not only its size
// when it is written. Pods with more than admission lets through are left out.
func TestTrimmedHeap(t *testing.T) {
	const pods = 3
	for _, pod := range hostile.Pods() {
		if _, problems := request.ReadPending(pod.Make(pod.Stored())); len(problems) > 0 {
			continue
		}
		for name, build := range map[string]func(int) *corev1.Pod{"with cards": pod.Make, "without": pod.MakeWithoutCards} {
			t.Run(pod.Name+" "+name, func(t *testing.T) {
				kept := make([]*corev1.Pod, pods)
				before := heap()
				for i := range kept {
					kept[i] = build(pod.Stored())
					if _, err := request.Trim(kept[i]); err != nil {
						t.Fatal(err)
					}
				}
				each := int(heap()-before) / pods
				most := 64 << 10
				if name == "with cards" {
					most = 300 << 10 // the longest annotation that has a meaning
				}
				if each > most {
					t.Errorf("%d bytes in memory of a pod, want at most %d", each, most)
				}
				runtime.KeepAlive(kept)
			})
		}
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
