package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Waste returns how much is free of the cluster's healthy cards, and how much of
// that is of no use to pods like those in the cluster, both in cards: see
// [place.Demand.Waste]. The second divided by the first is the fragmentation
// that is told everywhere.
func (s *Snapshot) Waste() (free, useless float64) {
	demand := s.demand()
	if demand == nil {
		demand = &place.Demand{} // all of it may be of use
	}
	for _, n := range s.Nodes {
		if n.Topology().Len() == 0 {
			continue
		}
		f, u := demand.Waste(n)
		free, useless = free+f, useless+u
	}
	return free, useless
}

// demand returns what pods like those in the cluster would ask for, or nil
// while there are too few. The scheduler learns the same from them when it
// starts, but for CPU and models, which are not looked at here.
func (s *Snapshot) demand() *place.Demand {
	var pods []*corev1.Pod
	for i := range s.Facts {
		pods = append(pods, s.Facts[i].Pods...)
	}
	pods = append(pods, s.Pending...)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	l := place.NewLearner()
	for _, pod := range pods {
		if ask, _ := wire.Admit(pod); ask != nil {
			l.Observe(&ask.Request)
		}
	}
	return l.Latest()
}
