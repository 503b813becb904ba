package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestReadInventoryCardsOfADevice(t *testing.T) {
	cases := map[string]struct {
		device *v1alpha1.Device
		want   []gpu.Card
	}{
		"cards are ordered by minor number": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-c", 2), gputest.CardInfo("GPU-a", 0), gputest.CardInfo("GPU-b", 1)),
			want:   []gpu.Card{card("GPU-a", 0), card("GPU-b", 1), card("GPU-c", 2)},
		},
		"the index is the rank, not the minor number": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-c", 9), gputest.CardInfo("GPU-a", 4)),
			want:   []gpu.Card{card("GPU-a", 4), card("GPU-c", 9)},
		},
		"memory is rounded down to what slices come in": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-a", 0, gputest.WithMemory("65500Mi")), gputest.CardInfo("GPU-b", 1, gputest.WithMemory("64G"))),
			want: []gpu.Card{
				card("GPU-a", 0, func(c *gpu.Card) { c.Memory = 65408 }), // 511 steps
				card("GPU-b", 1, func(c *gpu.Card) { c.Memory = 60928 }), // 61035 MiB
			},
		},
		"a card's own model goes before the node's": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-a", 0, withLabel(wire.LabelModel, "MXC550")), gputest.CardInfo("GPU-b", 1)),
			want:   []gpu.Card{card("GPU-a", 0, func(c *gpu.Card) { c.Model = "C550" }), card("GPU-b", 1)},
		},
		"a NUMA node of -1 is unknown": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-a", 0, at(-1, "")), gputest.CardInfo("GPU-b", 1, at(3, "")), gputest.CardInfo("GPU-c", 2, at(0, "")), gputest.CardInfo("GPU-d", 3)),
			want: []gpu.Card{
				card("GPU-a", 0, func(c *gpu.Card) { c.NUMA = -1 }),
				card("GPU-b", 1, func(c *gpu.Card) { c.NUMA, c.NUMAKnown = 3, true }),
				card("GPU-c", 2, func(c *gpu.Card) { c.NUMAKnown = true }),
				card("GPU-d", 3),
			},
		},
		"a switch label goes before the PCIe root": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-a", 0, at(0, "pci0000:3a"), withLabel(wire.LabelPCIeSwitch, "switch-1")), gputest.CardInfo("GPU-b", 1, at(0, "pci0000:3a"))),
			want: []gpu.Card{
				card("GPU-a", 0, func(c *gpu.Card) { c.NUMAKnown, c.Switch = true, "switch-1" }),
				card("GPU-b", 1, func(c *gpu.Card) { c.NUMAKnown, c.Switch = true, "pci0000:3a" }),
			},
		},
		"an unhealthy card may have no memory": {
			device: gputest.MakeDevice(gputest.CardInfo("GPU-a", 0), gputest.CardInfo("GPU-b", 1, unhealthy, func(d *v1alpha1.DeviceInfo) { d.Resources = nil })),
			want:   []gpu.Card{card("GPU-a", 0), card("GPU-b", 1, func(c *gpu.Card) { c.Healthy, c.Memory = false, 0 })},
		},
		"devices of other types are passed over, whatever they lack": {
			device: gputest.MakeDevice(v1alpha1.DeviceInfo{Type: v1alpha1.DeviceTypeRDMA}, gputest.CardInfo("GPU-a", 0), v1alpha1.DeviceInfo{Type: v1alpha1.DeviceTypeFPGA, Minor: ptr.To[int32](0)}),
			want:   []gpu.Card{card("GPU-a", 0)},
		},
		"a Device may have no card": {device: gputest.MakeDevice()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inv := ReadInventory(gputest.MakeNode(""), tc.device)
			gputest.Equal(t, "cards", tc.want, cardsIn(t, inv))
			if inv.Name != "n1" || inv.Counted {
				t.Errorf("Name = %q, Counted = %t", inv.Name, inv.Counted)
			}
		})
	}
}

func TestReadInventoryWhoseDevice(t *testing.T) {
	other := gputest.MakeDevice(gputest.CardInfo("GPU-x", 0))
	other.Labels[wire.LabelVendor] = "nvidia"
	unsigned := gputest.MakeDevice(gputest.CardInfo("GPU-a", 0))
	delete(unsigned.Labels, wire.LabelVendor)
	listed := `[{"uuid":"GPU-b","totalVRam":65536,"healthy":true}]`
	cases := map[string]struct {
		inventory *Inventory
		want      []gpu.CardID
	}{
		"MetaX's":                              {ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfo("GPU-a", 0))), []gpu.CardID{"GPU-a"}},
		"without a vendor":                     {ReadInventory(gputest.MakeNode(""), unsigned), []gpu.CardID{"GPU-a"}},
		"another vendor's":                     {ReadInventory(gputest.MakeNode(""), other), nil},
		"another vendor's, with an annotation": {ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, listed), other), []gpu.CardID{"GPU-b"}},
		"without a Node":                       {ReadInventory(nil, gputest.MakeDevice(gputest.CardInfo("GPU-a", 0))), []gpu.CardID{"GPU-a"}},
		"no Device, an annotation":             {ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationNodeCards, listed), nil), []gpu.CardID{"GPU-b"}},
		"an empty one is no reason to count":   {ReadInventory(gputest.MakeNode("gpu: 8"), gputest.MakeDevice()), nil},
		"no Device and nothing advertised":     {ReadInventory(gputest.MakeNode(""), nil), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.inventory.Problem != nil {
				t.Fatalf("problem: %v", tc.inventory.Problem)
			}
			var got []gpu.CardID
			for i := range topologyOf(tc.inventory).Len() {
				got = append(got, tc.inventory.Topology.Card(i).ID)
			}
			gputest.Equal(t, "cards", tc.want, got)
			gputest.Equal(t, "Name", "n1", tc.inventory.Name)
		})
	}
}

func topologyOf(inv *Inventory) *gpu.Topology { return inv.NewNode().Topology() }

func TestReadInventoryZones(t *testing.T) {
	zone := func(z string) func(*v1alpha1.DeviceInfo) { return withLabel(wire.LabelLinkZone, z) }
	listed := `[{"uuid":"GPU-0","totalVRam":65536,"healthy":true,"linkZone":7},{"uuid":"GPU-1","totalVRam":65536,"healthy":true,"linkZone":7},
		{"uuid":"GPU-2","totalVRam":65536,"healthy":true},{"uuid":"GPU-3","totalVRam":65536,"healthy":true}]`
	ring := `{"cards":["GPU-3","GPU-1","GPU-2","GPU-0"],"links":["-M..","M-..","..-M","..M-"]}`
	cases := map[string]struct {
		inventory *Inventory
		want      [][]int
	}{
		"none known": {inventory: ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfos(4)...))},
		"from labels": {
			inventory: ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(
				gputest.CardInfo("GPU-0", 0, zone("1")), gputest.CardInfo("GPU-1", 1, zone("2")), gputest.CardInfo("GPU-2", 2, zone("1")), gputest.CardInfo("GPU-3", 3, zone("2")))),
			want: [][]int{{0, 2}, {1, 3}},
		},
		"zone 0 is none": {
			inventory: ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, zone("0")), gputest.CardInfo("GPU-1", 1, zone("0")))),
		},
		"from the vendor's annotation": {inventory: ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, listed), nil), want: [][]int{{0, 1}}},
		"from the vendor's annotation, by UUID": {
			inventory: ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, listed), gputest.MakeDevice(
				gputest.CardInfo("GPU-2", 0), gputest.CardInfo("GPU-0", 1), gputest.CardInfo("GPU-3", 2), gputest.CardInfo("GPU-1", 3))),
			want: [][]int{{1, 3}},
		},
		"a label goes before the vendor's annotation": {
			inventory: ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, listed), gputest.MakeDevice(
				gputest.CardInfo("GPU-0", 0, zone("1")), gputest.CardInfo("GPU-1", 1, zone("2")), gputest.CardInfo("GPU-2", 2, zone("1")), gputest.CardInfo("GPU-3", 3, zone("2")))),
			want: [][]int{{0, 2}, {1, 3}},
		},
		"the links annotation goes before both, by name": {
			inventory: ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, listed),
				gputest.Annotated(gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, zone("1")), gputest.CardInfo("GPU-1", 1, zone("1")), gputest.CardInfo("GPU-2", 2), gputest.CardInfo("GPU-3", 3)), wire.AnnotationLinks, ring)),
			want: [][]int{{0, 2}, {1, 3}},
		},
		"virtual functions have no links": {
			inventory: ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(4)...), wire.AnnotationLinks, ring, wire.AnnotationMode, "vgpu")),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cardsIn(t, tc.inventory)
			checkZones(t, tc.inventory, tc.want...)
		})
	}
}

func TestReadInventoryFromTheVendorsAnnotation(t *testing.T) {
	node := gputest.MakeNode("sgpu: 48", wire.AnnotationNodeCards, `[
		{"uuid":"GPU-b","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"numa":1,"healthy":true,"linkZone":1},
		{"uuid":"GPU-a","totalDevCount":8,"totalVRam":65500,"numa":-1,"healthy":true,"linkZone":1},
		{"uuid":"GPU-c","totalDevCount":100,"totalVRam":32768,"future":{"x":[1]}}]`)
	node.Labels = map[string]string{wire.LabelProduct: "MXC500"}
	inv := ReadInventory(node, nil)
	want := []gpu.Card{
		card("GPU-b", 0, func(c *gpu.Card) { c.NUMA, c.NUMAKnown = 1, true }),
		card("GPU-a", 1, func(c *gpu.Card) { c.NUMA, c.Slots, c.Memory = -1, 8, 65408 }),
		card("GPU-c", 2, func(c *gpu.Card) { c.NUMAKnown, c.Healthy, c.Memory = true, false, 32768 }),
	}
	gputest.Equal(t, "cards", want, cardsIn(t, inv))
	checkZones(t, inv, []int{0, 1})
	gputest.Equal(t, "Serves", ledger.Serves{Slices: true}, inv.Serves)
	if inv.ServedBy != "vendor" || inv.Mode != "" || inv.Counted {
		t.Errorf("ServedBy = %q, Mode = %q, Counted = %t", inv.ServedBy, inv.Mode, inv.Counted)
	}
}

func TestReadInventoryFromBoth(t *testing.T) {
	node := gputest.MakeNode("sgpu: 32", wire.AnnotationNodeCards, `[
		{"uuid":"GPU-2","totalDevCount":4,"totalVRam":1024,"numa":5,"linkZone":2},
		{"uuid":"GPU-9","totalVRam":65536,"healthy":true},
		{"uuid":"GPU-0","totalVRam":1024,"healthy":true,"linkZone":2}]`)
	inv := ReadInventory(node, gputest.MakeDevice(gputest.CardInfos(3)...))
	// Health, memory and NUMA node are the Device's, slots the annotation's.
	want := []gpu.Card{card("GPU-0", 0), card("GPU-2", 2, func(c *gpu.Card) { c.Slots = 4 })}
	gputest.Equal(t, "cards", want, cardsIn(t, inv))
	checkZones(t, inv, []int{0, 1})
	wantNotes := []string{
		"card GPU-1 is in the Device but not in metax-tech.com/node-gpu-devices: left out",
		"card GPU-9 is in metax-tech.com/node-gpu-devices but not in the Device: left out",
	}
	gputest.Equal(t, "notes", wantNotes, inv.Notes)

	linked := gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(3)...), wire.AnnotationLinks, `{"cards":["GPU-0","GPU-1","GPU-2"],"links":["-..",".-.","..-"]}`)
	if inv = ReadInventory(node, linked); len(cardsIn(t, inv)) != 3 || inv.Notes != nil {
		t.Errorf("our own agent's Device needs no completion: got %d cards, notes %q", inv.Topology.Len(), inv.Notes)
	}
}

func TestReadInventoryCounted(t *testing.T) {
	node := gputest.MakeNode("gpu: 2", wire.AnnotationScores, `{"1":0,"2":110}`, wire.AnnotationLosses, `{"1":150,"2":80}`)
	node.Labels = map[string]string{wire.LabelProduct: "MetaX C500"}
	inv := ReadInventory(node, nil)
	gputest.Equal(t, "cards", []gpu.Card{card("", 0), card("", 1)}, cardsIn(t, inv))
	table := ledger.VendorTable{Scores: map[int]int64{1: 0, 2: 110}, Losses: map[int]int64{1: 150, 2: 80}}
	gputest.Equal(t, "tables", table, inv.Vendor)
	if want := (ledger.Serves{Whole: true}); inv.Serves != want || !inv.Counted {
		t.Errorf("Serves = %+v, Counted = %t", inv.Serves, inv.Counted)
	}

	allocatable := gputest.MakeNode("")
	allocatable.Status.Allocatable = gputest.MakeResources("gpu: 3")
	if inv := ReadInventory(allocatable, nil); len(cardsIn(t, inv)) != 3 || !inv.Counted {
		t.Errorf("allocatable cards count too: got %d", inv.Topology.Len())
	}
}

func TestReadInventoryServes(t *testing.T) {
	wholes, slices, both, seats := ledger.Serves{Whole: true}, ledger.Serves{Slices: true}, ledger.Serves{Whole: true, Slices: true}, ledger.Serves{Seats: true}
	const none, wholeCards, shares, all = "", "gpu: 8", "sgpu: 128", "gpu: 8, sgpu: 128"
	cases := map[string]struct {
		mode, servedBy, capacity string
		want                     ledger.Serves
	}{
		"native, ours":                              {"native", "daybreak", all, wholes},
		"native, the vendor's":                      {"native", "vendor", wholeCards, wholes},
		"native, the vendor's, whatever is counted": {"native", "", shares, wholes},
		"slices, ours":                              {"sgpu", "daybreak", shares, both},
		"slices, the vendor's":                      {"sgpu", "vendor", shares, slices},
		"slices, not known whose":                   {"sgpu", "", all, slices},
		"seats, ours":                               {"shared", "daybreak", wholeCards, seats},
		"seats, the vendor's":                       {"shared", "vendor", wholeCards, seats},
		"virtual functions, ours":                   {"vgpu", "daybreak", none, wholes},
		"virtual functions, the vendor's":           {"vgpu", "vendor", wholeCards, wholes},
		"no mode, ours":                             {"", "daybreak", none, both},
		"no mode, ours, one kind counted":           {"", "daybreak", wholeCards, both},
		"no mode, the vendor's, whole cards":        {"", "vendor", wholeCards, wholes},
		"no mode, the vendor's, slices":             {"", "vendor", shares, slices},
		"no mode, the vendor's, both":               {"", "vendor", all, both},
		"no mode, the vendor's, nothing counted":    {"", "vendor", none, both},
		"no mode, not known whose, slices":          {"", "", shares, slices},
		"no mode, another plugin's, slices":         {"", "other", shares, slices},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node, device := gputest.MakeNode(tc.capacity), gputest.MakeDevice(gputest.CardInfos(1)...)
			if tc.servedBy != "" {
				node = gputest.MakeNode(tc.capacity, wire.AnnotationServedBy, tc.servedBy)
			}
			if tc.mode != "" {
				gputest.Annotated(device, wire.AnnotationMode, tc.mode)
			}
			inv := ReadInventory(node, device)
			cardsIn(t, inv)
			wantBy := "vendor"
			if tc.servedBy == "daybreak" {
				wantBy = "daybreak"
			}
			if inv.Serves != tc.want || inv.ServedBy != wantBy || inv.Mode != gpu.Mode(tc.mode) {
				t.Errorf("Serves = %+v, ServedBy = %q, Mode = %q, want %+v, %q, %q", inv.Serves, inv.ServedBy, inv.Mode, tc.want, wantBy, tc.mode)
			}
		})
	}
	if inv := ReadInventory(nil, gputest.MakeDevice()); inv.ServedBy != "daybreak" || inv.Serves != both {
		t.Errorf("a Device without a Node is our own: got %q, %+v", inv.ServedBy, inv.Serves)
	}
}

func TestEncodeTable(t *testing.T) {
	text, err := EncodeTable([]int64{0, 110, 330})
	if want := `{"1":0,"2":110,"3":330}`; err != nil || text != want {
		t.Errorf("got %s, %v\nwant %s", text, err, want)
	}
	table, err := decodeTable(text)
	if diff := cmp.Diff(map[int]int64{1: 0, 2: 110, 3: 330}, table); err != nil || diff != "" {
		t.Errorf("read back (-want +got):\n%s%v", diff, err)
	}
	if _, err := decodeTable(strings.Repeat(" ", 256<<10+1)); !matches(err, "262145 bytes, at most 262144 are read") {
		t.Errorf("too long: %v", err)
	}
}

func TestEncodeLinks(t *testing.T) {
	text, err := EncodeLinks(gputest.Rings(4))
	want := `{"cards":["GPU-0","GPU-1","GPU-2","GPU-3"],"links":["-M.M","M-M.",".M-M","M.M-"]}`
	if err != nil || text != want {
		t.Errorf("got %s, %v\nwant %s", text, err, want)
	}
	if text, err = EncodeLinks(gputest.Zones()); err != nil || text != `{"cards":[],"links":[]}` {
		t.Errorf("no cards: got %s, %v", text, err)
	}
}
