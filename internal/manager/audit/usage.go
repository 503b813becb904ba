package audit

import (
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// usage is what the cluster's cards are used for.
type usage struct {
	// nodes are those that have cards.
	nodes   []nodeUsage
	pending int
	// free and useless are in cards, see [cluster.Snapshot.Waste].
	free, useless float64
}

// nodeUsage is what is booked of a node's cards.
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
	for _, n := range s.Nodes {
		if n.Topology().Len() == 0 {
			continue
		}
		node := nodeUsage{name: n.Name}
		for i := range n.Now().Usage {
			node.compute += n.Now().Usage[i].Compute
			node.memory += n.Now().Usage[i].Memory
		}
		u.nodes = append(u.nodes, node)
	}
	u.free, u.useless = s.Waste()
	return u
}
