package place_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/gputest"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// load is what is on one card, in an account of the test's own.
type load struct {
	compute, memory, shares int
	alone                   bool
	fixed, bestEffort       bool
	online, offline         bool
}

func (l load) idle() bool { return l.shares == 0 }

// takes says whether a card with this load can take the request of a pod.
func (l load) takes(r gpu.Request, pod *gpu.PodRequest) bool {
	if l.alone || r.Exclusive && !l.idle() || l.shares >= 16 {
		return false
	}
	if !l.idle() {
		classed := l.online || l.offline
		if classed != (pod.Class != gpu.Normal) || pod.Class == gpu.Offline && l.online {
			return false
		}
	}
	if l.memory+int(r.Memory.Amount) > 64<<10 {
		return false
	}
	if pod.Class == gpu.Online {
		return true
	}
	if !r.Exclusive && (pod.QoS == gpu.BestEffort && l.fixed || pod.QoS == gpu.FixedShare && l.bestEffort) {
		return false
	}
	return l.compute < 100 && l.compute+int(r.Compute) <= 100
}

// plus puts a share of the request on the card.
func (l load) plus(r gpu.Request, pod *gpu.PodRequest) load {
	l.compute += int(r.Compute)
	l.memory += int(r.Memory.Amount)
	l.shares++
	l.alone = l.alone || r.Exclusive
	l.online = l.online || pod.Class == gpu.Online
	l.offline = l.offline || pod.Class == gpu.Offline
	if !r.Exclusive && pod.Class != gpu.Online {
		l.fixed = l.fixed || pod.QoS == gpu.FixedShare
		l.bestEffort = l.bestEffort || pod.QoS == gpu.BestEffort
	}
	return l
}

// fitsSomehow tries every assignment of cards to containers.
func fitsSomehow(cards []load, pod *gpu.PodRequest) bool {
	placed := make([][]int, len(pod.Requests))
	var from func(i int, now []load) bool
	from = func(i int, now []load) bool {
		if i == len(pod.Requests) {
			return initsFit(cards, pod, placed)
		}
		r := pod.Requests[i]
		if r.Phase == gpu.Init {
			return from(i+1, now)
		}
		for mask := range 1 << len(cards) {
			next, on := assign(now, mask, r, pod)
			if len(on) == r.Cards {
				placed[i] = on
				if from(i+1, next) {
					return true
				}
			}
		}
		return false
	}
	return from(0, cards)
}

// assign puts the request on the cards of the mask; it returns no cards when
// one of them can't take it.
func assign(now []load, mask int, r gpu.Request, pod *gpu.PodRequest) (next []load, on []int) {
	next = append(next, now...)
	for c := range now {
		if mask>>c&1 == 0 {
			continue
		}
		if !now[c].takes(r, pod) {
			return nil, nil
		}
		next[c] = now[c].plus(r, pod)
		on = append(on, c)
	}
	return next, on
}

// initsFit checks the init containers: each runs beside the sidecars that come
// before it in the spec.
func initsFit(cards []load, pod *gpu.PodRequest, placed [][]int) bool {
	now := append([]load(nil), cards...)
	for i, r := range pod.Requests {
		switch r.Phase {
		case gpu.Sidecar:
			for _, c := range placed[i] {
				now[c] = now[c].plus(r, pod)
			}
		case gpu.Init:
			able := 0
			for _, l := range now {
				if l.takes(r, pod) {
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
func obeys(cards []load, pod *gpu.PodRequest, offer *ledger.Offer) error {
	sidecars := append([]load(nil), cards...)
	running := append([]load(nil), cards...)
	for i, r := range pod.Requests {
		on := offer.Cards(i).Indices()
		if len(on) != r.Cards {
			return fmt.Errorf("container %d asked for %d cards and got %v", i, r.Cards, on)
		}
		for _, c := range on {
			switch r.Phase {
			case gpu.Init:
				if !sidecars[c].takes(r, pod) {
					return fmt.Errorf("init container %d can't be on card %d with %+v", i, c, sidecars[c])
				}
			case gpu.Sidecar:
				sidecars[c] = sidecars[c].plus(r, pod)
				running[c] = running[c].plus(r, pod)
			default:
				running[c] = running[c].plus(r, pod)
			}
		}
	}
	for c, l := range running {
		switch {
		case l.memory > 64<<10, l.compute > 100 && pod.Class != gpu.Online, l.shares > 16:
			return fmt.Errorf("card %d is overbooked: %+v", c, l)
		case l.alone && l.shares > 1:
			return fmt.Errorf("card %d is held alone by one of %d: %+v", c, l.shares, l)
		case l.fixed && l.bestEffort:
			return fmt.Errorf("card %d has two QoS classes: %+v", c, l)
		case l.shares > cards[c].shares && cards[c].compute >= 100 && pod.Class != gpu.Online:
			return fmt.Errorf("card %d had no compute left: %+v", c, cards[c])
		}
	}
	return nil
}

// TestSeveralContainersAreRefusedOnlyIfNothingFits compares with a try of every
// assignment, on small nodes in random states.
func TestSeveralContainersAreRefusedOnlyIfNothingFits(t *testing.T) {
	offered, refused := 0, 0
	for seed := range uint64(15_000) {
		r := gputest.Rand(seed)
		n, cards := randomState(r, 1+r.IntN(5))
		pod := randomPod(r, n.Topology().Len())
		prefer := place.Preference{Node: place.Policy(r.IntN(3)), IgnoreLinks: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			prefer.Cards = []place.CardKey{place.Emptiest}
		}
		offer, refusal := place.Fit(n, pod, &prefer)
		if refusal.Code != place.Fits {
			refused++
			if !sidecarBeforeInit(pod) && fitsSomehow(cards, pod) {
				t.Fatalf("seed %d: refused (%s) although there is a way\ncards %+v\npod %+v", seed, refusal.Message(n), cards, pod)
			}
			continue
		}
		offered++
		if err := obeys(cards, pod, &offer); err != nil {
			t.Fatalf("seed %d: %v\ncards %+v\npod %+v", seed, err, cards, pod)
		}
	}
	t.Logf("%d offers, %d refusals", offered, refused)
	if offered < 1000 || refused < 1000 {
		t.Errorf("%d offers and %d refusals, want a thousand of each at least", offered, refused)
	}
}

// sidecarBeforeInit tells of the one kind of pod that may be refused in vain:
// cards are chosen for the sidecar before anyone looks at what an init container
// after it needs.
func sidecarBeforeInit(pod *gpu.PodRequest) bool {
	sidecar := false
	for _, r := range pod.Requests {
		if sidecar && r.Phase == gpu.Init {
			return true
		}
		sidecar = sidecar || r.Phase == gpu.Sidecar
	}
	return false
}

var (
	someCompute = []gpu.Percent{0, 10, 25, 30, 40, 50, 60, 70, 90}
	someMemory  = []gpu.MiB{128, gib, 8 * gib, 16 * gib, 24 * gib, 40 * gib}
)

func randomShare(r *rand.Rand) gpu.Request {
	if r.IntN(5) == 0 {
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

// randomState returns a node of equal cards and the test's own account of it.
func randomState(r *rand.Rand, n int) (*ledger.Node, []load) {
	plan := gputest.Random(r, n)
	account, cards := node(plan.Topology()), make([]load, n)
	for range r.IntN(2 * n) {
		pod := randomKind(r, gputest.Ask(randomShare(r)))
		c, req := r.IntN(n), pod.Requests[0]
		if !cards[c].takes(req, pod) {
			continue
		}
		cards[c] = cards[c].plus(req, pod)
		account.Book(ledger.Holding{
			Holder: ledger.Holder(fmt.Sprintf("pod-%d", len(account.Holdings()))), QoS: pod.QoS, Class: pod.Class,
			Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{account.ShareOf(&req, c)}}},
		})
	}
	return account, cards
}
