package scheduler

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// step is one thing that happens in a history. A step names what it is about, so
// that it means the same when others before it are left out; if that is not
// there, nothing happens.
type step struct {
	op   string
	who  string // a scheduler, a pod, a node or a request
	what string
	n    int
}

// String returns the step as a failure shows it.
func (s step) String() string {
	out := s.op + " " + s.who
	if s.what != "" {
		out += " " + s.what
	}
	if s.n != 0 {
		out += " " + strconv.Itoa(s.n)
	}
	return strings.TrimSpace(out)
}

// world is one history while it is played.
type world struct {
	ops   map[string]func(w *world, s step) bool
	api   *modelServer
	slots []*process
	// profiles are those of every scheduler.
	profiles []config.KubeSchedulerProfile
	starts   int // of schedulers
	births   int // of pods
	trace    []step
	problem  string
	// rescoped are the pods that other quotas cover than when they came, intruders
	// those that another scheduler bound while this one ran, and left the nodes
	// that are gone, by name.
	rescoped, intruders map[types.UID]bool
	left                map[string]*corev1.Node
	// bound are the pods that were bound when they were looked at last.
	bound map[types.UID]bool
	// checked is the version up to which what is booked was checked.
	checked uint64
}

// slotNames are the places where a scheduler may run.
var slotNames = []string{"s0", "s1", "s2"}

func newWorld(profiles []config.KubeSchedulerProfile, slots int) *world {
	return &world{
		ops: operations(), api: newModelServer(), profiles: profiles, slots: make([]*process, slots), bound: map[types.UID]bool{},
		rescoped: map[types.UID]bool{}, intruders: map[types.UID]bool{}, left: map[string]*corev1.Node{},
	}
}

// slot returns the scheduler of the name, nil when it does not run.
func (w *world) slot(name string) *process {
	i := slices.Index(slotNames, name)
	if i < 0 || i >= len(w.slots) {
		return nil
	}
	return w.slots[i]
}

// alive lists the schedulers that can do something.
func (w *world) alive() []string {
	var out []string
	for i, p := range w.slots {
		if p.runs() {
			out = append(out, slotNames[i])
		}
	}
	return out
}

// do lets the step happen, if it can, and everything that follows from it by
// itself.
func (w *world) do(s step) bool {
	if w.problem != "" {
		return false
	}
	// No two steps are at the same time, so no two timers end at the same time.
	time.Sleep(time.Microsecond)
	if do := w.ops[s.op]; do == nil || !do(w, s) {
		return false
	}
	w.trace = append(w.trace, s)
	w.settle()
	w.check()
	return true
}

// settle waits until every goroutine waits for the driver or the clock. Requests
// that took too long and processes that end are part of it.
func (w *world) settle() {
	for {
		synctest.Wait()
		if !w.elections() && !w.giveUp() && !w.exits() {
			return
		}
	}
}

// elections answers the first request of the election, if there is one. Elections
// are disturbed by suspending, cutting off and killing schedulers alone.
func (w *world) elections() bool {
	for _, r := range w.api.pending() {
		if (r.verb == verbLease || r.verb == verbGet && r.name == leaseName) && r.by.runs() && !r.by.cut {
			r.execute()
			w.api.answer(r, false)
			return true
		}
	}
	return false
}

// giveUp ends the first request that took too long, if there is one.
func (w *world) giveUp() bool {
	for _, r := range w.api.pending() {
		switch {
		case !r.by.runs():
		case r.ctx.Err() != nil:
			r.err = context.Cause(r.ctx)
			r.result = nil
			w.api.answer(r, true)
			return true
		case time.Since(r.sent) > requestTimeout && !r.by.cut:
			r.result, r.err = nil, faults["504"](r)
			w.api.answer(r, false)
			return true
		}
	}
	w.api.late = slices.DeleteFunc(w.api.late, func(r *apiRequest) bool { return time.Since(r.sent) > requestTimeout })
	return false
}

// exits stops processes that are to end.
func (w *world) exits() bool {
	some := false
	for i, p := range w.slots {
		if p != nil && (p.over.Load() || p.ctx.Err() != nil) && !p.clock.isSuspended() {
			p.stop()
			w.slots[i] = nil
			some = true
		}
	}
	return some
}

// end stops everything.
func (w *world) end() {
	for i, p := range w.slots {
		if p != nil {
			p.stop()
			w.slots[i] = nil
		}
	}
	synctest.Wait()
	// What counts metrics sleeps for a second before it sees that it is to end.
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// operations returns the steps by name. Each returns whether it could be done.
func operations() map[string]func(w *world, s step) bool {
	return map[string]func(w *world, s step) bool{
		"node": opNode, "counted": opCounted, "foreign": opForeign, "cure": opCure,
		"leave": opLeave, "join": opJoin, "cordon": opCordon, "taint": opTaint, "label": opLabel, "device": opDevice,
		"pod": opPod, "intrude": opIntrude, "delete": opDelete, "remove": opRemove, "complete": opComplete, "annotate": opAnnotate, "deadline": opDeadline, "relabel": opRelabel,
		"quota": opQuota,
		"start": opStart, "crash": opCrash, "release": opRelease, "suspend": opSuspend, "resume": opResume, "cut": opCut, "heal": opHeal,
		"watch": opWatch, "relist": opRelist, "hear": opHear, "cycle": opCycle, "flow": opFlow,
		"ok": opOK, "execute": opExecute, "fail": opFail, "lose": opLose, "late": opLate,
		"wait": opWait, "peace": opPeace, "block": opBlock, "unblock": opUnblock,
	}
}
