package view

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Namespaces is the answer of status --namespaces. Its JSON form is a contract:
// fields may be added, none renamed or removed.
type Namespaces struct {
	// Namespaces are those with pods that ask for cards or with quotas about cards, by
	// name.
	Namespaces []NamespaceStatus `json:"namespaces"`
	Notes      []string          `json:"notes,omitempty"`
}

// NamespaceStatus is what the pods of a namespace hold, and may hold.
type NamespaceStatus struct {
	Name string `json:"name"`
	// Pods hold cards, Waiting have no node.
	Pods    int `json:"pods"`
	Waiting int `json:"waiting"`
	// ComputePercent, MemoryMiB and Cards are what the pods hold together, each pod at
	// its peak.
	Amounts
	Cards int64 `json:"cards"`
	// Budget is the smallest of the quotas that Kubernetes enforces on all pods.
	Budget Budget `json:"budget"`
	// Counted is how much of each budget its quota counts: pods without a node too, and
	// no pods without amounts.
	Counted Budget `json:"counted"`
	// Used is how much of each budget is used: what its quota counts or what the pods
	// hold, whichever is more.
	Used Budget `json:"used"`
	// Enforced: pods with cards that carry no amounts are rejected. It is null where the
	// Namespace was not read.
	Enforced *bool         `json:"enforced"`
	Quotas   []QuotaStatus `json:"quotas,omitempty"`
	// Unmetered are the pods that carry no amounts, so that Kubernetes' quotas do not
	// count them.
	Unmetered []string       `json:"unmetered,omitempty"`
	Warnings  []QuotaWarning `json:"warnings,omitempty"`
}

// Budget has amounts that are null where there is no limit.
type Budget struct {
	ComputePercent *int64 `json:"computePercent"`
	MemoryMiB      *int64 `json:"memoryMiB"`
	Cards          *int64 `json:"cards"`
}

// QuotaStatus is a limit of a ResourceQuota.
type QuotaStatus struct {
	Name     string `json:"name"`
	Resource string `json:"resource"`
	Used     int64  `json:"used"`
	Hard     int64  `json:"hard"`
	// Unit is %, MiB or cards.
	Unit place.Unit `json:"unit"`
	// Enforced: no pod escapes it that is created or placed from now on.
	Enforced bool `json:"enforced"`
}

// QuotaWarning is what an administrator should know of a namespace's quotas.
type QuotaWarning struct {
	// Reason is one of the constants below.
	Reason string `json:"reason"`
	// Quota is the ResourceQuota that it is about, if it is about one.
	Quota string `json:"quota,omitempty"`
	// Limit is the amount of the quota, if it is about one.
	Limit   string `json:"limit,omitempty"`
	Message string `json:"message"`
}

// Reasons of warnings. Those about a ResourceQuota are Events on it too.
const (
	// QuotaNotEnforced: pods can escape the quota.
	QuotaNotEnforced = "QuotaNotEnforced"
	// QuotaUnreadable: an amount of the quota is not valid.
	QuotaUnreadable = "QuotaUnreadable"
	// QuotaOverrun: pods that were there before hold more than the quota allows.
	QuotaOverrun = "QuotaOverrun"
	// PodsUnmetered: pods carry no amounts.
	PodsUnmetered = "PodsUnmetered"
)

// NewNamespaces looks at the namespaces of the cluster; the empty name means all.
func NewNamespaces(s *cluster.Snapshot, only string) *Namespaces {
	all := map[string]*NamespaceStatus{}
	of := func(name string) *NamespaceStatus {
		if all[name] == nil {
			all[name] = &NamespaceStatus{Name: name}
		}
		return all[name]
	}
	limits, used := quota.Group(s.Quotas), quota.Used{}
	profiles, _ := s.Profiles()
	meter := func(pod *corev1.Pod) {
		if isUnmetered(pod, profiles) {
			n := of(pod.Namespace)
			n.Unmetered = append(n.Unmetered, pod.Name)
		}
	}
	for pod, held := range heldPods(s) {
		used.Add(limits, pod)
		if held == (ledger.Amounts{}) {
			continue
		}
		of(pod.Namespace).hold(&held)
		meter(pod.Pod)
	}
	for _, pod := range s.Pending {
		if wire.Asks(pod) {
			of(pod.Namespace).Waiting++
			meter(pod)
		}
	}
	keys, everywhere := s.QuotaKeys(), s.QuotaEverywhere()
	for _, namespace := range s.Namespaces {
		if n := all[namespace.Name]; n != nil || limits[namespace.Name] != nil {
			of(namespace.Name).Enforced = new(everywhere || namespace.Labels[wire.LabelQuota] == wire.QuotaEnforced)
		}
	}
	for _, rq := range s.Quotas {
		if i := slices.IndexFunc(limits[rq.Namespace], func(q *quota.Quota) bool { return q.Name == rq.Name }); i >= 0 {
			q := limits[rq.Namespace][i]
			sum := used[q]
			of(rq.Namespace).add(rq, q, &sum, keys)
		}
	}
	return listNamespaces(s, all, only)
}

// isUnmetered reports whether the pod is Daybreak's to schedule and carries no amounts.
func isUnmetered(pod *corev1.Pod, profiles []string) bool {
	_, metered := request.ReadAmounts(&pod.Spec)
	return !metered && (pod.Spec.SchedulerName == "" || slices.Contains(profiles, pod.Spec.SchedulerName))
}

// hold adds what a pod holds.
func (n *NamespaceStatus) hold(a *ledger.Amounts) {
	n.Pods++
	n.ComputePercent += int64(a.Compute)
	n.MemoryMiB += int64(a.Memory)
	n.Cards += int64(a.Cards)
}

// listNamespaces returns the namespaces by name.
func listNamespaces(s *cluster.Snapshot, all map[string]*NamespaceStatus, only string) *Namespaces {
	out := &Namespaces{Namespaces: []NamespaceStatus{}, Notes: s.Notes}
	for _, n := range all {
		if only == "" || n.Name == only {
			n.warnUnmetered()
			n.Used = Budget{usedOf(n.ComputePercent, n.Counted.ComputePercent), usedOf(n.MemoryMiB, n.Counted.MemoryMiB), usedOf(n.Cards, n.Counted.Cards)}
			out.Namespaces = append(out.Namespaces, *n)
		}
	}
	slices.SortFunc(out.Namespaces, func(a, b NamespaceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// usedOf returns how much of a budget is used; nil if there is none.
func usedOf(held int64, counted *int64) *int64 {
	if counted == nil {
		return nil
	}
	return new(max(held, *counted))
}

// add adds the limits of a quota.
func (n *NamespaceStatus) add(rq *corev1.ResourceQuota, q *quota.Quota, sum *ledger.Amounts, keys string) {
	scoped := len(rq.Spec.Scopes) > 0 || rq.Spec.ScopeSelector != nil
	for i := range q.Limits {
		l := &q.Limits[i]
		st := QuotaStatus{Name: q.Name, Resource: l.Limit, Used: l.Of(sum), Hard: l.Hard, Unit: l.Unit, Enforced: keys == quota.Enforce}
		if l.Native {
			st.Enforced = n.Enforced == nil || *n.Enforced
			if counted, ok := rq.Status.Used[corev1.ResourceName(l.Limit)]; ok {
				st.Used = counted.Value()
				if l.Unit == place.UnitMiB {
					st.Used = (st.Used + wire.Mebibyte - 1) / wire.Mebibyte
				}
			}
			if !scoped {
				n.limit(&st)
			}
		}
		n.Quotas = append(n.Quotas, st)
		n.warn(l, &st, keys)
	}
	native := slices.ContainsFunc(q.Limits, func(l quota.Limit) bool { return l.Native })
	if native && n.Enforced != nil && !*n.Enforced {
		n.Warnings = append(n.Warnings, QuotaWarning{QuotaNotEnforced, q.Name, "", fmt.Sprintf(
			"ResourceQuota %s does not count pods that are created while no manager answers: label the namespace %s=%s, or set the chart's quota.enforce to all",
			q.Name, wire.LabelQuota, wire.QuotaEnforced)})
	}
}

// limit takes a limit that Kubernetes enforces into the budget, if it is the smallest.
func (n *NamespaceStatus) limit(st *QuotaStatus) {
	hard, counted := &n.Budget.ComputePercent, &n.Counted.ComputePercent
	switch st.Resource {
	case string(quota.RequestMemory):
		hard, counted = &n.Budget.MemoryMiB, &n.Counted.MemoryMiB
	case string(quota.RequestCards):
		hard, counted = &n.Budget.Cards, &n.Counted.Cards
	}
	if *hard == nil || st.Hard < **hard {
		*hard, *counted = &st.Hard, &st.Used
	}
}

// warn adds what is wrong with a limit.
func (n *NamespaceStatus) warn(l *quota.Limit, st *QuotaStatus, keys string) {
	outcome := "no more pods are created"
	switch {
	case !l.Native && keys == quota.Warn:
		outcome = "more pods are placed all the same, since the scheduler only warns (quota.hamiKeys)"
	case !l.Native && keys == quota.Off:
		return
	case !l.Native:
		outcome = "more pods wait"
	}
	switch {
	case l.Problem != "":
		n.Warnings = append(n.Warnings, QuotaWarning{QuotaUnreadable, st.Name, st.Resource, fmt.Sprintf("ResourceQuota %s: %s %s", st.Name, st.Resource, l.Problem)})
	case st.Used > st.Hard:
		n.Warnings = append(n.Warnings, QuotaWarning{QuotaOverrun, st.Name, st.Resource, fmt.Sprintf(
			"pods hold %s, ResourceQuota %s allows %s (%s): they stay, and %s", st.Amount(st.Used), st.Name, st.Amount(st.Hard), st.Resource, outcome)})
	}
}

// Amount renders an amount in the unit of the limit.
func (st *QuotaStatus) Amount(n int64) string {
	switch st.Unit {
	case place.UnitMiB:
		return UsedSize(n)
	case place.UnitPercent:
		return fmt.Sprintf("%d%%", n)
	}
	return Count(int(n), "card")
}

// warnUnmetered adds a warning where a budget does not count all pods.
func (n *NamespaceStatus) warnUnmetered() {
	slices.Sort(n.Unmetered)
	if len(n.Unmetered) > 0 && n.Budget != (Budget{}) {
		n.Warnings = append(n.Warnings, QuotaWarning{Reason: PodsUnmetered, Message: fmt.Sprintf(
			"%s without amounts: quotas do not count them; daybreak status --namespaces --unmetered lists them", Count(len(n.Unmetered), "pod"))})
	}
}
