package allocation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func FuzzDecodeVendor(f *testing.F) {
	for _, text := range []string{
		"", "null", "[]", "[[]]", "[null]", "[[null]]", "[[{}]]", `[[{"uuid":"GPU-a","compute":60,"vRam":4096}],[]]`,
		`[[{"uuid":"GPU-a","compute":5,"vRam":1024},{"uuid":"GPU-b","compute":5,"vRam":1024}]]`, `[[{"uuid":"GPU-a"},{"uuid":"GPU-a"}]]`,
		`[[{"uuid":"GPU-a","compute":101}]]`, `[[{"uuid":"GPU-a","vRam":-1}]]`, `[[{"uuid":"GPU-a","compute":1e1}]]`, `[[{"uuid":"GPU-a","compute":2147483648}]]`,
		`[[{"uuid":"<a&\u2028>"}]]`, strings.Repeat("[", 200),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lists, err := decodeVendor(text)
		if err != nil {
			return
		}
		checkBounds(t, lists...)
		n, h, ok := holdingOf(lists)
		if !ok {
			return
		}
		again, err := encodeVendor(n, h)
		gputest.Must(t, err)
		back, err := decodeVendor(again)
		checkSameShares(t, lists, back, again, err)
	})
}

// checkBounds checks the bounds that every decoder promises.
func checkBounds(t *testing.T, lists ...[]NamedShare) {
	t.Helper()
	if len(lists) > wire.MaxListedContainers {
		t.Fatalf("%d containers", len(lists))
	}
	for _, list := range lists {
		seen := map[gpu.CardID]bool{}
		for _, s := range list {
			if s.UUID == "" || len(s.UUID) > wire.MaxUUID || s.Compute < 0 || s.Compute > 100 || s.Memory < 0 || s.Memory > maxShareMemory || seen[s.UUID] {
				t.Fatalf("share %+v, again: %t", s, seen[s.UUID])
			}
			seen[s.UUID] = true
		}
		if len(list) > gpu.MaxCards {
			t.Fatalf("%d cards in one container", len(list))
		}
	}
}

func checkSameShares(t *testing.T, want, got [][]NamedShare, text string, err error) {
	t.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("read back from %s: %v (-first +second):\n%s", text, err, diff)
	}
}

// holdingOf returns a node with the cards that are named, and the shares as a
// holding on it. It is not ok when no node could have all the cards.
func holdingOf(lists [][]NamedShare) (n *ledger.Node, h *ledger.Holding, ok bool) {
	var cards []gpu.Card
	index := map[gpu.CardID]int{}
	h = &ledger.Holding{Holder: "default/p"}
	for i, list := range lists {
		part := ledger.Part{Container: fmt.Sprintf("c%d", i)}
		for _, s := range list {
			if _, known := index[s.UUID]; !known {
				index[s.UUID] = len(cards)
				cards = append(cards, gpu.Card{ID: s.UUID, Minor: len(cards), Memory: 1 << 20, Slots: 16, Healthy: true})
			}
			part.Shares = append(part.Shares, ledger.Share{Card: index[s.UUID], Compute: s.Compute, Memory: s.Memory})
		}
		h.Parts = append(h.Parts, part)
	}
	topology, err := gpu.NewTopology(cards, nil)
	if err != nil {
		return nil, nil, false
	}
	return gputest.Node(topology), h, true
}

func FuzzDecodeHAMi(f *testing.F) {
	for _, text := range []string{
		"", ";", ";;", "GPU-a,Metax-SGPU,4096,60:;", "GPU-a,Metax-SGPU,4096,60:;GPU-a,Metax-SGPU,8192,30:;", ";GPU-a,Metax-GPU,65536,100:GPU-b,Metax-GPU,65536,100:;",
		"n1-metax-0,Metax-GPU,65536,100:;", "GPU-a,Metax-SGPU,4096,60", "GPU-a,Metax-SGPU,4096:;", "GPU-a,NVIDIA,1,1:;", "GPU-a,Metax-SGPU,-1,1:;", "GPU-a,Metax-SGPU,+1,01:;",
		":;", "::;", "GPU-a,Metax-SGPU,1,1::;", ",Metax-SGPU,1,1:;", "GPU-a,Metax-SGPU,1,1,x,y:;", "GPU-a,Metax-SGPU,99999999999999999999,1:;",
	} {
		f.Add(text, "")
		f.Add("", text)
		f.Add(text, ";")
	}
	f.Fuzz(func(t *testing.T, sgpu, whole string) {
		lists, err := decodeHAMi("n1", sgpu, whole)
		if err != nil {
			return
		}
		checkBounds(t, lists...)
		n, h, ok := holdingOf(lists)
		if !ok {
			return
		}
		// Written as if each container had asked for slices.
		again := encodeHAMi(n, h, make([]gpu.Request, len(lists)), false)
		if again == "" && slices.ContainsFunc(lists, func(l []NamedShare) bool { return len(l) > 0 }) {
			t.Fatalf("nothing is written of %+v", lists)
		}
		if again == "" {
			return
		}
		back, err := decodeHAMi("n1", again, "")
		checkSameShares(t, lists, back, again, err)
	})
}

func FuzzDecodeKoordinator(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", `{"gpu":null}`, `{"gpu":[]}`, `{"gpu":[{}]}`, `{"gpu":[null]}`, `{"rdma":[{"minor":1}]}`, `{"gpu":[{"minor":11},{"id":"GPU-1"}]}`,
		`{"gpu":[{"minor":10,"resources":{"koordinator.sh/gpu-core":"10","koordinator.sh/gpu-memory":"1Gi","koordinator.sh/gpu-memory-ratio":"1"},"id":"GPU-0"}]}`,
		`{"gpu":[{"minor":12,"resources":{"koordinator.sh/gpu-core":33,"koordinator.sh/gpu-memory-ratio":33}}]}`, `{"gpu":[{"minor":-1}]}`,
		`{"gpu":[{"id":"GPU-9","resources":{"koordinator.sh/gpu-memory-ratio":"50"}}]}`, `{"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"17Ti"}}]}`,
		`{"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"1e-2147483647"}}]}`, `{"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"500m"}}]}`,
		`{"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":"9223372036854775808"}}]}`, `{"gpu":[{"id":"GPU-0","resources":{"koordinator.sh/gpu-memory":null}}]}`,
	} {
		f.Add(text)
	}
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfo("GPU-0", 10), gputest.CardInfo("GPU-1", 11, gputest.WithMemory("40000Mi")), gputest.CardInfo("GPU-2", 12), gputest.CardInfo("GPU-3", 13)))
	f.Fuzz(func(t *testing.T, text string) {
		n := inv.NewNode()
		shares, err := decodeKoordinator(text, n)
		if err != nil {
			return
		}
		checkBounds(t, shares)
		h, known := ledger.Holding{Parts: []ledger.Part{{}}}, []NamedShare{}
		for i := range n.Topology().Len() { // in the order they are written
			for _, s := range shares {
				if s.UUID == n.Topology().Card(i).ID {
					h.Parts[0].Shares = append(h.Parts[0].Shares, ledger.Share{Card: i, Compute: s.Compute, Memory: s.Memory})
					known = append(known, s)
				}
			}
		}
		again, err := encodeKoordinator(n, &h)
		gputest.Must(t, err)
		back, err := decodeKoordinator(again, n)
		checkSameShares(t, [][]NamedShare{known}, [][]NamedShare{back}, again, err)
	})
}

// FuzzDevice goes all the way: any Device, with any vendor's annotation with
// it, any allocation on a pod there, and a decision on the node.
func FuzzDevice(f *testing.F) {
	const good = `{"metadata":{"name":"n1","labels":{"node.koordinator.sh/gpu-vendor":"metax"},"annotations":{"daybreak-gpu.io/mode":"sgpu",` +
		`"daybreak-gpu.io/links":"{\"cards\":[\"GPU-1\",\"GPU-0\"],\"links\":[\"-M\",\"M-\"]}"}},"spec":{"devices":[` +
		`{"type":"gpu","id":"GPU-1","minor":1,"health":true,"resources":{"koordinator.sh/gpu-memory":"64Gi"},"topology":{"nodeID":-1,"pcieID":"pci0000:3a"}},` +
		`{"type":"gpu","id":"GPU-0","minor":0,"health":false,"labels":{"daybreak-gpu.io/link-zone":"1","daybreak-gpu.io/pcie-switch":"s"}}]}}`
	const plain = `{"spec":{"devices":[{"type":"gpu","id":"GPU-0","minor":0,"health":true,"resources":{"koordinator.sh/gpu-memory":"64Gi"}},{"type":"rdma"}]}}`
	const listed = `[{"uuid":"GPU-0","totalVRam":65536,"availableVRam":1,"availableDevCount":1,"healthy":true,"linkZone":1}]`
	for _, s := range [][3]string{
		{good, "", `[[{"uuid":"GPU-1","compute":10,"vRam":128}]]`},
		{plain, listed, `[[{"uuid":"GPU-0","compute":100,"vRam":65536}]]`},
		{plain, `[{"uuid":"GPU-9"}]`, `[[]]`},
		{`{}`, listed, ``},
		{`{"spec":{"devices":[{"type":"gpu","id":"GPU-0","minor":-1}]}}`, "", ""},
		{`{"spec":{"devices":[{"type":"gpu","id":"GPU-0","minor":0,"health":true,"resources":{"koordinator.sh/gpu-memory":"18446744142429028352"}}]}}`, "", ""},
		{`{"metadata":{"annotations":{"daybreak-gpu.io/mode":"vgpu"}},"spec":{"devices":[{"type":"gpu","id":"a,b","minor":0,"health":true,"resources":{"koordinator.sh/gpu-memory":1}}]}}`, "", ""},
		{`{"metadata":{"annotations":{"daybreak-gpu.io/mode":"shared"}},"spec":{"devices":[{"type":"gpu","id":"GPU-0","minor":0,"health":true,"resources":{"koordinator.sh/gpu-memory":"64Gi"}}]}}`, "", `[[{"uuid":"GPU-0"}]]`},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, deviceText, nodeCards, allocated string) {
		if len(deviceText) > 1<<14 {
			return
		}
		device, err := wire.DecodeDevice([]byte(deviceText))
		if err != nil {
			return
		}
		node := gputest.MakeNode("")
		if nodeCards != "" {
			node = gputest.MakeNode("", wire.AnnotationNodeCards, nodeCards)
		}
		inv := inventory.ReadInventory(node, device)
		checkInventory(t, inv)
		pod := app("sgpu: 1, vcore: 10, vmemory: 4").On("n1").Annotate(wire.AnnotationAllocated, allocated).Obj()
		n, notes := NewNode(inv, podList(pod))
		if len(n.Unknown()) > 0 && len(notes) == 0 {
			t.Fatal("a pod is not accounted for, and no note says so")
		}
		for _, h := range n.Holdings() {
			for c := range h.Cards().All() {
				if u := h.On(c); u.Compute > 10 || u.Memory > 4096 || u.Exclusive || h.Cards().Len() > 1 {
					t.Fatalf("booked beyond the limits: %+v", h)
				}
			}
		}
		for _, request := range []*gpu.PodRequest{gputest.AskSlice(10, 1024), gputest.AskWhole(1), gputest.AskWhole(2)} {
			offer, refusal := place.Fit(n, request, &place.Preference{})
			if (inv.Problem != nil) != (refusal.Code == place.BadInventory) {
				t.Fatalf("problem %v, refusal %s", inv.Problem, refusal.Code)
			}
			if refusal.Code != place.Fits {
				continue
			}
			cards := offer.Cards(0)
			if cards.Len() != request.Requests[0].Cards || cards&^n.Topology().Healthy() != 0 {
				t.Fatalf("%d cards were asked for: got %v, healthy are %v", request.Requests[0].Cards, cards.Indices(), n.Topology().Healthy().Indices())
			}
		}
	})
}
