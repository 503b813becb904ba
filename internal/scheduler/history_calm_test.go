package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leftovers lists what schedulers keep of pods and nodes that are gone.
func (w *world) leftovers() (out []string) {
	here, waits := map[types.UID]bool{}, map[types.UID]bool{}
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		here[pod.UID] = isShown(pod)
		waits[pod.UID] = here[pod.UID] && pod.Spec.NodeName == ""
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
		for what, known := range p.records(func(uid types.UID) bool { return here[uid] }, func(uid types.UID) bool { return waits[uid] }) {
			for _, of := range known {
				out = append(out, fmt.Sprintf("%s keeps a record of %s, %s", slotNames[i], of, what))
			}
		}
		for _, name := range p.goneNodes() {
			out = append(out, fmt.Sprintf("%s keeps a record of node %s, which is gone", slotNames[i], name))
		}
	}
	slices.Sort(out)
	return out
}

// records returns what the process knows of pods that are not here, and of pods that
// do not wait for neighbours any more.
func (p *process) records(here, waits func(types.UID) bool) map[string][]types.UID {
	out := map[string][]types.UID{}
	p.shared.pods.mu.Lock()
	for uid := range p.shared.pods.byUID {
		if !here(uid) {
			out["which is gone"] = append(out["which is gone"], uid)
		}
	}
	for uid, c := range p.shared.pods.claims {
		if c.kind == heldClaim && !here(uid) {
			out["which preempts no more"] = append(out["which preempts no more"], uid)
		}
	}
	for namespace, l := range p.shared.pods.lines {
		for _, o := range l.waiting {
			if !waits(o.pod.UID) {
				what := "which does not wait for the budget of " + namespace
				out[what] = append(out[what], o.pod.UID)
			}
		}
	}
	p.shared.pods.mu.Unlock()
	for _, n := range p.neighbours {
		n.waitingPods.mu.Lock()
		for uid := range n.waitingPods.pods {
			if what := "which does not wait for " + n.name; !waits(uid) {
				out[what] = append(out[what], uid)
			}
		}
		for uid := range n.waitingPods.tried {
			if what := "which is not tried any more, for " + n.name; !waits(uid) {
				out[what] = append(out[what], uid)
			}
		}
		n.waitingPods.mu.Unlock()
	}
	return out
}

// goneNodes returns the nodes whose account the process keeps although the snapshot of
// its last decision did not list them.
func (p *process) goneNodes() (gone []string) {
	p.shared.nodes.mu.RLock()
	defer p.shared.nodes.mu.RUnlock()
	for name := range p.shared.nodes.entries {
		if !p.shared.index.has(name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// How long it may take until all is well when nothing disturbs any more.
const (
	calmBound = bookmarkPeriod + 60*time.Second
	// blockedBound is with a pod that can't be touched: lease duration, bind
	// timeout and the API server's request timeout come on top.
	blockedBound = calmBound + leaseDuration + bindTimeout + requestTimeout
	// tryBound is within what time a scheduler tries a pod that fits when nothing
	// changes any more: kube-scheduler's longest back-off, and the same once more for
	// a pod that is woken while it is tried.
	tryBound = 25 * time.Second
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

// opPeace lets all go well for as long as it takes until all is well.
func opPeace(w *world, _ step) bool {
	w.calm()
	return true
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
	quiet, changes := began, w.api.changes()
	for w.problem == "" {
		w.goOn()
		waiting := w.waitingPods()
		bad := append(slices.Clone(waiting), w.leftovers()...)
		if len(bad) == 0 && len(w.api.pending()) == 0 {
			return
		}
		if now := w.api.changes(); now != changes || !w.decides() {
			quiet, changes = time.Now(), now
		}
		switch {
		case time.Since(began) > bound:
			w.problem = fmt.Sprintf("%s after all went well: %s\n%s", bound, strings.Join(bad, "; "), strings.Join(w.situation(), "\n"))
		case time.Since(quiet) > tryBound && len(waiting) > 0:
			w.problem = fmt.Sprintf("%s after the last change: %s\n%s", tryBound, strings.Join(waiting, "; "), strings.Join(w.situation(), "\n"))
		default:
			time.Sleep(waitSlice)
			w.settle()
		}
	}
}

// decides reports whether a scheduler may place every pod that waits.
func (w *world) decides() bool {
	for _, p := range w.slots {
		if p.runs() && p.leads.Load() && p.shared.term.isOpen() {
			p.shared.term.mu.Lock()
			held := len(p.shared.term.held)
			p.shared.term.mu.Unlock()
			return held == 0
		}
	}
	return false
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
		for uid, at := range p.tried {
			out = append(out, fmt.Sprintf("%s tried %s last %s ago", slotNames[i], uid, time.Since(at).Round(time.Millisecond)))
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
