package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// checkBad wants the inventory refused in the given words, and nothing worse:
// its node can be opened, with pods on it, and refuses all others.
func checkBad(t *testing.T, inv *Inventory, want string) {
	t.Helper()
	if !matches(inv.Problem, want) {
		t.Errorf("problem:\n got %v\nwant %s", inv.Problem, want)
	}
	if inv.Topology != nil || inv.Name != "n1" {
		t.Errorf("Topology = %v, Name = %q", inv.Topology, inv.Name)
	}
	n := inv.NewNode()
	n.BookUnknown("default/p")
	inv.BookForeign(n)
	for _, req := range []*gpu.PodRequest{gputest.AskWhole(1), gputest.AskSlice(10, 1024)} {
		if _, refusal := place.Fit(n, req, &place.Preference{}); refusal.Code != place.BadInventory {
			t.Errorf("refusal is %s, want BadInventory", refusal.Code)
		}
	}
}

func TestReadInventoryBadDevice(t *testing.T) {
	long := strings.Repeat("x", 97)
	cases := map[string]struct {
		device *v1alpha1.Device
		want   string
	}{
		"a card too many":      {gputest.MakeDevice(gputest.CardInfos(65)...), "gpu: topology: 65 cards, a node may hold 64"},
		"far too many cards":   {gputest.MakeDevice(gputest.CardInfos(300)...), "gpu: topology: 300 cards, a node may hold 64"},
		"the same card twice":  {gputest.MakeDevice(gputest.CardInfo("GPU-0", 0), gputest.CardInfo("GPU-0", 1)), `gpu: topology: cards 0 and 1 have the same id "GPU-0"`},
		"a minor number twice": {gputest.MakeDevice(gputest.CardInfo("GPU-0", 1), gputest.CardInfo("GPU-1", 1)), "cards GPU-0 and GPU-1 have the same minor number 1"},
		"a negative minor":     {gputest.MakeDevice(gputest.CardInfo("GPU-0", -1)), `gpu: topology: gpu: card "GPU-0" has minor number -1, want 0 or more`},
		"no minor number": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0), gputest.CardInfo("GPU-1", 1, func(d *v1alpha1.DeviceInfo) { d.Minor = nil })),
			"spec.devices[1]: card GPU-1 has no minor number",
		},
		"no UUID":      {gputest.MakeDevice(gputest.CardInfo("", 0)), `spec.devices[0]: id "": want the card's UUID, 1 to 96 letters, digits and dashes`},
		"a UUID of 97": {gputest.MakeDevice(gputest.CardInfo(long, 0)), fmt.Sprintf("spec.devices[0]: id %.40q: want the card's UUID, 1 to 96 letters, digits and dashes", long)},
		"healthy without memory": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("0"))), `gpu: topology: gpu: card "GPU-0" is healthy but has 0 MiB of memory, want at least 128`,
		},
		"healthy with less than a step": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("127Mi"))), `gpu: topology: gpu: card "GPU-0" is healthy but has 0 MiB of memory, want at least 128`,
		},
		"negative memory": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("-1Gi"))), `gpu: topology: gpu: card "GPU-0" has -1024 MiB of memory, want 0 to 16777216`,
		},
		"more memory than there is": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("1Ei"))), `gpu: topology: gpu: card "GPU-0" has 1099511627776 MiB of memory, want 0 to 16777216`,
		},
		"more memory than can be counted": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("18446744142429028352"))), // 64Gi in 64 bits
			`gpu: topology: gpu: card "GPU-0" has 8796093022080 MiB of memory, want 0 to 16777216`,
		},
		"less memory than can be counted": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, gputest.WithMemory("-18446744004990074880"))), // 64Gi in 64 bits
			`gpu: topology: gpu: card "GPU-0" has -8796093022208 MiB of memory, want 0 to 16777216`,
		},
		"a zone that is no number": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, withLabel(wire.LabelLinkZone, "left"))), `spec.devices[0]: card GPU-0: label daybreak-gpu.io/link-zone: "left": want 0 or the number of a zone`,
		},
		"a negative zone": {
			gputest.MakeDevice(gputest.CardInfo("GPU-0", 0, withLabel(wire.LabelLinkZone, "-1"))), `spec.devices[0]: card GPU-0: label daybreak-gpu.io/link-zone: "-1": want 0 or the number of a zone`,
		},
		"an unknown mode": {
			gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(1)...), wire.AnnotationMode, "mig"), `annotation daybreak-gpu.io/mode: "mig" is no mode: want native, sgpu, shared or vgpu`,
		},
		"an empty mode": {
			gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(1)...), wire.AnnotationMode, ""), `annotation daybreak-gpu.io/mode: "" is no mode: want native, sgpu, shared or vgpu`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { checkBad(t, ReadInventory(gputest.MakeNode("sgpu: 16"), tc.device), tc.want) })
	}
}

func TestReadInventoryBadLinks(t *testing.T) {
	cases := map[string]struct{ links, want string }{
		"nothing":                 {"", "EOF"},
		"no JSON":                 {"{", "unexpected EOF"},
		"a list":                  {"[]", "json: cannot unmarshal array..."},
		"numbers for names":       {`{"cards":[0,1],"links":["-M","M-"]}`, "json: cannot unmarshal number..."},
		"a field of its own":      {`{"cards":["GPU-0","GPU-1"],"links":["-M","M-"],"speed":1}`, `json: unknown field "speed"`},
		"two documents":           {`{"cards":["GPU-0","GPU-1"],"links":["-M","M-"]} {}`, "something follows the document"},
		"a card short":            {`{"cards":["GPU-0"],"links":["-"]}`, "1 cards and 1 rows for a Device with 2 cards"},
		"a row short":             {`{"cards":["GPU-0","GPU-1"],"links":["-M"]}`, "2 cards and 1 rows for a Device with 2 cards"},
		"empty":                   {`{}`, "0 cards and 0 rows for a Device with 2 cards"},
		"another card":            {`{"cards":["GPU-0","GPU-7"],"links":["-M","M-"]}`, `card "GPU-7" is listed twice or not in the Device`},
		"a card twice":            {`{"cards":["GPU-0","GPU-0"],"links":["-M","M-"]}`, `card "GPU-0" is listed twice or not in the Device`},
		"a column short":          {`{"cards":["GPU-0","GPU-1"],"links":["-M","M"]}`, "row 1 has 1 columns, want 2"},
		"a column too many":       {`{"cards":["GPU-0","GPU-1"],"links":["-M.","M-"]}`, "row 0 has 3 columns, want 2"},
		"a link one way":          {`{"cards":["GPU-0","GPU-1"],"links":["-M",".-"]}`, "row 1, column 0 is '.', but 'M' the other way round"},
		"a link to itself":        {`{"cards":["GPU-0","GPU-1"],"links":["MM","M-"]}`, "row 0, column 0 is 'M': want M, . or - on the diagonal"},
		"a dash off the diagonal": {`{"cards":["GPU-0","GPU-1"],"links":["--","--"]}`, "row 0, column 1 is '-': want M, . or - on the diagonal"},
		"another letter":          {`{"cards":["GPU-0","GPU-1"],"links":["-X","X-"]}`, "row 0, column 1 is 'X': want M, . or - on the diagonal"},
		"far too long":            {strings.Repeat(" ", 256<<10) + "{}", "262146 bytes, at most 262144 are read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inv := ReadInventory(gputest.MakeNode(""), gputest.Annotated(gputest.MakeDevice(gputest.CardInfos(2)...), wire.AnnotationLinks, tc.links))
			checkBad(t, inv, "annotation daybreak-gpu.io/links: "+tc.want)
		})
	}
}

func TestReadInventoryBadAnnotation(t *testing.T) {
	one := func(fields string) string { return `[{"uuid":"GPU-0",` + fields + `}]` }
	many := strings.TrimSuffix(strings.Repeat(`{"uuid":"GPU-0"},`, 65), ",")
	cases := map[string]struct{ text, want string }{
		"nothing":               {"", "unexpected end of JSON input"},
		"no JSON":               {"[{", "unexpected end of JSON input"},
		"an object":             {"{}", "json: cannot unmarshal object..."},
		"something after it":    {"[] []", "invalid character '[' after top-level value"},
		"memory as a word":      {one(`"totalVRam":"64Gi"`), "json: cannot unmarshal string..."},
		"memory as a fraction":  {one(`"totalVRam":1.5`), "json: cannot unmarshal number..."},
		"memory past numbers":   {one(`"totalVRam":99999999999999999999`), "json: cannot unmarshal number..."},
		"health as a word":      {one(`"healthy":"yes"`), "json: cannot unmarshal string..."},
		"a card too many":       {"[" + many + "]", "65 cards, a node may hold 64"},
		"a hole in the list":    {`[{"uuid":"GPU-0"},null]`, `card 1: uuid "": want the card's UUID, 1 to 96 letters, digits and dashes`},
		"no UUID":               {`[{"healthy":true}]`, `card 0: uuid "": want the card's UUID, 1 to 96 letters, digits and dashes`},
		"a UUID that is a list": {`[{"uuid":"GPU-0,GPU-1"}]`, `card 0: uuid "GPU-0,GPU-1": want the card's UUID, 1 to 96 letters, digits and dashes`},
		"negative memory":       {one(`"totalVRam":-1`), "card 0: totalVRam -1: want MiB from 0 to 1073741824"},
		"huge memory":           {one(`"totalVRam":1073741825`), "card 0: totalVRam 1073741825: want MiB from 0 to 1073741824"},
		"negative slots":        {one(`"totalDevCount":-1`), "card 0: totalDevCount -1: want 0 or more"},
		"compute over 100":      {one(`"totalCompute":101`), "card 0: totalCompute 101: want percent from 0 to 100"},
		"negative compute":      {one(`"totalCompute":-1`), "card 0: totalCompute -1: want percent from 0 to 100"},
		"an unknown QoS":        {one(`"qosPolicy":"best"`), `card 0: qosPolicy "best": want one of [best-effort fixed-share burst-share]`},
		"far too long":          {strings.Repeat(" ", 256<<10) + "[]", "262146 bytes, at most 262144 are read"},
		"a QoS of another type": {one(`"qosPolicy":1`), "json: cannot unmarshal number..."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := gputest.MakeNode("sgpu: 16", wire.AnnotationNodeCards, tc.text)
			checkBad(t, ReadInventory(node, nil), "metax-tech.com/node-gpu-devices: "+tc.want)
			// It spoils a Device that is completed from it just as well.
			checkBad(t, ReadInventory(node, gputest.MakeDevice(gputest.CardInfos(1)...)), "metax-tech.com/node-gpu-devices: "+tc.want)
		})
	}
}

func TestReadInventoryBadOtherwise(t *testing.T) {
	twice := `[{"uuid":"GPU-0","totalVRam":1024,"healthy":true},{"uuid":"GPU-0","totalVRam":1024,"healthy":true}]`
	other := `[{"uuid":"GPU-9","totalVRam":1024,"healthy":true}]`
	cases := map[string]struct {
		inventory *Inventory
		want      string
	}{
		"a card twice in the annotation": {
			ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, twice), nil), `gpu: topology: cards 0 and 1 have the same id "GPU-0"`,
		},
		"a card twice in the annotation, with a Device": {
			ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, twice), gputest.MakeDevice(gputest.CardInfos(1)...)), "metax-tech.com/node-gpu-devices: a card is listed twice",
		},
		"healthy without memory in the annotation": {
			ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, `[{"uuid":"GPU-0","healthy":true}]`), nil),
			`gpu: topology: gpu: card "GPU-0" is healthy but has 0 MiB of memory, want at least 128`,
		},
		"a Device and an annotation of other cards": {
			ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, other), gputest.MakeDevice(gputest.CardInfos(2)...)),
			"the Device and the annotation metax-tech.com/node-gpu-devices have no card in common",
		},
		"slices advertised of cards that are not described": {
			ReadInventory(gputest.MakeNode("sgpu: 16"), nil),
			"the node advertises metax-tech.com/sgpu, but neither a Device nor the annotation metax-tech.com/node-gpu-devices describes its cards",
		},
		"more whole cards than a node may hold": {
			ReadInventory(gputest.MakeNode("gpu: 65"), nil), "the node advertises 65 of metax-tech.com/gpu, a node may hold 64 cards",
		},
		"more whole cards than can be counted": {
			ReadInventory(gputest.MakeNode("gpu: 18446744073709551624"), nil), // 8 in 64 bits
			"the node advertises 9223372036854775807 of metax-tech.com/gpu, a node may hold 64 cards",
		},
		"scores that are no table": {
			ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationScores, "[]"), nil), "metax-tech.com/gpu.topology.scores: json: cannot unmarshal array...",
		},
		"losses that are no table": {
			ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationLosses, `{"1":"x"}`), nil), "metax-tech.com/gpu.topology.losses: json: cannot unmarshal string...",
		},
		"a score of no cards": {
			ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationScores, `{"0":1}`), nil), `metax-tech.com/gpu.topology.scores: "0": want a number of cards from 1 to 64`,
		},
		"a score of a number in another form": {
			ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationScores, `{"01":1}`), nil), `metax-tech.com/gpu.topology.scores: "01": want a number of cards from 1 to 64`,
		},
		"a score below zero": {
			ReadInventory(gputest.MakeNode("gpu: 8", wire.AnnotationScores, `{"1":-1}`), nil), "metax-tech.com/gpu.topology.scores: -1 for 1 cards: want 0 to 1048576",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { checkBad(t, tc.inventory, tc.want) })
	}
}
