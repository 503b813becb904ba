package inventory

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// someTime is when things happen in these tests.
var someTime = metav1.NewTime(time.Date(2025, 3, 15, 10, 0, 0, 0, time.UTC))

func healthyCondition() []metav1.Condition {
	return []metav1.Condition{{Type: wire.ConditionHealthy, Status: metav1.ConditionTrue, Reason: "DeviceHealthy", Message: "device is healthy", LastTransitionTime: someTime}}
}

// publicationOf is a publication with everything well.
func publicationOf(t *gpu.Topology) *Publication {
	p := &Publication{Node: "n1", NodeUID: "uid-1", Driver: "3.8.30", Mode: gpu.ModeSGPU, Topology: t}
	for i := range t.Len() {
		p.Cards = append(p.Cards, CardStatus{
			BusID: fmt.Sprintf("0000:%02x:00.0", 0x38+i), PCIeRoot: "pci0000:3a", Conditions: healthyCondition(),
		})
	}
	return p
}

// TestEncodeDevice: one card comes out as the listing of Koordinator's
// documentation has it, with ours added.
func TestEncodeDevice(t *testing.T) {
	cards := gputest.Cards(1)
	cards[0].ID, cards[0].NUMA = "89033010-2354-0000-0000-000000000000", 3
	d, err := EncodeDevice(publicationOf(gputest.MustTopology(cards, nil)))
	gputest.Must(t, err)
	want, err := os.ReadFile("testdata/device.yaml")
	gputest.Must(t, err)
	var listed v1alpha1.Device
	gputest.Must(t, yaml.UnmarshalStrict(want, &listed))
	gputest.Equal(t, "device", &listed, gputest.Stored(t, d), cmpopts.EquateEmpty())
}

func TestPublicationReadsBack(t *testing.T) {
	r := gputest.Rand(1)
	for range 200 {
		topology := gputest.Unlike(1 + r.IntN(16))
		p := publicationOf(topology)
		for i := range p.Cards {
			if r.IntN(2) == 0 {
				p.Cards[i].Errors = new(int64(r.IntN(9)))
			}
		}
		if r.IntN(2) == 0 {
			p.Pending = gpu.ModeNative
			p.ForeignSlices = map[gpu.CardID]ForeignSlice{"GPU-0": {Slices: 2, Compute: 30, Memory: 4000, QoS: gpu.FixedShare}}
			p.PluginAllocations = map[types.UID]PluginAllocation{"u": {Cards: map[string][]gpu.CardID{"c": {"GPU-0"}}}}
		}
		d, err := EncodeDevice(p)
		gputest.Must(t, err)
		back, err := DecodePublication(gputest.Stored(t, d))
		gputest.Must(t, err)
		if diff := cmp.Diff(p, back, cmpopts.IgnoreFields(Publication{}, "Topology")); diff != "" {
			t.Fatalf("publication (-want +got):\n%s", diff)
		}
		for i := range topology.Len() {
			want, got := *topology.Card(i), *back.Topology.Card(i)
			want.Switch = labelValue(want.Switch)
			if diff := cmp.Diff(want, got); diff != "" || topology.Linked(i) != back.Topology.Linked(i) {
				t.Fatalf("card %d, linked to %b and %b (-want +got):\n%s", i, topology.Linked(i), back.Topology.Linked(i), diff)
			}
		}
	}
}

func TestEncodeDeviceOfUnlikeCards(t *testing.T) {
	cards := gputest.Cards(3)
	cards[0].Model, cards[0].Memory = "C550 VF", 16<<10
	cards[1].Switch, cards[1].Healthy = "0000:3b:00.0", false
	cards[2].NUMAKnown = false
	p := publicationOf(gputest.MustTopology(cards, []gpu.Link{{A: 1, B: 2}}))
	p.Driver, p.NodeUID = "3.8.30 (release)", ""
	d, err := EncodeDevice(p)
	gputest.Must(t, err)
	gputest.Equal(t, "labels", map[string]string{wire.LabelVendor: "metax", wire.LabelModel: "C500", wire.LabelDriver: "3.8.30--release"}, d.Labels)
	if len(d.OwnerReferences) != 0 {
		t.Errorf("owners %v of a node without UID", d.OwnerReferences)
	}
	type brief struct {
		Model, Zone, Switch, Memory string
		NUMA                        int32
		Health                      bool
	}
	var got []brief
	for _, i := range d.Spec.Devices {
		memory := i.Resources[wire.KoordMemory]
		got = append(got, brief{i.Labels[wire.LabelModel], i.Labels[wire.LabelLinkZone], i.Labels[wire.LabelPCIeSwitch], memory.String(), i.Topology.NodeID, i.Health})
	}
	want := []brief{
		{"C550-VF", "0", "", "16Gi", 0, true},
		{"C500", "1", "0000-3b-00.0", "64Gi", 0, false},
		{"C500", "1", "", "64Gi", -1, true},
	}
	gputest.Equal(t, "cards", want, got)
}

// TestDecodePublicationRefuses what an inventory does, and an unknown mode that is waited for.
func TestDecodePublicationRefuses(t *testing.T) {
	for key, text := range map[string]string{wire.AnnotationMode: "half", wire.AnnotationModePending: "half", wire.AnnotationLinks: "{}", wire.AnnotationForeignSlices: "{", wire.AnnotationPluginAllocations: "{"} {
		d := gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(1)...), key, text)
		if _, err := DecodePublication(d); !matches(err, "annotation "+key+": ...") {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := DecodePublication(gputest.MakeDevice(gputest.CardInfo("GPU-0", 0), gputest.CardInfo("GPU-1", 0))); !matches(err, "cards GPU-0 and GPU-1 have the same minor number 0") {
		t.Errorf("two cards with one number: %v", err)
	}
}

func TestKeepTransitions(t *testing.T) {
	later := metav1.NewTime(someTime.Add(time.Hour))
	condition := func(kind string, status metav1.ConditionStatus, at metav1.Time) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, LastTransitionTime: at}
	}
	now := []metav1.Condition{condition("Healthy", "True", later), condition("Linked", "False", later), condition("New", "True", later)}
	KeepTransitions(now, []metav1.Condition{condition("Linked", "True", someTime), condition("Healthy", "True", someTime)})
	want := []metav1.Condition{condition("Healthy", "True", someTime), condition("Linked", "False", later), condition("New", "True", later)}
	gputest.Equal(t, "conditions", want, now)
}

func TestCardList(t *testing.T) {
	got := CardList(" GPU-b,GPU-a GPU-b,,not/one,")
	gputest.Equal(t, "cards", []gpu.CardID{"GPU-a", "GPU-b"}, got)
}

// TestNodeCards: what is available is what pods leave, and an exclusive holder
// leaves nothing.
func TestNodeCards(t *testing.T) {
	topology := gputest.Zones(2, 1)
	p := publicationOf(topology)
	n := gputest.Node(topology)
	gputest.Slice(n, "a", 0, 30, 16<<10, gpu.FixedShare)
	gputest.Slice(n, "b", 0, 20, 8<<10, gpu.FixedShare)
	gputest.Exclusive(n, 1)
	got, err := EncodeNodeCards(NodeCards(p, n))
	gputest.Must(t, err)
	want := `[{"uuid":"GPU-0","bdf":"0000:38:00.0","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,` +
		`"availableDevCount":14,"availableCompute":50,"availableVRam":40960,"healthy":true,"qosPolicy":"fixed-share","linkZone":1},` +
		`{"uuid":"GPU-1","bdf":"0000:39:00.0","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,` +
		`"availableDevCount":0,"availableCompute":0,"availableVRam":0,"healthy":true,"linkZone":1},` +
		`{"uuid":"GPU-2","bdf":"0000:3a:00.0","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,` +
		`"availableDevCount":16,"availableCompute":100,"availableVRam":65536,"numa":1,"healthy":true}]`
	gputest.Equal(t, "annotation", want, got)
	n.BookUnknown("someone")
	for _, c := range NodeCards(p, n) {
		if *c.AvailableDevCount != 0 || *c.AvailableVRam != 0 || *c.AvailableCompute != 0 {
			t.Errorf("card %s is available although a pod's cards are unknown", c.UUID)
		}
	}
}

// TestTables are the vendor's own figures: two zones of four, two cards of one
// busy.
func TestTables(t *testing.T) {
	n := gputest.Node(gputest.Zones(4, 4))
	gputest.Exclusive(n, 0, 1)
	n.Serves = ledger.Serves{Slices: true} // whatever the node serves
	scores, losses := Tables(n)
	gputest.Equal(t, "scores", []int64{0, 110, 330, 660, 700, 850}, scores)
	gputest.Equal(t, "losses", []int64{150, 80, 390, 80, 150, 0}, losses)
}

// FuzzDecodePublication: whatever a Device says, it is refused or can be
// written again.
func FuzzDecodePublication(f *testing.F) {
	for _, topology := range []*gpu.Topology{gputest.Zones(1), gputest.Rings(4, 4), gputest.Unlike(5)} {
		d, err := EncodeDevice(publicationOf(topology))
		gputest.Must(f, err)
		text, err := json.Marshal(d)
		gputest.Must(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := wire.DecodeDevice(text)
		if err != nil {
			return
		}
		p, err := DecodePublication(d)
		if err != nil {
			return
		}
		again, err := EncodeDevice(p)
		gputest.Must(t, err)
		if _, err := DecodePublication(again); err != nil {
			t.Fatalf("written again it can't be read: %v", err)
		}
	})
}
