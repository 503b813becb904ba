package allocation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// nodeOf returns a node called n1 with a capacity as gputest reads it, and
// annotations given as key, value, key, value.
func nodeOf(capacity string, annotations ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: pairs(annotations)}}
	node.Status.Capacity = gputest.MakeResources(capacity)
	return node
}

// deviceOf returns the Device of n1.
func deviceOf(cards ...v1alpha1.DeviceInfo) *v1alpha1.Device {
	return &v1alpha1.Device{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: "C500"}},
		Spec:       v1alpha1.DeviceSpec{Devices: cards},
	}
}

// annotated adds annotations, given as key, value, to the Device.
func annotated(d *v1alpha1.Device, annotations ...string) *v1alpha1.Device {
	d.Annotations = pairs(annotations)
	return d
}

// cardInfo is a healthy card of 64 GiB as a Device lists it.
func cardInfo(id string, minor int32, change ...func(*v1alpha1.DeviceInfo)) v1alpha1.DeviceInfo {
	info := v1alpha1.DeviceInfo{
		Type: v1alpha1.DeviceTypeGPU, UUID: id, Minor: new(minor), Health: true,
		Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
	}
	for _, f := range change {
		f(&info)
	}
	return info
}

// cardInfos are n such cards, GPU-0, GPU-1 and so on.
func cardInfos(n int32) []v1alpha1.DeviceInfo {
	var infos []v1alpha1.DeviceInfo
	for i := range n {
		infos = append(infos, cardInfo(fmt.Sprintf("GPU-%d", i), i))
	}
	return infos
}

func withMemory(text string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) { d.Resources[wire.KoordMemory] = resource.MustParse(text) }
}

func withLabel(key, value string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) {
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels[key] = value
	}
}

func at(numa int32, pcie string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) { d.Topology = &v1alpha1.DeviceTopology{NodeID: numa, PCIEID: pcie} }
}

func unhealthy(d *v1alpha1.DeviceInfo) { d.Health = false }

// card is what such a card is read as.
func card(id gpu.CardID, minor int, change ...func(*gpu.Card)) gpu.Card {
	c := gpu.Card{ID: id, Minor: minor, Model: "C500", Memory: 64 << 10, Slots: 16, Healthy: true}
	for _, f := range change {
		f(&c)
	}
	return c
}

func pairs(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]string)
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

// cardsIn lists the cards of an inventory that could be read.
func cardsIn(t testing.TB, inv *inventory.Inventory) []gpu.Card {
	t.Helper()
	if inv.Problem != nil {
		t.Fatalf("problem: %v", inv.Problem)
	}
	var cards []gpu.Card
	for i := range inv.Topology.Len() {
		cards = append(cards, *inv.Topology.Card(i))
	}
	return cards
}

// checkZones compares the zones of two cards or more, each written as a list
// of indices.
func checkZones(t *testing.T, inv *inventory.Inventory, want ...[]int) {
	t.Helper()
	var got [][]int
	for _, zone := range inv.Topology.Zones() {
		got = append(got, zone.Indices())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

// matches compares an error with the wanted text; "..." at its end stands for
// words that are not ours, such as those of the JSON decoder.
func matches(got, want string) bool {
	if start, ok := strings.CutSuffix(want, "..."); ok {
		return strings.HasPrefix(got, start) && len(got) > len(start)
	}
	return got == want
}

// checkInventory checks what every inventory promises, whatever it was read
// from: sound cards or a problem, and foreign usage within what a card has.
func checkInventory(t *testing.T, inv *inventory.Inventory) {
	t.Helper()
	n := inv.NewNode()
	inv.BookForeign(n)
	if inv.Problem != nil {
		if inv.Topology != nil {
			t.Fatalf("a topology in spite of %v", inv.Problem)
		}
		return
	}
	for i := range n.Topology().Len() {
		c, u := n.Topology().Card(i), n.Now().Usage[i]
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if (c.ID == "") != inv.Counted || len(c.ID) > wire.MaxUUID {
			t.Fatalf("card %d has id %q, counted %t", i, c.ID, inv.Counted)
		}
		if u.Slots < 0 || u.Slots > gpu.MaxSlices || u.Compute < 0 || u.Compute > 100 || u.Memory < 0 || u.Memory > c.Memory+gpu.MemoryStep {
			t.Fatalf("card %d of %d MiB has foreign usage %+v", i, c.Memory, u)
		}
		if u.Slots == 0 && u != (ledger.Usage{}) {
			t.Fatalf("card %d has no slice, but %+v", i, u)
		}
		if linked := n.Topology().Linked(i); linked.Has(i) || linked&^n.Topology().All() != 0 {
			t.Fatalf("card %d is linked to %b", i, linked)
		}
	}
}
