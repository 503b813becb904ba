package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestLegalStates: what the core itself books and writes down breaks no rule,
// whatever comes and goes. A thousand clusters are filled by arrivals and
// departures at random; the audit then reads them independently.
func TestLegalStates(t *testing.T) {
	placed, counts := 0, map[string]int{}
	for seed := range uint64(1000) {
		w := randomWorld(t, gputest.Rand(seed))
		report := w.audit()
		if len(report.Violations) > 0 {
			t.Fatalf("seed %d: %+v", seed, report.Violations)
		}
		if n := len(w.Pods); report.Pods != n {
			t.Fatalf("seed %d: %d pods hold cards, audit counts %d", seed, n, report.Pods)
		}
		placed += len(w.Pods)
		for _, pod := range w.Pods {
			for key := range pod.Annotations {
				counts[key]++
			}
			if d := w.Devices[pod.Spec.NodeName].Device; d != nil {
				counts[d.Annotations[wire.AnnotationMode]]++
			}
		}
	}
	// A test that places nothing of a kind says nothing of that kind.
	for _, key := range []string{
		wire.AnnotationAllocated, wire.AnnotationHAMiSGPU, wire.AnnotationHAMiGPU, wire.AnnotationKoordAllocated,
		wire.AnnotationQoS, wire.AnnotationClass, string(gpu.ModeShared), string(gpu.ModeVGPU), string(gpu.ModeNative),
	} {
		if counts[key] < 50 {
			t.Errorf("only %d pods have to do with %s", counts[key], key)
		}
	}
	t.Logf("%d pods in 1000 states", placed)
}

// randomWorld fills a few nodes.
func randomWorld(t *testing.T, r *rand.Rand) *world {
	t.Helper()
	w := newWorld()
	for i := range 1 + r.IntN(3) {
		plan := gputest.Random(r, 1+r.IntN(8))
		for c := range plan.Cards {
			plan.Cards[c].Healthy = r.IntN(10) > 0
			plan.Cards[c].Memory = []gpu.MiB{64 << 10, 32 << 10, 65408}[r.IntN(3)]
		}
		modes := []gpu.Mode{gpu.ModeSGPU, gpu.ModeSGPU, gpu.ModeSGPU, gpu.ModeNative, gpu.ModeShared, gpu.ModeVGPU}
		w.node(t, fmt.Sprintf("n%d", i), plan, modes[r.IntN(len(modes))])
	}
	if r.IntN(3) == 0 {
		w.Nodes = append(w.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "counted"}, Status: corev1.NodeStatus{Capacity: gputest.MakeResources("gpu: 4")},
		})
	}
	nodes := w.Snapshot().Nodes
	now := noon
	for i := range 10 + r.IntN(60) {
		if r.IntN(5) == 0 && len(w.Pods) > 0 {
			k := r.IntN(len(w.Pods))
			for _, n := range nodes {
				n.Release(allocation.HolderOf(w.Pods[k]))
			}
			w.Pods = append(w.Pods[:k], w.Pods[k+1:]...)
			continue
		}
		pod := randomPod(r, fmt.Sprintf("p%d", i))
		ask, problems := request.Read(pod)
		if len(problems) > 0 {
			t.Fatalf("pod %v is not admitted: %v", pod.Spec, problems)
		}
		var offer ledger.Offer
		k := slices.IndexFunc(nodes, func(n *ledger.Node) bool {
			var refusal place.Refusal
			offer, refusal = place.Fit(n, &ask.Request, &ask.Prefer)
			return refusal.Code == place.Fits
		})
		if k < 0 {
			continue
		}
		holding, err := nodes[k].Commit(offer, allocation.HolderOf(pod), &ask.Request)
		gputest.Must(t, err)
		now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		annotations, err := allocation.Annotations(nodes[k], ask, &holding, now)
		gputest.Must(t, err)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, annotations)
		pod.Spec.NodeName = nodes[k].Name
		w.Pods = append(w.Pods, pod)
	}
	return w
}

// randomPod asks for something sensible in either dialect, in up to three
// containers of any phase.
func randomPod(r *rand.Rand, name string) *corev1.Pod {
	b := gputest.MakePod(name)
	class := []string{"", "", "", "online", "offline"}[r.IntN(5)]
	if class != "" {
		b.Annotate(wire.AnnotationClass, class)
	}
	if r.IntN(2) == 0 && class != "online" {
		b.Annotate(wire.AnnotationQoS, string(gpu.QoSClasses()[r.IntN(3)]))
	}
	if r.IntN(3) == 0 {
		b.Annotate(wire.AnnotationCardPolicy, []string{"spread", "binpack", "mutex", "numa"}[r.IntN(4)])
	}
	limits := func() string {
		core, mib := 1+r.IntN(1+r.IntN(99)), 1+r.IntN(1+r.IntN(20000))
		kinds := []string{
			fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %dMi", core, mib),
			fmt.Sprintf("sgpu: 1, vcore: 0, vmemory: %dMi", mib),
			fmt.Sprintf("gpu.shared: 1, gpu-core: %d, gpu-memory: %dMi", core, mib),
			fmt.Sprintf("gpu-core: %d, gpu-memory-ratio: %d", core, 1+r.IntN(99)),
			fmt.Sprintf("sgpu: 1, vmemory: %dMi", mib),
			fmt.Sprintf("sgpu: %d, vcore: %d, vmemory: %dMi", 1+r.IntN(3), core, mib),
			fmt.Sprintf("gpu: %d", 1+r.IntN(4)),
			fmt.Sprintf("koordinator.sh/gpu: %d", 100*(1+r.IntN(3))),
		}
		if class != "" {
			kinds = kinds[:4]
		}
		return kinds[r.IntN(len(kinds))]
	}
	b.App(limits())
	for range max(0, r.IntN(6)-3) {
		switch r.IntN(5) {
		case 0:
			b.Init(limits())
		case 1:
			b.Sidecar(limits())
		case 2:
			b.App("cpu: 1")
		default:
			b.App(limits())
		}
	}
	return b.Obj()
}

// TestOrder: the same cluster gives the same report, in whatever order it was
// read.
func TestOrder(t *testing.T) {
	w := plantedWorld(t)
	for i := range 20 {
		w.slice("n1", fmt.Sprintf("a%d", i), i%4, 40, 20, wire.AnnotationQoS, string(gpu.QoSClasses()[i%3]))
		w.pod("n2", fmt.Sprintf("b%d", i), "gpu: 1", "")
	}
	render := func() string {
		var b strings.Builder
		for _, f := range w.audit().Violations {
			fmt.Fprintln(&b, f.Key(), f.Message)
		}
		return b.String()
	}
	want := render()
	r := gputest.Rand(1)
	for range 20 {
		r.Shuffle(len(w.Pods), func(i, j int) { w.Pods[i], w.Pods[j] = w.Pods[j], w.Pods[i] })
		r.Shuffle(len(w.Nodes), func(i, j int) { w.Nodes[i], w.Nodes[j] = w.Nodes[j], w.Nodes[i] })
		if got := render(); got != want {
			t.Fatalf("another order, another report:\n%s\nbut before:\n%s", got, want)
		}
	}
}
