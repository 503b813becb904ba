package deviceplugin

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// running makes a pod one that runs.
func running(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }

// has makes kubelet say that someone else gave the pod these ids.
func (s *scene) has(pod *corev1.Pod, resourceName string, ids ...string) {
	s.kubelet.change(func() { s.kubelet.held = append(s.kubelet.held, podWith(pod.Name, resourceName, ids...)) })
}

// TestGiven: pods of a cluster that had the vendor's plugin only carry nothing
// that shows their cards. kubelet's ids do.
func TestGiven(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	limits := func(name corev1.ResourceName) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse("1")}
	}
	silent := func(p *corev1.Pod) { p.Annotations, p.Status.Phase = nil, corev1.PodRunning }
	whole := s.pod("whole", limits(wire.ResourceGPU), "", silent)
	seat := s.pod("seat", limits(wire.ResourceGPU), "", silent)
	sliced := s.pod("sliced", limits(wire.ResourceSGPU), "", silent)
	elsewhere := s.pod("elsewhere", limits(wire.ResourceGPU), `[[{"uuid":"GPU-a","compute":100,"vRam":65536}]]`, running)
	agrees := s.pod("agrees", limits(wire.ResourceGPU), `[[{"uuid":"GPU-a","compute":100,"vRam":65536}]]`, running)
	sliceElsewhere := s.slicePod("slice-elsewhere", "GPU-a", 10, 4, running)
	unknown := s.pod("unknown", limits(wire.ResourceGPU), "", silent)
	// The ids may be of a pod with the same name before it.
	waits := s.pod("waits", limits(wire.ResourceGPU), "", silent, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	const gpuName, sgpuName = "metax-tech.com/gpu", "metax-tech.com/sgpu"
	s.has(whole, gpuName, "GPU-a")
	s.has(seat, gpuName, "GPU-b::3")
	s.has(sliced, sgpuName, "GPU-b-12:2")
	s.has(elsewhere, gpuName, "GPU-b")
	s.has(agrees, gpuName, "GPU-a")
	s.has(sliceElsewhere, sgpuName, "GPU-b-1:1") // slices are where the annotation says
	s.has(unknown, gpuName, "GPU-zzz")
	s.has(waits, gpuName, "GPU-b")
	given := func(cards ...gpu.CardID) inventory.PluginAllocation {
		return inventory.PluginAllocation{Cards: map[string][]gpu.CardID{"main": cards}}
	}
	want := map[types.UID]inventory.PluginAllocation{
		whole.UID: given("GPU-a"), seat.UID: given("GPU-b"), sliced.UID: given("GPU-b"), elsewhere.UID: given("GPU-b"),
		unknown.UID: given(), // it has cards, and nothing shows which
	}
	s.eventually("what was given is known", func() bool { return len(s.server.Status().Given) == len(want) })
	gputest.Equal(t, "given", want, s.server.Status().Given)
	// Where kubelet's file can't be read, nothing shows that they are not its own.
	gputest.Must(t, os.WriteFile(filepath.Join(s.cfg.Plugins, checkpointFile), []byte("{"), 0o600))
	want[waits.UID] = given("GPU-b")
	s.eventually("a pending pod holds what its name does", func() bool { return cmp.Equal(want, s.server.Status().Given) })
	s.kubelet.stop() // what was known stays
	s.delete("whole")
	if got := s.server.Status(); !got.GivenKnown || !maps.EqualFunc(got.Given, want, func(a, b inventory.PluginAllocation) bool { return cmp.Equal(a, b) }) {
		t.Errorf("without kubelet: %+v", got.Given)
	}
}

// TestGivenByJournal: a pod that was given cards here holds them, also when its
// allocation can't be read any more; one that was only bound here holds none.
func TestGivenByJournal(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.startSlice("ours", "GPU-a", 10, 4, "daybreak-sgpu-000")
	broken := s.slicePod("ours", "GPU-a", 10, 4, running, func(p *corev1.Pod) { p.Annotations[wire.AnnotationAllocated] = "x" })
	bound := s.slicePod("bound", "GPU-a", 10, 4, func(p *corev1.Pod) { p.Annotations = nil })
	s.admit(slice, "bound", "daybreak-sgpu-001")
	if err := s.begin(slice, "daybreak-sgpu-001"); err == nil {
		t.Error("a pod without an allocation was started")
	}
	want := map[types.UID]inventory.PluginAllocation{broken.UID: {Cards: map[string][]gpu.CardID{"main": {"GPU-a"}}}}
	s.eventually("the journal has them", func() bool { return cmp.Equal(want, s.server.Status().Given) })
	device, err := inventory.EncodeDevice(&inventory.Publication{
		Node: "n1", Mode: gpu.ModeSGPU, Topology: s.node.Inventory.Topology, Cards: make([]inventory.CardStatus, s.node.Inventory.Topology.Len()), PluginAllocations: s.server.Status().Given,
	})
	gputest.Must(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}}}
	n, notes := allocation.NewNode(inventory.ReadInventory(node, device), []*corev1.Pod{broken, bound})
	if u := n.Now().Usage[0]; len(n.Unknown()) > 0 || u.Slots != 1 || u.Compute != 10 {
		t.Errorf("booked %+v, unknown %v, notes %q", u, n.Unknown(), notes)
	}
}

// TestTakenOver: slices that the vendor's plugin made for pods that run are
// booked as the pods', and not as foreign once more.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.stop()
	pod := s.slicePod("old", "GPU-a", 10, 4, running)
	s.has(pod, "metax-tech.com/sgpu", "GPU-a-1:1")
	s.driver.cards["0000:01:00.0"].Slices = []discover.Slice{
		{ID: 3, UUID: "X", Alias: "sgpu-178", Memory: 4096, ComputePercent: 10}, {ID: 4, UUID: "Y", Alias: "sgpu-179", Memory: 4096, ComputePercent: 10},
	}
	s.start()
	s.eventually("one slice is foreign", func() bool {
		return cmp.Equal(s.server.Status().ForeignSlices, map[gpu.CardID]inventory.ForeignSlice{"GPU-a": {Slices: 1, Compute: 10, Memory: 4096, QoS: gpu.BestEffort}})
	})
}
