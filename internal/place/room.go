package place

import (
	"cmp"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Room is the search for room for a pod: for the node, and the pods to evict there,
// that cost the least. It is a what-if on a [Trial], as it was when the search began.
type Room struct{ attempt }

// attempt is what the searches on the nodes have in common.
type attempt struct {
	trial   *Trial
	request *gpu.PodRequest
	prefer  *Preference
	workspace
}

// Room returns the search for room for the pod.
func (t *Trial) Room(r *gpu.PodRequest, p *Preference) *Room {
	return &Room{attempt{trial: t, request: r, prefer: p}}
}

// On returns the search on one node, among victims that [SortVictims] has sorted.
func (r *Room) On(id NodeID, sorted []*Victim) *Eviction {
	return &Eviction{attempt: &r.attempt, id: id, node: r.trial.Node(id), victims: sorted, maxTries: EvictionTries}
}

// acceptTries is what asking others whether they accept a set of victims counts.
const acceptTries = 200

// Cheapest goes through the nodes in the order of [Eviction.Bound], then of their
// names, and returns the cheapest eviction that is accepted, by its position. It ends
// when no later node can have a cheaper one. If more than one are wanted it returns
// the first ones, without the proof. The work is bounded by [EvictionTries] for all
// nodes together; exhausted is true when that ended it. Of what is left a node gets
// half at most, so that none uses up all of it.
func (r *Room) Cheapest(nodes []*Eviction, want int, accepts func(i int, victims []*Victim) bool) (found []int, tries int, exhausted bool) {
	type bounded struct {
		i     int
		bound EvictionCost
	}
	order := make([]bounded, 0, len(nodes))
	for i, e := range nodes {
		if bound, ok := e.Bound(); ok {
			order = append(order, bounded{i: i, bound: bound})
		}
		e.tries = 0
	}
	before := func(a int, cost EvictionCost, b int, other EvictionCost) int {
		return cmp.Or(cost.Compare(other), cmp.Compare(nodes[a].node.Name, nodes[b].node.Name))
	}
	slices.SortFunc(order, func(a, b bounded) int { return before(a.i, a.bound, b.i, b.bound) })
	for _, b := range order {
		e := nodes[b.i]
		if want == 1 && len(found) == 1 {
			best := nodes[found[0]]
			if before(b.i, b.bound, found[0], best.bestCost) > 0 {
				break
			}
			e.below, e.orEqual = &best.bestCost, e.node.Name < best.node.Name
		} else if len(found) == want {
			break
		}
		if tries >= EvictionTries {
			return found, tries, true
		}
		e.maxTries = max(1, (EvictionTries-tries)/2)
		victims, ok := e.Cheapest()
		tries += e.tries
		if !ok {
			continue
		}
		tries += acceptTries
		if accepts(b.i, victims) {
			if want == 1 {
				found = found[:0]
			}
			found = append(found, b.i)
		}
	}
	return found, tries, false
}
