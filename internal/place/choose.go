package place

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Choose returns the position of the best node for the pod and the offer there.
// Of equally good nodes the one with the lowest name is taken, so the order of
// nodes does not matter. When no node fits, ok is false and refusals has the
// refusal of each node.
func Choose(nodes []*ledger.Node, r *gpu.PodRequest, p *Preference) (best int, offer ledger.Offer, refusals []Refusal, ok bool) {
	var rank int64
	for i, n := range nodes {
		o, refusal := Fit(n, r, p)
		if refusal.Code != Fits {
			refusals = append(refusals, refusal)
			continue
		}
		if k := Rank(&o, p); !ok || k > rank || k == rank && n.Name < nodes[best].Name {
			best, offer, rank, ok = i, o, k, true
		}
	}
	if ok {
		return best, offer, nil, true
	}
	return 0, ledger.Offer{}, refusals, false
}
