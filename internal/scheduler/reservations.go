package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// reservations has the cards of pods between Reserve and the moment when the
// scheduler's own cache shows the pod with its annotations. All profiles of a
// process share it.
type reservations struct {
	mu    sync.Mutex
	byPod map[types.UID]reservation
}

// reservation is what a pod gets and what Bind writes about it.
type reservation struct {
	node        string
	holding     ledger.Holding
	annotations map[string]string
	// topology is what the holding's cards are of, and candidates how many nodes
	// had room.
	topology   *gpu.Topology
	candidates int
}

// on reports whether the pod has a reservation on the node.
func (r *reservations) on(uid types.UID, node string) bool {
	res, ok := r.get(uid)
	return ok && res.node == node
}

func newReservations() *reservations { return &reservations{byPod: map[types.UID]reservation{}} }

func (r *reservations) put(uid types.UID, res reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPod[uid] = res
}

func (r *reservations) get(uid types.UID) (reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, ok := r.byPod[uid]
	return res, ok
}

func (r *reservations) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byPod)
}

func (r *reservations) drop(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byPod, uid)
}

// holding returns what is reserved for the pod. A pod that carries what was
// reserved for it needs no reservation any more.
func (r *reservations) holding(pod *corev1.Pod) (ledger.Holding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, ok := r.byPod[pod.UID]
	if !ok || res.node != pod.Spec.NodeName {
		return ledger.Holding{}, false
	}
	if carries(pod, res.annotations) {
		delete(r.byPod, pod.UID)
		return ledger.Holding{}, false
	}
	return res.holding, true
}
