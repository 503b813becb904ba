package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// doubled are the rules of the audit that say that a card was given twice. The
// others may be broken by an inventory that changes.
var doubled = []audit.Rule{
	audit.MemoryOverbooked, audit.ComputeOverbooked, audit.SlicesOverbooked, audit.ExclusiveShared, audit.QoSMixed, audit.ClassMixed,
}

// check looks at what the API server has after a step.
func (w *world) check() {
	if w.problem != "" || w.checked == w.api.version {
		return
	}
	var found []string
	for _, c := range w.api.log[kindPod] {
		if c.version > w.checked && c.now != nil {
			if pod, ok := c.now.(*corev1.Pod); ok {
				found = append(found, w.checkBound(pod)...)
			}
		}
	}
	w.checked = w.api.version
	found = append(found, w.overbooked()...)
	found = append(found, w.miscounted()...)
	if len(found) > 0 {
		w.problem = strings.Join(found, "; ")
	}
}

// checkBound looks at a pod by itself: a pod with a node has cards of that node.
func (w *world) checkBound(pod *corev1.Pod) (found []string) {
	if pod.Spec.NodeName == "" || pod.Spec.SchedulerName != DefaultProfile || w.api.everHad[pod.Spec.NodeName] == nil {
		return nil
	}
	text := pod.Annotations[wire.AnnotationAllocated]
	if text == "" {
		return []string{fmt.Sprintf("pod %s is bound to %s without cards", pod.Name, pod.Spec.NodeName)}
	}
	if _, used := w.budgets(); w.api.budget != nil && !w.bound[pod.UID] {
		for q, sum := range used {
			if int64(sum.Compute) > *w.api.budget {
				found = append(found, fmt.Sprintf("pod %s is bound above the budget: quota %s never allowed more than %d%%, %d%% are used", pod.Name, q.Name, *w.api.budget, sum.Compute))
			}
		}
	}
	w.bound[pod.UID] = true
	cards := strings.Count(text, `"uuid"`)
	for card := range w.api.everHad[pod.Spec.NodeName] {
		cards -= strings.Count(text, `"`+card+`"`)
	}
	if cards != 0 {
		found = append(found, fmt.Sprintf("pod %s is bound to %s with cards that the node never had: %s", pod.Name, pod.Spec.NodeName, text))
	}
	return found
}

// overbooked asks the audit of the nodes that have Devices, and counts the cards
// of the others.
func (w *world) overbooked() (found []string) {
	objects := &cluster.Objects{Devices: map[string]cluster.Device{}}
	counted := map[string]int64{}
	for _, name := range w.api.names(kindNode) {
		if dev := w.api.device(name); dev != nil {
			objects.Nodes = append(objects.Nodes, w.api.node(name))
			objects.Devices[name] = cluster.Device{Device: dev.spec}
		} else if w.api.everHad[name] == nil {
			counted[name] = 0
		}
	}
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		if !wire.Holds(pod) {
			continue
		}
		if _, ok := counted[pod.Spec.NodeName]; ok {
			q := pod.Spec.Containers[0].Resources.Limits[wire.ResourceGPU]
			counted[pod.Spec.NodeName] += q.Value()
		} else if objects.Devices[pod.Spec.NodeName].Device != nil {
			objects.Pods = append(objects.Pods, pod)
		}
	}
	for _, f := range audit.Check(objects.Snapshot(), start).Violations {
		if slices.Contains(doubled, f.Rule) {
			found = append(found, fmt.Sprintf("%s: %s", f.Rule, f.Message))
		}
	}
	for _, name := range w.api.names(kindNode) {
		has := w.api.node(name).Status.Allocatable[wire.ResourceGPU]
		if n, ok := counted[name]; ok && n > has.Value() {
			found = append(found, fmt.Sprintf("%d cards of node %s are given, it has %d", n, name, has.Value()))
		}
	}
	return found
}

// budgets returns the quotas as they truly are, and what is used.
func (w *world) budgets() (quota.ByNamespace, quota.Used) {
	var listed []*corev1.ResourceQuota
	for _, o := range w.api.objects[kindQuota] {
		if rq, ok := o.(*corev1.ResourceQuota); ok {
			listed = append(listed, rq)
		}
	}
	by, used := quota.Group(listed), quota.Used{}
	for _, name := range w.api.names(kindPod) {
		if pod := w.api.pod(name); wire.Holds(pod) {
			used.Add(by, quota.Pod{Pod: pod, Amounts: requestedOf(pod)})
		}
	}
	return by, used
}

// requestedOf returns what a pod holds: all cards have 64 GiB.
func requestedOf(pod *corev1.Pod) ledger.Amounts {
	ask, _ := request.ReadBound(pod)
	return ledger.PeakOf(&ask.Request, 64<<10)
}

// miscounted compares what each scheduler counts by namespace with a count from
// scratch.
func (w *world) miscounted() (found []string) {
	for i, p := range w.slots {
		if p == nil || p.shared.index.usage.total == nil {
			continue
		}
		x := p.shared.index
		again := usage{pods: x.usage.pods}
		again.begin(x)
		if !maps.Equal(again.total, x.usage.total) {
			found = append(found, fmt.Sprintf("%s counts %v, from scratch %v", slotNames[i], x.usage.total, again.total))
		}
	}
	return found
}

// account returns the node as it truly is.
func (w *world) account(name string) *ledger.Node {
	var pods []*corev1.Pod
	for _, p := range w.api.names(kindPod) {
		if pod := w.api.pod(p); pod.Spec.NodeName == name {
			pods = append(pods, pod)
		}
	}
	node, _ := allocation.NewNode(readInventory(w.api.node(name), w.api.device(name), w.api.everHad[name] == nil), pods)
	return node
}

// waitingPods lists the pods that wait although a node has room for them.
func (w *world) waitingPods() (out []string) {
	var nodes []*ledger.Node
	for _, name := range w.api.names(kindNode) {
		nodes = append(nodes, w.account(name))
	}
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || w.api.untouchable[name] || !isShown(pod) {
			continue
		}
		ask, _ := request.Read(pod)
		if by, used := w.budgets(); quota.Exceeded(by, used, quota.Pod{Pod: pod, Amounts: requestedOf(pod)}).Code != place.Fits {
			continue
		}
		for _, node := range nodes {
			if _, refusal := place.Fit(node, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
				out = append(out, fmt.Sprintf("pod %s waits although it fits on node %s", name, node.Name))
				break
			}
		}
	}
	return out
}

// leftovers lists reservations for pods that are gone.
func (w *world) leftovers() (out []string) {
	here := map[types.UID]bool{}
	for _, name := range w.api.names(kindPod) {
		here[w.api.pod(name).UID] = true
	}
	for i, p := range w.slots {
		if p == nil {
			continue
		}
		for _, uid := range p.reserved() {
			if !here[uid] {
				out = append(out, fmt.Sprintf("%s keeps cards for %s, which is gone", slotNames[i], uid))
			}
		}
	}
	return out
}

// How long it may take until all is well when nothing disturbs any more.
const (
	calmBound = bookmarkPeriod + 60*time.Second
	// blockedBound is with a pod that can't be touched: lease duration, bind
	// timeout and the API server's request timeout come on top.
	blockedBound = calmBound + leaseDuration + bindTimeout + requestTimeout
)

// opCalm is the last step.
const opCalm = "calm"

// finish ends the history: from some moment on all goes well.
func (w *world) finish() {
	if w.problem == "" {
		w.trace = append(w.trace, step{op: opCalm})
		w.calm()
	}
}

// calm lets everything go well from now on and returns which pods wait nevertheless.
func (w *world) calm() {
	for i, name := range slotNames[:len(w.slots)] {
		opResume(w, step{who: name})
		opHeal(w, step{who: name})
		if i == 0 && len(w.alive()) == 0 {
			opStart(w, step{who: name})
		}
	}
	w.api.late = nil
	bound := calmBound
	if len(w.api.untouchable) > 0 {
		bound = blockedBound
	}
	began := time.Now()
	for w.problem == "" {
		w.goOn()
		bad := append(w.waitingPods(), w.leftovers()...)
		if len(bad) == 0 && len(w.api.pending()) == 0 {
			return
		}
		if time.Since(began) > bound {
			w.problem = fmt.Sprintf("%s after all went well: %s\n%s", bound, strings.Join(bad, "; "), strings.Join(w.situation(), "\n"))
			return
		}
		time.Sleep(waitSlice)
		w.settle()
	}
}

// situation returns where pods are, to the API server and to the schedulers.
func (w *world) situation() (out []string) {
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		parts := []string{fmt.Sprintf("pod %s (%s): on %q, nominated to %q, deleted %t", name, pod.UID, pod.Spec.NodeName, pod.Status.NominatedNodeName, pod.DeletionTimestamp != nil)}
		for i := range pod.Status.Conditions {
			parts = append(parts, fmt.Sprintf("%s %q", pod.Status.Conditions[i].Type, pod.Status.Conditions[i].Message))
		}
		out = append(out, strings.Join(parts, ", "))
	}
	for i, p := range w.slots {
		if p == nil {
			continue
		}
		q := p.sched.SchedulingQueue
		for where, pods := range map[string][]*corev1.Pod{
			"to be tried": q.PodsInActiveQ(), "backs off": q.PodsInBackoffQ(), "sleeps": q.UnschedulablePods(), "is tried": q.InFlightPods(),
		} {
			for _, pod := range pods {
				out = append(out, fmt.Sprintf("%s, leads %t: pod %s %s", slotNames[i], p.leads.Load(), pod.Name, where))
			}
		}
		out = append(out, fmt.Sprintf("%s, leads %t: cards are reserved for %v", slotNames[i], p.leads.Load(), p.reserved()))
	}
	for _, r := range w.api.pending() {
		out = append(out, "waits for an answer: "+r.id)
	}
	slices.Sort(out)
	return out
}

// goOn lets everyone do what can be done now.
func (w *world) goOn() {
	for again := true; again && w.problem == ""; {
		again = false
		for _, name := range w.api.names(kindPod) {
			again = opRemove(w, step{who: name}) || again
		}
		if len(w.alive()) == 0 {
			again = opStart(w, step{who: slotNames[0]}) || again
		}
		for _, name := range w.alive() {
			time.Sleep(time.Microsecond)
			again = opFlow(w, step{who: name}) || again
			w.check()
		}
	}
}
