package inventory

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// NewNode opens the account of the node with nothing on it. A caller that books
// pods itself calls Settle when all are booked.
func (inv *Inventory) NewNode() *ledger.Node {
	n := ledger.NewNode(inv.Name, inv.Topology, inv.Serves)
	n.Problem, n.Paused, n.Counted, n.Vendor = inv.Problem, inv.Paused, inv.Counted, inv.Vendor
	if len(inv.foreign) > 0 {
		n.SetForeign(inv.foreign)
	}
	return n
}

// BookForeign books what the node reports in use beyond what its pods account for.
// Coming are those among the booked that the node can't have reported yet.
func (inv *Inventory) BookForeign(n *ledger.Node, coming ...ledger.Holding) {
	if len(inv.reported) > 0 {
		n.SetForeign(inv.beyond(n, coming))
	}
}

// beyond returns what is in use of each card beyond what pods account for. A
// card that is held exclusively is left out: what the node reports of
// it is not defined.
func (inv *Inventory) beyond(n *ledger.Node, coming []ledger.Holding) []ledger.Usage {
	usage := make([]ledger.Usage, n.Topology().Len())
	for i, r := range inv.reported {
		if i >= len(usage) {
			break
		}
		booked := n.Now().Usage[i]
		for k := range coming {
			if coming[k].Cards().Has(i) {
				u := coming[k].On(i)
				booked.Slots, booked.Memory, booked.Compute = booked.Slots-u.Slots, booked.Memory-u.Memory, booked.Compute-u.Compute
			}
		}
		if !r.known || booked.Exclusive || r.used.Slots <= booked.Slots {
			continue
		}
		usage[i] = ledger.Usage{
			Slots:   r.used.Slots - booked.Slots,
			Memory:  max(0, r.used.Memory-booked.Memory),
			Compute: max(0, r.used.Compute-booked.Compute),
			QoS:     r.used.QoS,
		}
	}
	return usage
}

// PluginAllocation returns what the node's agent says that kubelet gave the pod.
func (inv *Inventory) PluginAllocation(pod types.UID) (given PluginAllocation, ok bool) {
	given, ok = inv.given[pod]
	return given, ok
}

// ListsPluginAllocations reports whether a pod that [Inventory.PluginAllocation] has nothing of got
// nothing: no agent serves the node, or it has asked kubelet.
func (inv *Inventory) ListsPluginAllocations() bool { return !inv.unlisted }
