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
	faulty bool // requests fail
	slow   bool // watches lag
	deaths bool // schedulers die
	pauses bool // schedulers are suspended
	cuts   bool // schedulers are cut off
	agents bool // inventories change
	hooks  bool // pods can't be touched
	ranks  bool // pods have priorities
	limits bool // the namespace has a quota
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
	d.faulty, d.slow, d.deaths, d.pauses = d.chance(50), d.chance(60), d.chance(50), d.chance(30)
	d.cuts, d.agents, d.ranks, d.churn = d.chance(20), d.chance(40), d.chance(40), 2+d.IntN(12)
	d.hooks = !d.pauses && d.chance(10)
	d.limits = d.chance(30)
	d.setUp()
	// A draw that can't be done is none, but there may be nothing to do.
	for size, tries := 40+d.IntN(80), 0; len(d.w.trace) < size && tries < 500 && d.w.problem == ""; tries++ {
		d.step()
	}
	d.w.finish()
	return d.w
}

// setUp draws the cluster at the beginning.
func (d *drawer) setUp() {
	nodes := 1
	if d.chance(25) {
		nodes = 2
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		cards := pick(d, []int{1, 1, 2, 2, 3})
		if d.chance(8) {
			d.w.do(step{op: "counted", who: name, n: cards})
		} else {
			d.w.do(step{op: "node", who: name, n: cards})
		}
		if d.agents && d.chance(25) {
			d.w.do(step{op: "foreign", who: "f" + name, what: name})
		}
	}
	if d.limits {
		d.quota()
	}
	for range 2 + d.IntN(4) {
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

// quota sets the budget of the namespace.
func (d *drawer) quota() {
	d.w.do(step{op: "quota", who: "q", n: pick(d, []int{60, 100, 150, 200, 200, 300})})
}

// choice is something that may be done next, and how often it is.
type choice struct {
	weight int
	do     func()
}

// step draws one step of those that can be done, or a few that belong together.
func (d *drawer) step() {
	choices := []choice{{d.churn, d.change}}
	add := func(possible bool, weight int, do func()) {
		if possible {
			choices = append(choices, choice{weight, do})
		}
	}
	led, wake, disturb := false, 4, 3
	if d.w.noElection {
		disturb = 6
	}
	if len(d.w.alive()) == 0 {
		wake = 40
	}
	for i, p := range d.w.slots {
		name := slotNames[i]
		if !p.runs() {
			add(true, wake, func() { d.machine(name) })
			continue
		}
		led = led || p.leads.Load()
		add(d.w.canTry(p), 25, func() { d.w.do(step{op: "cycle", who: name}) })
		behind := d.w.behind(p)
		add(behind, 10, func() { d.watch(name) })
		add(behind, 6, func() { d.w.do(step{op: "flow", who: name, what: holdBindings}) })
		add(behind && d.slow, 8, func() { d.w.do(step{op: "flow", who: name, what: holdEvents}) })
		add(behind, 3, func() { d.w.do(step{op: "flow", who: name}) })
		add(p.leads.Load(), disturb, func() { d.machine(name) })
		add(p.cut, 5, func() { d.machine(name) })
	}
	add(len(d.w.api.pending()) > 0, 25, d.request)
	add(len(d.w.api.late) > 0, 8, d.late)
	add(d.agents, 6, d.agent)
	add(d.hooks, 3, d.hook)
	add(d.limits, 4, d.quota)
	add(led, 4, func() { d.w.do(step{op: "wait", n: pick(d, []int{10, 200, 1000, 1000, 3000})}) })
	add(!led && len(d.w.alive()) > 0, 20, func() { d.w.do(step{op: "wait", n: 18000}) })
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	at := d.IntN(sum)
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			c.do()
			return
		}
	}
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

// machine lets a scheduler come or go.
func (d *drawer) machine(name string) {
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
	default:
		d.disturb(name)
	}
}

// disturb does something to a scheduler, and if that may cost it the lease, time
// passes.
func (d *drawer) disturb(name string) {
	var ways []string
	if d.deaths {
		ways = append(ways, "crash", "release")
	}
	if d.pauses {
		ways = append(ways, "suspend")
	}
	if d.cuts {
		ways = append(ways, "cut")
	}
	if len(ways) == 0 {
		return
	}
	way := pick(d, ways)
	led := d.w.slot(name).leads.Load()
	if !d.w.do(step{op: way, who: name}) || !led {
		return
	}
	switch {
	case d.w.noElection && way != "suspend":
		d.w.do(step{op: "start", who: name})
	case way == "release":
		d.w.do(step{op: "wait", n: 3000})
	case d.chance(80):
		d.w.do(step{op: "wait", n: 18000})
	}
}

func (d *drawer) hook() {
	if pods := d.w.api.names(kindPod); len(pods) > 0 {
		d.w.do(step{op: pick(d, []string{"block", "block", "unblock"}), who: pick(d, pods)})
	}
}

// late lets a request arrive whose client gave up.
func (d *drawer) late() { d.w.do(step{op: "late", who: pick(d, d.w.api.late).id}) }

// apiRequest lets one request go on.
func (d *drawer) request() {
	pending := d.w.api.pending()
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
func (d *drawer) watch(name string) {
	kind := pick(d, []string{kindPod, kindPod, kindNode, kindDevice, kindQuota})
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
