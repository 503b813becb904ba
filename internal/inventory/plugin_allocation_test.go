package inventory

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

func TestCardOfID(t *testing.T) {
	topology := gputest.Zones(12) // GPU-1 begins the name of GPU-10
	for id, want := range map[string]gpu.CardID{
		"GPU-1": "GPU-1", "GPU-10": "GPU-10", "GPU-1::3": "GPU-1", "GPU-1-12:2": "GPU-1", "GPU-10-0:15": "GPU-10",
		"GPU-": "", "": "", "GPU-1:3": "", "GPU-1::": "", "GPU-1::x": "", "GPU-1-12": "", "GPU-1-12:": "", "GPU-1-:2": "", "GPU-112:2": "", "GPU-1-1:1:1": "", "GPU-99": "", "GPU-1::1234567890": "",
	} {
		if got, ok := CardOfID(topology, id); got != want || ok != (want != "") {
			t.Errorf("CardOfID(%q) = %q, %t, want %q", id, got, ok, want)
		}
	}
}

func FuzzDecodePluginAllocations(f *testing.F) {
	for _, text := range hostile.Givens() {
		f.Add(text)
	}
	f.Add(`[{"uid":"u1","containers":{"c":["GPU-0"],"d":["GPU-1","GPU-2"]}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		given, err := decodePluginAllocations(text)
		if err != nil {
			return
		}
		again, err := encodePluginAllocations(given)
		gputest.Must(t, err)
		back, err := decodePluginAllocations(again)
		if diff := gocmp.Diff(given, back, cmpopts.EquateEmpty()); (err != nil || diff != "") && len(again) < wire.MaxAnnotation/2-4096 {
			t.Fatalf("read back from %s: %v (-first +second):\n%s", again, err, diff)
		}
	})
}

// TestPluginAllocationsFit: a pod that is missing in the annotation holds no cards, so all
// are listed or none. No pod is named: every user of the dashboard reads Devices.
func TestPluginAllocationsFit(t *testing.T) {
	given := map[types.UID]PluginAllocation{}
	add := func(n int) {
		for range n {
			given[types.UID(fmt.Sprintf("u%04d", len(given)))] = PluginAllocation{Cards: map[string][]gpu.CardID{"c": {"GPU-0"}}}
		}
	}
	add(500)
	text, err := encodePluginAllocations(given)
	gputest.Must(t, err)
	if want := `[{"uid":"u0000","containers":{"c":["GPU-0"]}},`; !strings.HasPrefix(text, want) {
		t.Errorf("%.80s, want %s", text, want)
	}
	if back, err := decodePluginAllocations(text); err != nil || !gocmp.Equal(back, given) {
		t.Errorf("%d pods, %v", len(back), err)
	}
	add(maxGiven)
	topology := gputest.Zones(1)
	d, err := EncodeDevice(&Publication{Node: "n1", Mode: gpu.ModeSGPU, Topology: topology, Cards: make([]CardStatus, 1), PluginAllocations: given})
	if text, there := d.Annotations[wire.AnnotationPluginAllocations]; err != nil || there {
		t.Errorf("of %d pods: %.200s, %v", len(given), text, err)
	}
}

// FuzzDecodeForeignSlices: what is read is within what the driver can have made.
func FuzzDecodeForeignSlices(f *testing.F) {
	for _, text := range hostile.ForeignSlices() {
		f.Add(text)
	}
	f.Add(`[{"card":"GPU-0","slices":2,"compute":30,"memoryMiB":4000,"qosPolicy":"fixed-share"},{"card":"GPU-9","slices":1,"compute":1,"memoryMiB":1}]`)
	topology := gputest.Zones(4)
	f.Fuzz(func(t *testing.T, text string) {
		byCard, err := decodeForeignSlices(text)
		if err != nil {
			return
		}
		for i, u := range usageOf(byCard, topology) {
			if u.Slots < 0 || u.Slots > gpu.MaxSlices || u.Compute < 0 || u.Memory < 0 || u.Memory%gpu.MemoryStep != 0 {
				t.Fatalf("card %d has %+v", i, u)
			}
		}
		checkReadsBack(t, byCard, encodeForeignSlices, decodeForeignSlices)
	})
}

// FuzzCardNames: ids and lists of cards, as kubelet and operators write them,
// name cards of the node or nothing.
func FuzzCardNames(f *testing.F) {
	for _, text := range []string{"GPU-1", "GPU-1::3", "GPU-1-12:2", "GPU-0,GPU-1 GPU-2", ",,", "\x00", "GPU-1-1:1:1", strings.Repeat("GPU-0,", 1000)} {
		f.Add(text)
	}
	topology := gputest.Zones(12)
	f.Fuzz(func(t *testing.T, text string) {
		if card, ok := CardOfID(topology, text); ok {
			if _, known := topology.Index(card); !known || !strings.HasPrefix(text, string(card)) || strings.Trim(text[len(card):], "-:0123456789") != "" {
				t.Fatalf("%q is card %q", text, card)
			}
		}
		list := CardList(text)
		if len(list) > gpu.MaxCards {
			t.Fatalf("%d cards", len(list))
		}
		for i, id := range list {
			if !validUUID(string(id)) || !strings.Contains(text, string(id)) || i > 0 && list[i-1] >= id {
				t.Fatalf("%q is %q", text, list)
			}
		}
	})
}
