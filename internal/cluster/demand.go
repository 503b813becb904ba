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
	c := place.NewCensus()
	for _, pod := range s.seen() {
		if ask, _ := request.Read(pod); ask != nil {
			c.Add(place.KindsOf(&ask.Request), 1)
		}
	}
	return c.Demand()
}

// Census counts the pods on the nodes, as the scheduler does, but for those to be left
// out.
func (s *Snapshot) Census(without func(*corev1.Pod) bool) *place.Census {
	c, supply := place.NewCensus(), map[string]int{}
	for i, n := range s.Nodes {
		if s.Live && s.Facts[i].Node == nil {
			continue // the scheduler does not know it either
		}
		t := n.Topology()
		for card := range t.Healthy().All() {
			supply[t.Card(card).Model]++
		}
		for _, pod := range s.Facts[i].Pods {
			if !without(pod) {
				c.Add(request.CensusKinds(pod), 1)
			}
		}
	}
	c.SetSupply(supply)
	return c
}

// seen returns the pods of the cluster that have not ended.
func (s *Snapshot) seen() []*corev1.Pod {
	pods := slices.Concat(s.Pending, s.Waiting, s.Strays)
	for i := range s.Facts {
		pods = append(pods, s.Facts[i].Pods...)
	}
	return pods
}
