package place

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestCheapestOfEightCards compares with all sets of cards of a crowded node. Among so
// many pods the search has to leave out nearly all sets, and it must not miss one.
func TestCheapestOfEightCards(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	most := 0
	for round := range 300 {
		pods, budgets := crowd(random)
		want := 1 << random.IntN(3)
		s := evictionOn(8, gputest.AskWhole(want), pods, budgets...)
		var best []int
		for cards := range gpu.Set(1 << 8) {
			if cards.Len() != want {
				continue
			}
			var set []*Victim
			for _, v := range s.victims {
				if v.cards&cards != 0 {
					set = append(set, v)
				}
			}
			if c := cost(set, budgets...); best == nil || slices.Compare(c, best) < 0 {
				best = c
			}
		}
		got, ok := s.Cheapest()
		if !ok || !s.fitsWithout(got) || !slices.Equal(cost(got, budgets...), best) {
			t.Fatalf("round %d: victims %v cost %v, want %v", round, namesOf(got), cost(got, budgets...), best)
		}
		checkBound(t, s, got)
		most = max(most, s.tries)
	}
	if most > 3000 {
		t.Errorf("%d tries for one node", most)
	}
}

// TestRoom compares with all sets of victims on all of several nodes, some
// of which are not accepted.
func TestRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	chosen, ties, none := 0, 0, 0
	for round := range 400 {
		cards := 1 + random.IntN(2)
		request := randomRequest(random, cards)
		refused := map[string]bool{}
		board := NewBoard()
		room := board.Try().Room(request, &Preference{})
		var nodes []*Eviction
		names := random.Perm(900)
		for i := range 2 + random.IntN(5) {
			n, victims := nodeWith(cards, randomPods(random, cards))
			if i > 0 && random.IntN(3) == 0 {
				n, victims = nodes[0].node.Clone(), nodes[0].victims
			}
			n.Name = strconv.Itoa(100 + names[i])
			refused[n.Name] = random.IntN(4) == 0
			nodes = append(nodes, room.On(board.Set(n), victims))
		}
		want, best := "", EvictionCost{}
		for _, e := range nodes {
			if e.Fits() || refused[e.node.Name] {
				continue
			}
			for mask := 1; mask < 1<<len(e.victims); mask++ {
				var set []*Victim
				for i, v := range e.victims {
					if mask>>i&1 == 1 {
						set = append(set, v)
					}
				}
				if !e.fitsWithout(set) {
					continue
				}
				c := e.Cost(set)
				if order := c.Compare(best); want == "" || order < 0 || order == 0 && e.node.Name < want {
					if want != "" && want != e.node.Name && order == 0 {
						ties++
					}
					want, best = e.node.Name, c
				}
			}
		}
		found, tries, exhausted := room.Cheapest(nodes, 1, func(i int, victims []*Victim) bool {
			return nodes[i].fitsWithout(victims) && !refused[nodes[i].node.Name]
		})
		got := ""
		for _, i := range found {
			got = nodes[i].node.Name
			if nodes[i].bestCost != best {
				t.Errorf("round %d: victims cost %+v, want %+v", round, nodes[i].bestCost, best)
			}
		}
		if got != want || len(found) > 1 || tries > EvictionTries || exhausted {
			t.Fatalf("round %d: node %q after %d tries, want %q", round, got, tries, want)
		}
		if want == "" {
			none++
		} else {
			chosen++
		}
	}
	if chosen < 100 || none < 20 || ties < 10 {
		t.Errorf("%d rounds had victims, %d none, %d nodes tied: too few to prove anything", chosen, none, ties)
	}
}

// crowd returns two to four pods for each of eight cards, some of them on the next card
// too, of one priority or of several, with budgets or without.
func crowd(random *rand.Rand) (pods []*pod, budgets []budget) {
	priorities, apps := 1+random.Int32N(4), 1+random.IntN(4)
	for card := range 8 {
		for k := range 2 + random.IntN(3) {
			on := holds(card)
			if random.IntN(12) == 0 {
				on = holds(card, (card+1)%8)
			}
			pods = append(pods, newPod(fmt.Sprintf("c%d-%d", card, k), part(10, 8), on, started(random.IntN(40)),
				priority(random.Int32N(priorities)), ofApp(strconv.Itoa(random.IntN(apps)))))
		}
	}
	for app := range random.IntN(apps + 1) {
		budgets = append(budgets, budget{strconv.Itoa(app), random.Int32N(6)})
	}
	return pods, budgets
}
