package place_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func named(name string, n *ledger.Node) *ledger.Node {
	n.Name = name
	return n
}

// choose asks every node, in a loop, and returns the position of the best one and the
// offer there: what a Board is to answer, in the plainest way. When none fits it
// returns their refusals.
func choose(nodes []*ledger.Node, r *gpu.PodRequest, p *place.Preference) (best int, offer ledger.Offer, refusals []place.Refusal, ok bool) {
	var worth place.Worth
	for i, n := range nodes {
		o, refusal := place.Fit(n, r, p)
		if refusal.Code != place.Fits {
			refusals = append(refusals, refusal)
			continue
		}
		w := place.Rank(&o, p)
		if c := w.Compare(worth); !ok || c > 0 || c == 0 && n.Name < nodes[best].Name {
			best, offer, worth, ok = i, o, w, true
		}
	}
	if ok {
		refusals = nil
	}
	return best, offer, refusals, ok
}

// TestOrderOfNodes shuffles the nodes a hundred times and wants one answer, of a loop
// and of a Board.
func TestOrderOfNodes(t *testing.T) {
	const be = gpu.BestEffort
	twoZones := gputest.Zones(4, 4)
	binpack, spread := place.Preference{Node: place.Binpack}, place.Preference{Node: place.Spread}
	four, small := gputest.AskWhole(4), gputest.AskSlice(10, gib)
	online1 := of(gpu.Online, gputest.AskSlice(0, gib))
	// Whole cards: a broken zone, an idle node, and one with a free zone left.
	broken := func() *ledger.Node { return node(twoZones, alone(0, 4)) }
	idle := func() *ledger.Node { return node(twoZones) }
	half := func() *ledger.Node { return node(twoZones, alone(0, 1, 2, 3)) }
	// Slices: nodes with no, one and two slices on them.
	empty := func() *ledger.Node { return node(twoZones) }
	some := func() *ledger.Node { return node(twoZones, slice(0, 50, gib, be)) }
	more := func() *ledger.Node { return node(twoZones, slice(0, 50, gib, be), slice(5, 50, gib, be)) }

	cases := map[string]struct {
		nodes   []*ledger.Node
		request *gpu.PodRequest
		prefer  place.Preference
		want    string
	}{
		"spread: the highest score":                  {nodes: []*ledger.Node{named("a", broken()), named("b", half())}, request: four, prefer: spread, want: "b"},
		"spread: a tie goes to the emptier node":     {nodes: []*ledger.Node{named("a", half()), named("b", idle())}, request: four, prefer: spread, want: "b"},
		"default: the highest score":                 {nodes: []*ledger.Node{named("a", broken()), named("b", idle())}, request: four, want: "b"},
		"default: a tie goes to the fuller node":     {nodes: []*ledger.Node{named("a", idle()), named("b", half())}, request: four, want: "b"},
		"binpack: the least loss":                    {nodes: []*ledger.Node{named("a", idle()), named("b", half())}, request: four, prefer: binpack, want: "b"},
		"binpack: a tie goes to the fuller node":     {nodes: []*ledger.Node{named("a", node(cards(1, nil))), named("b", node(cards(2, nil), alone(0)))}, request: gputest.AskWhole(1), prefer: binpack, want: "b"},
		"binpack: less loss though emptier":          {nodes: []*ledger.Node{named("a", node(twoZones, alone(0, 1))), named("b", node(gputest.Zones(2)))}, request: gputest.AskWhole(2), prefer: binpack, want: "b"},
		"binpack: loss counts, not score":            {nodes: []*ledger.Node{named("a", node(gputest.Zones(3))), named("b", node(cards(2, nil)))}, request: gputest.AskWhole(2), prefer: binpack, want: "b"},
		"spread: score counts, not loss":             {nodes: []*ledger.Node{named("a", node(gputest.Zones(3))), named("b", node(cards(2, nil)))}, request: gputest.AskWhole(2), prefer: spread, want: "a"},
		"equal in all: the lowest name":              {nodes: []*ledger.Node{named("n10", idle()), named("n2", idle()), named("n1", idle())}, request: four, want: "n1"},
		"equal in all under spread":                  {nodes: []*ledger.Node{named("c", idle()), named("b", idle())}, request: four, prefer: spread, want: "b"},
		"slices by default: the fullest":             {nodes: []*ledger.Node{named("a", empty()), named("b", more()), named("c", some())}, request: small, want: "b"},
		"slices packed: the fullest":                 {nodes: []*ledger.Node{named("a", empty()), named("b", more()), named("c", some())}, request: small, prefer: binpack, want: "b"},
		"slices spread: the emptiest":                {nodes: []*ledger.Node{named("a", some()), named("b", empty()), named("c", more())}, request: small, prefer: spread, want: "b"},
		"slices: the mean over the healthy cards":    {nodes: []*ledger.Node{named("a", node(cards(3, nil), slice(0, 50, gib, be))), named("b", node(cards(3, unhealthy(1, 2)), slice(0, 50, gib, be)))}, request: small, want: "b"},
		"slices: the fullest that fits":              {nodes: []*ledger.Node{named("a", node(twoZones, alone(0, 1, 2, 3, 4, 5, 6, 7))), named("b", some())}, request: small, want: "b"},
		"links don't matter to slices":               {nodes: []*ledger.Node{named("a", node(cards(8, nil))), named("b", empty())}, request: small, want: "a"},
		"the cards' policy does not pick the node":   {nodes: []*ledger.Node{named("a", empty()), named("b", some())}, request: small, prefer: keys(place.Emptiest), want: "b"},
		"online: where it disturbs least":            {nodes: []*ledger.Node{named("a", node(cards(1, nil), online(0, gib))), named("b", node(cards(1, nil)))}, request: online1, want: "b"},
		"online: rather online than offline pods":    {nodes: []*ledger.Node{named("a", node(cards(1, nil), offline(0, 1))), named("b", node(cards(1, nil), times(2, online(0, gib))))}, request: online1, want: "b"},
		"online under spread: the same":              {nodes: []*ledger.Node{named("a", node(cards(1, nil), offline(0, 1))), named("b", node(cards(1, nil), online(0, 40*gib)))}, request: online1, prefer: spread, want: "b"},
		"online: a tie goes to the fuller node":      {nodes: []*ledger.Node{named("a", node(cards(2, nil))), named("b", node(cards(2, nil), offline(0, 50)))}, request: online1, want: "b"},
		"online, spread: a tie to the emptier node":  {nodes: []*ledger.Node{named("a", node(cards(2, nil), offline(0, 50))), named("b", node(cards(2, nil)))}, request: online1, prefer: spread, want: "b"},
		"offline: by fullness, like any other slice": {nodes: []*ledger.Node{named("a", node(cards(1, nil))), named("b", node(cards(1, nil), offline(0, 10)))}, request: of(gpu.Offline, gputest.AskSlice(1, gib)), want: "b"},
		"two containers: their scores added up":      {nodes: []*ledger.Node{named("a", node(gputest.Zones(2, 1, 1))), named("b", node(gputest.Zones(2, 2)))}, request: gputest.Ask(gputest.Whole(2), gputest.Whole(2)), prefer: spread, want: "b"},
		"two containers: their losses added up":      {nodes: []*ledger.Node{named("a", node(gputest.Zones(4))), named("b", node(gputest.Zones(2, 2)))}, request: gputest.Ask(gputest.Whole(2), gputest.Whole(2)), prefer: binpack, want: "b"},
	}
	r := gputest.Rand(1)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				r.Shuffle(len(tc.nodes), func(i, j int) { tc.nodes[i], tc.nodes[j] = tc.nodes[j], tc.nodes[i] })
				best, offer, refusals, ok := choose(tc.nodes, tc.request, &tc.prefer)
				if !ok || len(refusals) != 0 {
					t.Fatalf("refused: %s", place.Summarize(refusals))
				}
				if got := tc.nodes[best].Name; got != tc.want {
					t.Fatalf("node %s, want %s", got, tc.want)
				}
				board := boardOf(tc.nodes)
				for id := range board.Ranking(tc.request, &tc.prefer).Best() {
					if got := board.Node(id).Name; got != tc.want {
						t.Fatalf("the board's best is %s, want %s", got, tc.want)
					}
					break
				}
				if _, err := tc.nodes[best].Clone().Commit(offer, "pod", tc.request); err != nil {
					t.Fatalf("the offer is not the node's: %v", err)
				}
			}
		})
	}
}

func boardOf(nodes []*ledger.Node) *place.Board {
	board := place.NewBoard()
	for _, n := range nodes {
		board.Set(n)
	}
	return board
}

// TestRank: what comes first in the order outweighs everything after it, on
// nodes that are overbooked as well.
func TestRank(t *testing.T) {
	fullness := []ledger.Fullness{0, 1, ledger.FullnessUnit, ledger.MaxFullness - 1, ledger.MaxFullness, 5 * ledger.FullnessUnit, 11 * ledger.FullnessUnit, 1 << 40}
	overbooked := len(fullness) - 1 // beyond all reason: it counts as very full
	for _, score := range []int64{0, 10, 660, 221_750} {
		for _, loss := range []int64{0, 10, 660, 221_750} {
			for i, f := range fullness {
				offer := ledger.Offer{Score: score, Loss: loss, NodeFullness: f}
				better := offer
				better.Score += 10
				better.NodeFullness = fullness[overbooked]
				lessLoss := offer
				lessLoss.Loss -= 10
				lessLoss.NodeFullness = 0
				for _, b := range []ledger.Offer{better, {Score: score + 10}} {
					wantBetter(t, "a higher score", &b, &offer, place.Spread, place.Default)
				}
				wantBetter(t, "a lower loss", &lessLoss, &offer, place.Binpack)
				if i > 0 && i < overbooked {
					emptier := offer
					emptier.NodeFullness = fullness[i-1]
					wantBetter(t, "a fuller node", &offer, &emptier, place.Binpack, place.Default)
					wantBetter(t, "an emptier node", &emptier, &offer, place.Spread)
				}
				calm := offer
				calm.Disturbance, offer.Disturbance = 1, 2
				calm.NodeFullness = fullness[(i+3)%len(fullness)]
				wantBetter(t, "less disturbance", &calm, &offer, place.Binpack, place.Default, place.Spread)
			}
		}
	}
}

func wantBetter(t *testing.T, what string, a, b *ledger.Offer, policies ...place.Policy) {
	t.Helper()
	for _, policy := range policies {
		p := &place.Preference{Node: policy}
		if ra, rb := place.Rank(a, p), place.Rank(b, p); ra.Compare(rb) <= 0 || rb.Compare(ra) >= 0 {
			t.Errorf("%s does not win under policy %d: %+v ranks %+v, %+v ranks %+v", what, policy, a, ra, b, rb)
		}
	}
}
