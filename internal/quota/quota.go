// Package quota reads the budgets of namespaces for cards from ResourceQuotas, and
// compares them with what pods hold.
//
// Kubernetes enforces requests.daybreak-gpu.io/* itself, at admission. HAMi's keys
// limits.metax-tech.com/* mean nothing to it: the scheduler enforces them. A card that
// a pod has to itself counts in vcore and vmemory too, with 100 percent and all its
// memory, whatever the pod asked for.
package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// The keys of limits in spec.hard of a ResourceQuota.
const (
	limits   = "limits."
	requests = "requests."

	LimitGPU     = limits + wire.ResourceGPU
	LimitSGPU    = limits + wire.ResourceSGPU
	LimitVCore   = limits + wire.ResourceVCore
	LimitVMemory = limits + wire.ResourceVMemory

	RequestCompute = requests + wire.ResourceCompute
	RequestMemory  = requests + wire.ResourceMemory
	RequestCards   = requests + wire.ResourceCards
)

// What a scheduler does about HAMi's keys: it holds pods back that would exceed one,
// places them and warns, or ignores the keys.
const (
	Enforce = "enforce"
	Warn    = "warn"
	Off     = "off"
)

// key is what a limit counts, and how it is written.
type key struct {
	name   corev1.ResourceName
	native bool
	unit   place.Unit
	of     func(*ledger.Amounts) int64
	read   func(resource.Quantity) (int64, bool)
	write  string
}

const (
	wholeNumbers = "write a whole number from 0"
	most         = 1 << 50 // MiB, percent or cards: more than any cluster has
)

var keys = []key{
	{LimitGPU, false, place.UnitCards, whole, number, wholeNumbers},
	{LimitSGPU, false, place.UnitCards, func(a *ledger.Amounts) int64 { return int64(a.Slices) }, number, wholeNumbers},
	{LimitVCore, false, place.UnitPercent, compute, number, wholeNumbers + ", in percent of one card"},
	{LimitVMemory, false, place.UnitMiB, memory, vmemory, wholeNumbers + ", in GiB, or an amount with a unit such as 64Gi"},
	{RequestCompute, true, place.UnitPercent, compute, number, wholeNumbers + ", in percent of one card"},
	{RequestMemory, true, place.UnitMiB, memory, bytes, "write an amount such as 64Gi"},
	{RequestCards, true, place.UnitCards, func(a *ledger.Amounts) int64 { return int64(a.Cards) }, number, wholeNumbers},
}

func whole(a *ledger.Amounts) int64   { return int64(a.Whole) }
func compute(a *ledger.Amounts) int64 { return int64(a.Compute) }
func memory(a *ledger.Amounts) int64  { return int64(a.Memory) }

func number(q resource.Quantity) (int64, bool) { return wire.WholeNumber(q, most) }

// bytes reads MiB. A part of one counts for nothing: pods hold whole ones.
func bytes(q resource.Quantity) (int64, bool) {
	v, ok := wire.WholeNumber(q, 1<<62)
	return v / wire.Mebibyte, ok
}

// vmemory reads HAMi's amount of memory: a number without a unit is GiB. The API
// server keeps 64000 as 64k; no budget is a number of thousand bytes.
func vmemory(q resource.Quantity) (int64, bool) {
	if unit := strings.TrimLeft(q.String(), "-0123456789."); unit != "" && unit != "k" && q.Format != resource.DecimalExponent {
		return bytes(q)
	}
	v, ok := wire.WholeNumber(q, most/1024)
	return v * 1024, ok
}

// Quota is what one ResourceQuota allows of cards.
type Quota struct {
	Namespace, Name string
	// Limits are in the order of the keys above.
	Limits []Limit

	scope scope
}

// Limit is how much the pods that a quota covers may hold together.
type Limit struct {
	place.Budget
	// Native reports that Kubernetes enforces the limit.
	Native bool

	of func(*ledger.Amounts) int64
}

// Of returns how much of the amounts the limit counts, in its unit.
func (l *Limit) Of(a *ledger.Amounts) int64 { return l.of(a) }

// Read returns what the ResourceQuota allows of cards, or nil if it has no limit
// about cards.
func Read(rq *corev1.ResourceQuota) *Quota {
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, name := range rq.Spec.Scopes {
		scopes = append(scopes, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists})
	}
	if selector := rq.Spec.ScopeSelector; selector != nil {
		scopes = append(scopes, selector.MatchExpressions...)
	}
	q := &Quota{Namespace: rq.Namespace, Name: rq.Name, scope: newScope(scopes)}
	for _, k := range keys {
		amount, ok := rq.Spec.Hard[k.name]
		if !ok {
			continue
		}
		l := Limit{Budget: place.Budget{Quota: q.Name, Limit: string(k.name), Unit: k.unit}, Native: k.native, of: k.of}
		if l.Hard, ok = k.read(amount); !ok {
			l.Hard, l.Problem = 0, fmt.Sprintf("is %s: %s", amount.String(), k.write)
		} else if i := slices.IndexFunc(scopes, unsupported); i >= 0 {
			l.Hard, l.Problem = 0, fmt.Sprintf("does not support scope %s: remove the scope", scopes[i].ScopeName)
		}
		q.Limits = append(q.Limits, l)
	}
	if len(q.Limits) == 0 {
		return nil
	}
	return q
}

// Enforced reports whether the quota has a limit that Kubernetes does not enforce.
func (q *Quota) Enforced() bool {
	return slices.ContainsFunc(q.Limits, func(l Limit) bool { return !l.Native })
}

// ByNamespace has the quotas of each namespace in the order of their names.
type ByNamespace map[string][]*Quota

// Group reads ResourceQuotas; those without limits about cards are left out.
func Group(all []*corev1.ResourceQuota) ByNamespace {
	by := ByNamespace{}
	for _, rq := range all {
		if q := Read(rq); q != nil {
			by[q.Namespace] = append(by[q.Namespace], q)
		}
	}
	for _, quotas := range by {
		slices.SortFunc(quotas, func(a, b *Quota) int { return cmp.Compare(a.Name, b.Name) })
	}
	return by
}

// Pod is a pod and the most that it holds at one time.
type Pod struct {
	*corev1.Pod
	Amounts ledger.Amounts
}

// Used is what the pods that each quota covers hold together.
type Used map[*Quota]ledger.Amounts

// Add counts the pod in the quotas that cover it.
func (u Used) Add(by ByNamespace, pod Pod) {
	u.AddClass(by[pod.Namespace], ClassOf(pod.Pod), &pod.Amounts)
}

// AddClass counts what pods of the class hold together in those of the quotas that
// cover it.
func (u Used) AddClass(quotas []*Quota, class Class, held *ledger.Amounts) {
	for _, q := range quotas {
		if q.Covers(class) {
			sum := u[q]
			sum.Plus(held)
			u[q] = sum
		}
	}
}

// Exceeded returns the refusal for the first limit that the pod would exceed on top of
// what is used. Limits that Kubernetes enforces are left to it. Pods above a limit stay,
// and limits of what the pod does not want do not matter.
func Exceeded(by ByNamespace, used Used, pod Pod) place.Refusal {
	class := ClassOf(pod.Pod)
	var sum ledger.Amounts // one for all: a namespace may have thousands of quotas
	for _, q := range by[pod.Namespace] {
		if !q.Covers(class) {
			continue
		}
		sum = used[q]
		if refusal := q.exceeded(&sum, &pod.Amounts); refusal.Code != place.Fits {
			return refusal
		}
	}
	return place.Refusal{}
}

// exceeded returns the refusal for the first limit that more would exceed on top of the
// sum.
func (q *Quota) exceeded(sum, more *ledger.Amounts) place.Refusal {
	for i := range q.Limits {
		l := &q.Limits[i]
		if n := l.of(more); !l.Native && n > 0 && l.of(sum)+n > l.Hard {
			return place.OverBudget(l.Budget, n, l.of(sum))
		}
	}
	return place.Refusal{}
}

// ExceededBy is [Exceeded] for a pod that has no cards yet. What it wants of memory may
// depend on its cards ([ledger.PeakVaries]): the largest of the cluster counts, or where
// that is too much, the largest that admitted returns, which the pod may get.
func ExceededBy(by ByNamespace, used Used, pod *corev1.Pod, r *gpu.PodRequest, largest gpu.MiB, admitted func() gpu.MiB) place.Refusal {
	refusal := Exceeded(by, used, Pod{pod, ledger.PeakOf(r, largest)})
	if refusal.Code != place.Fits && refusal.Budget.Unit == place.UnitMiB && ledger.PeakVaries(r) {
		return Exceeded(by, used, Pod{pod, ledger.PeakOf(r, admitted())})
	}
	return refusal
}

// unknownCard is the memory of a card of which nothing is known: a C500's.
const unknownCard gpu.MiB = 64 << 10

// Counts reports whether a bound pod counts: it can hold cards, or cards are booked for
// it. Koordinator's resources alone may be those of another vendor's cards.
func Counts(pod *corev1.Pod, booked *ledger.Holding) bool {
	return wire.CanHold(pod) || booked != nil && booked.Cards() != 0
}

// Held returns what a pod counts that is bound to the node, which is nil if it does
// not exist. It is what the pod requests, whether its cards are known and still there
// or not.
func Held(n *ledger.Node, r *gpu.PodRequest) ledger.Amounts {
	var memory gpu.MiB
	if n != nil {
		memory = n.Topology().LargestCard()
	}
	return ledger.PeakOf(r, cmp.Or(memory, unknownCard))
}
