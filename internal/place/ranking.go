package place

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const (
	// smallBoard is up to how many nodes one core alone asks.
	smallBoard = 256
	// chunk is how many nodes a core takes at once.
	chunk = 64
)

// Ranking is what the nodes of a [Board] answer to one kind of request.
type Ranking struct {
	board *Board
	// fits has the nodes that can take such a pod, and hope those that could if
	// no other pod were there.
	fits, hope []bool
	// worths has what the nodes that fit are worth to such a pod, with what is
	// expected of the pods to come, and order the best of them.
	worths []Worth
	order  tournament
	demand *Demand
	// changes is how many changes of the board all this has seen.
	changes uint64
	stale   []NodeID // room
}

// Room returns how many nodes can take such a pod.
func (k *Ranking) Room() int { return k.order.members }

// At returns what the node is worth to such a pod if it fits there, and whether it
// would if no other pod were there.
func (k *Ranking) At(id NodeID) (worth Worth, fits, hope bool) {
	return k.worths[id], k.fits[id], k.hope[id]
}

// Best returns the nodes that can take such a pod, from the best to the worst.
func (k *Ranking) Best() iter.Seq2[NodeID, Worth] {
	return func(yield func(NodeID, Worth) bool) {
		for id := range k.order.ranked(k.better) {
			if !yield(id, k.worths[id]) {
				return
			}
		}
	}
}

// better reports whether the first node is the better one. There are no ties.
func (k *Ranking) better(first, second NodeID) bool {
	return k.board.Better(first, k.worths[first], second, k.worths[second])
}

// refresh asks the nodes that have changed, and those that fit when something else
// is expected of the pods to come.
func (k *Ranking) refresh(r *gpu.PodRequest, p *Preference) {
	n := len(k.board.nodes)
	if k.changes == 0 { // it is new, or was one of another kind
		k.fits, k.hope, k.worths, k.order, k.demand = k.fits[:0], k.hope[:0], k.worths[:0], tournament{}, nil
	}
	if more := n - len(k.fits); more > 0 {
		k.fits, k.hope = append(k.fits, make([]bool, more)...), append(k.hope, make([]bool, more)...)
		k.worths = append(k.worths, make([]Worth, more)...)
	}
	var demand *Demand
	if p.looksAhead() {
		demand = p.Demand
	}
	k.findStale(demand)
	k.changes, k.demand = k.board.changes, demand
	inParallel(k.stale, func(id NodeID) { k.ask(id, r, p) })
	grown := k.order.winner == nil || k.order.first < n
	if grown {
		k.order = newTournament(n)
	}
	if grown || len(k.stale) > smallBoard {
		k.order.play(k.fits, k.better)
		return
	}
	for _, id := range k.stale {
		k.order.update(id, k.fits[id], k.better)
	}
}

// findStale lists the nodes that have to be asked again.
func (k *Ranking) findStale(demand *Demand) {
	b := k.board
	k.stale = k.stale[:0]
	if demand == k.demand && k.changes > 0 && b.changes-k.changes <= recentChanges {
		for n := k.changes; n < b.changes; n++ {
			if id := b.latest[n%recentChanges]; b.changed[id] == n+1 { // it did not change again
				k.stale = append(k.stale, id)
			}
		}
		return
	}
	for id, at := range b.changed {
		if at > k.changes || demand != k.demand && k.fits[id] {
			k.stale = append(k.stale, NodeID(id))
		}
	}
}

// ask asks the node whether it can take the pod, and what it is worth.
func (k *Ranking) ask(id NodeID, r *gpu.PodRequest, p *Preference) {
	n := k.board.nodes[id]
	if n == nil {
		k.fits[id], k.hope[id] = false, false
		return
	}
	offer, refusal := Fit(n, r, p)
	fits := refusal.Code == Fits
	k.fits[id], k.hope[id] = fits, fits || !refusal.Permanent
	if fits {
		k.worths[id] = Rank(&offer, p)
	}
}

// inParallel calls the function for each of the nodes, on all cores when they are
// many.
func inParallel(nodes []NodeID, do func(NodeID)) {
	if len(nodes) <= smallBoard {
		for _, id := range nodes {
			do(id)
		}
		return
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				end := int(next.Add(chunk))
				if end-chunk >= len(nodes) {
					return
				}
				for _, id := range nodes[end-chunk : min(end, len(nodes))] {
					do(id)
				}
			}
		})
	}
	workers.Wait()
}
