//go:build !race

package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/cost"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// TestCost: no pod that a tenant can create makes the commands and the dashboard
// take more than some megabytes, or print more than a screen full.
func TestCost(t *testing.T) { cost.Check(t, costs()) }

// BenchmarkCost prints what they cost.
func BenchmarkCost(b *testing.B) { cost.Bench(b, costs()) }

func costs() map[string]cost.Case {
	cases := map[string]cost.Case{}
	bounds := cost.Bounds{MiB: 128, Allocs: 500_000, Answer: 64 << 10, Times: 5}
	// A pod that runs may hold something in each of its containers.
	long := bounds
	long.Answer = hostile.LargestStored
	for _, pod := range hostile.Pods() {
		add := func(name string, bounds cost.Bounds, build func(size int) *corev1.Pod, look func(s *cluster.Snapshot, pod *corev1.Pod) any) {
			cases[name+"/"+pod.Name] = cost.Case{Size: pod.Stored(), Bounds: bounds, Make: func(tb testing.TB, size int) cost.Work {
				object := build(size)
				_, err := request.Trim(object)
				gputest.Must(tb, err)
				objects := servers(tb)
				objects.Pods = append(objects.Pods, object)
				return cost.Work{Object: build(size), Do: func() int {
					text, err := json.Marshal(look(objects.Snapshot(), object))
					gputest.Must(tb, err)
					return len(text)
				}}
			}}
		}
		bound := func(size int) *corev1.Pod { return pod.Bound(size, "n0", "GPU-n0-0") }
		explain := func(s *cluster.Snapshot, pod *corev1.Pod) any { return Explain(s, pod, place.Default) }
		status := func(s *cluster.Snapshot, _ *corev1.Pod) any { return []any{NewStatus(s, ""), NewNamespaces(s, "")} }
		add("explain", bounds, pod.Make, explain)
		add("explain-bound", long, bound, explain)
		page := func(s *cluster.Snapshot, _ *corev1.Pod) any { // what the dashboard makes of each change
			st := NewStatus(s, "")
			st.ForPage(s)
			return []any{st, audit.Check(s, noon())}
		}
		add("page", bounds, pod.Make, page)
		add("page-bound", long, bound, page)
		add("status", bounds, pod.Make, status)
		add("status-bound", long, bound, status)
		add("place", bounds, pod.Make, func(s *cluster.Snapshot, _ *corev1.Pod) any {
			placements, err := Place(s, PlaceOptions{Now: noon})
			if err != nil {
				return err.Error()
			}
			return placements
		})
	}
	return cases
}

// servers returns servers with cards.
func servers(tb testing.TB) *cluster.Objects {
	tb.Helper()
	var docs []string
	for i := range 8 {
		docs = append(docs, device(fmt.Sprintf("n%d", i), 8, "64Gi"))
	}
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(docs...)))
	gputest.Must(tb, err)
	return objects
}
