package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Waste returns how much is free of the cluster's healthy cards, and how much of
// that is of no use to pods like those in the cluster, both in cards: see
// [place.Demand.Waste]. The second divided by the first is the fragmentation
// that is shown everywhere. It is not known while there are too few pods.
func (s *Snapshot) Waste() (free, useless float64, known bool) {
	demand := s.demand()
	if known = demand != nil; !known {
		demand = &place.Demand{}
	}
	for _, n := range s.Nodes {
		if n.Topology().Len() == 0 {
			continue
		}
		f, u := demand.Waste(n)
		free, useless = free+f, useless+u
	}
	return free, useless, known
}

// demand returns what pods like those in the cluster would ask for, or nil
// while there are too few. CPU and models are not looked at here.
func (s *Snapshot) demand() *place.Demand {
	l := place.NewLearner()
	for _, request := range request.Arrivals(s.seen(s.Pending)) {
		request.CPU, request.Models = 0, nil
		l.Observe(request)
	}
	return l.Latest()
}

// Learner returns what a scheduler has learned that has seen the pods on the
// nodes, those that wait, and the given ones, in the order in which they came:
// all of them, or those that came no later than the one until.
func (s *Snapshot) Learner(pending []*corev1.Pod, until *corev1.Pod) *place.Learner {
	l := place.NewLearner()
	supply := map[string]int{}
	for _, n := range s.Nodes {
		t := n.Topology()
		for c := range t.Healthy().All() {
			supply[t.Card(c).Model]++
		}
	}
	l.SetSupply(supply)
	pods := s.seen(pending)
	if until != nil {
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return request.ByArrival(p, until) > 0 })
	}
	for _, request := range request.Arrivals(pods) {
		l.Observe(request)
	}
	return l
}

// seen returns the pods of the cluster that have not ended: of those without a
// node that are asked about, the given ones.
func (s *Snapshot) seen(pending []*corev1.Pod) []*corev1.Pod {
	pods := slices.Concat(pending, s.Waiting, s.Strays)
	for i := range s.Facts {
		pods = append(pods, s.Facts[i].Pods...)
	}
	return pods
}
