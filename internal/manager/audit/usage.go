package audit

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// usage is what the cluster's cards are used for.
type usage struct {
	// nodes are those that have cards.
	nodes   []nodeUsage
	pending int
	// free and useless are in cards, see [place.Demand.Waste].
	free, useless float64
}

type nodeUsage struct {
	name    string
	compute gpu.Percent
	memory  gpu.MiB
}

func (u *usage) fragmentation() float64 {
	if u.free == 0 {
		return 0
	}
	return u.useless / u.free
}

func usageOf(s *cluster.Snapshot) usage {
	u := usage{pending: len(s.Pending)}
	demand := demandOf(s)
	for _, n := range s.Nodes {
		if n.Topology().Len() == 0 {
			continue
		}
		u.nodes = append(u.nodes, allocated(n))
		free, useless := wasteOf(demand, n)
		u.free, u.useless = u.free+free, u.useless+useless
	}
	return u
}

// allocated adds up what is booked of the node's cards.
func allocated(n *ledger.Node) nodeUsage {
	u := nodeUsage{name: n.Name}
	for i := range n.Now().Usage {
		u.compute += n.Now().Usage[i].Compute
		u.memory += n.Now().Usage[i].Memory
	}
	return u
}

// wasteOf returns what is free of the node's cards, and what of it is of no use.
// Without a demand all of it may be.
func wasteOf(d *place.Demand, n *ledger.Node) (free, useless float64) {
	if d == nil {
		d = &place.Demand{}
	}
	return d.Waste(n)
}

// demandOf returns what pods like those in the cluster would ask for, or nil
// while there are too few. The scheduler learns the same from them when it
// starts, but for CPU and models, which are not looked at here.
func demandOf(s *cluster.Snapshot) *place.Demand {
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
	return l.Demand()
}
