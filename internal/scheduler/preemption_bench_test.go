package scheduler

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// crowd is a cluster of eight-card nodes without room: on each card are some slices
// of pods that the preemptor may evict.
type crowd struct {
	nodes, slices int // slices on a card
	// kind is what the pods are like: "equal", of several "priorities", "protected" by
	// a budget, or "impossible": on each card, one may not be evicted. Two kinds make
	// the search as hard as they can: "uneven" slices of which no two are alike, and
	// "pairs" that are on two cards each.
	kind string
}

// preemptorPriority is higher than that of most pods of a crowd.
const preemptorPriority = 100

// share returns the compute of each slice.
func (c crowd) share() int { return 100/c.slices - 1 }

// fill adds the nodes and their pods. Plain kube-scheduler has as many pods, each with
// one of as many units of an extended resource.
func (c crowd) fill(b testing.TB, side string) *benched {
	b.Helper()
	s := newUnfilled(b, side)
	cards, slices := "8", "128"
	if side == "plain" {
		cards = strconv.Itoa(8 * c.slices)
	}
	for i := range c.nodes {
		node := offering(map[corev1.ResourceName]string{
			corev1.ResourceCPU: "128", corev1.ResourceMemory: "1Ti", corev1.ResourcePods: "256", wire.ResourceGPU: cards, wire.ResourceSGPU: slices,
		})
		node.Name = fmt.Sprintf("n%04d", i)
		s.addNode(b, node, makeDevice(node.Name, 8))
		for k := range 8 * c.slices {
			pod := c.pod(i, k)
			if side == "plain" {
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
				requesting(wire.ResourceGPU, "1")(pod)
			}
			s.settle(b, pod)
		}
	}
	if c.kind == "protected" {
		gputest.Must(b, s.informers.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Add(budget("a", 0)))
	}
	return s
}

// pod returns the k-th pod of the node.
func (c crowd) pod(node, k int) *corev1.Pod {
	pod := makePod(fmt.Sprintf("r%d-%d", node, k), slice(c.share(), 4), holds(k/c.slices), priority(0), started(0))
	requests := pod.Spec.Containers[0].Resources.Limits.DeepCopy()
	switch c.kind {
	case "priorities":
		priority(int32((node + k*7) % 5))(pod)
		started((node*31 + k*17) % 97)(pod)
	case "protected":
		ofApp("a")(pod)
	case "uneven":
		first := k - k%c.slices
		slice(1+(node*7+k*11)%(2*c.share()-1), 1+(k-first+node)%3)(pod)
		holds(k / c.slices)(pod)
		started((node*31 + k*17) % 97)(pod)
		requests = pod.Spec.Containers[0].Resources.Limits.DeepCopy()
	case "pairs":
		holds(k/c.slices, (k/c.slices+1+k%c.slices)%8)(pod)
		started((node*31 + k*17) % 97)(pod)
	case "impossible":
		if k%c.slices == 0 {
			priority(preemptorPriority)(pod)
		}
	}
	pod.Spec.Containers[0].Resources.Requests = requests
	pod.Spec.NodeName = fmt.Sprintf("n%04d", node)
	return pod
}

// twice is for a pod of two containers with a slice each.
const twice = -1

// preemptor returns a pod of so many whole cards, or of a slice for 0, and on
// plain kube-scheduler one that needs as many victims.
func (c crowd) preemptor(side, name string, cards int) *corev1.Pod {
	const compute = 60
	kind, victims := whole(cards), cards*c.slices
	if cards <= 0 {
		kind, victims = slice(compute, 8), 1
		for (c.slices-victims)*c.share()+compute > 100 {
			victims++
		}
	}
	if side == "plain" {
		if c.kind == "impossible" {
			victims = 8 * c.slices
		}
		kind = asking(map[corev1.ResourceName]string{wire.ResourceGPU: strconv.Itoa(victims)})
	}
	pod := makePod(name, kind, priority(preemptorPriority))
	pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Limits.DeepCopy()
	if cards == twice && (side != "plain" || c.kind != "impossible") {
		pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
		pod.Spec.Containers[1].Name = "d"
	}
	return pod
}

// attempt schedules the pod once, which makes room for it, and forgets it again.
func (s *benched) attempt(b testing.TB, pod *corev1.Pod) {
	b.Helper()
	ctx := klog.NewContext(b.Context(), klog.Logger{})
	indexer := s.informers.Core().V1().Pods().Informer().GetIndexer()
	gputest.Must(b, indexer.Add(pod))
	s.SchedulingQueue.Add(ctx, pod)
	s.ScheduleOne(ctx)
	s.SchedulingQueue.Delete(pod)
	s.shared.pods.drop(pod.UID)
	gputest.Must(b, indexer.Delete(pod))
}

// BenchmarkPreemption is one attempt to schedule a pod for which others have to be
// evicted, with kube-scheduler's own preemption and with Daybreak's. Both evict as
// many pods. It counts CPU time, and ns/op is how long the scheduler does nothing
// else:
//
//	go test -run '^$' -bench Preemption -benchtime 10x ./internal/scheduler
func BenchmarkPreemption(b *testing.B) {
	crowds := []crowd{
		{slices: 1, kind: "equal"}, {slices: 2, kind: "equal"}, {slices: 3, kind: "equal"}, {slices: 4, kind: "equal"},
		{slices: 3, kind: "priorities"}, {slices: 3, kind: "protected"}, {slices: 3, kind: "impossible"},
		{slices: 3, kind: "pairs"}, {slices: 16, kind: "uneven"},
	}
	for _, c := range crowds {
		for _, c.nodes = range []int{100, 1000, 5000} {
			if c.nodes*c.slices > 20_000 {
				continue // too many pods for the memory of a small machine
			}
			for _, side := range []string{"plain", "daybreak"} {
				b.Run(fmt.Sprintf("nodes=%d/victims=%s/slices=%d/%s", c.nodes, c.kind, c.slices, side), func(b *testing.B) {
					s := c.fill(b, side)
					s.attempt(b, c.preemptor(side, "first", 1))
					for _, cards := range []int{0, 1, 2, 4, twice} {
						b.Run(fmt.Sprintf("cards=%d", cards), func(b *testing.B) {
							b.ResetTimer()
							before := usedCPU(b)
							for i := range b.N {
								s.attempt(b, c.preemptor(side, fmt.Sprintf("p%d", i), cards))
							}
							b.ReportMetric(float64((usedCPU(b)-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
						})
					}
				})
			}
		}
	}
}
