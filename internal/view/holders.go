package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// HolderStatus is a pod on a card, with what is booked for it there.
type HolderStatus struct {
	Namespace      string `json:"namespace"`
	Pod            string `json:"pod"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
	QoS            string `json:"qos,omitempty"`
	Class          string `json:"class,omitempty"`
	Exclusive      bool   `json:"exclusive,omitempty"`
	// Hidden: the viewer may not see whose it is.
	Hidden bool `json:"hidden,omitempty"`
	// Created is when the pod was created.
	Created    *time.Time        `json:"created,omitempty"`
	Containers []HolderContainer `json:"containers,omitempty"`
}

// HolderContainer is a container of a pod on a card.
type HolderContainer struct {
	Name           string `json:"name"`
	ComputePercent int32  `json:"computePercent"`
	MemoryMiB      int64  `json:"memoryMiB"`
	Init           bool   `json:"init,omitempty"`
}

// ForPage adds what a drawing of the snapshot shows, the links between cards, and puts
// the pods on each card in place of the shares of their containers: a pod holds less
// than its containers one after the other do.
func (s *Status) ForPage(snapshot *cluster.Snapshot) {
	cluster.InParallel(len(s.Nodes), func(i int) {
		holdings, pods := map[ledger.Holder]*ledger.Holding{}, map[ledger.Holder]*corev1.Pod{}
		for k := range snapshot.Nodes[i].Holdings() {
			h := &snapshot.Nodes[i].Holdings()[k]
			holdings[h.Holder] = h
		}
		for _, pod := range snapshot.Facts[i].Pods {
			pods[allocation.HolderOf(pod)] = pod
		}
		node := &s.Nodes[i]
		node.Links = [][2]int{}
		for a := range node.Cards {
			node.Cards[a].byPod(holdings, pods)
			for b := range snapshot.Nodes[i].Topology().Linked(a).All() {
				if a < b {
					node.Links = append(node.Links, [2]int{a, b})
				}
			}
		}
	})
}

// byPod replaces the shares. Those of a pod follow each other.
func (c *CardStatus) byPod(holdings map[ledger.Holder]*ledger.Holding, pods map[ledger.Holder]*corev1.Pod) {
	c.Holders = []HolderStatus{}
	for _, s := range c.Shares {
		if k := len(c.Holders) - 1; k < 0 || c.Holders[k].Namespace != s.Namespace || c.Holders[k].Pod != s.Pod {
			holder := ledger.Holder(s.Namespace + "/" + s.Pod)
			h := holdings[holder]
			u, qos := h.On(c.Index), h.QoS
			if u.Exclusive {
				qos = ""
			}
			c.Holders = append(c.Holders, HolderStatus{
				Namespace: s.Namespace, Pod: s.Pod, ComputePercent: int32(u.Compute), MemoryMiB: int64(u.Memory),
				QoS: string(qos), Class: s.Class, Exclusive: u.Exclusive, Created: created(pods[holder]),
			})
		}
		h := &c.Holders[len(c.Holders)-1]
		h.Containers = append(h.Containers, HolderContainer{Name: s.Container, ComputePercent: s.ComputePercent, MemoryMiB: s.MemoryMiB, Init: s.Init})
	}
	c.Shares = nil
}

// created returns when the pod was created, nil if that is not known.
func created(pod *corev1.Pod) *time.Time {
	if pod == nil || pod.CreationTimestamp.IsZero() {
		return nil
	}
	return new(pod.CreationTimestamp.UTC())
}
