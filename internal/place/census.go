package place

import (
	"cmp"
	"maps"
	mathbits "math/bits"
	"slices"
	"strings"
	"unique"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const (
	// maxClasses bounds what a Demand has: the classes that weigh most.
	maxClasses = 128
	// enoughPods is how many pods there must be before they say anything.
	enoughPods = 32
	// allShares is the weight of all pods together. A class is left out that has
	// less than leastShare of it, and the share of each is rounded down to
	// shareDigits binary digits: so what is expected changes rarely while pods come
	// and go, and each change has all nodes with room compared again.
	allShares, leastShare, shareDigits = int64(1 << 16), allShares >> 8, 2
)

// class is what pods of one kind ask of cards, in so far as it decides which
// cards they can use.
type class struct {
	cards     int
	whole     bool // asked for as whole cards
	exclusive bool // alone on each card
	compute   gpu.Percent
	memory    gpu.Memory
	qos       gpu.QoSSet // none: any will do
	podClass  gpu.Class
	cpu       gpu.MilliCPU
	models    string // joined; none: any will do
}

// Kind is what one container, or some that are alike, ask of cards: the unit that a
// [Census] counts in.
type Kind unique.Handle[class]

// KindsOf returns the kinds of a pod, one for each container that asks for cards. Init
// containers are soon gone: they say something only where they are the only ones.
func KindsOf(r *gpu.PodRequest) []Kind {
	asking := func(init bool) (n int) {
		for i := range r.Requests {
			if r.Requests[i].Cards > 0 && (r.Requests[i].Phase == gpu.Init) == init {
				n++
			}
		}
		return n
	}
	init := asking(false) == 0
	parts := asking(init)
	kinds := make([]Kind, 0, parts)
	for i := range r.Requests {
		if req := &r.Requests[i]; req.Cards > 0 && (req.Phase == gpu.Init) == init {
			kinds = append(kinds, Kind(unique.Make(classOf(r, req, parts))))
		}
	}
	return kinds
}

func classOf(r *gpu.PodRequest, req *gpu.Request, parts int) class {
	c := class{
		cards: req.Cards, whole: req.Whole, exclusive: req.Exclusive, compute: max(1, req.Compute), memory: req.Memory,
		podClass: r.Class, cpu: (r.CPU / gpu.MilliCPU(parts)).Coarse(2), models: strings.Join(r.Models, "|"),
	}
	if r.Class == gpu.Online {
		c.compute = 0 // online work is not metered
	} else if !req.Exclusive {
		c.qos = r.QoS.Set()
	}
	return c
}

// Census counts what pods there are, and so says what to expect of those to come. The
// same pods and cards give the same [Demand], in whatever order they came and whatever
// was there before. It is not safe for concurrent use.
type Census struct {
	pods int
	// weights has the cards that the pods of each kind ask for together, all is their
	// sum, and ranks has the kinds by the length of that number in bits: the heavy
	// ones are found without looking at the many that hardly count.
	weights map[Kind]int64
	all     int64
	ranks   [64]map[Kind]struct{}
	// supply has how many cards of each model there are, and cards their sum.
	supply map[string]int64
	cards  int64

	// demand is made of basis, and up to date unless changed is set.
	basis   []weighed
	demand  *Demand
	changed bool
}

// weighed is a class and its share of what all pods ask for.
type weighed struct {
	class
	share int64
}

// NewCensus returns a census of no pods.
func NewCensus() *Census {
	c := &Census{weights: map[Kind]int64{}}
	for i := range c.ranks {
		c.ranks[i] = map[Kind]struct{}{}
	}
	return c
}

// SetSupply sets how many cards of each model the cluster has, so that scarce
// models can be spared for the pods that can use no other. The map is not kept.
// Without it no model counts as scarce.
func (c *Census) SetSupply(cards map[string]int) {
	supply, all := make(map[string]int64, len(cards)), int64(0)
	for model, n := range cards {
		supply[model] = int64(n)
		all += int64(n)
	}
	if !maps.Equal(supply, c.supply) {
		c.supply, c.cards, c.basis, c.changed = supply, all, nil, true
	}
}

// Add counts so many pods of these kinds in, or out if they are less than none.
func (c *Census) Add(kinds []Kind, pods int) {
	if len(kinds) == 0 {
		return
	}
	c.pods += pods
	c.changed = true
	for _, k := range kinds {
		more := int64(pods) * int64(k.class().cards)
		before := c.weights[k]
		now := before + more
		c.all += more
		if now == 0 {
			delete(c.weights, k)
		} else {
			c.weights[k] = now
		}
		if was, is := mathbits.Len64(uint64(before)), mathbits.Len64(uint64(now)); was != is {
			delete(c.ranks[was], k)
			if is > 0 {
				c.ranks[is][k] = struct{}{}
			}
		}
	}
}

func (k Kind) class() class { return unique.Handle[class](k).Value() }

// Demand returns what is expected of the pods to come, or nil while there are too few.
// It is the same Demand for as long as the same is expected.
func (c *Census) Demand() *Demand {
	if !c.changed {
		return c.demand
	}
	c.changed = false
	if c.pods < enoughPods {
		c.basis, c.demand = nil, nil
	} else if basis := c.heaviest(); c.demand == nil || !slices.Equal(basis, c.basis) {
		c.basis, c.demand = basis, newDemand(basis, c.supply, c.cards)
	}
	return c.demand
}

// heaviest returns the classes that weigh most, with their shares.
func (c *Census) heaviest() (classes []weighed) {
	for rank := mathbits.Len64(uint64(c.all)); rank > 0 && allShares<<rank > leastShare*c.all; rank-- {
		for k := range c.ranks[rank] {
			if share := roundDown(c.weights[k] * allShares / c.all); share >= leastShare {
				classes = append(classes, weighed{k.class(), share})
			}
		}
	}
	slices.SortFunc(classes, func(a, b weighed) int { return cmp.Or(cmp.Compare(b.share, a.share), a.compare(&b.class)) })
	return classes[:min(len(classes), maxClasses)]
}

// roundDown rounds to a few binary digits.
func roundDown(share int64) int64 {
	shift := max(0, mathbits.Len64(uint64(share))-shareDigits)
	return share >> shift << shift
}

// compare orders classes.
func (c *class) compare(o *class) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(c.cards, o.cards), cmp.Compare(flag(c.whole), flag(o.whole)), cmp.Compare(flag(c.exclusive), flag(o.exclusive)),
		cmp.Compare(c.compute, o.compute), cmp.Compare(c.memory.Amount, o.memory.Amount), cmp.Compare(c.memory.Ratio, o.memory.Ratio),
		cmp.Compare(c.qos, o.qos), cmp.Compare(c.podClass, o.podClass), cmp.Compare(c.cpu, o.cpu), cmp.Compare(c.models, o.models),
	)
}

// pressureUnit is one in the fraction that says how hard pressed models are.
const pressureUnit = 1024

// newDemand makes a Demand of the classes and of the cards that there are.
func newDemand(basis []weighed, supply map[string]int64, cards int64) *Demand {
	b := &demandBuilder{Demand: &Demand{}}
	p := pricesOf(basis, supply, cards)
	for i := range basis {
		c := &basis[i]
		b.plain(c)
		if weight, ok := p.weight(c); ok {
			b.class(&c.class, weight)
		}
	}
	return b.build()
}

// prices says how scarce the cards are that some classes can run on and no others.
type prices struct {
	all  int64 // what all classes weigh by themselves
	sets map[string]modelSet
}

// modelSet is the classes that run on the same models and no others.
type modelSet struct {
	weight  int64 // by themselves
	compute int64 // what they ask for
	cards   int64 // that there are of these models
	price   int64
}

// pricesOf computes how scarce models are: the part of all demand that
// asks for them by name, against the part of all cards that they are. Where
// that is one, each of their cards that goes to a pod which could have run
// elsewhere will be missing, so together the classes that need them weigh as
// much as if CPU were missing; where it is less, the less.
func pricesOf(basis []weighed, supply map[string]int64, cards int64) prices {
	p := prices{sets: map[string]modelSet{}}
	var compute int64
	for i := range basis {
		c := &basis[i]
		p.all += c.share
		compute += c.share * int64(c.compute)
		if c.models != "" && cards > 0 {
			set := p.sets[c.models]
			set.weight += c.share
			set.compute += c.share * int64(c.compute)
			p.sets[c.models] = set
		}
	}
	for models, set := range p.sets {
		for m := range strings.SplitSeq(models, "|") {
			set.cards += supply[m]
		}
		if set.cards > 0 && compute > 0 {
			set.price = lostWeight * min(pressureUnit, pressureUnit*set.compute/compute*cards/set.cards)
		}
		p.sets[models] = set
	}
	return p
}

// weight returns what the class weighs. One that can run on no card that there
// is does not count.
func (p *prices) weight(c *weighed) (weight int64, ok bool) {
	set, limited := p.sets[c.models]
	if !limited {
		return c.share, true
	}
	return max(c.share, c.share*p.all/set.weight*set.price/pressureUnit), set.cards > 0
}
