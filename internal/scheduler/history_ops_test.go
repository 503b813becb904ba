package scheduler

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"
)

// opStart starts a scheduler whose first view is n changes old.
func opStart(w *world, s step) bool {
	i := slices.Index(slotNames, s.who)
	if i < 0 || i >= len(w.slots) || w.slots[i] != nil {
		return false
	}
	w.starts++
	p, err := startProcess(w.api, w.profiles, fmt.Sprintf("%s.%d", s.who, w.starts), s.n)
	if err != nil {
		w.problem = err.Error()
		return false
	}
	w.slots[i] = p
	return true
}

// opCrash kills a scheduler.
func opCrash(w *world, s step) bool {
	p := w.slot(s.who)
	if p == nil {
		return false
	}
	p.stop()
	w.slots[slices.Index(slotNames, s.who)] = nil
	return true
}

// opRelease ends a scheduler as a rolling update does: it gives the lease back.
func opRelease(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() || p.cut {
		return false
	}
	if l := w.api.lease; l != nil && l.HolderIdentity == p.identity {
		given := *l
		given.HolderIdentity = ""
		if _, err := w.api.writeLease(given, w.api.leaseAt); err != nil {
			return false
		}
	}
	return opCrash(w, s)
}

// opSuspend suspends the machine of a scheduler.
func opSuspend(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() {
		return false
	}
	p.clock.suspend()
	return true
}

func opResume(w *world, s step) bool {
	p := w.slot(s.who)
	if p == nil || !p.clock.isSuspended() {
		return false
	}
	p.clock.resume()
	return true
}

// opCut lets nothing through between a scheduler and the API server.
func opCut(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() || p.cut {
		return false
	}
	p.cut = true
	return true
}

func opHeal(w *world, s step) bool {
	p := w.slot(s.who)
	if p == nil || !p.cut {
		return false
	}
	p.cut = false
	return true
}

// connected returns the scheduler if it runs and reaches the API server.
func (w *world) connected(name string) *process {
	if p := w.slot(name); p.runs() && !p.cut {
		return p
	}
	return nil
}

// opWatch brings the store of a scheduler's informer up by n changes.
func opWatch(w *world, s step) bool {
	p := w.connected(s.who)
	return p != nil && w.receive(p, s.what, s.n) > 0
}

func (w *world) receive(p *process, kind string, n int) int {
	informer, log := p.informers.of(kind), w.api.log[kind]
	got := 0
	for ; got < n && informer.next < len(log); got++ {
		informer.receive(log[informer.next])
	}
	if informer.next == len(log) && w.api.version > informer.version.Load() && time.Since(informer.bookmarked) > bookmarkPeriod {
		informer.bookmarked = time.Now()
		informer.version.Store(w.api.version)
	}
	return got
}

// bookmarkPeriod is how often the API server shows a watch how far it has come
// when nothing changes.
const bookmarkPeriod = time.Minute

// opRelist lists the objects of a kind again, as an informer does whose watch was cut
// off for so long that the API server does not know all changes any more.
func opRelist(w *world, s step) bool {
	p := w.connected(s.who)
	if p == nil || !slices.Contains(kinds, s.what) || p.informers.of(s.what).next == len(w.api.log[s.what]) {
		return false
	}
	informer := p.informers.of(s.what)
	var listed []object
	for _, name := range w.api.names(s.what) {
		o := w.api.objects[s.what][name]
		if !isShown(o) {
			continue
		}
		if old, ok := informer.stored(keyOf(o)); ok && old.GetUID() != o.GetUID() {
			return false
		}
		listed = append(listed, o)
	}
	informer.relist(listed, w.api.version, len(w.api.log[s.what]))
	return true
}

// opHear lets the handlers of an informer hear of the next change: the n-th
// alone, or all of them.
func opHear(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() {
		return false
	}
	some := false
	for i, l := range p.informers.of(s.what).handlers {
		if (s.n == 0 || s.n == i+1) && len(l.behind) > 0 {
			some = true
			go l.hear()
			synctest.Wait()
		}
	}
	return some
}

// opCycle lets a scheduler try one pod, or go on with the one whose cycle pauses.
func opCycle(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() || !p.paused.Load() && !w.canTry(p) {
		return false
	}
	if !p.paused.Load() {
		p.pauseAt = s.what
	}
	select {
	case p.grants <- struct{}{}:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// canTry reports whether the scheduler has a pod to try and no other one at hand.
func (*world) canTry(p *process) bool {
	return p.leads.Load() && !p.busy.Load() && len(p.sched.SchedulingQueue.PodsInActiveQ()) > 0
}

// behind reports whether there is something that the scheduler has not seen yet.
func (w *world) behind(p *process) bool {
	for _, kind := range kinds {
		informer := p.informers.of(kind)
		if !p.cut && informer.next < len(w.api.log[kind]) {
			return true
		}
		for _, l := range informer.handlers {
			if len(l.behind) > 0 {
				return true
			}
		}
	}
	return false
}

// The flows that leave something out.
const (
	// holdBindings is a flow in which nothing is decided and no Binding goes on.
	holdBindings = "without bindings"
	// holdEvents is one in which handlers hear of nothing either: only the stores
	// of the informers are brought up to date.
	holdEvents = "without events"
)

// opFlow lets a scheduler do everything that it can do now.
func opFlow(w *world, s step) bool {
	p := w.connected(s.who)
	if p == nil {
		return false
	}
	some := false
	for range 20 {
		again := false
		for _, r := range w.api.pending() {
			if r.by == p && (s.what == "" || r.verb != verbBind) {
				r.execute()
				w.api.answer(r, false)
				w.settle()
				again = true
			}
		}
		for _, kind := range kinds {
			again = w.receive(p, kind, len(w.api.log[kind])) > 0 || again
			for s.what != holdEvents && opHear(w, step{who: s.who, what: kind}) {
				again = true
			}
		}
		again = s.what == "" && opCycle(w, step{who: s.who}) || again
		w.settle()
		if !again || !p.runs() {
			break
		}
		some = true
	}
	return some
}

// apiRequest returns a request that waits and can be answered.
func (w *world) request(id string) *apiRequest {
	r, late := w.api.find(id)
	if r == nil || late || !r.by.runs() || r.by.cut {
		return nil
	}
	return r
}

// opOK carries the request out, if it was not yet, and answers.
func opOK(w *world, s step) bool {
	r := w.request(s.who)
	if r == nil {
		return false
	}
	r.execute()
	w.api.answer(r, false)
	return true
}

// opExecute carries the request out; the answer comes later, or never.
func opExecute(w *world, s step) bool {
	r := w.request(s.who)
	if r == nil || r.executed {
		return false
	}
	r.execute()
	return true
}

// opFail answers with an error; the request is not carried out.
func opFail(w *world, s step) bool {
	r := w.request(s.who)
	if r == nil || r.executed || faults[s.what] == nil {
		return false
	}
	r.err = faults[s.what](r)
	w.api.answer(r, false)
	return true
}

// opLose breaks the connection: the request was carried out, or may be later.
func opLose(w *world, s step) bool {
	r := w.request(s.who)
	if r == nil {
		return false
	}
	r.result, r.err = nil, faults[s.what](r)
	w.api.answer(r, true)
	return true
}

// opLate is a request that arrives after its sender gave up.
func opLate(w *world, s step) bool {
	r, late := w.api.find(s.who)
	if r == nil || !late {
		return false
	}
	w.api.dropLate(r)
	r.execute()
	return true
}

// opWait lets n milliseconds pass.
func opWait(w *world, s step) bool {
	for rest := time.Duration(s.n) * time.Millisecond; rest > 0; rest -= waitSlice {
		time.Sleep(min(rest, waitSlice))
		w.settle()
	}
	return true
}

// waitSlice is how long time passes without a look at who gives up.
const waitSlice = 500 * time.Millisecond

// opBlock makes a pod's status refuse every patch.
func opBlock(w *world, s step) bool {
	if w.api.pod(s.who) == nil || w.api.untouchable[s.who] {
		return false
	}
	w.api.untouchable[s.who] = true
	return true
}

func opUnblock(w *world, s step) bool {
	if !w.api.untouchable[s.who] {
		return false
	}
	delete(w.api.untouchable, s.who)
	return true
}
