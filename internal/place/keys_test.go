package place_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

type choiceCase struct {
	node    *ledger.Node
	request *gpu.PodRequest
	prefer  place.Preference
	want    [][]int // the cards of each container
	refused place.Code
}

func (tc choiceCase) run(t *testing.T) {
	t.Helper()
	offer, refusal := place.Fit(tc.node, tc.request, &tc.prefer)
	if refusal.Code != tc.refused {
		t.Fatalf("refused for %q (%s), want %q", refusal.Code, refusal.Message(tc.node), tc.refused)
	}
	if tc.refused != place.Fits {
		return
	}
	gputest.Equal(t, "cards", tc.want, chosen(&offer, tc.request))
}

func keys(k ...place.CardKey) place.Preference { return place.Preference{Cards: k} }

// numa puts the cards on these NUMA nodes; -1 is unknown.
func numa(nodes ...int) *gpu.Topology {
	return cards(len(nodes), func(c []gpu.Card) {
		for i, n := range nodes {
			c[i].NUMA, c[i].NUMAKnown = max(n, 0), n >= 0
		}
	})
}

func TestSliceGoesTo(t *testing.T) {
	const be = gpu.BestEffort
	// Of four cards, 1 is fuller than 3, and both are in use.
	uneven := func() *ledger.Node {
		return node(cards(4, nil), slice(3, 10, gib, be), slice(1, 20, gib, be))
	}
	small := func() *gpu.PodRequest { return gputest.AskSlice(10, gib) }
	three := func() *gpu.PodRequest {
		return gputest.Ask(gpu.Request{Cards: 3, Compute: 10, Memory: gpu.Memory{Amount: gib}})
	}
	cases := map[string]choiceCase{
		"by default the fullest card":             {node: uneven(), request: small(), want: [][]int{{1}}},
		"binpack: the fullest card":               {node: uneven(), request: small(), prefer: keys(place.Fullest), want: [][]int{{1}}},
		"spread: the emptiest card, lowest first": {node: uneven(), request: small(), prefer: keys(place.Emptiest), want: [][]int{{0}}},
		"the fullest that fits":                   {node: uneven(), request: gputest.AskSlice(85, gib), want: [][]int{{3}}},
		"the node's policy does not pick slices":  {node: uneven(), request: small(), prefer: place.Preference{Node: place.Spread}, want: [][]int{{1}}},
		"an idle node: the first card":            {node: node(cards(4, nil)), request: small(), want: [][]int{{0}}},
		"a slice of three cards packed":           {node: uneven(), request: three(), want: [][]int{{0, 1, 3}}},
		"a slice of three cards spread":           {node: uneven(), request: three(), prefer: keys(place.Emptiest), want: [][]int{{0, 2, 3}}},
		"a slot more is fuller":                   {node: node(cards(2, nil), slice(0, 20, 0, be), times(2, slice(1, 10, 0, be))), request: small(), want: [][]int{{1}}},
		"memory counts like compute":              {node: node(cards(2, nil), slice(0, 50, 16*gib, be), slice(1, 25, 33*gib, be)), request: small(), want: [][]int{{1}}},
		"equal in other ways: the lowest index":   {node: node(cards(3, nil), slice(1, 50, 16*gib, be), slice(2, 25, 32*gib, be)), request: small(), want: [][]int{{1}}},
		"foreign slices make a card full":         {node: node(cards(2, nil), foreign(ledger.Usage{}, ledger.Usage{Slots: 1, Compute: 5})), request: small(), want: [][]int{{1}}},
		"a smaller card is fuller by its memory":  {node: node(cards(2, func(c []gpu.Card) { c[1].Memory = 32 * gib }), slice(0, 10, 8*gib, be), slice(1, 10, 8*gib, be)), request: small(), want: [][]int{{1}}},

		"mutex: only idle cards":                  {node: uneven(), request: small(), prefer: keys(place.Unused), want: [][]int{{0}}},
		"mutex, all in use":                       {node: node(cards(1, nil), slice(0, 1, gib, be)), request: small(), prefer: keys(place.Unused), refused: place.ExclusiveConflict},
		"mutex, with foreign slices":              {node: node(cards(1, nil), foreign(ledger.Usage{Slots: 1})), request: small(), prefer: keys(place.Unused), refused: place.ExclusiveConflict},
		"mutex is a condition wherever it stands": {node: uneven(), request: small(), prefer: keys(place.Fullest, place.Unused), want: [][]int{{0}}},
		"mutex: own containers are not others":    {node: node(cards(1, nil)), request: gputest.Ask(gputest.Share(10, gib), gputest.Share(10, gib)), prefer: keys(place.Unused), want: [][]int{{0}, {0}}},
		"mutex and whole cards":                   {node: uneven(), request: gputest.AskWhole(2), prefer: keys(place.Unused), want: [][]int{{0, 2}}},

		"numa: the NUMA node with most candidates":   {node: node(numa(0, 1, 1)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{1}}},
		"numa: busy cards are no candidates":         {node: node(numa(0, 1, 1), alone(1)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{0}}},
		"numa: a tie goes to the lower NUMA node":    {node: node(numa(1, 0, 1, 0)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{1}}},
		"numa: two cards from one NUMA node":         {node: node(numa(0, 1, 2, 1)), request: gputest.Ask(gpu.Request{Cards: 2, Compute: 5}), prefer: keys(place.SameNUMA), want: [][]int{{1, 3}}},
		"numa: unknown comes last":                   {node: node(numa(-1, -1, -1, 0)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{3}}},
		"numa: all unknown":                          {node: node(numa(-1, -1)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{0}}},
		"numa, then the default order":               {node: node(numa(0, 1, 1), slice(0, 50, gib, be), slice(2, 10, gib, be)), request: small(), prefer: keys(place.SameNUMA), want: [][]int{{2}}},
		"numa, then spread":                          {node: node(numa(0, 1, 1), slice(0, 50, gib, be), slice(1, 10, gib, be)), request: small(), prefer: keys(place.SameNUMA, place.Emptiest), want: [][]int{{2}}},
		"binpack, then numa: fullness comes first":   {node: node(numa(0, 1, 1), slice(0, 50, gib, be)), request: small(), prefer: keys(place.Fullest, place.SameNUMA), want: [][]int{{0}}},
		"spread, then numa: ties go by NUMA node":    {node: node(numa(0, 1, 1), slice(1, 50, gib, be)), request: small(), prefer: keys(place.Emptiest, place.SameNUMA), want: [][]int{{2}}},
		"mutex and numa: counted are the unused":     {node: node(numa(0, 1, 1, 0), slice(1, 50, gib, be)), request: small(), prefer: keys(place.Unused, place.SameNUMA), want: [][]int{{0}}},
		"mutex, numa and spread":                     {node: node(numa(0, 1, 1), slice(0, 9, gib, be)), request: small(), prefer: keys(place.Unused, place.SameNUMA, place.Emptiest), want: [][]int{{1}}},
		"the first of two contrary keys is decisive": {node: uneven(), request: small(), prefer: keys(place.Emptiest, place.Fullest), want: [][]int{{0}}},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

func TestOnlineGoesTo(t *testing.T) {
	small := func() *gpu.PodRequest { return of(gpu.Online, gputest.AskSlice(0, gib)) }
	cases := map[string]choiceCase{
		"an idle card":                              {node: node(cards(3, nil), online(0, gib), offline(1, 1)), request: small(), want: [][]int{{2}}},
		"fewest online pods":                        {node: node(cards(2, nil), times(2, online(0, gib)), online(1, gib)), request: small(), want: [][]int{{1}}},
		"then fewest offline pods":                  {node: node(cards(2, nil), online(0, gib), offline(0, 1), online(1, gib)), request: small(), want: [][]int{{1}}},
		"online counts more than offline":           {node: node(cards(2, nil), times(2, online(0, gib)), online(1, gib), times(2, offline(1, 1))), request: small(), want: [][]int{{1}}},
		"a card with offline pods only is the last": {node: node(cards(2, nil), offline(0, 1), times(2, online(1, gib)), offline(1, 1)), request: small(), want: [][]int{{1}}},
		"fewest offline pods to suspend":            {node: node(cards(2, nil), times(2, offline(0, 1)), offline(1, 1)), request: small(), want: [][]int{{1}}},
		"whatever the pod prefers":                  {node: node(cards(2, nil), online(0, 32*gib)), request: small(), prefer: keys(place.Fullest), want: [][]int{{1}}},
		"equal: the lowest index":                   {node: node(cards(2, nil), online(0, 32*gib), online(1, gib)), request: small(), prefer: keys(place.Emptiest), want: [][]int{{0}}},
		"an offline pod goes by fullness":           {node: node(cards(2, nil), offline(1, 1)), request: of(gpu.Offline, gputest.AskSlice(1, gib)), want: [][]int{{1}}},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

func TestListsOfCards(t *testing.T) {
	lists := func(r *gpu.PodRequest, allow, deny []gpu.CardID) *gpu.PodRequest {
		r.Allow, r.Deny = allow, deny
		return r
	}
	nameless := func(c []gpu.Card) { c[1].ID = "" }
	cases := map[string]choiceCase{
		"whole cards from the allow list":             {node: node(gputest.Zones(4, 4)), request: lists(gputest.AskWhole(2), []gpu.CardID{"GPU-6", "GPU-1", "GPU-5"}, nil), want: [][]int{{5, 6}}},
		"whole cards but those on the deny list":      {node: node(gputest.Zones(4)), request: lists(gputest.AskWhole(2), nil, []gpu.CardID{"GPU-0", "GPU-2"}), want: [][]int{{1, 3}}},
		"a slice from the allow list":                 {node: node(cards(3, nil)), request: lists(gputest.AskSlice(1, gib), []gpu.CardID{"GPU-2"}, nil), want: [][]int{{2}}},
		"deny counts more than allow":                 {node: node(cards(3, nil)), request: lists(gputest.AskSlice(1, gib), []gpu.CardID{"GPU-1", "GPU-2"}, []gpu.CardID{"GPU-1"}), want: [][]int{{2}}},
		"no card of the list is here":                 {node: node(cards(3, nil)), request: lists(gputest.AskSlice(1, gib), []gpu.CardID{"GPU-9"}, nil), refused: place.CardExcluded},
		"too few cards of the list":                   {node: node(cards(3, nil)), request: lists(gputest.AskWhole(2), []gpu.CardID{"GPU-0"}, nil), refused: place.TooFewCards},
		"a card without an id, no lists":              {node: node(cards(2, nameless), alone(0)), request: gputest.AskSlice(1, gib), want: [][]int{{1}}},
		"a card without an id and an allow list":      {node: node(cards(2, nameless), alone(0)), request: lists(gputest.AskSlice(1, gib), []gpu.CardID{"GPU-1"}, nil), refused: place.CardExcluded},
		"a card without an id and a deny list":        {node: node(cards(2, nameless)), request: lists(gputest.AskSlice(1, gib), nil, []gpu.CardID{"GPU-0"}), refused: place.CardExcluded},
		"excluded cards are still lost to later jobs": {node: node(gputest.Zones(3, 2)), request: lists(gputest.AskWhole(1), nil, []gpu.CardID{"GPU-1", "GPU-2"}), prefer: place.Preference{Node: place.Binpack}, want: [][]int{{3}}},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
}

func TestIgnoreLinks(t *testing.T) {
	blind := place.Preference{IgnoreLinks: true}
	cases := map[string]choiceCase{
		"the lowest indices, whatever the links": {node: node(gputest.Zones(1, 2, 2)), request: gputest.AskWhole(2), prefer: blind, want: [][]int{{0, 1}}},
		"with links it would be a zone":          {node: node(gputest.Zones(1, 2, 2)), request: gputest.AskWhole(2), want: [][]int{{1, 2}}},
		"still only idle cards":                  {node: node(gputest.Zones(1, 2, 2), alone(0), slice(1, 1, gib, gpu.BestEffort)), request: gputest.AskWhole(2), prefer: blind, want: [][]int{{2, 3}}},
		"by NUMA node if the pod says so":        {node: node(numa(0, 1, 1)), request: gputest.AskWhole(2), prefer: place.Preference{IgnoreLinks: true, Cards: []place.CardKey{place.SameNUMA}}, want: [][]int{{1, 2}}},
	}
	for name, tc := range cases {
		t.Run(name, tc.run)
	}
	offer, _ := place.Fit(node(gputest.Zones(4)), gputest.AskWhole(2), &blind)
	if offer.Score != 0 || offer.Loss != 0 {
		t.Errorf("cards chosen without links are worth %d and %d, want nothing", offer.Score, offer.Loss)
	}
}
