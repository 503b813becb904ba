package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/simulate"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestParity: what `daybreak simulate` does with a trace is what the scheduler
// does. The same pods come to the same nodes, one by one, in both; each must get
// the same node and the same cards, or be refused in both. There are fewer than
// a hundred nodes, so kube-scheduler scores all of them, as with
// percentageOfNodesToScore: 100.
func TestParity(t *testing.T) {
	t.Parallel()
	trace := parityTrace(gpuRand(7))
	simulated, err := simulate.Place(t.Context(), trace, "daybreak", simulate.Options{OneQoS: true, Ties: simulate.TiesIndex})
	gputest.Must(t, err)
	want, refused := map[string]string{}, 0
	for i, p := range simulated {
		name := trace.Pods[i].Name
		want[name] = "refused"
		if p.Placed {
			want[name] = fmt.Sprint(p.Node, p.Cards.Indices())
		} else {
			refused++
		}
	}
	if refused < 5 || refused > len(want)/3 {
		t.Fatalf("%d of %d pods are refused: the trace should fill the cluster, and a little more", refused, len(want))
	}

	w := newWorld(t)
	for i := range trace.Nodes {
		w.addTraceNode(&trace.Nodes[i])
	}
	w.Scheduler("scheduler")
	for i := range trace.Pods {
		w.Create(tracePod(&trace.Pods[i]))
		w.decided(trace.Pods[i].Name)
	}
	gputest.Equal(t, "placements of simulate and of the scheduler", want, w.placements())
	w.Audit()
}

func gpuRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// parityTrace makes up nodes of several shapes and pods of many kinds that ask
// for a little more than there is.
func parityTrace(r *rand.Rand) *simulate.Trace {
	shapes := []simulate.Node{
		{CPU: 128_000, Cards: 8, Model: "C500", Zones: []int{4, 4}},
		{CPU: 64_000, Cards: 8, Model: "C500", Zones: []int{8}},
		{CPU: 96_000, Cards: 8, Model: "C500"},
		{CPU: 32_000, Cards: 4, Model: "C500", Zones: []int{2, 2}},
		{CPU: 48_000, Cards: 2, Model: "N260"},
		{CPU: 128_000, Cards: 8, Model: "C550", Zones: []int{4, 4}},
	}
	t := &simulate.Trace{}
	capacity := int64(0)
	for i := range 36 {
		n := shapes[i%len(shapes)]
		n.Name = fmt.Sprintf("node-%02d", i)
		n.Memory = 1 << 20
		t.Nodes = append(t.Nodes, n)
		capacity += int64(n.Cards) * 1000
	}
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	for demand := int64(0); demand < capacity*112/100; {
		p := simulate.Pod{
			Name: fmt.Sprintf("pod-%03d", len(t.Pods)), CPU: int64(pick(0, 500, 2000, 4000, 8000, 12_000)), Cards: 1,
			Milli: pick(50, 160, 230, 320, 470, 470, 650, 810, 810), QoS: gpu.QoSClasses()[r.IntN(3)],
		}
		if r.IntN(100) < 30 {
			p.Cards, p.Milli = pick(1, 1, 1, 1, 2, 2, 4, 8), 1000
			p.CPU *= int64(p.Cards)
		}
		if r.IntN(100) < 15 {
			p.Models = []string{[]string{"C550", "N260"}[r.IntN(2)]}
		}
		demand += p.Demand()
		t.Pods = append(t.Pods, p)
	}
	return t
}

// addTraceNode adds a node of the trace to the cluster.
func (w *world) addTraceNode(n *simulate.Node) {
	w.Helper()
	profile := &discover.Profile{Model: n.Model, MemoryMiB: 65536, Cards: n.Cards, Mode: gpu.ModeSGPU, Driver: "3.8.30"}
	first := 0
	for _, size := range n.Zones {
		var zone []int
		for c := range size {
			zone = append(zone, first+c)
		}
		profile.Zones = append(profile.Zones, zone)
		first += size
	}
	topology, err := profile.Topology(n.Name)
	w.Must(err)
	node := local.AdvertisedNode(profile, n.Name, topology)
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(n.CPU, resource.DecimalSI)
	}
	w.Must(w.Simulator.AddNode(w.Ctx, n.Name, profile))
	w.Must(w.Simulator.AdoptNode(w.Ctx, node))
}

// tracePod writes a pod of the trace as a user would.
func tracePod(p *simulate.Pod) *corev1.Pod {
	percent := gpu.Percent(p.Milli / 10)
	var out *corev1.Pod
	if percent == gpu.FullCompute {
		out = pod(p.Name, fmt.Sprintf("gpu=%d", p.Cards))
	} else {
		memory := gpu.Memory{Ratio: percent}.Of(64 << 10)
		out = annotated(pod(p.Name, "sgpu=1", fmt.Sprintf("vcore=%d", percent), fmt.Sprintf("vmemory=%dMi", memory)), wire.AnnotationQoS, string(p.QoS))
	}
	resources := &out.Spec.Containers[0].Resources
	resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(p.CPU, resource.DecimalSI)}
	maps.Copy(resources.Requests, resources.Limits)
	if len(p.Models) > 0 {
		out.Spec.NodeSelector = map[string]string{wire.LabelModel: strings.Join(p.Models, "")}
	}
	return out
}

// decided waits until the scheduler has bound or refused the pod.
func (w *world) decided(name string) {
	w.Helper()
	w.Eventually("decision on pod "+name, 2*time.Minute, func() error {
		p := w.Pod(name)
		refused := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
		if p.Spec.NodeName == "" && !refused {
			return fmt.Errorf("%v", p.Status.Conditions)
		}
		return nil
	})
}

// placements returns the node and the cards of each pod.
func (w *world) placements() map[string]string {
	w.Helper()
	objects, out := w.Objects(), map[string]string{}
	for _, p := range objects.Pods {
		if wire.Asks(p) {
			out[p.Name] = "refused"
		}
	}
	for _, n := range objects.Snapshot().Nodes {
		for i := range n.Holdings() {
			h := &n.Holdings()[i]
			_, name, _ := strings.Cut(string(h.Holder), "/")
			out[name] = fmt.Sprint(n.Name, h.Cards().Indices())
		}
	}
	return out
}
