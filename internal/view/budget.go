package view

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// heldPods yields the bound pods that count in quotas, with what they count by
// their requests, and by their cards where those are known.
func heldPods(s *cluster.Snapshot) iter.Seq2[quota.Pod, ledger.Amounts] {
	return func(yield func(quota.Pod, ledger.Amounts) bool) {
		for i, n := range s.Nodes {
			holdings := map[ledger.Holder]*ledger.Holding{}
			for k := range n.Holdings() {
				holdings[n.Holdings()[k].Holder] = &n.Holdings()[k]
			}
			for _, pod := range s.Facts[i].Pods {
				if !wire.Asks(pod) || !quota.Counts(pod, holdings[allocation.HolderOf(pod)]) {
					continue
				}
				counted := countedBy(n, pod)
				held := counted.Amounts
				if h := holdings[allocation.HolderOf(pod)]; h != nil && !n.Counted {
					held = n.Peak(h)
				}
				if !yield(counted, held) {
					return
				}
			}
		}
		for _, pod := range s.Strays {
			if counted := countedBy(nil, pod); quota.Counts(pod, nil) && !yield(counted, counted.Amounts) {
				return
			}
		}
	}
}

// countedBy returns what a pod of the node counts in quotas.
func countedBy(n *ledger.Node, pod *corev1.Pod) quota.Pod {
	out := quota.Pod{Pod: pod}
	if ask, asks := request.ReadBound(pod); asks && ask != nil {
		out.Amounts = quota.Held(n, &ask.Request)
	}
	return out
}

// largestCard returns the memory of the largest card on the nodes that are not excluded.
func largestCard(s *cluster.Snapshot, excluded []cluster.Exclusion) (largest gpu.MiB) {
	for i, n := range s.Nodes {
		if len(excluded) == 0 || excluded[i].Kind == 0 {
			largest = max(largest, n.Topology().LargestCard())
		}
	}
	return largest
}

// budgets are the quotas that the scheduler enforces, and what is used of them.
type budgets struct {
	limits quota.ByNamespace
	used   quota.Used
	// largest is the memory of the largest card.
	largest gpu.MiB
}

func newBudgets(s *cluster.Snapshot) *budgets {
	b := &budgets{limits: quota.Group(s.Quotas), used: quota.Used{}}
	for namespace, quotas := range b.limits {
		if s.QuotaKeys() != quota.Enforce || !slices.ContainsFunc(quotas, (*quota.Quota).Enforced) {
			delete(b.limits, namespace)
		}
	}
	if len(b.limits) == 0 {
		return b
	}
	b.largest = largestCard(s, nil)
	for pod := range heldPods(s) {
		b.used.Add(b.limits, pod)
	}
	return b
}

// covering returns which quotas decide about the pod.
func (b *budgets) covering(pod *corev1.Pod) string {
	var names []string
	for _, q := range b.limits[pod.Namespace] {
		if q.Covers(quota.ClassOf(pod)) {
			names = append(names, q.Namespace+"/"+q.Name)
		}
	}
	return fmt.Sprint(names)
}

// overBudget returns the refusal of a pod that would exceed the budget of its namespace,
// by the rules of the scheduler.
func (j *judge) overBudget(pod *corev1.Pod, ask *request.PodRequest) place.Refusal {
	b := j.budgets()
	if b.limits[pod.Namespace] == nil {
		return place.Refusal{}
	}
	return quota.ExceededBy(b.limits, b.used, pod, &ask.Request, b.largest, func() gpu.MiB {
		excluded, _ := j.excluded(pod)
		return largestCard(j.snapshot, excluded)
	})
}

// refuseAll returns the verdict on a pod that no node may take.
func (j *judge) refuseAll(refusal place.Refusal) *verdict {
	v := &verdict{excluded: make([]cluster.Exclusion, len(j.snapshot.Nodes)), refusals: make([]place.Refusal, len(j.snapshot.Nodes)), anywhere: true}
	for i := range v.refusals {
		v.refusals[i] = refusal
	}
	v.reasons, v.summary = place.Reasons(v.refusals), place.Summarize(v.refusals)
	return v
}
