package hostile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Device is a Device that something is wrong with.
type Device struct {
	// Name says what, as part of an object's name.
	Name string
	// Harmless reports whether its cards can be read all the same, or it has none;
	// those of the others can't.
	Harmless bool

	spec any
	// annotations are those of the Device.
	annotations map[string]string
	labels      map[string]string
}

// JSON returns the Device of a node as it would be sent to the API server.
func (d *Device) JSON(node string) []byte {
	metadata := map[string]any{"name": node}
	if d.annotations != nil {
		metadata["annotations"] = d.annotations
	}
	if d.labels != nil {
		metadata["labels"] = d.labels
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": metadata, "spec": d.spec,
	})
	if err != nil {
		panic(err) // the collection is ours: it is wrong in other ways
	}
	return text
}

// Sound returns a Device that nothing is wrong with, with two cards whose names
// no other node has. Its agent serves and lists no pods, as earlier ones do: a pod
// without a readable allocation may hold cards there.
func Sound(node string) Device {
	serving := []any{object{"type": "Serving", "status": "True", "reason": "PluginsRegistered", "message": "", "lastTransitionTime": "2026-01-02T15:04:05Z"}}
	a, b := card(0, "conditions", serving), card(1, "conditions", serving)
	a["id"], b["id"] = "GPU-"+node+"-0", "GPU-"+node+"-1"
	return Device{Name: "sound", Harmless: true, spec: spec(a, b), annotations: map[string]string{"daybreak-gpu.io/mode": "sgpu"}}
}

type object = map[string]any

// card is a card as an agent publishes it.
func card(minor int, change ...any) object {
	c := object{
		"type": "gpu", "id": fmt.Sprintf("GPU-%d", minor), "minor": minor, "health": true,
		"resources": object{"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "64Gi", "koordinator.sh/gpu-memory-ratio": "100"},
		"topology":  object{"socketID": -1, "nodeID": 0, "pcieID": "pci0000:3a", "busID": "0000:3b:00.0"},
	}
	for i := 0; i < len(change); i += 2 {
		key, _ := change[i].(string)
		c[key] = change[i+1]
		if change[i+1] == nil {
			delete(c, key)
		}
	}
	return c
}

func spec(cards ...object) object { return object{"devices": cards} }

func memory(amount any) object { return object{"koordinator.sh/gpu-memory": amount} }

// many returns n cards.
func many(n int) []object {
	cards := make([]object, n)
	for i := range cards {
		cards[i] = card(i)
	}
	return cards
}

// Deep is JSON that is nested deeper than anyone means.
func Deep(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// Devices returns the collection.
func Devices() []Device {
	list := wrongCards()
	list = append(list, wrongTypes()...)
	list = append(list, wrongMemory()...)
	list = append(list, wrongAnnotations()...)
	return append(list, oddities()...)
}

// wrongCards are lists of cards that can't be.
func wrongCards() []Device {
	list := []Device{
		{Name: "same-uuid", spec: spec(card(0), card(1, "id", "GPU-0"))},
		{Name: "same-minor", spec: spec(card(0), card(1, "minor", 0))},
		{Name: "no-minor", spec: spec(card(0, "minor", nil))},
		{Name: "negative-minor", spec: spec(card(0, "minor", -1))},
		{Name: "no-uuid", spec: spec(card(0, "id", nil))},
		{Name: "a-card-too-many", spec: spec(many(65)...)},
		{Name: "two-thousand-cards", spec: spec(many(2000)...)},
	}
	for name, id := range map[string]string{
		"empty": "", "nul": "GPU-\x00", "newline": "GPU-0\nGPU-1", "comma": "GPU-0,GPU-1", "quote": `GPU-"0`, "colon": "GPU-0:;", "escape": "\x1b[2J\x1b[31m",
		"huge": strings.Repeat("G", 100_000), "backwards": "GPU-\u202e0", "path": "../../etc/passwd", "script": "<script>alert(1)</script>", "cut": "GPU-\ufffd",
	} {
		list = append(list, Device{Name: "uuid-" + name, spec: spec(card(0, "id", id))})
	}
	for name, zone := range map[string]string{"negative": "-1", "overflowing": "9223372036854775808", "word": "left", "float": "1.5", "nul": "\x00", "huge": strings.Repeat("1", 100_000)} {
		list = append(list, Device{Name: "zone-" + name, spec: spec(card(0, "labels", object{"daybreak-gpu.io/link-zone": zone}))})
	}
	return list
}

// wrongTypes are refused by the API server where the definition of Devices says
// what they look like, and are up to us where it does not.
func wrongTypes() []Device {
	return []Device{
		{Name: "spec-is-a-list", spec: []any{1, 2}},
		{Name: "spec-is-a-word", spec: "cards"},
		{Name: "devices-is-an-object", spec: object{"devices": object{"0": card(0)}}},
		{Name: "devices-is-a-number", spec: object{"devices": 8}},
		{Name: "a-card-is-a-list", spec: object{"devices": []any{[]any{}}}},
		{Name: "minor-is-a-word", spec: spec(card(0, "minor", "0"))},
		{Name: "minor-is-a-fraction", spec: spec(card(0, "minor", 0.5))},
		{Name: "minor-overflows", spec: spec(card(0, "minor", 1<<31))},
		{Name: "health-is-a-word", spec: spec(card(0, "health", "yes"))},
		{Name: "resources-is-a-list", spec: spec(card(0, "resources", []any{"64Gi"}))},
		{Name: "labels-is-a-word", spec: spec(card(0, "labels", "zone"))},
		{Name: "topology-is-a-list", spec: spec(card(0, "topology", []any{}))},
		{Name: "numa-is-a-word", spec: spec(card(0, "topology", object{"nodeID": "zero"}))},
		{Name: "conditions-is-an-object", spec: spec(card(0, "conditions", object{"type": "Healthy"}))},
		{Name: "condition-time-is-a-word", spec: spec(card(0, "conditions", []any{object{"type": "Healthy", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "yesterday"}}))},
		{Name: "memory-is-a-list", spec: spec(card(0, "resources", memory([]any{64})))},
		{Name: "id-is-a-number", spec: spec(card(0, "id", 7))},
		{Name: "deep", spec: object{"devices": json.RawMessage(Deep(5000))}},
	}
}

func wrongMemory() []Device {
	var list []Device
	for name, amount := range map[string]string{
		"negative": "-64Gi", "none": "0", "less-than-a-step": "127Mi", "endless": "1e999999999", "endless-small": "1e-999999999", "overflowing": "99999999999999999999Gi",
		"wrapping": "18446744142429028352", // 64Gi in the lower 64 bits
		"word":     "plenty", "empty": "", "nul": "64Gi\x00", "digits": strings.Repeat("9", 100_000), "exabytes": "8Ei",
	} {
		list = append(list, Device{Name: "memory-" + name, spec: spec(card(0, "resources", memory(amount)))})
	}
	return append(list, Device{Name: "memory-missing", spec: spec(card(0, "resources", nil))})
}

// Links are link matrices for a Device with the cards GPU-0 and GPU-1 that can't
// be meant.
func Links() map[string]string {
	return map[string]string{
		"to-itself": `{"cards":["GPU-0","GPU-1"],"links":["MM","M-"]}`, "one-way": `{"cards":["GPU-0","GPU-1"],"links":["-M",".-"]}`,
		"of-a-stranger": `{"cards":["GPU-0","GPU-7"],"links":["-M","M-"]}`, "twice": `{"cards":["GPU-0","GPU-0"],"links":["-M","M-"]}`,
		"not-square": `{"cards":["GPU-0","GPU-1"],"links":["-M.","M-"]}`, "too-few": `{"cards":["GPU-0"],"links":["-"]}`,
		"empty": "", "null": "null", "list": "[]", "numbers": `{"cards":[0,1],"links":[1,1]}`, "more": `{"cards":["GPU-0","GPU-1"],"links":["-M","M-"]}{}`,
		"other-letters": `{"cards":["GPU-0","GPU-1"],"links":["-\u0000","\u0000-"]}`, "wide-letters": `{"cards":["GPU-0","GPU-1"],"links":["-é","é-"]}`,
		"deep": Deep(50_000), "huge": `{"cards":[` + strings.Repeat(`"GPU-0",`, 20_000) + `"GPU-1"],"links":[]}`,
	}
}

// ForeignSlices are invalid annotations on foreign slices.
func ForeignSlices() map[string]string {
	return map[string]string{
		"negative": `[{"card":"GPU-0","slices":-1}]`, "too-many": `[{"card":"GPU-0","slices":17}]`, "overflowing": `[{"card":"GPU-0","slices":65537}]`,
		"compute": `[{"card":"GPU-0","slices":1,"compute":-5}]`, "memory": `[{"card":"GPU-0","slices":1,"memoryMiB":9223372036854775807}]`,
		"qos": `[{"card":"GPU-0","slices":1,"qosPolicy":"\u0000"}]`, "object": `{"GPU-0":1}`, "empty": "", "deep": Deep(50_000),
		"cards": "[" + strings.TrimSuffix(strings.Repeat(`{"card":"GPU-0","slices":1},`, 65), ",") + "]",
	}
}

// Givens are annotations on what kubelet gave to whom that can't be meant.
func Givens() map[string]string {
	return map[string]string{
		"no-uid": `[{"containers":{"c":["GPU-0"]}}]`, "no-containers": `[{"uid":"u"}]`,
		"card":       `[{"uid":"u","containers":{"c":["\u0000"]}}]`,
		"card-twice": `[{"uid":"u","containers":{"c":["GPU-0","GPU-0"]}}]`, "pod-twice": `[{"uid":"u","containers":{"c":[]}},{"uid":"u","containers":{"c":[]}}]`,
		"types": `[{"uid":7,"containers":{}}]`, "object": "{}", "empty": "", "deep": Deep(50_000), "long-uid": `[{"uid":"` + strings.Repeat("u", 1000) + `","containers":{"c":[]}}]`,
	}
}

func wrongAnnotations() []Device {
	var list []Device
	annotated := func(name, key, value string) {
		list = append(list, Device{Name: name, spec: spec(card(0), card(1)), annotations: map[string]string{key: value}})
	}
	for name, text := range Links() {
		annotated("links-"+name, "daybreak-gpu.io/links", text)
	}
	for name, text := range ForeignSlices() {
		annotated("strangers-"+name, "daybreak-gpu.io/foreign-slices", text)
	}
	for name, text := range Givens() {
		annotated("given-"+name, "daybreak-gpu.io/given-cards", text)
	}
	for name, mode := range map[string]string{"unknown": "turbo", "capitals": "SGPU", "empty": "", "nul": "sgpu\x00", "huge": strings.Repeat("sgpu", 20_000), "list": `["sgpu"]`} {
		annotated("mode-"+name, "daybreak-gpu.io/mode", mode)
	}
	return list
}

// oddities are strange and can be read.
func oddities() []Device {
	return []Device{
		{Name: "no-spec", Harmless: true, spec: nil},
		{Name: "no-cards", Harmless: true, spec: spec()},
		{Name: "other-devices", Harmless: true, spec: spec(object{"type": "rdma", "minor": -5, "health": true}, object{"type": strings.Repeat("x", 1000), "health": false})},
		{Name: "another-vendor", Harmless: true, spec: spec(card(0, "id", "")), labels: map[string]string{"node.koordinator.sh/gpu-vendor": "other"}},
		{Name: "new-fields", Harmless: true, spec: object{"devices": []any{card(0, "flux", object{"capacitor": 1.21}), card(1)}, "future": Deep(10)}},
		{Name: "new-annotations", Harmless: true, spec: spec(card(0)), annotations: map[string]string{"daybreak-gpu.io/of-tomorrow": "\x00\x01", "x/y": strings.Repeat("z", 10_000)}},
		{Name: "unwell", Harmless: true, spec: spec(card(0, "health", false, "resources", memory("0")))},
		{Name: "numa-nowhere", Harmless: true, spec: spec(card(0, "topology", object{"socketID": -1, "nodeID": -2147483648, "pcieID": "\x00", "busID": strings.Repeat("0", 10_000)}))},
		{Name: "labels-of-all-kinds", Harmless: true, spec: spec(card(0, "labels", object{"daybreak-gpu.io/pcie-switch": "\x00\n" + strings.Repeat("s", 10_000), "daybreak-gpu.io/uncorrectable-errors": "-9e99", "": ""}))},
		{Name: "operators-words", Harmless: true, spec: spec(card(0)), annotations: map[string]string{
			"daybreak-gpu.io/forget-card": strings.Repeat("GPU-0,", 10_000), "daybreak-gpu.io/card-repaired": "\x00,,,;GPU-9", "daybreak-gpu.io/mode-pending": "turbo",
		}},
	}
}
