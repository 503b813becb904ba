package place_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestSharingACard asks one card that is in some use already.
func TestSharingACard(t *testing.T) {
	const small, be, fixed = gib, gpu.BestEffort, gpu.FixedShare
	little := func() *gpu.PodRequest { return gputest.AskSlice(1, small) }
	cases := map[string]struct {
		on      []state
		request *gpu.PodRequest
		want    place.Code
	}{
		"an idle card takes an ordinary pod":      {request: little()},
		"an idle card takes an online pod":        {request: of(gpu.Online, little())},
		"an idle card takes an offline pod":       {request: of(gpu.Offline, little())},
		"ordinary joins ordinary":                 {on: []state{slice(0, 1, small, be)}, request: little()},
		"ordinary does not join online":           {on: []state{online(0, small)}, request: little(), want: place.ClassConflict},
		"ordinary does not join offline":          {on: []state{offline(0, 1)}, request: little(), want: place.ClassConflict},
		"online does not join ordinary":           {on: []state{slice(0, 1, small, be)}, request: of(gpu.Online, little()), want: place.ClassConflict},
		"offline does not join ordinary":          {on: []state{slice(0, 1, small, be)}, request: of(gpu.Offline, little()), want: place.ClassConflict},
		"online joins online":                     {on: []state{online(0, small)}, request: of(gpu.Online, little())},
		"online joins offline":                    {on: []state{offline(0, 1)}, request: of(gpu.Online, little())},
		"online joins both":                       {on: []state{offline(0, 1), online(0, small)}, request: of(gpu.Online, little())},
		"offline joins offline":                   {on: []state{offline(0, 1)}, request: of(gpu.Offline, little())},
		"offline does not join online":            {on: []state{online(0, small)}, request: of(gpu.Offline, little()), want: place.ClassConflict},
		"offline does not join both":              {on: []state{offline(0, 1), online(0, small)}, request: of(gpu.Offline, little()), want: place.ClassConflict},
		"offline does not join who is alone":      {on: []state{alone(0)}, request: of(gpu.Offline, little()), want: place.ClassConflict},
		"a whole card where online pods are":      {on: []state{online(0, small)}, request: gputest.AskWhole(1), want: place.ClassConflict},
		"a foreign slice is an ordinary pod":      {on: []state{foreign(ledger.Usage{Slots: 1})}, request: of(gpu.Online, little()), want: place.ClassConflict},
		"online on a card whose compute is gone":  {on: []state{offline(0, 100)}, request: of(gpu.Online, gputest.AskSlice(80, small))},
		"offline on a card whose compute is gone": {on: []state{offline(0, 100)}, request: of(gpu.Offline, little()), want: place.ComputeShort},
		"online needs memory":                     {on: []state{online(0, 63*gib)}, request: of(gpu.Online, gputest.AskSlice(0, 2*gib)), want: place.MemoryShort},
		"online needs a slot":                     {on: []state{times(16, online(0, 128))}, request: of(gpu.Online, little()), want: place.SlicesFull},
		"online is not asked for a QoS class":     {on: []state{classed(0, 1, small, fixed, gpu.Offline)}, request: of(gpu.Online, little())},
		"offline is asked for its QoS class":      {on: []state{classed(0, 1, small, fixed, gpu.Offline)}, request: of(gpu.Offline, little()), want: place.QoSConflict},

		"the same QoS class":                     {on: []state{slice(0, 1, small, fixed)}, request: with(fixed, little())},
		"another QoS class":                      {on: []state{slice(0, 1, small, fixed)}, request: with(be, little()), want: place.QoSConflict},
		"another QoS class of a foreign slice":   {on: []state{foreign(ledger.Usage{Slots: 1, QoS: fixed.Set()})}, request: with(be, little()), want: place.QoSConflict},
		"a foreign slice of unknown QoS class":   {on: []state{foreign(ledger.Usage{Slots: 1})}, request: with(fixed, little())},
		"who is alone leaves no QoS class":       {on: []state{alone(0)}, request: with(fixed, little()), want: place.ExclusiveConflict},
		"who wants to be alone has no QoS class": {on: []state{slice(0, 1, small, fixed)}, request: with(be, gputest.Ask(gputest.Alone(1, small))), want: place.ExclusiveConflict},
		"both classes by mistake: neither joins": {on: []state{slice(0, 1, small, fixed), slice(0, 1, small, be)}, request: with(fixed, little()), want: place.QoSConflict},

		"no compute asked, one percent left":   {on: []state{slice(0, 99, small, be)}, request: gputest.AskSlice(0, small)},
		"no compute asked, all of it booked":   {on: []state{slice(0, 100, small, be)}, request: gputest.AskSlice(0, small), want: place.ComputeShort},
		"the last percent":                     {on: []state{slice(0, 99, small, be)}, request: gputest.AskSlice(1, small)},
		"one percent too many":                 {on: []state{slice(0, 99, small, be)}, request: gputest.AskSlice(2, small), want: place.ComputeShort},
		"compute is booked for best-effort":    {on: []state{slice(0, 60, small, be)}, request: with(be, gputest.AskSlice(50, small)), want: place.ComputeShort},
		"and for burst-share":                  {on: []state{slice(0, 60, small, gpu.BurstShare)}, request: with(gpu.BurstShare, gputest.AskSlice(50, small)), want: place.ComputeShort},
		"the last of the memory":               {on: []state{slice(0, 1, 63*gib, be)}, request: gputest.AskSlice(1, gib)},
		"one step too much memory":             {on: []state{slice(0, 1, 63*gib, be)}, request: gputest.AskSlice(1, gib+128), want: place.MemoryShort},
		"a sixteenth slice":                    {on: []state{times(15, slice(0, 1, 128, be))}, request: little()},
		"a seventeenth slice":                  {on: []state{times(16, slice(0, 1, 128, be))}, request: little(), want: place.SlicesFull},
		"99 percent is not alone":              {on: []state{slice(0, 1, small, be)}, request: gputest.AskSlice(99, small)},
		"alone with little memory is alone":    {on: []state{booked(gputest.Alone(1, 128))}, request: gputest.AskSlice(0, 128), want: place.ExclusiveConflict},
		"alone on a card that is not idle":     {on: []state{slice(0, 1, 128, be)}, request: gputest.Ask(gputest.Alone(1, 128)), want: place.ExclusiveConflict},
		"alone with more memory than there is": {request: gputest.Ask(gputest.Alone(1, 65*gib)), want: place.MemoryShort},
		"all of the memory, half the compute":  {request: gputest.Ask(gpu.Request{Cards: 1, Compute: 50, Memory: gpu.AllMemory()})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := node(cards(1, nil), tc.on...)
			if _, got := place.Fit(n, tc.request, &place.Preference{}); got.Code != tc.want {
				t.Errorf("refused for %q (%s), want %q", got.Code, got.Message(n), tc.want)
			}
		})
	}
}

// booked: a pod with this request was placed.
func booked(request gpu.Request) state {
	return func(n *ledger.Node) { commit(n, "earlier", gputest.Ask(request)) }
}

// commit places the pod and books it, and returns whether it could.
func commit(n *ledger.Node, pod ledger.Holder, r *gpu.PodRequest) bool {
	offer, refusal := place.Fit(n, r, &place.Preference{})
	if refusal.Code != place.Fits {
		return false
	}
	_, err := n.Commit(offer, pod, r)
	return err == nil
}

func TestSeats(t *testing.T) {
	seats := serves(ledger.Serves{Seats: true})
	two := func(c []gpu.Card) { c[0].Slots, c[1].Slots = 2, 2 }
	cases := map[string]struct {
		node    *ledger.Node
		request *gpu.PodRequest
		want    []int
		refused place.Code
	}{
		"a seat on an idle node":                    {node: node(gputest.Zones(2), seats), request: gputest.AskWhole(1), want: []int{0}},
		"two seats are on two cards":                {node: node(gputest.Zones(2), seats), request: gputest.AskWhole(2), want: []int{0, 1}},
		"three seats on two cards":                  {node: node(gputest.Zones(2), seats), request: gputest.AskWhole(3), refused: place.TooFewCards},
		"a seat next to others":                     {node: node(gputest.Zones(1), seats, booked(gputest.Whole(1))), request: gputest.AskWhole(1), want: []int{0}},
		"memory and compute don't bound seats":      {node: node(gputest.Zones(1), seats, slice(0, 100, 64*gib, gpu.FixedShare)), request: gputest.AskWhole(1), want: []int{0}},
		"no seat left on one of two cards":          {node: node(cards(2, two), seats, full(0)), request: gputest.AskWhole(1), want: []int{1}},
		"no seat left on either":                    {node: node(cards(2, two), seats, full(0), full(1)), request: gputest.AskWhole(1), refused: place.SlicesFull},
		"links don't matter to seats":               {node: node(gputest.Zones(1, 2, 2), seats), request: gputest.AskWhole(2), want: []int{0, 1}},
		"an unhealthy card has no seats":            {node: node(cards(2, unhealthy(0)), seats), request: gputest.AskWhole(1), want: []int{1}},
		"an exclusive foreign slice leaves no seat": {node: node(cards(1, nil), seats, foreign(ledger.Usage{Slots: 1, Exclusive: true})), request: gputest.AskWhole(1), refused: place.ExclusiveConflict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			offer, refusal := place.Fit(tc.node, tc.request, &place.Preference{})
			if refusal.Code != tc.refused {
				t.Fatalf("refused for %q, want %q", refusal.Code, tc.refused)
			}
			if tc.refused != place.Fits {
				return
			}
			gputest.Equal(t, "cards", tc.want, offer.Cards(0).Indices())
			if offer.Score != 0 || offer.Loss != 0 {
				t.Errorf("seats are worth %d and %d, want nothing", offer.Score, offer.Loss)
			}
			want := ledger.Share{Card: tc.want[0]}
			gputest.Equal(t, "share", want, tc.node.Holding(&offer, "a", tc.request).Parts[0].Shares[0])
		})
	}
}

// TestCountedNode: where the vendor's plugin picks the cards, the node's own
// tables say what a number of them is worth.
func TestCountedNode(t *testing.T) {
	counted := func(n *ledger.Node) {
		n.Counted, n.Serves = true, ledger.Serves{Whole: true}
		n.Vendor = ledger.VendorTable{Scores: map[int]int64{1: 0, 2: 110, 4: 660}, Losses: map[int]int64{1: 150, 2: 80, 4: 0}}
	}
	nameless := cards(4, func(c []gpu.Card) {
		for i := range c {
			c[i].ID = ""
		}
	})
	listed := ask(gputest.AskWhole(1), func(r *gpu.PodRequest) { r.Deny = []gpu.CardID{"GPU-9"} })
	cases := map[string]struct {
		request             *gpu.PodRequest
		wantScore, wantLoss int64
		refused             place.Code
	}{
		"two cards":                           {request: gputest.AskWhole(2), wantScore: 110, wantLoss: 80},
		"two containers count together":       {request: gputest.Ask(gputest.Whole(1), gputest.Whole(1)), wantScore: 110, wantLoss: 80},
		"an init container counts apart":      {request: gputest.Ask(initial(gputest.Whole(4)), gputest.Whole(2)), wantScore: 110, wantLoss: 80},
		"a number the table does not have":    {request: gputest.AskWhole(3), wantScore: 3 * 10, wantLoss: 3 * 10},
		"slices are not served":               {request: gputest.AskSlice(10, gib), refused: place.ModeConflict},
		"cards without a name are on no list": {request: listed, refused: place.CardExcluded},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			offer, refusal := place.Fit(node(nameless, counted), tc.request, &place.Preference{})
			if refusal.Code != tc.refused {
				t.Fatalf("refused for %q, want %q", refusal.Code, tc.refused)
			}
			if offer.Score != tc.wantScore || offer.Loss != tc.wantLoss {
				t.Errorf("score %d, loss %d; want %d, %d", offer.Score, offer.Loss, tc.wantScore, tc.wantLoss)
			}
		})
	}
}
