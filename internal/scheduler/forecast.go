package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// forecast knows which kinds of pods come, so that cards are left in the shape
// that the next ones need. It is learned from the pods that are there when this
// process makes its first decision, and from every new one at its first try.
// All profiles share it.
type forecast struct {
	mu      sync.Mutex
	learner *place.Learner
	seeded  bool
	pods    *pods  // which has the pending pods that were counted
	supply  uint64 // the version that the learner knows
}

func newForecast(p *pods) *forecast { return &forecast{learner: place.NewLearner(), pods: p} }

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
	if f.pods.learn(pod) {
		f.learner.Observe(r)
	}
	return f.learner.Demand()
}

// seed counts the pods that are there, the oldest first. The informer has
// synced long before the first decision, so its store can't fail to answer; if
// it did, the next decision would ask again.
func (f *forecast) seed(existing corelisters.PodLister) bool {
	pods, err := existing.List(labels.Everything())
	if err != nil {
		return false
	}
	for p, request := range request.Arrivals(pods) {
		if p.Spec.NodeName != "" || f.pods.learn(p) {
			f.learner.Observe(request)
		}
	}
	return true
}
