package place_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// some is a number of pods of one kind.
type some struct {
	pods int
	of   *gpu.PodRequest
}

// expecting returns the default preference with these pods there.
func expecting(t *testing.T, supply map[string]int, there ...some) place.Preference {
	t.Helper()
	c := place.NewCensus()
	if supply != nil {
		c.SetSupply(supply)
	}
	for _, s := range there {
		c.Add(place.KindsOf(s.of), s.pods)
	}
	d := c.Demand()
	if d == nil {
		t.Fatal("too few pods to expect anything")
	}
	return place.Preference{Demand: d}
}

// takes: the pod takes this much CPU.
func takes(cpu gpu.MilliCPU, r *gpu.PodRequest) *gpu.PodRequest {
	return ask(r, func(r *gpu.PodRequest) { r.CPU = cpu })
}

// onlyOn: the pod runs on these models.
func onlyOn(r *gpu.PodRequest, models ...string) *gpu.PodRequest {
	return ask(r, func(r *gpu.PodRequest) { r.Models = models })
}

// cpu: so much of the node's CPU is left.
func cpu(free gpu.MilliCPU) state {
	return func(n *ledger.Node) { n.FreeCPU, n.CPUKnown = free, true }
}

// part is a slice of as much memory as compute.
func part(percent gpu.Percent) *gpu.PodRequest {
	return gputest.Ask(gpu.Request{Cards: 1, Compute: percent, Memory: gpu.Memory{Ratio: percent}})
}

// taken: a pod has this part of the card, as best effort.
func taken(card int, percent gpu.Percent) state { return takenBy(gpu.BestEffort, card, percent) }

func takenBy(qos gpu.QoS, card int, percent gpu.Percent) state {
	return slice(card, percent, gpu.Memory{Ratio: percent}.Of(gputest.Memory), qos)
}

func models(names ...string) *gpu.Topology {
	return cards(len(names), func(cards []gpu.Card) {
		for i := range cards {
			cards[i].Model = names[i]
		}
	})
}

// TestChooseAhead: what is expected of the pods to come decides where packing
// alone would go wrong. Each case says where the pod goes when nothing is known,
// too.
func TestChooseAhead(t *testing.T) {
	tests := map[string]struct {
		supply  map[string]int
		came    []some
		nodes   []*ledger.Node
		pod     *gpu.PodRequest
		prefer  place.Preference // besides what is expected
		want    string
		without string
	}{
		"a card is filled so that the usual pod still fits on another": {
			came:    []some{{90, part(50)}, {10, part(30)}},
			nodes:   []*ledger.Node{node(cards(2, nil), taken(0, 50), taken(1, 20))},
			pod:     part(30),
			want:    "a: 1",
			without: "a: 0", // the fuller card, of which 20 would be left that no pod wants
		},
		"an 8-card server stays whole for 8-card jobs": {
			came:    []some{{60, part(60)}, {40, gputest.AskWhole(8)}},
			nodes:   []*ledger.Node{node(cards(2, nil), alone(0)), node(cards(8, nil))},
			pod:     gputest.AskWhole(1),
			want:    "a: 1",
			without: "a: 1",
		},
		"a zone stays whole for jobs of its size, a broken one is used up": {
			came:    []some{{50, gputest.AskWhole(1)}, {50, gputest.AskWhole(4)}},
			nodes:   []*ledger.Node{node(gputest.Zones(4, 4), alone(0, 1, 2)), node(gputest.Zones(4, 4), taken(7, 10))},
			pod:     part(60),
			want:    "b: 7",
			without: "a: 3",
		},
		"a slice goes to a broken zone rather than into a whole one": {
			came:    []some{{50, part(60)}, {50, gputest.AskWhole(4)}},
			nodes:   []*ledger.Node{node(gputest.Zones(4, 4), alone(5))},
			pod:     part(60),
			want:    "a: 4",
			without: "a: 0",
		},
		"cards without CPU to feed them are not made": {
			came: []some{{90, takes(8000, gputest.AskWhole(1))}, {10, takes(30_000, part(50))}},
			nodes: []*ledger.Node{
				node(cards(4, nil), cpu(36_000), taken(0, 10)),
				node(cards(4, nil), cpu(90_000)),
			},
			pod:     takes(30_000, part(50)),
			want:    "b: 0",
			without: "a: 0",
		},
		"with CPU unknown the look at it is left out": {
			came: []some{{90, takes(8000, gputest.AskWhole(1))}, {10, takes(30_000, part(50))}},
			nodes: []*ledger.Node{
				node(cards(4, nil), taken(0, 10)),
				node(cards(4, nil)),
			},
			pod:     takes(30_000, part(50)),
			want:    "a: 0",
			without: "a: 0",
		},
		"a scarce model is spared for pods that can use no other": {
			supply: map[string]int{"C500": 90, "N260": 10},
			came:   []some{{80, gputest.AskWhole(1)}, {20, onlyOn(gputest.AskWhole(1), "N260")}},
			nodes: []*ledger.Node{
				node(models("N260", "N260"), alone(0)),
				node(models("C500", "C500")),
			},
			pod:     gputest.AskWhole(1),
			want:    "b: 0",
			without: "a: 1",
		},
		"pods that need the scarce model get it": {
			supply: map[string]int{"C500": 90, "N260": 10},
			came:   []some{{80, part(40)}, {20, onlyOn(part(40), "N260")}},
			nodes: []*ledger.Node{
				node(models("C500", "N260")),
			},
			pod:     part(40),
			want:    "a: 0",
			without: "a: 0",
		},
		"what runs under one QoS class is lost to pods of another": {
			came: []some{{90, with(gpu.FixedShare, part(50))}, {10, part(70)}},
			nodes: []*ledger.Node{
				node(cards(2, nil), taken(0, 50), taken(1, 20)),
			},
			pod:     part(30),
			want:    "a: 0", // the many halves can use neither card, the few others card 1
			without: "a: 0",
		},
		"links come before everything that is expected": {
			came:    []some{{90, gputest.AskWhole(4)}, {10, gputest.AskWhole(2)}},
			nodes:   []*ledger.Node{node(gputest.Zones(4)), node(cards(4, nil), alone(0))},
			pod:     gputest.AskWhole(2),
			want:    "a: 0 1",
			without: "a: 0 1",
		},
		"of equally linked pairs the one that breaks no zone": {
			came:    []some{{50, gputest.AskWhole(4)}, {50, gputest.AskWhole(2)}},
			nodes:   []*ledger.Node{node(gputest.Zones(4, 4)), node(gputest.Zones(4, 4), alone(2, 3))},
			pod:     gputest.AskWhole(2),
			want:    "b: 0 1",
			without: "b: 0 1",
		},
		"what the pod says of cards comes first": {
			came:    []some{{90, part(50)}, {10, part(30)}},
			nodes:   []*ledger.Node{node(cards(2, nil), taken(0, 50), taken(1, 20))},
			pod:     part(30),
			prefer:  place.Preference{Cards: []place.CardKey{place.Fullest}},
			want:    "a: 0",
			without: "a: 0",
		},
		"binpack does not look ahead": {
			came:    []some{{90, part(50)}, {10, part(30)}},
			nodes:   []*ledger.Node{node(cards(2, nil), taken(0, 50), taken(1, 20))},
			pod:     part(30),
			prefer:  place.Preference{Node: place.Binpack},
			want:    "a: 0",
			without: "a: 0",
		},
		"nor does spread": {
			came:    []some{{50, part(60)}, {50, gputest.AskWhole(4)}},
			nodes:   []*ledger.Node{node(gputest.Zones(4, 4), alone(5)), node(gputest.Zones(4, 4))},
			pod:     part(60),
			prefer:  place.Preference{Node: place.Spread, Cards: []place.CardKey{place.Emptiest}},
			want:    "b: 0",
			without: "b: 0",
		},
		"where cards are seats nothing is kept whole": {
			came:    []some{{90, gputest.AskWhole(4)}, {10, gputest.AskWhole(1)}},
			nodes:   []*ledger.Node{node(cards(4, nil), serves(ledger.Serves{Seats: true}))},
			pod:     gputest.AskWhole(1),
			want:    "a: 0",
			without: "a: 0",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ahead := expecting(t, tt.supply, tt.came...)
			ahead.Node, ahead.Cards = tt.prefer.Node, tt.prefer.Cards
			for i, n := range tt.nodes {
				n.Name = string(rune('a' + i))
			}
			if got := where(t, tt.nodes, tt.pod, &ahead); got != tt.want {
				t.Errorf("the pod goes to %q, want %q", got, tt.want)
			}
			slices.Reverse(tt.nodes)
			if got := where(t, tt.nodes, tt.pod, &ahead); got != tt.want {
				t.Errorf("with the nodes in another order the pod goes to %q, want %q", got, tt.want)
			}
			if got := where(t, tt.nodes, tt.pod, &tt.prefer); got != tt.without {
				t.Errorf("with nothing known the pod goes to %q, want %q", got, tt.without)
			}
		})
	}
}

// where returns the node and the cards that the pod gets.
func where(t *testing.T, nodes []*ledger.Node, pod *gpu.PodRequest, p *place.Preference) string {
	t.Helper()
	best, offer, refusals, ok := choose(nodes, pod, p)
	if !ok {
		t.Fatalf("refused: %v", refusals)
	}
	return nodes[best].Name + ": " + strings.Trim(fmt.Sprint(offer.Cards(0).Indices()), "[]")
}

// TestLinksComeFirst: whatever is expected, a job of several cards gets as many
// linked pairs as any choice of cards on any node has.
func TestLinksComeFirst(t *testing.T) {
	for seed := range uint64(300) {
		r := gputest.Rand(seed)
		count := 2 + r.IntN(4)
		p := expecting(t, nil, some{1 + r.IntN(50), part(gpu.Percent(1 + r.IntN(99)))}, some{40, gputest.AskWhole(1 + r.IntN(8))}, some{r.IntN(50), gputest.AskWhole(count)})
		var nodes []*ledger.Node
		most, found := int64(0), false
		for i := range 4 {
			topology := gputest.Random(r, 2+r.IntN(7)).Topology()
			n := node(topology)
			n.Name = strconv.Itoa(i)
			gputest.Exclusive(n, gputest.Subset(r, topology.Len(), 30).Indices()...)
			nodes = append(nodes, n)
			if offer, refusal := place.Fit(n, gputest.AskWhole(count), &place.Preference{}); refusal.Code == place.Fits {
				most, found = max(most, offer.Score), true
			}
		}
		best, offer, _, ok := choose(nodes, gputest.AskWhole(count), &p)
		if ok != found {
			t.Fatalf("seed %d: placed: %v, want %v", seed, ok, found)
		}
		if !ok {
			continue
		}
		if got := nodes[best].Topology().Score(offer.Cards(0)); got != most || offer.Score != most {
			t.Errorf("seed %d: the cards score %d, want %d", seed, got, most)
		}
	}
}
