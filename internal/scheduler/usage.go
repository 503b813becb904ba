package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// usage is what the pods of each namespace hold together. It is part of the account:
// made of the rows, and brought up to date with them. Until the first quota is
// checked there is none.
type usage struct {
	pods corelisters.PodLister
	// rows has what each row adds to the total, which is nil until it is needed.
	rows  []amounts
	total amounts
	// classes has the classes of each namespace that the total has.
	classes map[string]map[quota.Class]struct{}
	// apart are the pods that may hold cards of nodes that are not listed: a Node may
	// be deleted before its pods.
	apart map[types.UID]*apartPod
	// largest is the largest card at a version of the supply; 0: not known.
	largest gpu.MiB
	supply  uint64

	mu sync.Mutex
	// strays are the pods that were bound since the sums began, to nodes that do not
	// exist; nil before.
	strays []*corev1.Pod
	begun  bool
}

// apartPod is a pod and what it counts while it holds anything.
type apartPod struct {
	pod     *corev1.Pod
	amounts ledger.Amounts
}

// classed is the pods of a namespace that all quotas with scopes treat alike.
type classed struct {
	namespace string
	class     quota.Class
}

// amounts is what pods hold.
type amounts map[classed]ledger.Amounts

func (a amounts) add(key classed, more ledger.Amounts) {
	sum := a[key]
	sum.Plus(&more)
	if sum == (ledger.Amounts{}) {
		delete(a, key)
	} else {
		a[key] = sum
	}
}

// refresh brings the total up to date with the rows that the refresh of the index
// found changed.
func (u *usage) refresh(x *index, relisted bool) {
	if relisted {
		u.largest = 0
	}
	switch {
	case u.total == nil:
	case relisted:
		u.begin(x)
	default:
		for _, id := range x.changed {
			u.count(x, id)
		}
	}
}

// begin adds up all rows.
func (u *usage) begin(x *index) {
	u.mu.Lock()
	u.strays, u.begun = nil, true
	u.mu.Unlock()
	u.total, u.classes, u.rows = amounts{}, map[string]map[quota.Class]struct{}{}, nil
	for _, id := range x.listed {
		u.count(x, id)
	}
	u.apart = map[types.UID]*apartPod{}
	for _, c := range x.nodes.pods.claimsOf(reservedClaim) {
		if !x.has(c.node) {
			u.apart[c.pod.UID] = &apartPod{c.pod, quota.Held(nil, &c.ask.Request)}
		}
	}
	bound, _ := u.pods.List(labels.Everything()) // of a store, which returns no error
	for _, pod := range bound {
		u.addApart(x, pod)
	}
}

// addApart takes in a pod that is bound to a node that is not listed.
func (u *usage) addApart(x *index, pod *corev1.Pod) {
	if x.has(pod.Spec.NodeName) || u.apart[pod.UID] != nil || !wire.Holds(pod) || !quota.Counts(pod, nil) {
		return
	}
	if ask, _ := request.ReadBound(pod); ask != nil {
		u.apart[pod.UID] = &apartPod{pod, quota.Held(nil, &ask.Request)}
	}
}

// stray notes a pod that was bound to a node that does not exist.
func (u *usage) stray(pod *corev1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.begun {
		u.strays = append(u.strays, pod)
	}
}

// count puts what the row adds now in the place of what it added before.
func (u *usage) count(x *index, id place.NodeID) {
	for int(id) >= len(u.rows) {
		u.rows = append(u.rows, nil)
	}
	for key, before := range u.rows[id] {
		u.add(key, before.Negated())
	}
	u.rows[id] = amounts{}
	x.rows[id].entry.held(func(pod *corev1.Pod, a ledger.Amounts) {
		u.rows[id].add(classed{pod.Namespace, quota.ClassOf(pod)}, a)
	})
	for key, now := range u.rows[id] {
		u.add(key, now)
	}
}

// add adds to the total.
func (u *usage) add(key classed, more ledger.Amounts) {
	u.total.add(key, more)
	classes := u.classes[key.namespace]
	if _, has := u.total[key]; has {
		if classes == nil {
			classes = map[quota.Class]struct{}{}
			u.classes[key.namespace] = classes
		}
		classes[key.class] = struct{}{}
		return
	}
	delete(classes, key.class)
	if len(classes) == 0 {
		delete(u.classes, key.namespace)
	}
}

// under returns what the pods of the namespace hold that each of the quotas covers.
func (u *usage) under(x *index, namespace string, quotas []*quota.Quota) quota.Used {
	if u.total == nil {
		u.begin(x)
	}
	used := make(quota.Used, len(quotas))
	for class := range u.classes[namespace] {
		sum := u.total[classed{namespace, class}]
		used.AddClass(quotas, class, &sum)
	}
	for _, a := range u.holdApart(x, namespace) {
		used.AddClass(quotas, quota.ClassOf(a.pod), &a.amounts)
	}
	return used
}

// holdApart returns the pods of the namespace that hold cards of nodes that are not
// listed, now.
func (u *usage) holdApart(x *index, namespace string) (out []*apartPod) {
	u.mu.Lock()
	for _, pod := range u.strays {
		u.addApart(x, pod)
	}
	u.strays = nil
	u.mu.Unlock()
	for uid, a := range u.apart {
		if a.pod.Namespace != namespace {
			continue
		}
		now, err := u.pods.Pods(a.pod.Namespace).Get(a.pod.Name)
		if err != nil || now.UID != uid {
			delete(u.apart, uid) // it has ended
			continue
		}
		a.pod = now
		node, holds := now.Spec.NodeName, wire.Holds(now)
		if node == "" {
			if res := x.nodes.pods.claimOf(uid, reservedClaim); res != nil {
				node, holds = res.node, true
			}
		}
		if holds && !x.has(node) {
			out = append(out, a)
		}
	}
	return out
}

// largest returns the memory of the largest card that some pod may get.
func (x *index) largest() gpu.MiB {
	if u := &x.usage; u.largest == 0 || u.supply != x.nodes.supplyVersion() {
		u.largest, u.supply = 0, x.nodes.supplyVersion()
		for _, id := range x.listed {
			u.largest = max(u.largest, x.rows[id].entry.node.Topology().LargestCard())
		}
	}
	return x.usage.largest
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
