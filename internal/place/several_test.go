package place_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// load is what is on one card, in an account of the test's own.
type load struct {
	compute, memory, shares int
	alone                   bool
	fixed, bestEffort       bool
	online, offline         bool
}

func (l load) idle() bool { return l.shares == 0 }

// world is a small node in the test's own words: what its cards are, what is on
// them, and what the pod prefers that is a condition.
type world struct {
	cards  []gpu.Card
	loads  []load
	unused bool // slices go to cards that no other pod uses
	seats  bool // whole cards are seats
}

// memory returns how much a share of the request takes of card c.
func (w *world) memory(c int, r gpu.Request) int {
	if r.Memory == gpu.AllMemory() {
		return int(w.cards[c].Memory)
	}
	return int(r.Memory.Amount)
}

// takes reports whether card c with load l can take the request of a pod.
func (w *world) takes(c int, l load, r gpu.Request, pod *gpu.PodRequest) bool {
	card := w.cards[c]
	seat := w.seats && r.Whole
	switch {
	case !card.Healthy, slices.Contains(pod.Deny, card.ID), l.alone, l.shares >= card.Slots:
		return false
	case r.Exclusive && !seat && !l.idle(), w.unused && !r.Exclusive && !w.loads[c].idle():
		return false
	}
	if !l.idle() {
		classed := l.online || l.offline
		if classed != (pod.Class != gpu.Normal) || pod.Class == gpu.Offline && l.online {
			return false
		}
	}
	if seat {
		return true
	}
	if l.memory+w.memory(c, r) > int(card.Memory) {
		return false
	}
	if pod.Class == gpu.Online {
		return true
	}
	if !r.Exclusive && (pod.QoS == gpu.BestEffort && l.fixed || pod.QoS == gpu.FixedShare && l.bestEffort) {
		return false
	}
	// Containers of one pod may come in any order: one without compute needs a
	// card that is not all booked by others.
	return w.loads[c].compute < 100 && l.compute+int(r.Compute) <= 100
}

// takesInit is the same for an init container, which comes after the sidecars:
// one without compute needs a card of which they have left some.
func (w *world) takesInit(c int, l load, r gpu.Request, pod *gpu.PodRequest) bool {
	metered := !w.seats && pod.Class != gpu.Online
	return w.takes(c, l, r, pod) && (!metered || l.compute < 100)
}

// plus puts a share of the request on card c with load l.
func (w *world) plus(c int, l load, r gpu.Request, pod *gpu.PodRequest) load {
	l.shares++
	l.online = l.online || pod.Class == gpu.Online
	l.offline = l.offline || pod.Class == gpu.Offline
	if w.seats && r.Whole {
		l.fixed = l.fixed || pod.QoS == gpu.FixedShare
		l.bestEffort = l.bestEffort || pod.QoS == gpu.BestEffort
		return l
	}
	l.compute += int(r.Compute)
	l.memory += w.memory(c, r)
	l.alone = l.alone || r.Exclusive
	if !r.Exclusive && pod.Class != gpu.Online {
		l.fixed = l.fixed || pod.QoS == gpu.FixedShare
		l.bestEffort = l.bestEffort || pod.QoS == gpu.BestEffort
	}
	return l
}

// fitsSomehow tries every assignment of cards to containers.
func (w *world) fitsSomehow(pod *gpu.PodRequest) bool {
	placed := make([][]int, len(pod.Requests))
	var from func(i int, now []load) bool
	from = func(i int, now []load) bool {
		if i == len(pod.Requests) {
			return w.initsFit(pod, placed)
		}
		r := pod.Requests[i]
		if r.Phase == gpu.Init {
			return from(i+1, now)
		}
		for mask := range 1 << len(w.cards) {
			if bits.OnesCount(uint(mask)) != r.Cards {
				continue
			}
			next, on := w.assign(now, mask, r, pod)
			if len(on) == r.Cards {
				placed[i] = on
				if from(i+1, next) {
					return true
				}
			}
		}
		return false
	}
	return from(0, w.loads)
}

// assign puts the request on the cards of the mask; it returns no cards when
// one of them can't take it.
func (w *world) assign(now []load, mask int, r gpu.Request, pod *gpu.PodRequest) (next []load, on []int) {
	next = append(next, now...)
	for c := range now {
		if mask>>c&1 == 0 {
			continue
		}
		if !w.takes(c, now[c], r, pod) {
			return nil, nil
		}
		next[c] = w.plus(c, now[c], r, pod)
		on = append(on, c)
	}
	return next, on
}

// initsFit checks the init containers: each runs next to the sidecars that come
// before it in the spec.
func (w *world) initsFit(pod *gpu.PodRequest, placed [][]int) bool {
	now := slices.Clone(w.loads)
	for i, r := range pod.Requests {
		switch r.Phase {
		case gpu.Sidecar:
			for _, c := range placed[i] {
				now[c] = w.plus(c, now[c], r, pod)
			}
		case gpu.Init:
			able := 0
			for c, l := range now {
				if w.takesInit(c, l, r, pod) {
					able++
				}
			}
			if able < r.Cards {
				return false
			}
		}
	}
	return true
}

// obeys checks an offer against every rule, phase by phase.
func (w *world) obeys(pod *gpu.PodRequest, offer *ledger.Offer) error {
	sidecars, running := slices.Clone(w.loads), slices.Clone(w.loads)
	for i, r := range pod.Requests {
		on := offer.Cards(i).Indices()
		if len(on) != r.Cards {
			return fmt.Errorf("container %d asked for %d cards and got %v", i, r.Cards, on)
		}
		for _, c := range on {
			if r.Phase == gpu.Init {
				if !w.takesInit(c, sidecars[c], r, pod) {
					return fmt.Errorf("init container %d can't be on card %d with %+v", i, c, sidecars[c])
				}
				continue
			}
			if !w.takes(c, running[c], r, pod) {
				return fmt.Errorf("container %d can't be on card %d with %+v", i, c, running[c])
			}
			running[c] = w.plus(c, running[c], r, pod)
			if r.Phase == gpu.Sidecar {
				sidecars[c] = w.plus(c, sidecars[c], r, pod)
			}
		}
	}
	return nil
}

// TestSeveralContainersAreRefusedOnlyIfNothingFits compares with a try of every
// assignment, on small nodes in random states: cards of one size and of several,
// slices, cards alone, whole cards and seats, sidecars and init containers.
func TestSeveralContainersAreRefusedOnlyIfNothingFits(t *testing.T) {
	families := map[string]struct {
		world func(*rand.Rand, int) (*ledger.Node, *world)
		pod   func(*rand.Rand, int) *gpu.PodRequest
	}{
		"equal cards":              {randomState, randomPod},
		"unequal cards":            {unequalState, randomPod},
		"sidecars and init":        {randomState, sidecarPod},
		"unequal, sidecars, inits": {unequalState, sidecarPod},
		"seats":                    {seatState, seatPod},
	}
	for name, family := range families {
		t.Run(name, func(t *testing.T) {
			offered, refused := 0, 0
			for seed := range uint64(6000) {
				r := gputest.Rand(seed)
				n, w := family.world(r, 1+r.IntN(5))
				pod := family.pod(r, len(w.cards))
				if compareWithEveryWay(t, r, seed, n, w, pod) {
					offered++
				} else {
					refused++
				}
			}
			t.Logf("%d offers, %d refusals", offered, refused)
			if offered < 400 || refused < 400 {
				t.Errorf("%d offers and %d refusals, want 400 of each at least", offered, refused)
			}
		})
	}
}

// compareWithEveryWay reports whether the pod fits. It fails the test when the
// answer is wrong.
func compareWithEveryWay(t *testing.T, r *rand.Rand, seed uint64, n *ledger.Node, w *world, pod *gpu.PodRequest) bool {
	t.Helper()
	prefer := place.Preference{Node: place.Policy(r.IntN(3)), IgnoreLinks: r.IntN(4) == 0}
	switch r.IntN(5) {
	case 0, 1:
		prefer.Cards = []place.CardKey{place.Emptiest}
	case 2:
		prefer.Cards, w.unused = []place.CardKey{place.Unused}, true
	}
	if r.IntN(6) == 0 {
		pod.Deny = []gpu.CardID{w.cards[r.IntN(len(w.cards))].ID}
	}
	offer, refusal := place.Fit(n, pod, &prefer)
	if refusal.Code != place.Fits {
		if w.fitsSomehow(pod) {
			t.Fatalf("seed %d: refused (%s) although there is a way\ncards %+v\npod %+v", seed, refusal.Message(n), w, pod)
		}
		return false
	}
	if err := w.obeys(pod, &offer); err != nil {
		t.Fatalf("seed %d: %v\ncards %+v\npod %+v", seed, err, w, pod)
	}
	return true
}

// TestAPlantedArrangementIsFound makes pods of up to eight containers that fit
// on nodes of up to 16 cards, because they are made from a way to place them.
func TestAPlantedArrangementIsFound(t *testing.T) {
	incomplete, found := 0, 0
	for seed := range uint64(8000) {
		r := gputest.Rand(seed)
		state := []func(*rand.Rand, int) (*ledger.Node, *world){randomState, unequalState}[r.IntN(2)]
		n, w := state(r, 4+r.IntN(13))
		pod := w.plant(r, 2+r.IntN(7))
		if len(pod.Requests) < 2 {
			continue
		}
		prefer := place.Preference{Node: place.Policy(r.IntN(3))}
		if r.IntN(2) == 0 {
			prefer.Cards = []place.CardKey{place.Emptiest}
		}
		offer, refusal := place.Fit(n, pod, &prefer)
		switch {
		case refusal.Incomplete:
			incomplete++
		case refusal.Code != place.Fits:
			t.Fatalf("seed %d: refused (%s) although there is a way\ncards %+v\npod %+v", seed, refusal.Message(n), w, pod)
		default:
			found++
			if err := w.obeys(pod, &offer); err != nil {
				t.Fatalf("seed %d: %v\ncards %+v\npod %+v", seed, err, w, pod)
			}
		}
	}
	t.Logf("%d found, %d searches ended at their budget", found, incomplete)
	if found < 4000 || incomplete > found/500 {
		t.Errorf("%d were found and %d given up, want four thousand at least and a fifth of a percent at most", found, incomplete)
	}
}

// plant returns a pod for which there is room.
func (w *world) plant(r *rand.Rand, containers int) *gpu.PodRequest {
	pod := gputest.Ask()
	sidecars, running := slices.Clone(w.loads), slices.Clone(w.loads)
	for range containers {
		req, now, takes := randomShare(r), running, w.takes
		req.Phase = []gpu.Phase{gpu.App, gpu.App, gpu.Init, gpu.Sidecar}[r.IntN(4)]
		if req.Phase == gpu.Init {
			now, takes = sidecars, w.takesInit
		}
		want := 1 + r.IntN(1+r.IntN(len(w.cards)))
		var on []int
		for _, c := range r.Perm(len(w.cards)) {
			if len(on) < want && takes(c, now[c], req, pod) {
				on = append(on, c)
			}
		}
		if req.Cards = len(on); req.Cards == 0 {
			continue
		}
		for _, c := range on {
			if req.Phase != gpu.Init {
				running[c] = w.plus(c, running[c], req, pod)
			}
			if req.Phase == gpu.Sidecar {
				sidecars[c] = w.plus(c, sidecars[c], req, pod)
			}
		}
		pod.Requests = append(pod.Requests, req)
	}
	return pod
}

var (
	someCompute = []gpu.Percent{0, 10, 25, 30, 40, 50, 60, 70, 90}
	someMemory  = []gpu.MiB{128, gib, 8 * gib, 16 * gib, 24 * gib, 40 * gib}
)

func randomShare(r *rand.Rand) gpu.Request {
	switch r.IntN(10) {
	case 0:
		return gputest.Whole(1)
	case 1:
		return gputest.Alone(1, someMemory[r.IntN(len(someMemory))])
	}
	return gputest.Share(someCompute[r.IntN(len(someCompute))], someMemory[r.IntN(len(someMemory))])
}

// randomPod returns a pod of two to four containers of any phase.
func randomPod(r *rand.Rand, cards int) *gpu.PodRequest {
	requests := make([]gpu.Request, 2+r.IntN(3))
	for i := range requests {
		requests[i] = randomShare(r)
		requests[i].Cards += r.IntN(1 + r.IntN(cards))
		if i < len(requests)-1 && r.IntN(3) == 0 {
			requests[i].Phase = []gpu.Phase{gpu.Init, gpu.Sidecar}[r.IntN(2)]
		}
	}
	return randomKind(r, gputest.Ask(requests...))
}

// randomKind gives the pod a class and a QoS class.
func randomKind(r *rand.Rand, pod *gpu.PodRequest) *gpu.PodRequest {
	switch r.IntN(8) {
	case 0:
		pod.QoS, pod.Class = "", gpu.Online
		for i := range pod.Requests {
			pod.Requests[i].Exclusive, pod.Requests[i].Compute = false, 0
		}
	case 1:
		pod.Class = gpu.Offline
	case 2, 3:
		pod.QoS = gpu.FixedShare
	}
	return pod
}

// sidecarPod returns a pod in which init containers run next to sidecars.
func sidecarPod(r *rand.Rand, cards int) *gpu.PodRequest {
	requests := make([]gpu.Request, 2+r.IntN(4))
	for i := range requests {
		requests[i] = randomShare(r)
		if r.IntN(3) == 0 {
			requests[i].Cards += r.IntN(cards)
		}
		requests[i].Phase = []gpu.Phase{gpu.Init, gpu.Sidecar}[r.IntN(2)]
	}
	if r.IntN(2) == 0 {
		requests[len(requests)-1].Phase = gpu.App
	}
	return randomKind(r, gputest.Ask(requests...))
}

// seatPod returns a pod that asks for seats.
func seatPod(r *rand.Rand, cards int) *gpu.PodRequest {
	requests := make([]gpu.Request, 2+r.IntN(3))
	for i := range requests {
		requests[i] = gputest.Whole(1 + r.IntN(1+cards/2))
		requests[i].Phase = []gpu.Phase{gpu.App, gpu.App, gpu.Init, gpu.Sidecar}[r.IntN(4)]
	}
	return gputest.Ask(requests...)
}

// randomState returns a node of equal cards and the test's own account of it.
func randomState(r *rand.Rand, n int) (*ledger.Node, *world) {
	return stateOf(r, gputest.Random(r, n))
}

// unequalState returns a node whose cards differ in memory and slots.
func unequalState(r *rand.Rand, n int) (*ledger.Node, *world) {
	plan := gputest.Random(r, n)
	for i := range plan.Cards {
		plan.Cards[i].Memory = []gpu.MiB{16, 32, 48, 64}[r.IntN(4)] * gib
		plan.Cards[i].Slots = []int{1, 2, 3, gpu.MaxSlices}[r.IntN(4)]
		plan.Cards[i].Healthy = r.IntN(10) > 0
	}
	return stateOf(r, plan)
}

// seatState returns a node that hands out few seats a card.
func seatState(r *rand.Rand, n int) (*ledger.Node, *world) {
	plan := gputest.Random(r, n)
	for i := range plan.Cards {
		plan.Cards[i].Slots = 1 + r.IntN(3)
	}
	w := &world{cards: plan.Cards, loads: make([]load, n), seats: true}
	account := node(plan.Topology(), serves(ledger.Serves{Seats: true}))
	w.fill(r, account, func() gpu.Request { return gputest.Whole(1) })
	return account, w
}

func stateOf(r *rand.Rand, plan *gputest.Plan) (*ledger.Node, *world) {
	w := &world{cards: plan.Cards, loads: make([]load, len(plan.Cards))}
	account := node(plan.Topology())
	w.fill(r, account, func() gpu.Request { return randomShare(r) })
	return account, w
}

// fill books pods of one request at random.
func (w *world) fill(r *rand.Rand, account *ledger.Node, request func() gpu.Request) {
	n := len(w.cards)
	for range r.IntN(2 * n) {
		pod := randomKind(r, gputest.Ask(request()))
		if w.seats {
			pod.Class, pod.QoS, pod.Requests[0] = gpu.Normal, gpu.BestEffort, request()
		}
		c, req := r.IntN(n), pod.Requests[0]
		if !w.takes(c, w.loads[c], req, pod) {
			continue
		}
		w.loads[c] = w.plus(c, w.loads[c], req, pod)
		account.Book(ledger.Holding{
			Holder: ledger.Holder(fmt.Sprintf("pod-%d", len(account.Holdings()))), QoS: pod.QoS, Class: pod.Class,
			Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{account.ShareOf(&req, c)}}},
		})
	}
}
