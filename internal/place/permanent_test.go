package place_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPermanentMeansTheEmptiedNodeRefuses asks nodes in random states and then
// the same node without any pod, foreign slices left where they are.
func TestPermanentMeansTheEmptiedNodeRefuses(t *testing.T) {
	permanent, passing := 0, 0
	for seed := range uint64(5000) {
		r := gputest.Rand(seed)
		n, empty := randomAccount(r)
		pod := randomAsk(r, n.Topology().Len())
		prefer := place.Preference{Node: place.Policy(r.IntN(3)), IgnoreLinks: r.IntN(5) == 0}
		if r.IntN(3) == 0 {
			prefer.Cards = []place.CardKey{place.CardKey(r.IntN(4)), place.CardKey(r.IntN(4))}
		}
		before := n.Clone()
		_, refusal := place.Fit(n, pod, &prefer)
		_, never := place.Fit(empty, pod, &prefer)
		if !slices.Equal(before.Now().Usage, n.Now().Usage) || !slices.Equal(before.WithoutPods().Usage, n.WithoutPods().Usage) {
			t.Fatalf("seed %d: Fit changed the node (-before +after):\n%s", seed, cmp.Diff(before.Now(), n.Now()))
		}
		if refusal.Code == place.Fits {
			continue
		}
		if want := never.Code != place.Fits; refusal.Permanent != want {
			t.Fatalf("seed %d: %s is permanent: %t, want %t (%v)", seed, refusal.Code, refusal.Permanent, want, never.Code)
		}
		want := place.Shortage{Code: never.Code, Want: never.Want, Have: never.Have, Idle: never.Idle, Total: never.Total}
		if refusal.WhenEmpty != want {
			t.Fatalf("seed %d: the emptied node refuses for %+v, want %+v", seed, refusal.WhenEmpty, want)
		}
		if refusal.Permanent {
			permanent++
		} else {
			passing++
		}
	}
	t.Logf("%d permanent refusals, %d passing ones", permanent, passing)
	if permanent < 500 || passing < 500 {
		t.Errorf("%d permanent refusals and %d passing ones, want 500 of each at least", permanent, passing)
	}
}

// randomAccount returns a node in a random state, and the same without pods.
func randomAccount(r *rand.Rand) (n, empty *ledger.Node) {
	plan := gputest.Random(r, 1+r.IntN(6))
	usage := make([]ledger.Usage, len(plan.Cards))
	for i := range plan.Cards {
		plan.Cards[i].Healthy = r.IntN(10) > 0
		plan.Cards[i].Slots = []int{1, 2, 16, 16}[r.IntN(4)]
		if r.IntN(5) == 0 {
			usage[i] = ledger.Usage{
				Slots: 1, Memory: someMemory[r.IntN(len(someMemory))], Compute: someCompute[r.IntN(len(someCompute))],
				QoS: gpu.QoSClasses()[r.IntN(3)].Set(), Exclusive: r.IntN(4) == 0,
			}
		}
	}
	topology := plan.Topology()
	kinds := []ledger.Serves{{Whole: true, Slices: true}, {Whole: true, Slices: true}, {Whole: true, Slices: true}, {Whole: true}, {Slices: true}, {Seats: true}}
	states := []state{serves(kinds[r.IntN(len(kinds))]), foreign(usage...)}
	if r.IntN(50) == 0 {
		states = append(states, func(n *ledger.Node) { n.Problem = errors.New("unreadable") })
	}
	n, empty = node(topology, states...), node(topology, states...)
	for i := range r.IntN(8) {
		pod := randomKind(r, gputest.Ask(randomShare(r)))
		n.Book(ledger.Holding{
			Holder: ledger.Holder(fmt.Sprintf("pod-%d", i)), QoS: pod.QoS, Class: pod.Class,
			Parts: []ledger.Part{{Container: "c", Shares: []ledger.Share{n.ShareOf(&pod.Requests[0], r.IntN(topology.Len()))}}},
		})
	}
	if r.IntN(20) == 0 {
		n.BookUnknown("stray")
	}
	return n, empty
}

// randomAsk returns a pod of one to three containers that ask for anything.
func randomAsk(r *rand.Rand, cards int) *gpu.PodRequest {
	requests := make([]gpu.Request, 1+r.IntN(3))
	for i := range requests {
		switch r.IntN(4) {
		case 0:
			requests[i] = gputest.Whole(1 + r.IntN(cards+1))
		case 1:
		default:
			requests[i] = onCards(1+r.IntN(2), randomShare(r))
		}
		requests[i].Phase = []gpu.Phase{gpu.App, gpu.App, gpu.Init, gpu.Sidecar}[r.IntN(4)]
	}
	pod := randomKind(r, gputest.Ask(requests...))
	if r.IntN(6) == 0 {
		pod.Deny = []gpu.CardID{"GPU-0"}
	}
	return pod
}
