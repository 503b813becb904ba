package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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
	// noElection is true when the schedulers take part in no election.
	noElection bool
	starts     int // of schedulers
	births     int // of pods
	trace      []step
	problem    string
	// checked is the version up to which what is booked was checked.
	checked uint64
}

// slotNames are the places where a scheduler may run.
var slotNames = []string{"s0", "s1", "s2"}

func newWorld(slots int) *world {
	return &world{ops: operations(), api: newModelServer(), slots: make([]*process, slots)}
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
	w.api.late = slices.DeleteFunc(w.api.late, func(r *request) bool { return time.Since(r.sent) > requestTimeout })
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
		"pod": opPod, "delete": opDelete, "remove": opRemove, "complete": opComplete, "annotate": opAnnotate,
		"device": opDevice, "label": opLabel,
		"start": opStart, "crash": opCrash, "release": opRelease, "suspend": opSuspend, "resume": opResume, "cut": opCut, "heal": opHeal,
		"watch": opWatch, "hear": opHear, "cycle": opCycle, "flow": opFlow,
		"ok": opOK, "execute": opExecute, "fail": opFail, "lose": opLose, "late": opLate,
		"wait": opWait, "block": opBlock, "unblock": opUnblock,
	}
}

// opNode adds a node with n cards.
func opNode(w *world, s step) bool {
	if w.api.node(s.who) != nil {
		return false
	}
	w.api.put(kindNode, makeNode(s.who))
	var cards []string
	for i := range s.n {
		cards = append(cards, fmt.Sprintf("GPU-%s-%d", s.who, i))
	}
	w.publish(s.who, cards, nil)
	return true
}

// publish stores a Device with the cards in this order.
func (w *world) publish(node string, cards []string, sick map[string]bool) {
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("device-" + node)}}
	if w.api.everHad[node] == nil {
		w.api.everHad[node] = map[string]bool{}
	}
	for i, card := range cards {
		w.api.everHad[node][card] = true
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: card, Minor: new(int32(i)), Health: !sick[card],
			Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
			Labels:    map[string]string{wire.LabelLinkZone: "1"},
			// The agent has not listed what foreign pods hold.
			Conditions: []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionTrue}},
		})
	}
	w.api.put(kindDevice, &device{ObjectMeta: d.ObjectMeta, spec: d})
}

// opCounted adds a node of the vendor's with n cards that have no identity.
func opCounted(w *world, s step) bool {
	if w.api.node(s.who) != nil {
		return false
	}
	node := makeNode(s.who)
	cards := *resource.NewQuantity(int64(s.n), resource.DecimalSI)
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor, wire.AnnotationScores: "{}"}
	node.Status.Capacity = corev1.ResourceList{wire.ResourceGPU: cards}
	node.Status.Allocatable = corev1.ResourceList{wire.ResourceGPU: cards}
	w.api.put(kindNode, node)
	return true
}

// unreadable is an allocation that can't be read.
const unreadable = `[[{"uuid":`

// opForeign adds a pod that someone else bound to the node, with the node's last
// card to itself, which only becomes known later.
func opForeign(w *world, s step) bool {
	if w.api.node(s.what) == nil || w.api.pod(s.who) != nil || w.starts > 0 {
		return false
	}
	w.births++
	pod := makePod(s.who, whole(1), annotated(wire.AnnotationAllocated, unreadable), boundTo(s.what))
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.who, w.births))
	pod.Spec.SchedulerName = "someone-else"
	w.api.put(kindPod, pod)
	return true
}

// opCure makes known which card a foreign pod holds.
func opCure(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Annotations[wire.AnnotationAllocated] != unreadable {
		return false
	}
	dev := w.api.device(pod.Spec.NodeName)
	if dev == nil || len(dev.spec.Spec.Devices) == 0 {
		return false
	}
	last := fmt.Sprintf("GPU-%s-%d", pod.Spec.NodeName, len(w.api.everHad[pod.Spec.NodeName])-1)
	text, err := json.Marshal([][]map[string]any{{{"uuid": last, "compute": 100, "vRam": 64 << 10}}})
	if err != nil {
		return false
	}
	now := pod.DeepCopy()
	now.Annotations[wire.AnnotationAllocated] = string(text)
	w.api.put(kindPod, now)
	return true
}

// shapes are what pods ask for.
var shapes = map[string]podOption{
	"small": slice(30, 16), "half": slice(50, 32), "large": slice(60, 40), "one": whole(1), "two": whole(2),
}

// shapeNames has the shapes in order.
var shapeNames = []string{"small", "half", "large", "one", "two"}

// opPod creates a pod of a shape and a priority.
func opPod(w *world, s step) bool {
	if w.api.pod(s.who) != nil || shapes[s.what] == nil {
		return false
	}
	w.births++
	pod := makePod(s.who, shapes[s.what], priority(int32(s.n)))
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.who, w.births))
	pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(w.births) * time.Second))
	w.api.put(kindPod, pod)
	return true
}

func opDelete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	return pod != nil && pod.DeletionTimestamp == nil && w.api.deletePod(s.who, "") == nil
}

// opRemove is kubelet, which has ended a pod that was deleted.
func opRemove(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.DeletionTimestamp == nil {
		return false
	}
	w.api.remove(kindPod, s.who)
	return true
}

// opComplete is a pod that has done its work.
func opComplete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || !wire.Holds(pod) {
		return false
	}
	now := pod.DeepCopy()
	now.Status.Phase = corev1.PodSucceeded
	w.api.put(kindPod, now)
	return true
}

// opAnnotate changes what a waiting pod prefers.
func opAnnotate(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Spec.NodeName != "" {
		return false
	}
	now := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&now.ObjectMeta, wire.AnnotationCardPolicy, s.what)
	w.api.put(kindPod, now)
	return true
}

// opDevice is an agent that reads its cards again.
func opDevice(w *world, s step) bool {
	dev := w.api.device(s.who)
	if dev == nil {
		if s.what == "back" && w.api.everHad[s.who] != nil {
			w.publish(s.who, w.cardsOf(s.who), nil)
			return true
		}
		return false
	}
	var cards []string
	sick := map[string]bool{}
	for i := range dev.spec.Spec.Devices {
		card := &dev.spec.Spec.Devices[i]
		cards = append(cards, card.UUID)
		sick[card.UUID] = !card.Health
	}
	card := fmt.Sprintf("GPU-%s-%d", s.who, s.n)
	at := slices.Index(cards, card)
	switch {
	case s.what == "turn" && len(cards) > 1:
		cards = append(cards[1:], cards[0])
	case s.what == "swap" && len(cards) > 1:
		cards[0], cards[1] = cards[1], cards[0]
	case s.what == "sick" && at >= 0 && !sick[card], s.what == "well" && at >= 0 && sick[card]:
		sick[card] = s.what == "sick"
	case s.what == "lose" && at >= 0 && len(cards) > 1:
		cards = slices.Delete(cards, at, at+1)
	case s.what == "find" && at < 0 && w.api.everHad[s.who][card]:
		cards = append(cards, card)
	case s.what == "gone":
		w.api.remove(kindDevice, s.who)
		return true
	default:
		return false
	}
	w.publish(s.who, cards, sick)
	return true
}

// cardsOf returns all cards that the node ever had.
func (w *world) cardsOf(node string) []string {
	cards := make([]string, len(w.api.everHad[node]))
	for i := range cards {
		cards[i] = fmt.Sprintf("GPU-%s-%d", node, i)
	}
	return cards
}

// opLabel changes a node in a way that means nothing.
func opLabel(w *world, s step) bool {
	node := w.api.node(s.who)
	if node == nil {
		return false
	}
	now := node.DeepCopy()
	metav1.SetMetaDataLabel(&now.ObjectMeta, "seen", formatVersion(w.api.version))
	w.api.put(kindNode, now)
	return true
}

// opStart starts a scheduler whose first view is n changes old.
func opStart(w *world, s step) bool {
	i := slices.Index(slotNames, s.who)
	if i < 0 || i >= len(w.slots) || w.slots[i] != nil || w.noElection && len(w.alive()) > 0 {
		return false
	}
	w.starts++
	p, err := startProcess(w.api, fmt.Sprintf("%s.%d", s.who, w.starts), !w.noElection, s.n)
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
	if !p.runs() || p.cut || w.noElection {
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

// opCycle lets a scheduler try one pod.
func opCycle(w *world, s step) bool {
	p := w.slot(s.who)
	if !p.runs() || !w.canTry(p) {
		return false
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
		again = s.what == "" && opCycle(w, s) || again
		w.settle()
		if !again || !p.runs() {
			break
		}
		some = true
	}
	return some
}

// request returns a request that waits and can be answered.
func (w *world) request(id string) *request {
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
