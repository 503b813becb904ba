package place

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// outlook is what a node's free cards are worth to the pods that are expected.
// It is computed once for what is booked on a node, and then only read.
type outlook struct {
	demand *Demand
	serves ledger.Serves
	// cpu is what is free of the node's, where it is known.
	cpu      gpu.MilliCPU
	cpuKnown bool

	topology *gpu.Topology
	// widest is how many cards the largest zone has. Jobs of more cards take
	// them from anywhere on the node.
	widest int
	idle   gpu.Set
	groups []group
	// possible is what the CPU could run as things are, and now the
	// fragmentation. They are not computed for a scratch copy.
	possible    mask
	now         int64
	precomputed bool
}

// group is cards of one zone that are all alike. Cards of which nothing is left
// are in none.
type group struct {
	cards, zone gpu.Set
	first       int // one of them
	remainder
	// weighed are the classes that can use the cards before the decision, and
	// useless is what Demand.useless returns for them; negative: not computed.
	// Most decisions leave both as they are.
	weighed mask
	useless int64
	// without is what is useless, and free what is left, when one of the cards
	// is gone and the CPU can run what it can run now.
	without, free int64
}

// remainder is what is left of a card: what it is worth, and the classes that
// could use it, but for what depends on the whole node.
type remainder struct {
	value  int64
	usable mask
	// The card's free compute, memory and slots, and its total memory.
	compute       gpu.Percent
	memory, total gpu.MiB
	slots         int64
}

// outlookOf returns the outlook of the node with what is booked on it now.
func outlookOf(d *Demand, n *ledger.Node) *outlook {
	if o, ok := n.Remembered().(*outlook); ok && o.demand == d && o.cpuKnown == n.CPUKnown && o.cpu == n.FreeCPU && o.serves == n.Serves {
		return o
	}
	o := &outlook{groups: make([]group, 0, min(4, n.Topology().Len()))}
	o.load(d, n, n.Now().Usage)
	o.precompute()
	n.Remember(o)
	return o
}

// precompute computes what most decisions need.
func (o *outlook) precompute() {
	o.possible = o.running(o.cpu)
	for i := range o.groups {
		g := &o.groups[i]
		g.weighed = o.users(g, o.possible, o.idle)
		g.useless = o.demand.useless(&g.remainder, g.weighed)
	}
	for i := range o.groups {
		g := &o.groups[i]
		g.without, g.free = o.useless(o.possible, gpu.SetOf(g.first))
	}
	o.now = o.fragmentation(o.cpu, o.possible, 0, nil)
	o.precomputed = true
}

// open looks at the node with its cards in the given state.
func (o *outlook) load(d *Demand, n *ledger.Node, usage []ledger.Usage) {
	t := n.Topology()
	o.demand, o.serves, o.cpu, o.cpuKnown, o.topology = d, n.Serves, n.FreeCPU, n.CPUKnown, t
	healthy := t.Healthy()
	o.widest = healthy.Len()
	if len(t.Zones()) > 0 {
		o.widest = 1
		for _, zone := range t.Zones() {
			o.widest = max(o.widest, (zone & healthy).Len())
		}
	}
	o.idle, o.groups = 0, o.groups[:0]
	for left := healthy; left != 0; left &= left - 1 {
		c := left.First()
		if usage[c].Idle() {
			o.idle |= gpu.SetOf(c)
		}
		if usage[c].Exclusive {
			continue
		}
		if g := o.like(c, usage); g != nil {
			g.cards |= gpu.SetOf(c)
			continue
		}
		if p := o.remainder(c, &usage[c]); p.value > 0 {
			o.groups = append(o.groups, group{cards: gpu.SetOf(c), zone: o.zoneOf(c), first: c, remainder: p, useless: -1})
		}
	}
}

// like returns the group that card c belongs to, if there is one.
func (o *outlook) like(c int, usage []ledger.Usage) *group {
	for i := range o.groups {
		g := &o.groups[i]
		if g.zone.Has(c) && usage[c] == usage[g.first] && gpu.SameKind(o.topology.Card(c), o.topology.Card(g.first)) {
			return g
		}
	}
	return nil
}

// remainder returns what is left of card c in the given state.
func (o *outlook) remainder(c int, u *ledger.Usage) remainder {
	if u.Exclusive {
		return remainder{}
	}
	card, d := o.topology.Card(c), o.demand
	compute, memory := max(0, gpu.FullCompute-u.Compute), max(0, card.Memory-u.Memory)
	p := remainder{
		value:   valueOf(compute, memory, card.Memory),
		compute: compute, memory: memory, total: card.Memory, slots: int64(card.Slots) - int64(u.Slots),
	}
	if int(u.Slots) >= card.Slots || p.value == 0 {
		return p
	}
	p.usable = d.served(o.serves).and(d.compute[compute]).and(d.fitsMemory(memory, card.Memory))
	if len(d.models) > 0 {
		p.usable = p.usable.and(d.runsOn(card.Model))
	}
	if !u.Idle() {
		p.usable = p.usable.and(d.joinable[occupants(u)][u.QoS&7])
	}
	return p
}

// running returns the classes that so much CPU could run.
func (o *outlook) running(cpu gpu.MilliCPU) mask {
	if !o.cpuKnown {
		return mask{^uint64(0), ^uint64(0)}
	}
	return o.demand.fitsCPU(cpu)
}

// fragmentation adds up what is free on the node and of no use: for every class,
// the value of the cards that it can't use, or of the rest that its slices leave,
// with the class's weight. The less the better. Possible is what the CPU could
// run. The taken cards are left out, and what would be left of them is added.
func (o *outlook) fragmentation(cpu gpu.MilliCPU, possible mask, taken gpu.Set, replacement []remainder) int64 {
	if len(o.demand.several) > 0 {
		possible = possible.without(o.tooFew(possible, taken, replacement))
	}
	sum, free := o.useless(possible, taken)
	return o.complete(sum, free, cpu, possible, replacement)
}

// withoutOne is the same for one card of a group.
func (o *outlook) withoutOne(g *group, cpu gpu.MilliCPU, possible mask, replacement []remainder) int64 {
	if !o.precomputed || possible != o.possible || len(o.demand.several) > 0 {
		return o.fragmentation(cpu, possible, gpu.SetOf(g.first), replacement)
	}
	return o.complete(g.without, g.free, cpu, possible, replacement)
}

// useless adds up what is useless of the cards that are not taken, and what is
// free of them. Idle cards that are linked are worth something by themselves.
func (o *outlook) useless(possible mask, taken gpu.Set) (sum, free int64) {
	d, idle := o.demand, o.idle&^taken
	for i := range o.groups {
		g := &o.groups[i]
		n := int64((g.cards &^ taken).Len())
		if n == 0 {
			continue
		}
		useless := g.useless
		if m := o.users(g, possible, idle); m != g.weighed || useless < 0 {
			useless = d.useless(&g.remainder, m)
		}
		free += n * g.value
		sum += n * useless
	}
	for _, zone := range o.topology.Zones() {
		n := int64((zone & idle).Len())
		sum -= d.pair * n * (n - 1) / 2
	}
	return sum, free
}

// complete adds what is left of the cards taken, and what the CPU can't feed of
// it all.
func (o *outlook) complete(sum, free int64, cpu gpu.MilliCPU, possible mask, replacement []remainder) int64 {
	d := o.demand
	for i := range replacement {
		p := &replacement[i]
		free += p.value
		sum += d.useless(p, p.usable.and(possible))
	}
	if o.cpuKnown && d.rate > 0 {
		sum += d.stranded * starved(free, cpu, d.rate)
	}
	return sum
}

// users returns the classes that can use a card of the group.
func (o *outlook) users(g *group, possible mask, idle gpu.Set) mask {
	m := g.usable.and(possible)
	if idle&g.cards != 0 {
		m = m.and(o.alone(g.zone, idle))
	}
	return m
}

// starved returns the part of the free value that the CPU can't feed.
func starved(free int64, cpu gpu.MilliCPU, rate int64) int64 {
	if int64(cpu) >= free<<rateBits/rate {
		return 0
	}
	return free - int64(cpu)*rate>>rateBits
}

// zoneOf returns the cards that a job on card c would stay among: its zone, or
// on a node without links all cards.
func (o *outlook) zoneOf(c int) gpu.Set {
	if len(o.topology.Zones()) == 0 {
		return o.topology.Healthy()
	}
	if z, ok := o.topology.ZoneOf(c); ok {
		return o.topology.Zones()[z-1]
	}
	return gpu.SetOf(c)
}

// alone returns the classes that could use an idle card of the zone: slices, and
// those that are alone on as many cards as are idle there, or, being larger than
// any zone, as are idle on the node.
func (o *outlook) alone(zone, idle gpu.Set) mask {
	d := o.demand
	narrow := d.upTo[o.widest]
	return d.upTo[(zone & idle).Len()].and(narrow).or(d.upTo[idle.Len()].without(narrow)).or(d.slices)
}

// tooFew returns the classes of slices on several cards that the node has too
// few cards for.
func (o *outlook) tooFew(possible mask, taken gpu.Set, replacement []remainder) mask {
	var none mask
	for _, s := range o.demand.several {
		found := 0
		for i := range o.groups {
			if g := &o.groups[i]; g.usable.has(s.class) {
				found += (g.cards &^ taken).Len()
			}
		}
		for i := range replacement {
			if replacement[i].usable.has(s.class) {
				found++
			}
		}
		if found < s.cards || !possible.has(s.class) {
			add(&none, s.class)
		}
	}
	return none
}
