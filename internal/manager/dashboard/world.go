package dashboard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// world is everything there is to show at one moment, to all viewers. It is never
// changed once it is made.
type world struct {
	revision uint64
	snapshot *cluster.Snapshot
	// pods are those that ask for cards, by holder.
	pods map[ledger.Holder]*corev1.Pod

	summary  Summary
	nodes    []Node
	pending  []Pending
	findings []Finding
	budgets  []view.NamespaceStatus
	// audited has all violations, and unconfirmed is set while some are not shown.
	audited     *audit.Report
	unconfirmed bool
	// namespaces are all that are named above.
	namespaces []string

	// whole is the projection for a viewer who sees everything.
	whole func() (*projection, error)
}

// newWorld makes a world of the objects. A violation is shown when the earlier
// audit had it too: caches of different kinds are filled one after the other, and
// a half-read change may look wrong for a moment.
func newWorld(objects *cluster.Objects, revision uint64, earlier *audit.Report, now time.Time) *world {
	w := &world{revision: revision, pods: map[ledger.Holder]*corev1.Pod{}}
	for _, pod := range objects.Pods {
		if wire.Asks(pod) {
			w.pods[allocation.HolderOf(pod)] = pod
		}
	}
	w.snapshot = objects.Snapshot()
	status := view.NewStatus(w.snapshot, "")
	w.nodes = make([]Node, len(status.Nodes))
	cluster.InParallel(len(w.nodes), func(i int) { w.nodes[i] = newNode(&status.Nodes[i], w.snapshot.Nodes[i], w.pods) })
	w.summary = summarize(&status.Cluster, w.nodes)
	w.pending = make([]Pending, len(status.Pending))
	for i := range w.pending {
		w.pending[i] = Pending{PendingStatus: status.Pending[i], Asked: askedOf(status.Pending[i].Request)}
	}
	w.audited = audit.Check(w.snapshot, now)
	w.show(earlier)
	w.budgets = view.NewNamespaces(w.snapshot, "").Namespaces
	w.namespaces = w.namedNamespaces()
	w.whole = sync.OnceValues(func() (*projection, error) { return w.project(everything) })
	return w
}

func newNode(status *view.NodeStatus, n *ledger.Node, pods map[ledger.Holder]*corev1.Pod) Node {
	node := Node{NodeStatus: *status, Cards: make([]Card, len(status.Cards)), Links: [][2]int{}}
	t := n.Topology()
	holdings := map[ledger.Holder]*ledger.Holding{}
	for i := range n.Holdings() {
		holdings[n.Holdings()[i].Holder] = &n.Holdings()[i]
	}
	for i := range node.Cards {
		c := &node.Cards[i]
		*c = Card{CardStatus: status.Cards[i], Switch: t.Card(i).Switch, Holders: holdersOn(holdings, i, status.Cards[i].Shares)}
		if f := &n.WithoutPods().Usage[i]; f.Slots > 0 {
			c.Foreign = &view.Amounts{ComputePercent: int64(f.Compute), MemoryMiB: int64(f.Memory)}
		}
		for j := range t.Linked(i).All() {
			if i < j {
				node.Links = append(node.Links, [2]int{i, j})
			}
		}
		for k := range c.Holders {
			h := &c.Holders[k]
			h.Created = created(pods[ledger.Holder(h.Namespace+"/"+h.Pod)])
		}
	}
	return node
}

// created returns when the pod was created, nil if that is not known.
func created(pod *corev1.Pod) *time.Time {
	if pod == nil || pod.CreationTimestamp.IsZero() {
		return nil
	}
	return &pod.CreationTimestamp.Time
}

// holdersOn lists the pods on a card with what they and their containers hold of
// it. The shares of a pod follow each other.
func holdersOn(holdings map[ledger.Holder]*ledger.Holding, card int, shares []view.ShareStatus) []Holder {
	out := []Holder{}
	for _, s := range shares {
		if k := len(out) - 1; k < 0 || out[k].Namespace != s.Namespace || out[k].Pod != s.Pod {
			h := holdings[ledger.Holder(s.Namespace+"/"+s.Pod)]
			u, qos := h.On(card), h.QoS
			if u.Exclusive {
				qos = ""
			}
			out = append(out, Holder{
				Namespace: s.Namespace, Pod: s.Pod, ComputePercent: int32(u.Compute), MemoryMiB: int64(u.Memory),
				QoS: string(qos), Class: s.Class, Exclusive: u.Exclusive,
			})
		}
		h := &out[len(out)-1]
		h.Containers = append(h.Containers, HolderContainer{Name: s.Container, ComputePercent: s.ComputePercent, MemoryMiB: s.MemoryMiB, Init: s.Init})
	}
	return out
}

func summarize(c *view.ClusterStatus, nodes []Node) Summary {
	s := Summary{ClusterStatus: *c}
	for i := range nodes {
		whole := map[int]bool{}
		for k := range nodes[i].Cards {
			card := &nodes[i].Cards[k]
			idle := card.SlotsFree == card.Slots
			if card.Healthy {
				s.Allocated.ComputePercent += int64(gpu.FullCompute) - int64(card.ComputeFreePercent)
				s.Allocated.MemoryMiB += card.MemoryMiB - card.MemoryFreeMiB
			}
			if card.Healthy && !idle {
				s.InUse++
			}
			if card.Zone != nil {
				before, seen := whole[*card.Zone]
				whole[*card.Zone] = (before || !seen) && idle && card.Healthy
			}
		}
		s.Zones += len(whole)
		for _, is := range whole {
			if is {
				s.WholeZones++
			}
		}
	}
	return s
}

// askedOf returns the request in numbers; nothing for an invalid one.
func askedOf(request *gpu.PodRequest) Asked {
	if request == nil {
		return Asked{}
	}
	asked := Asked{QoS: string(request.QoS), Class: string(request.Class)}
	for i := range request.Requests {
		if r := &request.Requests[i]; r.Cards > 0 {
			asked.Request = append(asked.Request, Request{
				Container: r.Container, Cards: r.Cards, Exclusive: r.Exclusive, ComputePercent: int32(r.Compute),
				MemoryMiB: int64(r.Memory.Amount), MemoryPercent: int32(r.Memory.Ratio),
			})
		}
	}
	return asked
}

// show lists the findings: the violations that the earlier audit confirms, and
// the notes.
func (w *world) show(earlier *audit.Report) {
	w.findings = []Finding{}
	if earlier != nil {
		for _, f := range w.audited.Confirmed(earlier).Violations {
			w.findings = append(w.findings, Finding{Finding: f})
		}
	}
	w.unconfirmed = len(w.findings) < len(w.audited.Violations)
	for _, f := range w.audited.Notes {
		w.findings = append(w.findings, Finding{Finding: f, Note: true})
	}
}

// namedNamespaces lists every namespace that is named, or of which a pod is.
func (w *world) namedNamespaces() []string {
	seen := map[string]bool{}
	for holder := range w.pods {
		seen[namespaceOf(string(holder))] = true
	}
	for i := range w.budgets {
		seen[w.budgets[i].Name] = true
	}
	for i := range w.findings {
		for _, pod := range w.findings[i].Pods {
			seen[namespaceOf(pod)] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// namespaceOf returns the namespace of a pod that is named as namespace/name.
func namespaceOf(pod string) string {
	namespace, _, _ := strings.Cut(pod, "/")
	return namespace
}
