//go:build !race

package inventory

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: no Node, Device or ConfigMap makes a node's inventory cost more than a few
// times what decoding the object does.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	bounds := cost.Bounds{MiB: 32, Allocs: 400_000, Answer: 4096, Times: 10}
	annotated := func(name, key, begin, repeated, end string) {
		cases["annotation/"+name] = cost.Case{Size: hostile.LargestAnnotations, Bounds: bounds, Make: func(_ testing.TB, size int) cost.Work {
			value := begin + strings.Repeat(repeated, size/len(repeated)) + end
			node, device := gputest.MakeNode("gpu: 8", key, value), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(64)...), key, value)
			return cost.Work{Object: node, Do: func() int {
				answered := 0
				for _, inv := range []*Inventory{ReadInventory(node, nil), ReadInventory(node, device)} {
					if inv.Problem != nil {
						answered += len(inv.Problem.Error())
					}
					answered += len(strings.Join(inv.Notes, ""))
				}
				return answered
			}}
		}}
	}
	annotated("note", "note", "", "x", "")
	annotated("inventory", wire.AnnotationNodeCards, "[", `{"uuid":"GPU-0"},`, `{"uuid":"GPU-1"}]`)
	annotated("scores", wire.AnnotationScores, "{", `"1":[1],`, `"2":[2]}`)
	annotated("links", wire.AnnotationLinks, `{"cards":[`, `"GPU-0",`, `"GPU-1"],"links":[]}`)
	annotated("plugin-allocations", wire.AnnotationPluginAllocations, "[", `{"uid":"u","containers":{"c":[]}},`, `{"uid":"v","containers":{"c":[]}}]`)
	annotated("foreign-slices", wire.AnnotationForeignSlices, "[", `{"card":"GPU-0","slices":1},`, `{"card":"GPU-1","slices":1}]`)
	annotated("brackets", wire.AnnotationNodeCards, "", "[", "")
	for name, entry := range map[string]string{"nodes": "- {nodeName: n, mode: native}\n", "mapping": "a: b\n", "brackets": "[", "anchors": "- &a x\n- *a\n"} {
		// Administrators write it, and YAML takes a hundred times its bytes.
		yaml := cost.Bounds{MiB: 192, Allocs: 3_000_000, Answer: 4096}
		cases["modes/"+name] = cost.Case{Size: 1 << 20, Bounds: yaml, Make: func(_ testing.TB, size int) cost.Work {
			m := &corev1.ConfigMap{Data: map[string]string{"nodes-config": strings.Repeat(entry, size/len(entry))}}
			return cost.Work{Object: m, Do: func() int {
				_, err := DecodeModes(m.Data)
				if err == nil {
					return 0
				}
				return len(err.Error())
			}}
		}}
	}
	return cases
}
