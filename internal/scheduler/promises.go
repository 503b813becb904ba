package scheduler

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// promises has the cards for which preemptors had others evicted. Until the
// preemptor has them they are kept for it: otherwise whoever comes while the
// victims leave would take what they free, bit by bit.
type promises struct {
	mu    sync.Mutex
	byPod map[types.UID]promise
}

// promise is the cards of one preemptor.
type promise struct {
	node     string
	topology *gpu.Topology // in which the holding's cards are counted
	holding  ledger.Holding
}

func newPromises() *promises { return &promises{byPod: map[types.UID]promise{}} }

func (p *promises) put(uid types.UID, pr promise) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPod[uid] = pr
}

// get returns what the pod was promised on the node, as long as the node's
// cards are the same.
func (p *promises) get(uid types.UID, n *ledger.Node) (ledger.Holding, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pr, ok := p.byPod[uid]
	return pr.holding, ok && pr.node == n.Name && pr.topology == n.Topology()
}

func (p *promises) drop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byPod, uid)
}
