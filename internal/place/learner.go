package place

import (
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const (
	// maxClasses bounds what a Learner remembers. When a class more comes, the
	// rarest is forgotten for it.
	maxClasses = 128
	// fadeAfter is the number of pods after which all that was seen counts half.
	fadeAfter = 4096
	// enoughPods is how many pods must have come before they say anything.
	enoughPods = 32
	// refreshPart: the basis of the Demand is renewed when this part of all pods
	// is new.
	refreshPart = 16
	// onePod is what one pod counts: rare classes outlive a few fadings.
	onePod = 16
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

// Learner counts which kinds of pods come, and forgets them slowly. What it has
// seen depends on the order of pods alone, not on time nor on when it is asked:
// the same pods and cards give the same [Demand]. It is not safe for concurrent
// use.
type Learner struct {
	classes []seen
	index   map[class]int
	// basis is what the Demand is made of: the classes as they were some pods
	// ago. It is nil while too few pods have come.
	basis []seen
	// pods is how many are remembered, and fresh how many of them came after
	// the basis was taken.
	pods, fresh int
	supply      map[string]int64
	all         int64
	demand      *Demand
}

// seen is how often a class came.
type seen struct {
	class
	count int64
}

// NewLearner returns a learner that has seen nothing.
func NewLearner() *Learner { return &Learner{index: map[class]int{}} }

// SetSupply sets how many cards of each model the cluster has, so that scarce
// models can be spared for the pods that can use no other. The map is not kept.
// Without it no model counts as scarce.
func (l *Learner) SetSupply(cards map[string]int) {
	supply, all := make(map[string]int64, len(cards)), int64(0)
	for model, n := range cards {
		supply[model] = int64(n)
		all += int64(n)
	}
	if !maps.Equal(supply, l.supply) {
		l.supply, l.all, l.demand = supply, all, nil
	}
}

// Observe counts a pod that has come. Each pod should be counted once, when it
// is first seen.
func (l *Learner) Observe(r *gpu.PodRequest) {
	asking := func(init bool) (n int) {
		for i := range r.Requests {
			if r.Requests[i].Cards > 0 && (r.Requests[i].Phase == gpu.Init) == init {
				n++
			}
		}
		return n
	}
	// Init containers are soon gone: they say something only where they are
	// the only ones.
	init := asking(false) == 0
	parts := asking(init)
	if parts == 0 {
		return
	}
	for i := range r.Requests {
		if req := &r.Requests[i]; req.Cards > 0 && (req.Phase == gpu.Init) == init {
			l.count(classOf(r, req, parts))
		}
	}
	l.pods++
	l.fresh++
	if l.pods >= fadeAfter {
		l.fade()
	}
	if l.fresh*refreshPart >= l.pods {
		l.renew()
	}
}

// renew takes what was seen as the basis of the Demand, if it is enough.
func (l *Learner) renew() {
	if l.pods >= enoughPods {
		l.basis, l.fresh, l.demand = slices.Clone(l.classes), 0, nil
	}
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

func (l *Learner) count(c class) {
	i, ok := l.index[c]
	switch {
	case ok:
	case len(l.classes) < maxClasses:
		i = len(l.classes)
		l.classes = append(l.classes, seen{class: c})
		l.index[c] = i
	default:
		for k := range l.classes {
			if l.classes[k].count < l.classes[i].count {
				i = k
			}
		}
		delete(l.index, l.classes[i].class)
		l.classes[i] = seen{class: c}
		l.index[c] = i
	}
	l.classes[i].count += onePod
}

// fade halves what was seen, so that what comes now counts for more than what
// came long ago.
func (l *Learner) fade() {
	l.pods /= 2
	l.fresh /= 2
	for i := range l.classes {
		l.classes[i].count /= 2
	}
	l.classes = slices.DeleteFunc(l.classes, func(s seen) bool { return s.count == 0 })
	clear(l.index)
	for i := range l.classes {
		l.index[l.classes[i].class] = i
	}
}

// Demand returns what is expected of the pods to come, or nil while too few
// have come. The same Demand is returned until what was learned has
// changed by a good part; it never changes and may be shared.
func (l *Learner) Demand() *Demand {
	if l.basis != nil && l.demand == nil {
		l.demand = l.sum()
	}
	return l.demand
}

// Latest returns what is expected with every pod counted, for a summary of the
// pods that are there. A scheduler goes by [Learner.Demand].
func (l *Learner) Latest() *Demand {
	all := *l
	all.renew()
	return all.Demand()
}

// pressureUnit is one in the fraction that says how hard pressed models are.
const pressureUnit = 1024

// sum makes a Demand of the basis.
func (l *Learner) sum() *Demand {
	b := &demandBuilder{Demand: &Demand{}}
	p := l.prices()
	for i := range l.basis {
		s := &l.basis[i]
		b.plain(s)
		if weight, ok := p.weight(s); ok {
			b.class(s, weight)
		}
	}
	return b.build()
}

// plain is what a class weighs by itself: its pods and the cards of each.
func (s *seen) plain() int64 { return s.count * int64(s.cards) }

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

// prices computes how scarce models are: the part of all demand that
// asks for them by name, against the part of all cards that they are. Where
// that is one, each of their cards that goes to a pod which could have run
// elsewhere will be missing, so together the classes that need them weigh as
// much as if CPU were missing; where it is less, the less.
func (l *Learner) prices() prices {
	p := prices{sets: map[string]modelSet{}}
	var compute int64
	for i := range l.basis {
		s := &l.basis[i]
		p.all += s.plain()
		compute += s.plain() * int64(s.compute)
		if s.models != "" && l.all > 0 {
			set := p.sets[s.models]
			set.weight += s.plain()
			set.compute += s.plain() * int64(s.compute)
			p.sets[s.models] = set
		}
	}
	for models, set := range p.sets {
		for m := range strings.SplitSeq(models, "|") {
			set.cards += l.supply[m]
		}
		if set.cards > 0 && compute > 0 {
			set.price = lostWeight * min(pressureUnit, pressureUnit*set.compute/compute*l.all/set.cards)
		}
		p.sets[models] = set
	}
	return p
}

// weight returns what the class weighs. One that can run on no card that there
// is does not count.
func (p *prices) weight(s *seen) (weight int64, ok bool) {
	set, limited := p.sets[s.models]
	if !limited {
		return s.plain(), true
	}
	return max(s.plain(), s.plain()*p.all/set.weight*set.price/pressureUnit), set.cards > 0
}
