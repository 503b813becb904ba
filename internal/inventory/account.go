package inventory

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// NewNode opens the account of the node with nothing on it. A caller that books
// pods itself calls [Inventory.BookForeign] when all are booked.
func (inv *Inventory) NewNode() *ledger.Node {
	n := ledger.NewNode(inv.Name, inv.Topology, inv.Serves)
	n.Problem, n.Paused, n.Counted, n.Vendor = inv.Problem, inv.Paused, inv.Counted, inv.Vendor
	if len(inv.foreign) > 0 {
		n.SetForeign(inv.foreign)
	}
	return n
}

// BookForeign books what the node reports in use beyond what its pods account for.
// Coming are those among the booked that the node can't have reported yet. A card
// that is held exclusively is left out: what the node reports of it is not defined.
func (inv *Inventory) BookForeign(n *ledger.Node, coming ...ledger.Holding) {
	if len(inv.reported) == 0 {
		return
	}
	usage := make([]ledger.Usage, n.Topology().Len())
	for i, used := range inv.reported[:min(len(inv.reported), len(usage))] {
		booked := n.Now().Usage[i]
		for k := range coming {
			if coming[k].Cards().Has(i) {
				u := coming[k].On(i)
				booked.Slots, booked.Memory, booked.Compute = booked.Slots-u.Slots, booked.Memory-u.Memory, booked.Compute-u.Compute
			}
		}
		if booked.Exclusive || used.Slots <= booked.Slots {
			continue
		}
		usage[i] = ledger.Usage{
			Slots:   used.Slots - booked.Slots,
			Memory:  max(0, used.Memory-booked.Memory),
			Compute: max(0, used.Compute-booked.Compute),
			QoS:     used.QoS,
		}
	}
	n.SetForeign(usage)
}

// PluginAllocation returns what the node's agent says that kubelet gave the pod.
func (inv *Inventory) PluginAllocation(pod types.UID) (given PluginAllocation, ok bool) {
	given, ok = inv.given[pod]
	return given, ok
}

// ListsPluginAllocations reports whether a pod that [Inventory.PluginAllocation] has nothing of got
// nothing: no agent serves the node, or it has asked kubelet.
func (inv *Inventory) ListsPluginAllocations() bool { return !inv.unlisted }
