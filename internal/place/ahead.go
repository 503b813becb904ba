package place

import (
	"cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// growth is by card how much the fragmentation of the node grows when a share
// of the request goes there.
type growth [gpu.MaxCards]int64

// CPUDigits is to how many binary digits the CPU of requests is rounded before nodes
// are compared, so that pods that ask for about the same compare them alike: by 13 %
// at most. Replayed traces show no difference; with a digit less they do.
const CPUDigits = 4

// foresight is a fitter's view of the pods that are expected.
type foresight struct {
	// booked is the outlook with what is booked, and scratch the one that also has
	// what the containers before this one take.
	booked  *outlook
	scratch outlook
	// cpu is what is left with the pod there, and possible the classes that this
	// could run.
	cpu      gpu.MilliCPU
	possible mask
	// growth is the fragmentation for each card that the container could get: the
	// grown ones.
	growth growth
	grown  gpu.Set
}

// outlookAt returns the outlook at the given usage: booked, or scratch.
func (f *fitter) outlookAt(usage []ledger.Usage) *outlook {
	a := f.ahead
	if a.booked == nil {
		a.booked = outlookOf(f.prefer.Demand, f.node)
		a.cpu = max(0, f.node.FreeCPU-f.request.CPU)
		a.possible = a.booked.running(a.cpu)
	}
	if &usage[0] == &f.view.Usage[0] {
		return a.booked
	}
	a.scratch.load(f.prefer.Demand, f.node, usage)
	return &a.scratch
}

// left returns what would be left of card c at the given usage with a share of
// container i on it.
func (f *fitter) left(o *outlook, i, c int, usage []ledger.Usage) remainder {
	u := usage[c]
	u.Add(f.node.ShareOf(&f.request.Requests[i], c), f.request.Class, f.request.QoS)
	return o.remainder(c, &u)
}

// fragmentation returns the node's fragmentation when container i gets the cards.
func (f *fitter) fragmentation(o *outlook, i int, cards gpu.Set, usage []ledger.Usage) int64 {
	a := f.ahead
	if f.request.Requests[i].Exclusive { // nothing is left of them
		return o.fragmentation(a.cpu, a.possible, cards, nil)
	}
	var replacement [gpu.MaxCards]remainder
	n := 0
	for c := range cards.All() {
		replacement[n] = f.left(o, i, c, usage)
		n++
	}
	return o.fragmentation(a.cpu, a.possible, cards, replacement[:n])
}

// onOne is the same for one card of a group.
func (f *fitter) onOne(o *outlook, g *group, i int, usage []ledger.Usage) int64 {
	a := f.ahead
	if f.request.Requests[i].Exclusive {
		return o.withoutOne(g, a.cpu, a.possible, nil)
	}
	replacement := [1]remainder{f.left(o, i, g.first, usage)}
	return o.withoutOne(g, a.cpu, a.possible, replacement[:])
}

// growthOf returns by how much fragmentation grows when container i, the only
// one, gets the cards.
func (f *fitter) growthOf(i int, cards gpu.Set) int64 {
	o := f.outlookAt(f.view.Usage)
	if cards.Len() > 1 {
		return f.fragmentation(o, i, cards, f.view.Usage) - o.now
	}
	if f.ahead.grown&cards == 0 { // there was no choice
		f.grow(cards, i, f.view.Usage)
	}
	return f.ahead.growth[cards.First()] - o.now
}

// growthAt returns by how much fragmentation grows when the cards are used as in
// the scratch copy.
func (f *fitter) growthAt(d *scratch) int64 {
	before := f.outlookAt(f.view.Usage).now
	return f.outlookAt(d.usage[:]).fragmentation(f.ahead.cpu, f.ahead.possible, 0, nil) - before
}

// grow returns the fragmentation for each of the candidates, less what they all
// have in common. Cards that are alike are computed once.
func (f *fitter) grow(candidates gpu.Set, i int, usage []ledger.Usage) *growth {
	o, a := f.outlookAt(usage), f.ahead
	for k := range o.groups {
		g := &o.groups[k]
		members := g.cards & candidates
		if members == 0 {
			continue
		}
		after := f.onOne(o, g, i, usage)
		for c := range members.All() {
			a.growth[c] = after
		}
	}
	a.grown = candidates
	return &a.growth
}

// setAhead chooses whole cards as subsets.choose does, but among sets of equal
// score takes the one after which the node stays most useful.
func (f *fitter) setAhead(q *subsets, i int, usage []ledger.Usage) (cards gpu.Set, complete bool) {
	if q.n == 1 {
		return f.cardAhead(q, i, usage), true
	}
	t := q.topology
	var best struct{ score, after, loss int64 }
	complete = true
	for _, zone := range t.Zones() {
		in := q.candidates & zone
		if in.Len() < q.n {
			continue
		}
		sub := *q
		sub.candidates = in
		set, all := sub.choose()
		complete = complete && all
		score, after, loss := t.Score(set), f.fragmentation(f.outlookAt(usage), i, set, usage), t.Loss(set, q.free)
		better := cmp.Or(cmp.Compare(best.score, score), cmp.Compare(after, best.after), cmp.Compare(loss, best.loss))
		if cards == 0 || better < 0 {
			cards = set
			best.score, best.after, best.loss = score, after, loss
		}
	}
	if cards == 0 {
		return q.choose()
	}
	return cards, complete
}

// cardAhead chooses one whole card.
func (f *fitter) cardAhead(q *subsets, i int, usage []ledger.Usage) gpu.Set {
	g := f.grow(q.candidates, i, usage)
	best := q.candidates.First()
	for c := range (q.candidates & (q.candidates - 1)).All() {
		if cmp.Or(cmp.Compare(g[c], g[best]), cmp.Compare(q.loss(c), q.loss(best))) < 0 {
			best = c
		}
	}
	return gpu.SetOf(best)
}

// loss is what taking one card costs.
func (q *subsets) loss(c int) int64 { return q.topology.Pull(c, q.free) }
