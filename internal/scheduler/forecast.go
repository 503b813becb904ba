package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// forecast knows which kinds of pods come, so that cards are left in the shape
// that the next ones need. It is learned from the pods that are there when this
// process makes its first decision, and from every new one at its first try.
// All profiles share it.
type forecast struct {
	mu      sync.Mutex
	learner *place.Learner
	seeded  bool
	counted recent
	supply  uint64 // the version that the learner knows
}

func newForecast() *forecast {
	return &forecast{learner: place.NewLearner(), counted: recent{set: map[types.UID]struct{}{}}}
}

// look counts the pod, unless it was counted before, and returns what is
// expected of those to come.
func (f *forecast) look(pod *corev1.Pod, r *gpu.PodRequest, existing corelisters.PodLister, n *nodes) *place.Demand {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.seeded {
		f.seeded = f.seed(existing)
	}
	if version := n.supplyVersion(); version != f.supply {
		f.supply = version
		f.learner.SetSupply(n.supplied())
	}
	f.count(pod.UID, r)
	return f.learner.Demand()
}

func (f *forecast) count(uid types.UID, r *gpu.PodRequest) {
	if f.counted.add(uid) {
		f.learner.Observe(r)
	}
}

// seed counts the pods that are there, the oldest first. The informer has
// synced long before the first decision, so its store can't fail to answer; if
// it did, the next decision would ask again.
func (f *forecast) seed(existing corelisters.PodLister) bool {
	pods, err := existing.List(labels.Everything())
	if err != nil {
		return false
	}
	for p, request := range wire.Arrivals(pods) {
		f.count(p.UID, request)
	}
	return true
}

// recentLimit bounds the pods remembered as counted. A pod that is still
// pending after so many others came is counted again.
const recentLimit = 1 << 16

// recent is a set that forgets its oldest members.
type recent struct {
	set  map[types.UID]struct{}
	ring []types.UID
	next int
}

// add reports whether the member is new.
func (r *recent) add(uid types.UID) bool {
	if _, ok := r.set[uid]; ok {
		return false
	}
	r.set[uid] = struct{}{}
	if len(r.ring) < recentLimit {
		r.ring = append(r.ring, uid)
		return true
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = uid
	r.next = (r.next + 1) % recentLimit
	return true
}
