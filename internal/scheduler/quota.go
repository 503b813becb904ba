package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// quotaWords are what may be done with HAMi's keys in ResourceQuotas.
var quotaWords = []string{quota.Enforce, quota.Warn, quota.Off}

// watchQuotas lists ResourceQuotas unless they are ignored, and makes kube-scheduler
// try the pods again that wait for one that changes.
func (s *State) watchQuotas(h fwk.Handle, keys string) error {
	if keys == quota.Off || s.quotas != nil {
		return nil
	}
	informer := h.SharedInformerFactory().Core().V1().ResourceQuotas()
	s.quotas, s.index.usage.pods = informer.Lister(), h.SharedInformerFactory().Core().V1().Pods().Lister()
	changed := func(rq *corev1.ResourceQuota) {
		if waiting := s.pods.waitingForQuota(rq.Namespace); len(waiting) > 0 {
			h.Activate(klog.Background(), waiting)
		}
	}
	return watch(informer.Informer(), "resourcequotas", func(before, after *corev1.ResourceQuota) {
		if before == nil || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
			changed(after)
		}
	}, changed)
}

// checkQuotaRights returns an error where the scheduler may not list ResourceQuotas:
// kube-scheduler would wait for the informer without a word.
func checkQuotaRights(ctx context.Context, client dynamic.Interface) error {
	_, err := client.Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas")).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this scheduler may not list resourcequotas: give its account the verbs list and watch on them, or set --quota-keys=%s", quota.Off)
	}
	return nil
}

// checkQuota returns the refusal of a pod that would exceed the budget of its
// namespace. The index is up to date.
func (p *Plugin) checkQuota(ctx context.Context, pod *corev1.Pod, r *gpu.PodRequest) place.Refusal {
	if p.quotaKeys == quota.Off {
		return place.Refusal{}
	}
	for {
		listed := p.quotasOf(pod.Namespace)
		refusal := p.exceeded(listed, pod, r)
		switch {
		case refusal.Code == place.Fits:
			p.shared.pods.setOverQuota(pod.UID, nil)
			return refusal
		case p.quotaKeys == quota.Warn:
			if p.shared.pods.warnQuota(pod.UID) {
				klog.FromContext(ctx).Info("Pod exceeds the budget of its namespace", "pod", klog.KObj(pod), "reason", refusal.Message(nil))
				p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, refusal.Code.String(), "Scheduling", "placed nevertheless, since quotaKeys is %s: %s", quota.Warn, refusal.Message(nil))
			}
			return place.Refusal{}
		}
		p.shared.pods.setOverQuota(pod.UID, &refusal)
		// A quota that changed before the pod was known to wait has not woken it.
		now := p.quotasOf(pod.Namespace)
		if len(now) == len(listed) && !slices.ContainsFunc(now, func(rq *corev1.ResourceQuota) bool { return !slices.Contains(listed, rq) }) {
			return refusal
		}
	}
}

// quotasOf returns the ResourceQuotas of the namespace.
func (p *Plugin) quotasOf(namespace string) []*corev1.ResourceQuota {
	listed, err := p.shared.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil { // the store has an index by namespace
		return nil
	}
	return listed
}

// exceeded returns the refusal for the first limit that the pod would exceed.
func (p *Plugin) exceeded(listed []*corev1.ResourceQuota, pod *corev1.Pod, r *gpu.PodRequest) place.Refusal {
	quotas := quota.Group(listed)
	if !slices.ContainsFunc(quotas[pod.Namespace], (*quota.Quota).Enforced) {
		return place.Refusal{}
	}
	x := p.shared.index
	used := x.usage.under(x, quotas[pod.Namespace])
	return quota.ExceededBy(quotas, used, pod, r, x.largest(), func() (largest gpu.MiB) {
		filter := cluster.NewNodeFilter(pod)
		filter.Compares = p.compares
		for i := range x.rows {
			if row := &x.rows[i]; filter.Exclusion(&cluster.Facts{Name: row.entry.node.Name, Node: row.info.Node()}).Kind == 0 {
				largest = max(largest, quota.LargestCard(row.entry.node))
			}
		}
		return largest
	})
}

// largest returns the memory of the largest card that some pod may get.
func (x *index) largest() gpu.MiB {
	if u := &x.usage; u.largest == 0 || u.supply != x.nodes.supplyVersion() {
		u.largest, u.supply = 0, x.nodes.supplyVersion()
		for i := range x.rows {
			u.largest = max(u.largest, quota.LargestCard(x.rows[i].entry.node))
		}
	}
	return x.usage.largest
}

// freesQuota reports whether the pod waits for the budget of its namespace and the
// other one, which has ended or holds something else now, is of that namespace.
func (p *Plugin) freesQuota(pod, other *corev1.Pod) bool {
	over := p.shared.pods.peek(pod.UID).overQuota
	return over != nil && !over.Permanent && other.Namespace == pod.Namespace
}

// usage is what the pods of each namespace hold together. It is part of the account:
// made of the rows, and brought up to date with them. Until the first quota is
// checked there is none.
type usage struct {
	pods corelisters.PodLister
	// rows has what each row adds to the total, which is nil until it is needed.
	rows  []amounts
	total amounts
	// apart are the pods of nodes that are not listed: a Node may be deleted before
	// its pods.
	apart []*corev1.Pod
	// largest is the largest card at a version of the supply.
	largest gpu.MiB
	supply  uint64
}

// amounts is what pods hold, by namespace.
type amounts map[string]ledger.Amounts

func (a amounts) add(namespace string, more ledger.Amounts) {
	sum := a[namespace]
	sum.Plus(&more)
	if sum == (ledger.Amounts{}) {
		delete(a, namespace)
	} else {
		a[namespace] = sum
	}
}

// refresh brings the total up to date with the rows that the refresh of the index
// found changed.
func (u *usage) refresh(x *index, relisted bool) {
	switch {
	case u.total == nil:
	case relisted:
		u.begin(x)
	default:
		for _, i := range x.stale {
			if x.changed[i] == x.epoch {
				u.count(x, i)
			}
		}
	}
}

// begin adds up all rows.
func (u *usage) begin(x *index) {
	u.total, u.rows = amounts{}, make([]amounts, len(x.rows))
	for i := range x.rows {
		u.count(x, i)
	}
	u.apart = x.nodes.pods.reservedElsewhere(x.byName)
	bound, _ := u.pods.List(labels.Everything()) // of a store, which returns no error
	for _, pod := range bound {
		if _, listed := x.byName[pod.Spec.NodeName]; !listed && wire.Holds(pod) && !slices.ContainsFunc(u.apart, func(other *corev1.Pod) bool { return other.UID == pod.UID }) {
			u.apart = append(u.apart, pod)
		}
	}
}

// count puts what the row adds now in the place of what it added before.
func (u *usage) count(x *index, i int) {
	for namespace, before := range u.rows[i] {
		u.total.add(namespace, before.Negated())
	}
	u.rows[i] = amounts{}
	x.rows[i].entry.held(func(pod *corev1.Pod, a ledger.Amounts) { u.rows[i].add(pod.Namespace, a) })
	for namespace, now := range u.rows[i] {
		u.total.add(namespace, now)
	}
}

// under returns what the pods that the quotas cover hold. For those with scopes the
// pods are looked at one by one.
func (u *usage) under(x *index, quotas []*quota.Quota) quota.Used {
	if u.total == nil {
		u.begin(x)
	}
	used := quota.Used{}
	for _, q := range quotas {
		if !q.Scoped() {
			used[q] = u.total[q.Namespace]
			continue
		}
		for i := range x.rows {
			x.rows[i].entry.held(func(pod *corev1.Pod, a ledger.Amounts) {
				used.Add(quota.ByNamespace{q.Namespace: {q}}, quota.Pod{Pod: pod, Amounts: a})
			})
		}
	}
	for _, pod := range u.apart {
		if now, err := u.pods.Pods(pod.Namespace).Get(pod.Name); err != nil || now.UID != pod.UID {
			continue // it has ended
		}
		if ask, _ := x.nodes.pods.calls.readBoundRequest(pod); ask != nil {
			used.Add(quota.ByNamespace{quotas[0].Namespace: quotas}, quota.Pod{Pod: pod, Amounts: quota.Held(nil, &ask.Request)})
		}
	}
	return used
}

// held calls the function with what each pod of the node holds.
func (e *entry) held(do func(*corev1.Pod, ledger.Amounts)) {
	for i := range e.read {
		if r := &e.read[i]; r.asks {
			do(r.pod, r.amounts)
		}
	}
	for _, res := range e.beyond {
		do(res.pod, quota.Held(e.node, &res.ask.Request))
	}
}
