package scheduler

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/daybreak-gpu/daybreak/internal/quota"
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
	limits bool // the namespaces have quotas
	social bool // pods look at their neighbors
	moves  bool // nodes leave, join, are cordoned and tainted
	guests bool // another scheduler binds pods
	lists  bool // informers list again
	rests  bool // scheduling cycles pause
	churn  int  // how often pods come and go
	// quotas are those that there are.
	quotas []string
	// lost are the requests whose answers were lost, without their numbers.
	lost map[string]bool
}

// chance is true n times of a hundred.
func (d *drawer) chance(n int) bool { return d.IntN(100) < n }

func pick[T any](d *drawer, from []T) T { return from[d.IntN(len(from))] }

// history draws and plays the history of the seed.
func drawHistory(profiles []config.KubeSchedulerProfile, seed uint64) *world {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 20)), lost: map[string]bool{}}
	d.w = newWorld(profiles, 1+d.IntN(3))
	d.faulty, d.slow, d.deaths, d.pauses = d.chance(50), d.chance(60), d.chance(50), d.chance(30)
	d.cuts, d.agents, d.ranks, d.churn = d.chance(20), d.chance(40), d.chance(40), 2+d.IntN(12)
	d.hooks = !d.pauses && d.chance(10)
	d.limits, d.social, d.moves = d.chance(40), d.chance(35), d.chance(35)
	d.guests, d.lists, d.rests = d.chance(20) || d.social && d.chance(50), d.chance(20), d.chance(40)
	switch d.IntN(6) { // what comes about together only
	case 0:
		d.social, d.guests, d.rests = true, true, true
	case 1:
		d.limits, d.moves, d.faulty = true, true, true
	case 2, 3: // faults of schedulers and servers, which are rare where much else goes on
		d.limits, d.social, d.moves, d.guests, d.lists, d.rests = false, false, false, false, false, false
	}
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
	if d.chance(25) || (d.social || d.moves) && d.chance(60) {
		nodes = 2
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		cards := pick(d, []int{1, 1, 2, 2, 3})
		if d.chance(8) {
			d.w.do(step{op: "counted", who: name, n: cards})
		} else {
			d.w.do(step{op: "node", who: name, what: pick(d, []string{"", "", "small"}), n: cards})
		}
		if d.agents && d.chance(25) {
			d.w.do(step{op: "foreign", who: "f" + name, what: name})
		}
	}
	if d.limits {
		for d.quotas = nil; len(d.quotas) == 0; {
			for _, name := range quotaNames {
				if d.chance(35) || d.moves && modelQuotas[name].limit == quota.LimitVMemory {
					d.quotas = append(d.quotas, name)
				}
			}
		}
		for _, name := range d.quotas {
			d.quota(name)
		}
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
	what := pick(d, shapeNames)
	switch {
	case d.social && d.chance(15):
		// kube-scheduler picks one of equal nodes by chance, so one alone is asked for.
		what = bare + "," + pick(d, []string{"n0", "n0", "n1"})
	case d.moves && d.chance(10):
		what += "," + pick(d, []string{"n0", "n1"})
	}
	if d.social && d.chance(60) {
		what += "," + pick(d, neighborly)
	}
	if d.limits && d.chance(20) {
		what += ",batch"
	}
	if d.chance(8) {
		what += ",kept"
	}
	d.w.do(step{op: "pod", who: name, what: what, n: rank})
}

// guest is a pod that another scheduler binds.
func (d *drawer) guest() {
	what := pick(d, []string{bare, bare, "one"})
	if d.social {
		what = pick(d, []string{bare, bare, bare, "one"}) + "," + pick(d, []string{"of", "of", "of", "away"})
	}
	d.w.do(step{op: "intrude", who: fmt.Sprintf("g%d", d.IntN(6)), what: what, n: d.IntN(2)})
}

// quota sets the budget of a namespace.
func (d *drawer) quota(name string) {
	n := pick(d, []int{30, 60, 60, 100, 150, 200})
	if modelQuotas[name].limit == quota.LimitVMemory {
		n = pick(d, []int{32, 32, 48, 64, 100})
	}
	d.w.do(step{op: "quota", who: name, n: n})
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
	if len(d.w.slots) == 1 {
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
		add(d.w.canTry(p), 25, func() { d.cycle(name) })
		add(p.paused.Load(), 15, func() { d.w.do(step{op: "cycle", who: name}) })
		behind := d.w.behind(p)
		add(behind, 10, func() { d.watch(name) })
		add(behind, 6, func() { d.w.do(step{op: "flow", who: name, what: holdBindings}) })
		add(behind && d.slow, 8, func() { d.w.do(step{op: "flow", who: name, what: holdEvents}) })
		add(behind, 3, func() { d.w.do(step{op: "flow", who: name}) })
		add(behind && d.lists, 3, func() {
			d.w.do(step{op: "relist", who: name, what: pick(d, []string{kindPod, kindPod, kindNode, kindDevice, kindQuota})})
		})
		add(p.leads.Load(), disturb, func() { d.machine(name) })
		add(p.cut, 5, func() { d.machine(name) })
	}
	add(len(d.w.api.pending()) > 0, 25, d.request)
	add(len(d.w.api.late) > 0, 8, d.late)
	add(d.agents, 6, d.agent)
	add(d.hooks, 3, d.hook)
	add(d.limits, 4, func() { d.quota(pick(d, d.quotas)) })
	add(d.limits, 5, d.deadline)
	add(d.social, 4, d.relabel)
	add(d.moves, 7, d.node)
	add(d.guests, 4, d.guest)
	add(led, 4, func() { d.w.do(step{op: "wait", n: pick(d, []int{10, 200, 1000, 1000, 3000})}) })
	add(true, 3, func() { d.w.do(step{op: "peace"}) })
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

// cycle lets a scheduler try a pod, at times with a pause in which something happens
// that it hears of.
func (d *drawer) cycle(name string) {
	if !d.rests || d.chance(60) {
		d.w.do(step{op: "cycle", who: name})
		return
	}
	d.w.do(step{op: "cycle", who: name, what: pick(d, []string{pauseBefore, pauseAfter})})
	if d.chance(30) {
		return
	}
	d.news()
	d.w.do(step{op: "flow", who: name, what: holdBindings})
	d.w.do(step{op: "cycle", who: name})
}

// news is something that may help a pod, or get in its way.
func (d *drawer) news() {
	choices := []func(){d.change}
	for _, c := range []struct {
		possible bool
		do       func()
	}{{d.guests, d.guest}, {d.guests && d.social, d.guest}, {d.agents, d.agent}, {d.social, d.relabel}, {d.moves, d.node}, {d.limits, d.deadline}} {
		if c.possible {
			choices = append(choices, c.do)
		}
	}
	pick(d, choices)()
}

// relabel changes the label of a pod.
func (d *drawer) relabel() {
	if pods := d.w.api.names(kindPod); len(pods) > 0 {
		d.w.do(step{op: "relabel", who: pick(d, pods)})
	}
}

// deadline gives a pod a deadline.
func (d *drawer) deadline() {
	if pods := d.w.api.names(kindPod); len(pods) > 0 {
		d.w.do(step{op: "deadline", who: pick(d, pods)})
	}
}

// node lets a node come or go, or changes whether it takes pods.
func (d *drawer) node() {
	d.w.do(step{op: pick(d, []string{"leave", "join", "join", "cordon", "cordon", "taint"}), who: pick(d, []string{"n0", "n1"})})
}

// agent changes an inventory or a node.
func (d *drawer) agent() {
	nodes := d.w.api.names(kindNode)
	if len(nodes) == 0 {
		return
	}
	node := pick(d, nodes)
	if d.chance(15) {
		d.w.do(step{op: "label", who: node})
		return
	}
	if d.chance(25) && d.w.do(step{op: "cure", who: pick(d, []string{"f" + node, "f" + node, fmt.Sprintf("g%d", d.IntN(6))})}) {
		return
	}
	what := pick(d, []string{"turn", "swap", "swap", "sick", "well", "lose", "find", "find", "gone", "back", "back"})
	n := 0
	if slices.Contains([]string{"sick", "well", "lose", "find"}, what) {
		n = d.IntN(3)
	}
	d.w.do(step{op: "device", who: node, what: what, n: n})
}

// oldestView is how many changes old the first view of a scheduler is at most.
const oldestView = 3

// machine lets a scheduler come or go.
func (d *drawer) machine(name string) {
	p := d.w.slot(name)
	switch {
	case p == nil:
		behind := 0
		if d.slow {
			behind = d.IntN(oldestView + 1)
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
		ways = append(ways, "crash", "release", "release")
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
	case way == "release" && len(d.w.slots) == 1:
		d.follow(name)
	case way == "release":
		d.w.do(step{op: "wait", n: 3000})
	case d.chance(80):
		d.w.do(step{op: "wait", n: 18000})
	}
}

// follow starts a scheduler that leads at once, while what the one before it has sent is
// still under way and its own handlers hear of nothing yet.
func (d *drawer) follow(name string) {
	d.w.do(step{op: "start", who: name})
	if len(d.w.api.late) > 0 && d.chance(50) {
		d.late()
	}
	if !d.slow || d.chance(50) {
		return
	}
	for range 2 {
		d.w.do(step{op: "flow", who: name, what: holdEvents})
		d.w.do(step{op: "wait", n: 200})
	}
	d.w.do(step{op: "cycle", who: name})
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
	kind := path.Dir(r.id)
	if d.lost[kind] && d.chance(50) { // what is sent again finds another state of the server
		d.lost[kind] = false
		d.w.do(step{op: "fail", who: r.id, what: pick(d, []string{"403", "400", "422"})})
		if len(d.w.api.late) > 0 && d.chance(50) {
			d.late()
		}
		slot, _, _ := strings.Cut(r.id, ".")
		d.w.do(step{op: "cycle", who: slot})
		return
	}
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
		d.lost[kind] = d.w.do(step{op: "lose", who: r.id, what: pick(d, []string{"lost", "504"})})
		if d.chance(50) {
			d.w.do(step{op: "wait", n: 200})
		}
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
		d.w.do(step{op: "hear", who: name, what: kind, n: 1 + d.IntN(len(d.w.slot(name).informers.of(kind).handlers))})
	}
}
