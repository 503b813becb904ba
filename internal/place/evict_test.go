package place

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// pod is a pod on a node, with the app whose budgets protect it.
type pod struct {
	Victim
	app           string
	share         ledger.Share
	cards         []int
	kept, unknown bool // may not be evicted; its cards are not known
}

type podOption func(*pod)

func newPod(name string, options ...podOption) *pod {
	p := &pod{Victim: Victim{Holder: ledger.Holder(name)}}
	for _, o := range options {
		o(p)
	}
	return p
}

func part(compute int32, gib int64) podOption {
	return func(p *pod) { p.share = ledger.Share{Compute: gpu.Percent(compute), Memory: gpu.MiB(gib) << 10} }
}

func whole(p *pod) {
	p.share = ledger.Share{Compute: gpu.FullCompute, Memory: 64 << 10, Exclusive: true}
}

func holds(cards ...int) podOption { return func(p *pod) { p.cards = cards } }

func started(minute int) podOption {
	return func(p *pod) { p.Started = time.Unix(1e9, 0).Add(time.Duration(minute) * time.Minute) }
}

func priority(n int32) podOption { return func(p *pod) { p.Priority = n } }

func ofApp(app string) podOption { return func(p *pod) { p.app = app } }

func kept(p *pod) { p.kept = true }

func unknown(p *pod) { p.unknown = true }

// budget allows so many evictions of the app's pods.
type budget struct {
	app     string
	allowed int32
}

// nodeWith returns a node with the given pods, and those that may be evicted.
func nodeWith(cards int, pods []*pod) (*ledger.Node, []*Victim) {
	n := gputest.Node(gputest.MustTopology(gputest.Cards(cards), nil))
	var victims []*Victim
	for _, p := range pods {
		p.Budgets = nil
		if !p.kept {
			victims = append(victims, &p.Victim)
		}
		if p.unknown {
			n.BookUnknown(p.Holder)
			continue
		}
		part := ledger.Part{Container: "c"}
		for _, card := range p.cards {
			p.share.Card = card
			part.Shares = append(part.Shares, p.share)
		}
		n.Book(ledger.Holding{Holder: p.Holder, QoS: gpu.BestEffort, Parts: []ledger.Part{part}})
	}
	return n, SortVictims(n, victims)
}

// evictionOn is the search for victims on a node with the given pods.
func evictionOn(cards int, request *gpu.PodRequest, pods []*pod, budgets ...budget) *Eviction {
	n, victims := nodeWith(cards, pods)
	b := NewBoard()
	e := b.Try().Room(request, &Preference{}).On(b.Set(n), victims)
	for i, budget := range budgets {
		e.Allowed = append(e.Allowed, budget.allowed)
		for _, p := range pods {
			if p.app == budget.app {
				p.Budgets = append(p.Budgets, i)
			}
		}
	}
	return e
}

func namesOf(victims []*Victim) []string {
	var names []string
	for _, v := range victims {
		names = append(names, string(v.Holder))
	}
	slices.Sort(names)
	return names
}

// oneAgainstThree has an old pod on card 0 and three younger ones on card 1.
func oneAgainstThree(options ...podOption) []*pod {
	return []*pod{
		newPod("a", append([]podOption{part(50, 32), holds(0), started(0), ofApp("a")}, options...)...),
		newPod("b1", part(20, 16), holds(1), started(1), ofApp("b")),
		newPod("b2", part(20, 16), holds(1), started(2), ofApp("b")),
		newPod("b3", part(20, 16), holds(1), started(3), ofApp("b")),
	}
}

func TestCheapest(t *testing.T) {
	tests := map[string]struct {
		cards  int
		onNode []*pod
		pdbs   []budget
		pod    *gpu.PodRequest
		want   []string // none: no answer
	}{
		"one old pod rather than three young ones": {
			cards: 2, onNode: oneAgainstThree(), pod: gputest.AskWhole(1), want: []string{"a"},
		},
		"three pods rather than one that a budget protects": {
			cards: 2, onNode: oneAgainstThree(), pdbs: []budget{{"a", 0}},
			pod: gputest.AskWhole(1), want: []string{"b1", "b2", "b3"},
		},
		"three pods rather than one of higher priority": {
			cards: 2, onNode: oneAgainstThree(priority(1)), pod: gputest.AskWhole(1), want: []string{"b1", "b2", "b3"},
		},
		"one broken budget rather than three": {
			cards: 2, onNode: oneAgainstThree(priority(1)), pdbs: []budget{{"a", 0}, {"b", 0}},
			pod: gputest.AskWhole(1), want: []string{"a"},
		},
		"a budget is charged for evicted pods only": {
			cards: 2, pdbs: []budget{{"a", 1}}, pod: gputest.AskWhole(1), want: []string{"young"},
			onNode: []*pod{newPod("old", part(50, 32), holds(0), started(0), ofApp("a")), newPod("young", part(50, 32), holds(1), started(1), ofApp("a"))},
		},
		"two pods of two budgets rather than two of one": {
			cards: 3, pod: gputest.AskWhole(2), want: []string{"a2", "b"},
			pdbs: []budget{{"a", 1}, {"b", 1}},
			onNode: []*pod{
				newPod("a1", part(50, 32), holds(0), started(0), ofApp("a")), newPod("a2", part(50, 32), holds(1), started(1), ofApp("a")),
				newPod("b", part(50, 32), holds(2), started(2), ofApp("b")),
			},
		},
		"one violation either way: one protected pod rather than two that exceed a budget together": {
			cards: 2, pod: gputest.AskWhole(1), want: []string{"b"},
			pdbs: []budget{{"a", 1}, {"b", 0}},
			onNode: []*pod{
				newPod("a1", part(50, 32), holds(0), ofApp("a")), newPod("a2", part(50, 32), holds(0), ofApp("a")),
				newPod("b", part(50, 32), holds(1), ofApp("b")),
			},
		},
		"a pod that may not be evicted": {
			cards: 2, onNode: oneAgainstThree(kept), pod: gputest.AskWhole(1), want: []string{"b1", "b2", "b3"},
		},
		"only as many as it takes": {
			cards: 2, onNode: oneAgainstThree(kept), pod: gputest.AskSlice(60, 32<<10), want: []string{"b3"},
		},
		"the pod that started last": {
			cards: 2, onNode: []*pod{newPod("a", part(50, 32), holds(0), started(5)), newPod("b", part(50, 32), holds(1), started(6))},
			pod: gputest.AskWhole(1), want: []string{"b"},
		},
		"the pod that holds less, though it has run longer": {
			cards: 2, onNode: []*pod{newPod("small", part(40, 32), holds(0), started(5)), newPod("large", part(50, 32), holds(1), started(6))},
			pod: gputest.AskSlice(70, 16<<10), want: []string{"small"},
		},
		"a slice rather than the job with whole cards": {
			cards: 3, onNode: []*pod{newPod("slice", part(70, 60), holds(0), started(5)), newPod("job", whole, holds(1, 2), started(6))},
			pod: gputest.AskSlice(35, 4<<10), want: []string{"slice"},
		},
		"four cards of eight: those with one pod each, and of these the youngest": {
			cards: 8, pod: gputest.AskWhole(4), want: []string{"s2", "s4", "s6", "s7"},
			onNode: []*pod{
				newPod("s0", part(10, 8), holds(0), started(0)),
				newPod("s1", part(10, 8), holds(1), started(1)), newPod("x1", part(10, 8), holds(1), started(9)),
				newPod("s2", part(10, 8), holds(2), started(2)),
				newPod("s3", part(10, 8), holds(3), started(3)), newPod("x3", part(10, 8), holds(3), started(9)),
				newPod("s4", part(10, 8), holds(4), started(4)),
				newPod("s5", part(10, 8), holds(5), started(5)), newPod("x5", part(10, 8), holds(5), started(9)),
				newPod("s6", part(10, 8), holds(6), started(6)), newPod("s7", part(10, 8), holds(7), started(7)),
			},
		},
		"a pod on several cards is one victim": {
			cards: 4, pod: gputest.AskWhole(2), want: []string{"pair"},
			onNode: []*pod{
				newPod("pair", whole, holds(0, 1), started(0)),
				newPod("s2", part(10, 8), holds(2), started(8)), newPod("s3", part(10, 8), holds(3), started(8)),
			},
		},
		"a pod whose cards are not known": {
			cards: 2, onNode: []*pod{newPod("a", whole, holds(0)), newPod("u", whole, unknown)},
			pod: gputest.AskWhole(1), want: []string{"u"},
		},
		"cards are not what is missing": {
			cards: 2, onNode: []*pod{newPod("a", whole, holds(0))}, pod: gputest.AskWhole(1),
		},
		"no pod may be evicted": {
			cards: 1, onNode: []*pod{newPod("a", whole, holds(0), kept)}, pod: gputest.AskWhole(1),
		},
		"evicting all of them would not do": {
			cards: 2, onNode: []*pod{newPod("a", whole, holds(0)), newPod("b", whole, holds(1), kept)},
			pod: gputest.AskWhole(2),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 3 { // in whatever order the node has them
				victims, ok := evictionOn(tt.cards, tt.pod, tt.onNode, tt.pdbs...).Cheapest()
				if ok != (tt.want != nil) {
					t.Fatalf("Cheapest() found something: %v", ok)
				}
				if got := namesOf(victims); !slices.Equal(got, tt.want) {
					t.Errorf("victims %v, want %v", got, tt.want)
				}
				slices.Reverse(tt.onNode)
			}
		})
	}
}

// TestCheapestOfMany: where there are too many sets to try, cards are emptied
// one by one, and pods that need not go stay.
func TestCheapestOfMany(t *testing.T) {
	var stairs []*pod // i+1 pods on card i
	for card := range 8 {
		for k := range card + 1 {
			stairs = append(stairs, newPod(fmt.Sprintf("s%d-%d", card, k), part(10, 4), holds(card), started(k)))
		}
	}
	level := []*pod{newPod("dear", part(10, 4), holds(0), priority(5))} // and eight pods on each other card
	for card := 1; card < 8; card++ {
		for k := range 8 {
			level = append(level, newPod(fmt.Sprintf("s%d-%d", card, k), part(10, 4), holds(card), started(k)))
		}
	}
	var lost []*pod
	for i := range 14 {
		lost = append(lost, newPod(fmt.Sprintf("u%02d", i), whole, unknown))
	}
	var apps []*pod // four of app a on each card but the last; there, eight of app b
	for card := range 8 {
		app, n := "a", 4
		if card == 7 {
			app, n = "b", 8
		}
		for k := range n {
			apps = append(apps, newPod(fmt.Sprintf("%s%d-%d", app, card, k), part(10, 4), holds(card), started(k), ofApp(app)))
		}
	}
	only4 := gputest.AskWhole(1)
	only4.Allow = []gpu.CardID{"GPU-4"}
	tests := map[string]struct {
		onNode []*pod
		pdbs   []budget
		pod    *gpu.PodRequest
		want   []string
	}{
		"eight pods rather than four of which one exceeds a budget": {
			onNode: apps, pdbs: []budget{{"a", 3}}, pod: gputest.AskWhole(1),
			want: []string{"b7-0", "b7-1", "b7-2", "b7-3", "b7-4", "b7-5", "b7-6", "b7-7"},
		},
		"the second card exceeds a budget, so pods of another app are evicted": {
			onNode: apps, pdbs: []budget{{"a", 4}}, pod: gputest.AskWhole(2),
			want: []string{"a0-0", "a0-1", "a0-2", "a0-3", "b7-0", "b7-1", "b7-2", "b7-3", "b7-4", "b7-5", "b7-6", "b7-7"},
		},
		"the four cards with the fewest pods": {
			onNode: stairs, pod: gputest.AskWhole(4),
			want: []string{"s0-0", "s1-0", "s1-1", "s2-0", "s2-1", "s2-2", "s3-0", "s3-1", "s3-2", "s3-3"},
		},
		"only the named cards": {
			onNode: stairs, pod: only4,
			want: []string{"s4-0", "s4-1", "s4-2", "s4-3", "s4-4"},
		},
		"eight pods rather than one of higher priority": {
			onNode: level, pod: gputest.AskWhole(1),
			want: []string{"s1-0", "s1-1", "s1-2", "s1-3", "s1-4", "s1-5", "s1-6", "s1-7"},
		},
		"those on no known card, and no others": {
			onNode: append([]*pod{newPod("s0", part(10, 4), holds(0)), newPod("s1", part(10, 4), holds(1)), newPod("s2", part(10, 4), holds(2))}, lost...),
			pod:    gputest.AskWhole(1),
			want:   []string{"u00", "u01", "u02", "u03", "u04", "u05", "u06", "u07", "u08", "u09", "u10", "u11", "u12", "u13"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := evictionOn(8, tt.pod, tt.onNode, tt.pdbs...)
			victims, ok := s.Cheapest()
			if got := namesOf(victims); !ok || !slices.Equal(got, tt.want) {
				t.Errorf("victims %v, want %v", got, tt.want)
			}
			if !s.fitsWithout(victims) {
				t.Error("the pod does not fit without them")
			}
			for i, v := range victims {
				if s.fitsWithout(slices.Concat(victims[:i], victims[i+1:])) {
					t.Errorf("%s could have been spared", v.Holder)
				}
			}
			if s.tries > EvictionTries {
				t.Errorf("%d sets were tried", s.tries)
			}
		})
	}
}

// TestCheapestNextToANominatedPod: where the pods of the lowest priority make room, and
// the pod that is placed before takes it, those of a higher one go too. b shares card 0
// with a pod that stays, and the slice fits there only without b.
func TestCheapestNextToANominatedPod(t *testing.T) {
	e := evictionOn(2, gputest.AskWhole(1), []*pod{
		newPod("x", part(50, 1), holds(0), kept), newPod("b", part(40, 1), holds(0), priority(10)), newPod("a", part(50, 1), holds(1)),
	})
	nominated := gputest.AskSlice(30, 1024)
	e.Before = func(n *ledger.Node) {
		if offer, refusal := Fit(n, nominated, &Preference{}); refusal.Code == Fits {
			n.Book(n.Holding(&offer, "nominated", nominated))
		}
	}
	victims, ok := e.Cheapest()
	if got := namesOf(victims); !ok || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("victims %v, %v; want a and b", got, ok)
	}
}

// cost returns the cost of evicting the set, in order of weight: violations of
// budgets, the highest priority, the sum of priorities, the number of pods, what they
// hold of cards, and the earliest start, negated.
func cost(set []*Victim, budgets ...budget) []int {
	beyond, highest, sum, held, second := 0, -1, 0, 0, math.MaxInt
	for i, v := range set {
		over := false
		for k, b := range budgets {
			before := 0
			for _, other := range set[:i] {
				if slices.Contains(other.Budgets, k) {
					before++
				}
			}
			over = over || slices.Contains(v.Budgets, k) && before >= int(b.allowed)
		}
		if over {
			beyond++
		}
		highest, sum, second = max(highest, int(v.Priority)), sum+int(v.Priority)+1<<31, min(second, int(v.Started.Unix()))
		held += int(v.held)
	}
	return []int{beyond, highest, sum, len(set), held, -second}
}

// TestCheapestIsCheapest compares with all sets there are.
func TestCheapestIsCheapest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	found, broken, together, shared := 0, 0, 0, 0
	for round := range 1500 {
		cards := 1 + random.IntN(3)
		pods := randomPods(random, cards)
		request := randomRequest(random, cards)
		budgets := []budget{{"0", random.Int32N(3)}, {"0", random.Int32N(3)}, {"1", random.Int32N(3)}, {"2", random.Int32N(5)}}
		s := evictionOn(cards, request, pods, budgets...)
		var want []*Victim
		for mask := 1; mask < 1<<len(s.victims); mask++ {
			var set []*Victim
			for i, v := range s.victims {
				if mask>>i&1 == 1 {
					set = append(set, v)
				}
			}
			if s.fitsWithout(set) && (want == nil || slices.Compare(cost(set, budgets...), cost(want, budgets...)) < 0) {
				want = set
			}
		}
		if s.fitsWithout(nil) {
			want = nil
		}
		checkBound(t, s, want)
		s.tries = 0
		got, ok := s.Cheapest()
		if ok != (want != nil) || ok && (!s.fitsWithout(got) || !slices.Equal(cost(got, budgets...), cost(want, budgets...))) {
			t.Fatalf("round %d: victims %v, want %v", round, namesOf(got), namesOf(want))
		}
		if !ok {
			continue
		}
		found++
		checkBelow(t, got, func() *Eviction { return evictionOn(cards, request, pods, budgets...) })
		if n := cost(want, budgets...)[0]; n > 0 {
			broken++
		} else if s.violations(s.victims) > 0 {
			together++
		}
		if slices.ContainsFunc(want, func(v *Victim) bool { return v.cards.Len() > 1 }) {
			shared++
		}
	}
	if found < 300 || broken < 50 || together < 50 || shared < 50 {
		t.Errorf("%d rounds had victims, %d with violations, %d without although all pods together violate, %d with pods on several cards: too few to prove anything", found, broken, together, shared)
	}
}

// randomPods returns a few pods with slices, with a whole card or two, or with a slice
// of each of two cards. Those of priority 3 may not be evicted.
func randomPods(random *rand.Rand, cards int) []*pod {
	var pods []*pod
	for i := range 1 + random.IntN(8) {
		on := random.Perm(cards)[:1]
		if random.IntN(4) == 0 {
			on = random.Perm(cards)[:min(2, cards)]
		}
		amount := part(10*(1+random.Int32N(3)), 4*(1+random.Int64N(4)))
		if random.IntN(5) == 0 {
			amount = whole
		}
		p := newPod(fmt.Sprintf("q%d", i), amount, holds(on...), started(random.IntN(4)), priority(random.Int32N(4)), ofApp(strconv.Itoa(random.IntN(3))))
		p.kept = p.Priority == 3
		pods = append(pods, p)
	}
	return pods
}

// randomRequest asks for whole cards, for a slice, for a slice of each of several cards,
// or for a slice and a card.
func randomRequest(random *rand.Rand, cards int) *gpu.PodRequest {
	share := gputest.Share(gpu.Percent(10*(1+random.IntN(9))), gpu.MiB(8*(1+random.IntN(7)))<<10)
	switch random.IntN(6) {
	case 0, 1, 2:
		return gputest.AskWhole(1 + random.IntN(cards))
	case 3:
		share.Cards = 1 + random.IntN(cards)
	case 4:
		return gputest.Ask(share, gputest.Whole(1))
	}
	return gputest.Ask(share)
}

// checkBound checks that what the victims cost is not below the bound.
func checkBound(t *testing.T, e *Eviction, cheapest []*Victim) {
	t.Helper()
	if e.Fits() {
		return
	}
	bound, ok := e.Bound()
	if cheapest != nil && (!ok || e.Cost(cheapest).Compare(bound) < 0) {
		t.Fatalf("victims %v cost %+v, the bound is %+v, %v", namesOf(cheapest), e.Cost(cheapest), bound, ok)
	}
}

// checkBelow checks that a bound on the cost is kept to, and changes nothing else.
func checkBelow(t *testing.T, victims []*Victim, search func() *Eviction) {
	t.Helper()
	exact := search().Cost(victims)
	for _, tt := range []struct {
		below   EvictionCost
		orEqual bool
		want    bool
	}{{below: exact}, {below: exact, orEqual: true, want: true}, {below: EvictionCost{Violations: 99}, want: true}} {
		bounded := search()
		bounded.below, bounded.orEqual = &tt.below, tt.orEqual
		again, ok := bounded.Cheapest()
		if ok != tt.want || ok && bounded.Cost(again).Compare(exact) != 0 {
			t.Fatalf("victims %v (%v) below %+v, without a bound %v", namesOf(again), ok, tt.below, namesOf(victims))
		}
	}
}

func TestViolations(t *testing.T) {
	a := func(name string) *pod { return newPod(name, part(10, 4), holds(0), ofApp("a")) }
	tests := map[string]struct {
		pods []*pod
		pdbs []budget
		want int
	}{
		"no budgets":                     {pods: []*pod{a("1"), a("2")}},
		"a budget of one":                {pods: []*pod{a("1"), newPod("x", part(10, 4), holds(0)), a("2"), a("3")}, pdbs: []budget{{"a", 1}}, want: 2},
		"one budget of two is broken":    {pods: []*pod{a("1"), a("2")}, pdbs: []budget{{"a", 2}, {"a", 1}}, want: 1},
		"a budget that covers no victim": {pods: []*pod{a("1"), a("2")}, pdbs: []budget{{"b", 0}, {"a", 1}}, want: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := evictionOn(1, gputest.AskWhole(1), tt.pods, tt.pdbs...)
			if got := s.violations(s.victims); got != tt.want {
				t.Errorf("violations() = %d, want %d", got, tt.want)
			}
			if got := s.violations(nil); got != 0 {
				t.Errorf("violations() of none = %d", got)
			}
		})
	}
}
