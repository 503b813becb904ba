package gputest

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// MakeNode returns a node called n1 with a capacity as [MakeResources] reads it,
// and annotations given as key, value, key, value.
func MakeNode(capacity string, annotations ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: Pairs(annotations...)}}
	node.Status.Capacity = MakeResources(capacity)
	return node
}

// MakeDevice returns the Device of n1.
func MakeDevice(cards ...v1alpha1.DeviceInfo) *v1alpha1.Device {
	return &v1alpha1.Device{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: "C500"}},
		Spec:       v1alpha1.DeviceSpec{Devices: cards},
	}
}

// Annotated returns the Device with these annotations, given as key, value.
func Annotated(d *v1alpha1.Device, annotations ...string) *v1alpha1.Device {
	d.Annotations = Pairs(annotations...)
	return d
}

// CardInfo is a healthy card of 64 GiB as a Device lists it.
func CardInfo(id string, minor int32, change ...func(*v1alpha1.DeviceInfo)) v1alpha1.DeviceInfo {
	info := v1alpha1.DeviceInfo{
		Type: v1alpha1.DeviceTypeGPU, UUID: id, Minor: new(minor), Health: true,
		Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
	}
	for _, f := range change {
		f(&info)
	}
	return info
}

// CardInfos are n such cards, GPU-0, GPU-1 and so on.
func CardInfos(n int32) []v1alpha1.DeviceInfo {
	var infos []v1alpha1.DeviceInfo
	for i := range n {
		infos = append(infos, CardInfo(fmt.Sprintf("GPU-%d", i), i))
	}
	return infos
}

// WithMemory gives a card of a Device another amount of memory.
func WithMemory(text string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) { d.Resources[wire.KoordMemory] = resource.MustParse(text) }
}

// Pairs returns the map of a list of key, value, key, value.
func Pairs(list ...string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]string)
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

// CheckNode checks what every account without pods promises, whatever it was read
// from: sound cards or a problem, and foreign usage within what a card has.
func CheckNode(n *ledger.Node) error {
	t := n.Topology()
	if n.Problem != nil && t.Len() > 0 {
		return fmt.Errorf("a topology in spite of %w", n.Problem)
	}
	for i := range t.Len() {
		c, u := t.Card(i), n.Now().Usage[i]
		linked := t.Linked(i)
		switch {
		case c.Validate() != nil:
			return c.Validate()
		case (c.ID == "") != n.Counted || len(c.ID) > wire.MaxUUID:
			return fmt.Errorf("card %d has id %q, counted %t", i, c.ID, n.Counted)
		case !within(u, c):
			return fmt.Errorf("card %d of %d MiB has foreign usage %+v", i, c.Memory, u)
		case u.Slots == 0 && u != (ledger.Usage{}):
			return fmt.Errorf("card %d has no slice, but %+v", i, u)
		case linked.Has(i) || linked&^t.All() != 0:
			return fmt.Errorf("card %d is linked to %b", i, linked)
		}
	}
	return nil
}

// within reports whether a card can have the foreign usage.
func within(u ledger.Usage, c *gpu.Card) bool {
	return u.Slots >= 0 && u.Slots <= gpu.MaxSlices && u.Compute >= 0 && u.Compute <= 100 && u.Memory >= 0 && u.Memory <= c.Memory+gpu.MemoryStep
}

// Stored returns the object as it comes back from the API server.
func Stored[T any](t testing.TB, object *T) *T {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}
