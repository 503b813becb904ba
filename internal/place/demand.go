package place

import (
	"cmp"
	mathbits "math/bits"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

const (
	// valueUnit is what all of a card's compute, or all of its memory, is worth
	// while it is free; an idle card is worth two.
	valueUnit = 10_000
	idleValue = 2 * valueUnit

	// lostWeight is how many times more a card counts that no pod can use,
	// because the node's CPU is used up or because its model is needed by others,
	// than one that is of the wrong size for the pods to come.
	lostWeight = 4
	// thriftNumerator/thriftDenominator of the mean CPU that pods take for a
	// card is what a card is taken to need: a node is not written off while the
	// more modest half could still use it.
	thriftNumerator, thriftDenominator = 4, 5
	// rateBits is the precision of the value that a thousandth of a core feeds.
	rateBits = 12

	// pairPart: a linked pair of idle cards is worth this part of an idle card,
	// to the jobs of several cards.
	pairPart = 4
)

// mask is a set of classes.
type mask [maxClasses / 64]uint64

// add puts class i into the set.
func add(m *mask, i int) { m[i/64] |= 1 << (i % 64) }

func (m mask) and(o mask) mask { return mask{m[0] & o[0], m[1] & o[1]} }

func (m mask) or(o mask) mask { return mask{m[0] | o[0], m[1] | o[1]} }

func (m mask) without(o mask) mask { return mask{m[0] &^ o[0], m[1] &^ o[1]} }

func (m mask) has(i int) bool { return m[i/64]>>(i%64)&1 == 1 }

// Demand is what is expected of the pods to come: which classes, and how much
// each counts. It is made by a [Census], never changes, and is laid out so
// that the classes that could use a card are found with a few table lookups.
type Demand struct {
	// weights has, by byte of a mask and its value, what the classes in it
	// weigh; total is what all weigh.
	weights [maxClasses / 8][256]int64
	total   int64

	// The classes that ...
	compute  [gpu.FullCompute + 1]mask // ... do with so much free compute
	ratio    [gpu.FullCompute + 1]mask // ... ask for at most this part of memory, or for an amount
	amounts  []bound[gpu.MiB]          // ... ask for at most this amount, or for a part; ascending
	cpus     []bound[gpu.MilliCPU]     // ... take at most this much CPU; ascending
	joinable [occupantKinds][8]mask    // ... may join such pods with slices of these QoS classes
	upTo     [gpu.MaxCards + 1]mask    // ... are alone on at most so many cards
	slices   mask                      // ... are not alone on their cards
	whole    mask                      // ... ask for whole cards as such
	anyModel mask                      // ... run on every model
	models   []modelMask               // ... run on this model
	several  []severalCards            // ... ask for slices of several cards
	sizes    []size                    // what each class requests of a card, and weighs

	// stranded is what a unit of value weighs that CPU can't feed, and rate the
	// value that a thousandth of a core feeds; 0: pods take no CPU.
	stranded, rate int64
	// pair is what a linked pair of idle cards weighs.
	pair int64
}

// bound is the classes that ask for at most the limit.
type bound[T cmp.Ordered] struct {
	limit T
	mask
}

// bounds returns the classes within each limit that a class has, in ascending
// order.
func bounds[T cmp.Ordered](classes []class, limit func(*class) T) []bound[T] {
	var limits []T
	for i := range classes {
		limits = append(limits, limit(&classes[i]))
	}
	var out []bound[T]
	for _, at := range sorted(limits) {
		b := bound[T]{limit: at}
		for i := range classes {
			if limit(&classes[i]) <= at {
				add(&b.mask, i)
			}
		}
		out = append(out, b)
	}
	return out
}

// within returns the classes that ask for at most so much.
func within[T cmp.Ordered](bounds []bound[T], free T) mask {
	low, high := 0, len(bounds)
	for low < high {
		if mid := (low + high) / 2; bounds[mid].limit <= free {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return mask{}
	}
	return bounds[low-1].mask
}

type modelMask struct {
	model string
	mask
}

// size is what a class requests of a card, and what the class weighs.
type size struct {
	compute gpu.Percent
	memory  gpu.Memory
	weight  int64
}

// severalCards is a class of slices on several cards.
type severalCards struct{ class, cards int }

// weight returns what the classes of m weigh.
func (d *Demand) weight(m mask) int64 {
	var w int64
	for word := range m {
		for b, bits := word*8, m[word]; bits != 0; b, bits = b+1, bits>>8 {
			w += d.weights[b&(maxClasses/8-1)][bits&0xff]
		}
	}
	return w
}

// useless returns the weighted value of a card's free part that the expected pods
// cannot use. Users are the classes that can use the card. To all others the whole
// free part is useless, and to slices the rest that remains after as many as fit.
func (d *Demand) useless(p *remainder, users mask) int64 {
	sum := p.value * (d.total - d.weight(users))
	for word, bits := range users.and(d.slices) {
		for ; bits != 0; bits &= bits - 1 {
			s := &d.sizes[word*64+mathbits.TrailingZeros64(bits)]
			n, memory := p.slots, s.memory.Of(p.total)
			if s.compute > 0 {
				n = min(n, int64(p.compute/s.compute))
			}
			if memory > 0 {
				n = min(n, int64(p.memory/memory))
			}
			sum += s.weight * valueOf(p.compute-gpu.Percent(n)*s.compute, p.memory-gpu.MiB(n)*memory, p.total)
		}
	}
	return sum
}

// valueOf returns the value of this much compute and memory of a card.
func valueOf(compute gpu.Percent, memory, total gpu.MiB) int64 {
	return int64(compute)*(valueUnit/100) + int64(memory)*valueUnit/int64(total)
}

// fitsCPU returns the classes that a node with so much free CPU can run.
func (d *Demand) fitsCPU(cpu gpu.MilliCPU) mask { return within(d.cpus, cpu) }

// fitsMemory returns the classes that fit into the free memory of a card.
func (d *Demand) fitsMemory(free, total gpu.MiB) mask {
	if total <= 0 || free < 0 {
		return mask{}
	}
	// A part of the memory is rounded down, so a little more than what is free
	// may still fit.
	part := gpu.Percent(free * 100 / total)
	for part < 100 && (gpu.Memory{Ratio: part + 1}).Of(total) <= free {
		part++
	}
	return d.ratio[min(part, 100)].and(within(d.amounts, free))
}

// served returns the classes of the kinds that the node serves.
func (d *Demand) served(s ledger.Serves) mask {
	var m mask
	if s.Whole {
		m = m.or(d.whole)
	}
	if s.Slices {
		m = m.or(d.upTo[gpu.MaxCards].or(d.slices).without(d.whole))
	}
	return m
}

// runsOn returns the classes that run on the model.
func (d *Demand) runsOn(model string) mask {
	for i := range d.models {
		if d.models[i].model == model {
			return d.models[i].mask.or(d.anyModel)
		}
	}
	return d.anyModel
}

// demandBuilder puts a Demand together.
type demandBuilder struct {
	*Demand
	classes []class
	weight  []int64
	// cpu and value are what all pods together take, and count what they weigh
	// before scarce models are weighed up.
	cpu, value, count int64
}

// plain counts what the pods of a class take of CPU and cards.
func (b *demandBuilder) plain(c *weighed) {
	b.count += c.share
	b.cpu += c.share * int64(c.cpu) / int64(c.cards)
	memory := int64(c.memory.Of(referenceMemory)) * valueUnit / int64(referenceMemory)
	b.value += c.share * (int64(c.compute)*(valueUnit/100) + min(memory, valueUnit))
}

func (b *demandBuilder) class(c *class, weight int64) {
	b.classes = append(b.classes, *c)
	b.weight = append(b.weight, weight)
}

func (b *demandBuilder) build() *Demand {
	d := b.Demand
	d.stranded = lostWeight * b.count
	if b.cpu > 0 {
		d.rate = (b.value << rateBits) / (b.cpu * thriftNumerator / thriftDenominator)
	}
	b.fillWeights()
	b.fillSizes()
	b.fillJoinable()
	b.fillModels()
	return d
}

// fillWeights fills the table of weights.
func (b *demandBuilder) fillWeights() {
	d := b.Demand
	var joint int64
	for i := range b.classes {
		w := b.weight[i]
		d.total += w
		if b.classes[i].exclusive && b.classes[i].cards > 1 {
			joint += w
		}
		for value := range 256 {
			if value>>(i%8)&1 == 1 {
				d.weights[i/8][value] += w
			}
		}
	}
	d.pair = joint * idleValue / pairPart
}

// fillSizes fills the tables of compute, memory, CPU and numbers of cards.
func (b *demandBuilder) fillSizes() {
	d := b.Demand
	for i := range b.classes {
		c := &b.classes[i]
		for free := c.compute; free <= gpu.FullCompute; free++ {
			add(&d.compute[free], i)
		}
		for part := c.memory.Ratio; part <= gpu.FullCompute; part++ {
			add(&d.ratio[part], i)
		}
		d.sizes = append(d.sizes, size{c.compute, c.memory, b.weight[i]})
		if !c.exclusive {
			add(&d.slices, i)
			if c.cards > 1 {
				d.several = append(d.several, severalCards{class: i, cards: c.cards})
			}
			continue
		}
		for n := min(c.cards, gpu.MaxCards); n <= gpu.MaxCards; n++ {
			add(&d.upTo[n], i)
		}
	}
	d.amounts = bounds(b.classes, (*class).amount)
	d.cpus = bounds(b.classes, func(c *class) gpu.MilliCPU { return c.cpu })
}

// amount is the memory that the class asks for as such.
func (c *class) amount() gpu.MiB {
	if c.memory.Ratio > 0 {
		return 0
	}
	return c.memory.Amount
}

func sorted[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// The pods on a card in use, for joinable.
const (
	withoutClass = iota
	onlyOffline
	someOnline
	occupantKinds
)

// occupants returns which pods are on a card in use.
func occupants(u *ledger.Usage) int {
	switch {
	case u.Online > 0:
		return someOnline
	case u.Offline > 0:
		return onlyOffline
	default:
		return withoutClass
	}
}

// fillJoinable fills the table of classes that may join the pods on a card.
func (b *demandBuilder) fillJoinable() {
	for _, there := range []ledger.Usage{{Slots: 1}, {Slots: 1, Offline: 1}, {Slots: 1, Online: 1}} {
		for qos := range b.joinable[occupants(&there)] {
			there.QoS = gpu.QoSSet(qos)
			for i := range b.classes {
				share := b.classes[i].share()
				if there.Conflict(&share) == 0 {
					add(&b.joinable[occupants(&there)][qos], i)
				}
			}
		}
	}
}

// share is a share of the class, but for its amounts.
func (c *class) share() ledger.Usage {
	var u ledger.Usage
	u.Add(ledger.Share{Exclusive: c.exclusive}, c.podClass, c.qos.Only())
	return u
}

// fillModels fills the tables of kinds of nodes and of models.
func (b *demandBuilder) fillModels() {
	d := b.Demand
	known := map[string]int{}
	for i := range b.classes {
		c := &b.classes[i]
		if c.whole {
			add(&d.whole, i)
		}
		if c.models == "" {
			add(&d.anyModel, i)
			continue
		}
		for model := range strings.SplitSeq(c.models, "|") {
			at, ok := known[model]
			if !ok {
				at = len(d.models)
				known[model] = at
				d.models = append(d.models, modelMask{model: model})
			}
			add(&d.models[at].mask, i)
		}
	}
}
