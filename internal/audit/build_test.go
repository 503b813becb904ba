package audit

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// noon is when everything here is audited.
var noon = time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC)

// world is a cluster in the making.
type world struct{ cluster.Objects }

func newWorld() *world { return &world{cluster.Objects{Devices: map[string]cluster.Device{}}} }

// node adds a node that Daybreak serves, with its Device. Its cards are called
// GPU-<node>-0 and so on.
func (w *world) node(t testing.TB, name string, plan *gputest.Plan, mode gpu.Mode) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}}}
	device := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationMode: string(mode)}}}
	cards := append([]gpu.Card(nil), plan.Cards...)
	for i := range cards {
		cards[i].ID = gpu.CardID(fmt.Sprintf("GPU-%s-%d", name, i))
		c := &cards[i]
		device.Spec.Devices = append(device.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: string(c.ID), Minor: new(int32(i)), Health: c.Healthy,
			Resources: corev1.ResourceList{wire.KoordMemory: *resource.NewQuantity(int64(c.Memory)<<20, resource.BinarySI)},
		})
	}
	links, err := inventory.EncodeLinks(gputest.MustTopology(cards, plan.Links))
	gputest.Must(t, err)
	device.Annotations[wire.AnnotationLinks] = links
	w.Nodes = append(w.Nodes, node)
	w.Devices[name] = cluster.Device{Device: device}
}

// vendors makes the vendor's plugin serve the node.
func (w *world) vendors(name string) *world {
	for _, n := range w.Nodes {
		if n.Name == name {
			n.Annotations[wire.AnnotationServedBy] = wire.ServedByVendor
		}
	}
	return w
}

// slice adds a running pod that holds a share of one card, written in the vendor's
// words.
func (w *world) slice(node, name string, card, compute, gib int, annotations ...string) *corev1.Pod {
	limits := fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %dGi", compute, gib)
	return w.pod(node, name, limits, fmt.Sprintf(`[[{"uuid":"GPU-%s-%d","compute":%d,"vRam":%d}]]`, node, card, compute, gib*1024), annotations...)
}

// pod adds a running pod with the given limits and vendor's allocation. Further
// annotations are given as key, value.
func (w *world) pod(node, name, limits, allocated string, annotations ...string) *corev1.Pod {
	b := gputest.MakePod(name).App(limits).On(node)
	if allocated != "" {
		b.Annotate(wire.AnnotationAllocated, allocated)
	}
	for i := 0; i < len(annotations); i += 2 {
		b.Annotate(annotations[i], annotations[i+1])
	}
	w.Pods = append(w.Pods, b.Obj())
	return b.Obj()
}

func (w *world) audit() *Report { return Check(w.Snapshot(), noon) }
