package scheduler

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// modelQuota is what a quota limits.
type modelQuota struct {
	namespace string
	limit     corev1.ResourceName
	scopes    []corev1.ResourceQuotaScope
}

// modelQuotas are the quotas that there may be.
var modelQuotas = map[string]modelQuota{
	"compute": {namespace: "ns", limit: quota.LimitVCore},
	"memory":  {namespace: "ns", limit: quota.LimitVMemory},
	"batch":   {namespace: "ns", limit: quota.LimitVCore, scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}},
	"service": {namespace: "ns", limit: quota.LimitVCore, scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}},
	"others":  {namespace: "other", limit: quota.LimitVCore},
}

// quotaNames has the quotas in order.
var quotaNames = []string{"compute", "memory", "batch", "service", "others"}

// opQuota lets the pods that the quota covers have n percent of compute, or n GiB of
// memory. What a scheduler sees when it starts may be some changes old, but it always
// sees a quota.
func opQuota(w *world, s step) bool {
	q, ok := modelQuotas[s.who]
	_, known := w.api.budgets[s.who]
	if !ok || !known && w.starts > 0 {
		return false
	}
	w.api.budgets[s.who] = max(w.api.budgets[s.who], int64(s.n))
	changes := 1
	if !known {
		changes += oldestView
	}
	for range changes {
		rq := makeQuota(s.who, map[corev1.ResourceName]string{q.limit: strconv.Itoa(s.n)})
		rq.Namespace, rq.Spec.Scopes = q.namespace, q.scopes
		w.api.put(kindQuota, rq)
	}
	return true
}

// quotas returns the quotas as they truly are.
func (w *world) quotas() quota.ByNamespace {
	var listed []*corev1.ResourceQuota
	for _, o := range w.api.objects[kindQuota] {
		if rq, ok := o.(*corev1.ResourceQuota); ok {
			listed = append(listed, rq)
		}
	}
	return quota.Group(listed)
}

// overBudget reports the quotas of which pods use more than was ever allowed. A pod
// that another scheduler bound, or that moved into a quota's scope, was not
// counted when others were bound, and so it does not count here.
func (w *world) overBudget(bound *corev1.Pod) (found []string) {
	by, used := w.quotas(), quota.Used{}
	for _, name := range w.api.names(kindPod) {
		if pod := w.api.pod(name); wire.Holds(pod) && pod.Spec.SchedulerName == DefaultProfile && !w.rescoped[pod.UID] {
			ask, _ := request.ReadBound(pod)
			used.Add(by, quota.Pod{Pod: pod, Amounts: peakOf(ask, w.api.memory[pod.Spec.NodeName])})
		}
	}
	for q, sum := range used {
		for i := range q.Limits {
			l := &q.Limits[i]
			if most := w.mostOf(q.Name, l); l.Of(&sum) > most && q.Covers(quota.ClassOf(bound)) && q.Namespace == bound.Namespace {
				found = append(found, fmt.Sprintf("pod %s is bound above the budget: quota %s never allowed more than %d, %d are used", bound.Name, q.Name, most, l.Of(&sum)))
			}
		}
	}
	return found
}

// mostOf returns the most that the quota ever allowed, in the limit's unit.
func (w *world) mostOf(name string, l *quota.Limit) int64 {
	if l.Unit == place.UnitMiB {
		return w.api.budgets[name] << 10
	}
	return w.api.budgets[name]
}

// peakOf returns what a pod holds of cards of a size; nothing if it asks for none.
func peakOf(ask *request.PodRequest, memory gpu.MiB) ledger.Amounts {
	if ask == nil {
		return ledger.Amounts{}
	}
	return ledger.PeakOf(&ask.Request, memory)
}

// exceeds reports whether the waiting pod would exceed a quota, with what pods hold
// as their nodes are now.
func (w *world) exceeds(pod *corev1.Pod, ask *request.PodRequest, accounts map[string]*ledger.Node) bool {
	by, used := w.quotas(), quota.Used{}
	for _, name := range w.api.names(kindPod) {
		other := w.api.pod(name)
		if !wire.Holds(other) {
			continue
		}
		if held, _ := request.ReadBound(other); held != nil {
			used.Add(by, quota.Pod{Pod: other, Amounts: quota.Held(accounts[other.Spec.NodeName], &held.Request)})
		}
	}
	filter := cluster.NewNodeFilter(pod)
	largest := func(of func(name string) bool) (memory gpu.MiB) {
		for name, node := range accounts {
			if of(name) {
				memory = max(memory, node.Topology().LargestCard())
			}
		}
		return memory
	}
	refusal := quota.ExceededBy(by, used, pod, &ask.Request, largest(func(string) bool { return true }), func() gpu.MiB {
		return largest(func(name string) bool {
			return filter.Exclusion(&cluster.Facts{Name: name, Node: w.api.node(name)}).Kind == 0
		})
	})
	return refusal.Code != place.Fits
}

// miscounted compares what the process counts for the quotas of the namespace with a
// count from scratch.
func (p *process) miscounted(namespace string) string {
	x := p.shared.index
	var listed []*corev1.ResourceQuota
	for _, o := range p.informers.quotas.indexer.List() {
		if rq, ok := o.(*corev1.ResourceQuota); ok && rq.Namespace == namespace {
			listed = append(listed, rq)
		}
	}
	quotas := quota.Group(listed)[namespace]
	if x.usage.total == nil || len(quotas) == 0 {
		return ""
	}
	again := usage{pods: x.usage.pods}
	again.begin(x)
	counted, want := x.usage.under(x, namespace, quotas), again.under(x, namespace, quotas)
	for _, q := range quotas {
		if counted[q] != want[q] {
			return fmt.Sprintf("%s counts %v under quota %s, from scratch %v", p.identity, counted[q], q.Name, want[q])
		}
	}
	return ""
}
