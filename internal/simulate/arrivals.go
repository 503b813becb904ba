package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// stream names a source of random numbers of a run. Each has its own, so that
// what one draws does not change the others: all policies see the same pods on
// the same nodes.
type stream uint64

const (
	arrivalStream stream = iota + 1
	nodeStream
	tieStream
)

// random returns the numbers of a stream at a seed.
func random(seed int64, s stream) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), uint64(s)))
}

// arrivals returns the pods in the order in which they arrive at a seed: the
// trace shuffled, then pods drawn from it with replacement until the next would
// take the demand past inflate times the capacity. A trace that is larger than
// that loses pods at random. The result has positions in pods.
func arrivals(pods []Pod, capacity int64, inflate float64, seed int64) ([]int, error) {
	rng := random(seed, arrivalStream)
	order := make([]int, 0, len(pods))
	var demand int64
	for i := range pods {
		order = append(order, i)
		demand += pods[i].Demand()
	}
	if demand == 0 {
		return nil, errNoDemand
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pods[a].Name, pods[b].Name) })
	rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })

	limit := int64(inflate * float64(capacity))
	for demand > limit && len(order) > 0 {
		i := rng.IntN(len(order))
		demand -= pods[order[i]].Demand()
		order = slices.Delete(order, i, i+1)
	}
	trace := len(order)
	for trace > 0 {
		p := order[rng.IntN(trace)]
		if demand+pods[p].Demand() > limit {
			break
		}
		if len(order) > maxRows*10 {
			return nil, fmt.Errorf("more than %d arrivals: a smaller --inflate, or a trace whose pods ask for more of the cards", maxRows*10)
		}
		demand += pods[p].Demand()
		order = append(order, p)
	}
	return order, nil
}

// permuted returns the nodes in the order of a seed.
func permuted(nodes []Node, seed int64) []Node {
	out := slices.Clone(nodes)
	random(seed, nodeStream).Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}
