package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// drawer draws the steps of one history from its seed. Each history is disturbed
// in some ways only, so that what takes several steps of one kind comes about.
type drawer struct {
	*rand.Rand
	w      *world
	pods   int
	faulty bool // requests fail
	slow   bool // watches lag
	deaths bool // schedulers die
	pauses bool // schedulers are suspended
	cuts   bool // schedulers are cut off
	agents bool // inventories change
	hooks  bool // pods can't be touched
	ranks  bool // pods have priorities
	churn  int  // how often pods come and go
}

// chance is true n times of a hundred.
func (d *drawer) chance(n int) bool { return d.IntN(100) < n }

func pick[T any](d *drawer, from []T) T { return from[d.IntN(len(from))] }

// history draws and plays the history of the seed.
func drawHistory(seed uint64) *world {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 20))}
	slots := 1 + d.IntN(3)
	d.w = newWorld(slots)
	if slots == 1 {
		d.w.noElection = d.chance(70)
	}
	d.faulty, d.slow, d.deaths, d.pauses = d.chance(60), d.chance(60), d.chance(50), d.chance(30)
	d.cuts, d.agents, d.ranks, d.churn = d.chance(20), d.chance(40), d.chance(40), 2+d.IntN(12)
	d.hooks = !d.pauses && d.chance(10)
	d.setUp()
	for range 40 + d.IntN(60) {
		d.step()
	}
	d.w.finish()
	return d.w
}

// setUp draws the cluster at the beginning.
func (d *drawer) setUp() {
	for i := range 1 + d.IntN(2) {
		name := fmt.Sprintf("n%d", i)
		if d.chance(10) {
			d.w.do(step{op: "counted", who: name, n: 1 + d.IntN(3)})
		} else {
			d.w.do(step{op: "node", who: name, n: 1 + d.IntN(3)})
		}
		if d.agents && d.chance(30) {
			d.w.do(step{op: "foreign", who: "f" + name, what: name})
		}
	}
	for range 1 + d.IntN(4) {
		d.pod()
	}
	for _, name := range slotNames[:len(d.w.slots)] {
		d.w.do(step{op: "start", who: name})
	}
}

// pod creates a pod, at times one of a name that was there before.
func (d *drawer) pod() {
	name := fmt.Sprintf("p%d", d.IntN(6))
	rank := 0
	if d.ranks {
		rank = 10 * d.IntN(3)
	}
	d.w.do(step{op: "pod", who: name, what: pick(d, shapeNames), n: rank})
}

// step draws one step.
func (d *drawer) step() {
	switch n := d.IntN(100); {
	case n < 20:
		d.w.do(step{op: "flow", who: d.slot()})
	case n < 30:
		d.wait()
	case n < 30+d.churn:
		d.change()
	case n < 46 && d.agents && d.chance(40):
		d.agent()
	case n < 50 && d.chance(40):
		d.machine()
	case n < 70:
		d.request()
	case n < 85:
		d.watch()
	default:
		d.w.do(step{op: "cycle", who: d.slot()})
	}
}

// slot picks a scheduler that does something, if one does.
func (d *drawer) slot() string {
	if alive := d.w.alive(); len(alive) > 0 {
		return pick(d, alive)
	}
	return slotNames[0]
}

func (d *drawer) wait() {
	d.w.do(step{op: "wait", n: pick(d, []int{10, 200, 1000, 3000, 16000})})
}

// change lets pods come and go.
func (d *drawer) change() {
	pods := d.w.api.names(kindPod)
	if len(pods) == 0 || d.chance(45) {
		d.pod()
		return
	}
	name := pick(d, pods)
	switch d.IntN(6) {
	case 0:
		d.w.do(step{op: "complete", who: name})
	case 1:
		d.w.do(step{op: "annotate", who: name, what: pick(d, []string{"binpack", "spread"})})
	case 2, 3:
		d.w.do(step{op: "delete", who: name})
	default:
		for _, name := range pods {
			if d.w.do(step{op: "remove", who: name}) {
				return
			}
		}
	}
}

// agent changes an inventory or a node.
func (d *drawer) agent() {
	node := pick(d, d.w.api.names(kindNode))
	if d.chance(15) {
		d.w.do(step{op: "label", who: node})
		return
	}
	if d.chance(25) && d.w.do(step{op: "cure", who: "f" + node}) {
		return
	}
	what := pick(d, []string{"turn", "swap", "swap", "sick", "well", "lose", "find", "find", "gone", "back", "back"})
	n := 0
	if slices.Contains([]string{"sick", "well", "lose", "find"}, what) {
		n = d.IntN(3)
	}
	d.w.do(step{op: "device", who: node, what: what, n: n})
}

// machine lets schedulers come and go.
func (d *drawer) machine() {
	name := pick(d, slotNames[:len(d.w.slots)])
	p := d.w.slot(name)
	switch {
	case p == nil:
		behind := 0
		if d.slow {
			behind = d.IntN(4)
		}
		d.w.do(step{op: "start", who: name, n: behind})
	case p.clock.isSuspended():
		d.w.do(step{op: "resume", who: name})
	case p.cut:
		d.w.do(step{op: "heal", who: name})
	case d.deaths && d.chance(40):
		d.w.do(step{op: pick(d, []string{"crash", "release"}), who: name})
	case d.pauses && d.chance(50):
		d.w.do(step{op: "suspend", who: name})
	case d.cuts && d.chance(50):
		d.w.do(step{op: "cut", who: name})
	case d.hooks:
		d.hook()
	}
}

func (d *drawer) hook() {
	if pods := d.w.api.names(kindPod); len(pods) > 0 {
		d.w.do(step{op: pick(d, []string{"block", "block", "unblock"}), who: pick(d, pods)})
	}
}

// request lets one request go on.
func (d *drawer) request() {
	if late := d.w.api.late; len(late) > 0 && d.chance(30) {
		d.w.do(step{op: "late", who: pick(d, late).id})
		return
	}
	pending := d.w.api.pending()
	if len(pending) == 0 {
		d.w.do(step{op: "flow", who: d.slot()})
		return
	}
	r := pick(d, pending)
	if !d.faulty || d.chance(50) {
		d.w.do(step{op: "ok", who: r.id})
		return
	}
	codes := []string{"401", "403", "400", "422", "409", "429", "500", "503", "504", "lost"}
	if r.verb == verbStatus || r.verb == verbDelete {
		codes = []string{"403", "400", "429", "lost"}
	}
	switch d.IntN(4) {
	case 0:
		d.w.do(step{op: "execute", who: r.id})
	case 1, 2:
		d.w.do(step{op: "lose", who: r.id, what: pick(d, []string{"lost", "504"})})
	default:
		d.w.do(step{op: "fail", who: r.id, what: pick(d, codes)})
	}
}

// watch lets a scheduler see something.
func (d *drawer) watch() {
	name, kind := d.slot(), pick(d, []string{kindPod, kindPod, kindNode, kindDevice})
	if !d.slow {
		d.w.do(step{op: "watch", who: name, what: kind, n: 100})
		for d.w.do(step{op: "hear", who: name, what: kind}) {
		}
		return
	}
	switch d.IntN(3) {
	case 0:
		d.w.do(step{op: "watch", who: name, what: kind, n: 1 + d.IntN(3)})
	case 1:
		d.w.do(step{op: "hear", who: name, what: kind})
	default:
		d.w.do(step{op: "hear", who: name, what: kind, n: 1 + d.IntN(3)})
	}
}
