package inventory

import (
	"cmp"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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
		checkReadsBack(t, cards, EncodeNodeCards, DecodeNodeCards)
		inv := ReadInventory(gputest.MakeNode("", wire.AnnotationNodeCards, text), nil)
		n := inv.NewNode()
		inv.BookForeign(n)
		gputest.Must(t, gputest.CheckNode(n))
		if inv.Problem == nil && inv.Topology.Len() != len(cards) {
			t.Fatalf("%d cards of %d", inv.Topology.Len(), len(cards))
		}
	})
}

func FuzzDecodeTable(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"1":0}`, `{"1":0,"2":110,"3":330,"4":660}`, `{"01":1}`, `{"0":1}`, `{"65":1}`, `{"1":-1}`,
		`{"1":1048577}`, `{"1":1e3}`, `{"1":1.5}`, `{"1":"1"}`, `{"1":1,"1":2}`, `{"1":null}`, `{" 1":1}`, `{"+1":1}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := decodeTable(text)
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
		checkReadsBack(t, table, func(map[int]int64) (string, error) { return EncodeTable(figures) }, decodeTable)
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
		links, err := decodeLinks(text, cards)
		if err != nil {
			return
		}
		topology, err := gpu.NewTopology(cards, links)
		if err != nil {
			t.Fatalf("links %v: %v", links, err)
		}
		checkReadsBack(t, sorted(links), func([]gpu.Link) (string, error) { return EncodeLinks(topology) }, func(text string) ([]gpu.Link, error) {
			back, err := decodeLinks(text, cards)
			return sorted(back), err
		})
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
