//go:build !race

package allocation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: no running pod makes the account of its node, which the scheduler, the agent
// and the manager keep, more expensive than decoding the pod does.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	bounds := cost.Bounds{MiB: 64, Allocs: 200_000, Answer: 4096, Times: 3}
	add := func(name string, size int, build func(size int) *corev1.Pod) {
		cases[name] = cost.Case{Size: size, Bounds: bounds, Make: func(_ testing.TB, size int) cost.Work {
			pod := build(size)
			inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfos(8)...))
			return cost.Work{Object: pod, Do: func() int {
				n, notes := NewNode(inv, []*corev1.Pod{pod})
				if _, err := ClaimOf(n, pod, "main"); err != nil {
					notes = append(notes, err.Error())
				}
				return len(strings.Join(notes, ""))
			}}
		}}
	}
	for _, pod := range hostile.Pods() {
		add("pod/"+pod.Name, pod.Stored(), func(size int) *corev1.Pod { return pod.Bound(size, "n1", "GPU-0") })
	}
	for name, text := range map[string]struct{ begin, repeated, end string }{
		"containers": {"[", "[],", "[]]"},
		"shares":     {"[[", `{"uuid":"GPU-0","compute":1,"vRam":128},`, `{"uuid":"GPU-0","compute":1,"vRam":128}]]`},
		"brackets":   {"", "[", ""},
		"numbers":    {`[[{"uuid":"GPU-0","compute":`, "9", "}]]"},
		"devices":    {`{"gpu":[`, `{"minor":0},`, `{"minor":0}]}`},
	} {
		add("allocation/"+name, hostile.LargestAnnotations, func(size int) *corev1.Pod {
			pod := gputest.MakePod("p").App("sgpu: 1").On("n1").Obj()
			pod.Annotations = map[string]string{}
			for _, key := range []string{wire.AnnotationAllocated, wire.AnnotationHAMiSGPU, wire.AnnotationHAMiGPU, wire.AnnotationKoordAllocated} {
				pod.Annotations[key] = text.begin + strings.Repeat(text.repeated, size/4/len(text.repeated)) + text.end
			}
			return pod
		})
	}
	return cases
}
