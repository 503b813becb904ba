package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/gputest"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

func FuzzDecodeNodeCards(f *testing.F) {
	for _, text := range []string{
		"", "null", "[]", "[null]", "{}", `[{"uuid":"GPU-a"}]`,
		`[{"uuid":"GPU-a","bdf":"0000:38:00.0","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"availableDevCount":15,` +
			`"availableCompute":40,"availableVRam":61440,"numa":-1,"healthy":true,"qosPolicy":"best-effort","linkZone":1}]`,
		`[{"uuid":"GPU-a","healthy":true,"totalVRam":65500},{"uuid":"GPU-b","healthy":true,"totalVRam":128,"linkZone":1}]`,
		`[{"uuid":"GPU-a","availableVRam":-9223372036854775808,"totalVRam":1073741824,"availableDevCount":9223372036854775807}]`,
		`[{"uuid":"GPU-a","totalDevCount":1,"totalVRam":1,"availableCompute":0}]`, // less memory than a step, all of it in use
		`[{"uuid":"GPU-a","qosPolicy":"x"}]`, `[{"uuid":"\u0000\ud800"}]`, `[{"uuid":"GPU-a"},{"uuid":"GPU-a"}]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cards, err := DecodeNodeCards(text)
		if err != nil {
			return
		}
		if len(cards) > gpu.MaxCards {
			t.Fatalf("%d cards", len(cards))
		}
		again, err := EncodeNodeCards(cards)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeNodeCards(again)
		if diff := gocmp.Diff(cards, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read back from %s: %v (-first +second):\n%s", again, err, diff)
		}
		inv := ReadInventory(nodeOf("", AnnotationNodeCards, text), nil)
		checkInventory(t, inv)
		if inv.Problem == nil && inv.Topology.Len() != len(cards) {
			t.Fatalf("%d cards of %d", inv.Topology.Len(), len(cards))
		}
	})
}

// checkInventory checks what every inventory promises, whatever it was read
// from: sound cards or a problem, and strangers within what a card has.
func checkInventory(t *testing.T, inv *Inventory) {
	t.Helper()
	n, _ := NewNode(inv, nil)
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
		if (c.ID == "") != inv.Counted || len(c.ID) > MaxUUID {
			t.Fatalf("card %d has id %q, counted %t", i, c.ID, inv.Counted)
		}
		if u.Slots < 0 || u.Slots > gpu.MaxSlices || u.Compute < 0 || u.Compute > 100 || u.Memory < 0 || u.Memory > c.Memory+gpu.MemoryStep {
			t.Fatalf("card %d of %d MiB has %+v of strangers", i, c.Memory, u)
		}
		if u.Slots == 0 && u != (ledger.Usage{}) {
			t.Fatalf("nobody is on card %d, but it has %+v", i, u)
		}
		if linked := n.Topology().Linked(i); linked.Has(i) || linked&^n.Topology().All() != 0 {
			t.Fatalf("card %d is linked to %b", i, linked)
		}
	}
}

func FuzzDecodeTable(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"1":0}`, `{"1":0,"2":110,"3":330,"4":660}`, `{"01":1}`, `{"0":1}`, `{"65":1}`, `{"1":-1}`,
		`{"1":1048577}`, `{"1":1e3}`, `{"1":1.5}`, `{"1":"1"}`, `{"1":1,"1":2}`, `{"1":null}`, `{" 1":1}`, `{"+1":1}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := DecodeTable(text)
		if err != nil {
			return
		}
		var figures []int64
		for n, v := range table {
			if n < 1 || n > gpu.MaxCards || v < 0 || v > 1<<20 {
				t.Fatalf("%d for %d cards", v, n)
			}
		}
		for n := 1; n <= len(table); n++ {
			v, ok := table[n]
			if !ok {
				return // a table with holes; we write none
			}
			figures = append(figures, v)
		}
		again, err := EncodeTable(figures)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeTable(again)
		if diff := gocmp.Diff(table, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read back from %s: %v (-first +second):\n%s", again, err, diff)
		}
	})
}

func FuzzDecodeLinks(f *testing.F) {
	for n, text := range []string{
		`{}`, `{"cards":["GPU-0"],"links":["-"]}`, `{"cards":["GPU-1","GPU-0"],"links":["-M","M-"]}`,
		`{"cards":["GPU-2","GPU-0","GPU-1"],"links":["-M.","M-M",".M-"]}`, `{"cards":["GPU-0","GPU-1","GPU-2","GPU-3"],"links":["-M.M","M-M.",".M-M","M.M-"]}`,
		`{"cards":[],"links":[],"x":1}`, `{"cards":["GPU-0"],"links":["-"]}{}`, `{"cards":null,"links":null}`, `{"cards":["GPU-0","GPU-0"],"links":["-M",".-"]}`, `null`,
	} {
		f.Add(text, uint8(n))
	}
	for _, topology := range []*gpu.Topology{gputest.Rings(4, 4), gputest.Zones(2, 4, 2), gputest.Unlike(16)} {
		text, _ := EncodeLinks(topology)
		f.Add(text, uint8(topology.Len()))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		cards := gputest.Cards(int(n) % (gpu.MaxCards + 1))
		links, err := DecodeLinks(text, cards)
		if err != nil {
			return
		}
		topology, err := gpu.NewTopology(cards, links)
		if err != nil {
			t.Fatalf("links %v: %v", links, err)
		}
		again, err := EncodeLinks(topology)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeLinks(again, cards)
		if diff := gocmp.Diff(sorted(links), sorted(back), cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read back from %s: %v (-first +second):\n%s", again, err, diff)
		}
	})
}

// sorted returns the links in order, each with its lower card first.
func sorted(links []gpu.Link) []gpu.Link {
	out := slices.Clone(links)
	for i, l := range out {
		out[i] = gpu.Link{A: min(l.A, l.B), B: max(l.A, l.B)}
	}
	slices.SortFunc(out, func(a, b gpu.Link) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	return out
}

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
		checkShares(t, lists)
		n, h, ok := holdingOf(lists)
		if !ok {
			return
		}
		again, err := encodeVendor(n, h)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeVendor(again)
		checkSameShares(t, lists, back, again, err)
	})
}

// checkShares checks the bounds that every decoder promises.
func checkShares(t *testing.T, lists [][]namedShare) {
	t.Helper()
	if len(lists) > MaxListedContainers {
		t.Fatalf("%d containers", len(lists))
	}
	for _, list := range lists {
		seen := map[string]bool{}
		for _, s := range list {
			if s.id == "" || len(s.id) > MaxUUID || s.compute < 0 || s.compute > 100 || s.memory < 0 || s.memory > maxShareMemory || seen[s.id] {
				t.Fatalf("share %+v, again: %t", s, seen[s.id])
			}
			seen[s.id] = true
		}
		if len(list) > gpu.MaxCards {
			t.Fatalf("%d cards in one container", len(list))
		}
	}
}

func checkSameShares(t *testing.T, want, got [][]namedShare, text string, err error) {
	t.Helper()
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(namedShare{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("read back from %s: %v (-first +second):\n%s", text, err, diff)
	}
}

// holdingOf returns a node with the cards that are named, and the shares as a
// holding on it. It is not ok when no node could have all the cards.
func holdingOf(lists [][]namedShare) (n *ledger.Node, h *ledger.Holding, ok bool) {
	var cards []gpu.Card
	index := map[string]int{}
	h = &ledger.Holding{Holder: "default/p"}
	for i, list := range lists {
		part := ledger.Part{Container: fmt.Sprintf("c%d", i)}
		for _, s := range list {
			if _, known := index[s.id]; !known {
				index[s.id] = len(cards)
				cards = append(cards, gpu.Card{ID: gpu.CardID(s.id), Minor: len(cards), Memory: 1 << 20, Slots: 16, Healthy: true})
			}
			part.Shares = append(part.Shares, ledger.Share{Card: index[s.id], Compute: gpu.Percent(s.compute), Memory: s.memory})
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
		checkShares(t, lists)
		n, h, ok := holdingOf(lists)
		if !ok {
			return
		}
		// Written as if each container had asked for slices.
		again := encodeHAMi(n, h, make([]gpu.Request, len(lists)), false)
		if again == "" && slices.ContainsFunc(lists, func(l []namedShare) bool { return len(l) > 0 }) {
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
	inv := ReadInventory(nodeOf(""), deviceOf(cardInfo("GPU-0", 10), cardInfo("GPU-1", 11, withMemory("40000Mi")), cardInfo("GPU-2", 12), cardInfo("GPU-3", 13)))
	f.Fuzz(func(t *testing.T, text string) {
		n := inv.Open()
		shares, err := decodeKoordinator(text, n)
		if err != nil {
			return
		}
		checkShares(t, [][]namedShare{shares})
		h, known := ledger.Holding{Parts: []ledger.Part{{}}}, []namedShare{}
		for i := range n.Topology().Len() { // in the order they are written
			for _, s := range shares {
				if s.id == string(n.Topology().Card(i).ID) {
					h.Parts[0].Shares = append(h.Parts[0].Shares, ledger.Share{Card: i, Compute: gpu.Percent(s.compute), Memory: s.memory})
					known = append(known, s)
				}
			}
		}
		again, err := encodeKoordinator(n, &h)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeKoordinator(again, n)
		checkSameShares(t, [][]namedShare{known}, [][]namedShare{back}, again, err)
	})
}
