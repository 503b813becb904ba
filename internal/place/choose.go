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
	var worth Worth
	for i, n := range nodes {
		o, refusal := fit(n, n.Now(), r, p, p.looksAhead())
		if refusal.Code != Fits {
			if !ok { // why a node refuses is of interest when all of them do
				refusals = append(refusals, refusal)
			}
			continue
		}
		w := Rank(&o, p)
		if c := w.Compare(worth); !ok || c > 0 || c == 0 && n.Name < nodes[best].Name {
			best, offer, worth, ok = i, o, w, true
		}
	}
	if ok {
		return best, offer, nil, true
	}
	for i, n := range nodes {
		refusals[i].checkPermanent(n, r, p)
	}
	return 0, ledger.Offer{}, refusals, false
}
