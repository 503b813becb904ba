package gpu_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestNewTopologyRefusesBadFacts(t *testing.T) {
	cases := map[string]struct {
		count  int
		change func(cards []gpu.Card)
		links  []gpu.Link
		want   string
	}{
		"more cards than a set can hold":    {count: 65, want: "65 cards, a node may hold 64"},
		"two cards with one id":             {count: 3, change: func(c []gpu.Card) { c[2].ID = "GPU-0" }, want: `cards 0 and 2 have the same id "GPU-0"`},
		"a link to a card that is not":      {count: 2, links: []gpu.Link{{A: 0, B: 2}}, want: "link 0-2 on a node with 2 cards"},
		"a link from a card that is not":    {count: 2, links: []gpu.Link{{A: 2, B: 0}}, want: "link 2-0 on a node with 2 cards"},
		"a link to a negative card":         {count: 2, links: []gpu.Link{{A: 0, B: -1}}, want: "link 0--1 on a node with 2 cards"},
		"a link from a negative card":       {count: 2, links: []gpu.Link{{A: -1, B: 0}}, want: "link -1-0 on a node with 2 cards"},
		"a card linked to itself":           {count: 2, links: []gpu.Link{{A: 0, B: 1}, {A: 1, B: 1}}, want: "link 1-1 on a node with 2 cards"},
		"negative memory":                   {count: 1, change: func(c []gpu.Card) { c[0].Memory = -128 }, want: `card "GPU-0" has -128 MiB of memory, want 0 to`},
		"more memory than any card has":     {count: 1, change: func(c []gpu.Card) { c[0].Memory = 16<<20 + 128 }, want: "16777344 MiB of memory, want 0 to 16"},
		"a healthy card without memory":     {count: 1, change: func(c []gpu.Card) { c[0].Memory = 0 }, want: "is healthy but has 0 MiB of memory, want at least 128"},
		"memory that is no multiple of 128": {count: 1, change: func(c []gpu.Card) { c[0].Memory = 1000 }, want: "has 1000 MiB of memory, want a multiple of 128"},
		"a card that takes no share":        {count: 1, change: func(c []gpu.Card) { c[0].Slots = 0 }, want: "takes 0 shares, want 1 to 16"},
		"a card that takes 17 shares":       {count: 1, change: func(c []gpu.Card) { c[0].Slots = 17 }, want: "takes 17 shares, want 1 to 16"},
		"a negative minor number":           {count: 1, change: func(c []gpu.Card) { c[0].Minor = -1 }, want: "has minor number -1, want 0 or more"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cards := gputest.Cards(tc.count)
			if tc.change != nil {
				tc.change(cards)
			}
			_, err := gpu.NewTopology(cards, tc.links)
			if !errors.Is(err, gpu.ErrTopology) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("error %v, want a topology error with %q", err, tc.want)
			}
		})
	}
}

func TestNewTopologyTakesOddButSoundFacts(t *testing.T) {
	cases := map[string]func(cards []gpu.Card){
		"a lost card without memory":   func(c []gpu.Card) { c[0].Healthy, c[0].Memory = false, 0 },
		"several cards without an id":  func(c []gpu.Card) { c[0].ID, c[1].ID = "", "" },
		"the most memory there may be": func(c []gpu.Card) { c[0].Memory = 16 << 20 },
		"the least memory":             func(c []gpu.Card) { c[0].Memory = gpu.MemoryStep },
		"a card of one share":          func(c []gpu.Card) { c[0].Slots = 1 },
		"minor numbers out of order":   func(c []gpu.Card) { c[0].Minor = 7 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			cards := gputest.Cards(2)
			change(cards)
			if _, err := gpu.NewTopology(cards, []gpu.Link{{A: 0, B: 1}, {A: 1, B: 0}}); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	if topology, err := gpu.NewTopology(gputest.Cards(gpu.MaxCards), nil); err != nil || topology.All().Len() != gpu.MaxCards {
		t.Errorf("64 cards: %v", err)
	}
}

func TestTopologyKeepsItsOwnCards(t *testing.T) {
	cards := gputest.Cards(3)
	cards[1].Healthy, cards[2].ID = false, ""
	topology := gputest.MustTopology(cards, nil)
	cards[0].ID, cards[0].Healthy = "changed", false

	if got := topology.Card(0).ID; got != "GPU-0" {
		t.Errorf("card 0 is %q after the caller changed its own", got)
	}
	if got, want := topology.Healthy(), gpu.SetOf(0, 2); got != want {
		t.Errorf("healthy cards %v, want %v", got.Indices(), want.Indices())
	}
	if i, ok := topology.Index("GPU-1"); !ok || i != 1 {
		t.Errorf("Index(GPU-1) = %d, %t", i, ok)
	}
	for _, id := range []gpu.CardID{"", "changed", "GPU-2"} {
		if i, ok := topology.Index(id); ok {
			t.Errorf("Index(%q) = %d, want none", id, i)
		}
	}
}

func TestZoneLinks(t *testing.T) {
	got := gpu.ZoneLinks([]int{1, 0, 1, 2, 0, -1, -1, 1, 2})
	want := []gpu.Link{{A: 0, B: 2}, {A: 0, B: 7}, {A: 2, B: 7}, {A: 3, B: 8}}
	gputest.Equal(t, "links", want, got)
}

func TestMemoIsBounded(t *testing.T) {
	const puts, bound = 20_000, 4096
	var m gpu.Memo
	key := func(i int) [4]uint64 { return [4]uint64{uint64(i), 1, 2, 3} }
	for i := range puts {
		m.Put(key(i), gpu.MemoAnswer{Cards: gpu.Set(i), Complete: i%2 == 0})
		if a, ok := m.Get(key(i)); !ok || a.Cards != gpu.Set(i) || a.Complete != (i%2 == 0) {
			t.Fatalf("answer %d is %v, %t right after it was put", i, a, ok)
		}
	}
	kept := 0
	for i := range puts {
		if _, ok := m.Get(key(i)); ok {
			kept++
		}
	}
	if kept == 0 || kept > bound {
		t.Errorf("%d answers kept of %d, want at most %d", kept, puts, bound)
	}
	if _, ok := m.Get([4]uint64{1, 1, 2, 4}); ok {
		t.Error("an answer to a search that was not stored")
	}
}

// TestMemoIsShared is for the race detector: decisions on clones of a node run
// at the same time and share the topology.
func TestMemoIsShared(t *testing.T) {
	var m gpu.Memo
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 5000 {
				key := [4]uint64{uint64(i)}
				if a, ok := m.Get(key); ok && a.Cards != gpu.Set(i) {
					t.Errorf("worker %d: answer %d is %v", w, i, a)
				}
				m.Put(key, gpu.MemoAnswer{Cards: gpu.Set(i), Complete: true})
			}
		})
	}
	all.Wait()
}
