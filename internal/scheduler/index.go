package scheduler

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"

	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// index has the accounts of the nodes in the order of kube-scheduler's own list,
// and knows of each shape of request which of them can take it. Between two pods
// one node changes, or a few: only these are looked at again.
//
// Scheduling cycles come one after the other, and within one nothing changes
// after PreFilter but the overlay, which has a version. So there are no locks
// here, and only the extension points of a cycle may use it.
type index struct {
	nodes *nodes

	rows   []row
	byName map[string]int
	// epoch counts the refreshes, and changed has the one that found each row
	// changed. It is apart from the rows because it is read most.
	epoch   uint64
	changed []uint64
	// overlay is the version that the rows were made from.
	overlay uint64
	// stale are the rows that a refresh found out of date, and names room for
	// the nodes whose overlay or Device changed.
	stale []int
	names []string

	// usage has what the pods of each namespace hold, and terms which other pods they
	// prefer near or far.
	usage usage
	terms affinityTerms

	shapes map[string]*shape
	keys   []string // of the shapes
	key    []byte   // room for the key at hand
	random *rand.Rand
}

// row is one node.
type row struct {
	info       fwk.NodeInfo
	generation int64
	entry      *entry
}

func newIndex(n *nodes) *index {
	return &index{
		nodes: n, byName: map[string]int{}, shapes: map[string]*shape{}, terms: newAffinityTerms(),
		random: rand.New(rand.NewPCG(1, 1)), //nolint:gosec // shapes are forgotten by it, which changes no answer
	}
}

// refresh brings the rows up to date.
func (x *index) refresh(infos []fwk.NodeInfo) {
	x.epoch++
	x.names, x.overlay = x.nodes.pods.takeChanged(x.names[:0])
	slices.Sort(x.names)
	relisted := !x.lists(infos)
	if relisted {
		x.rows, x.changed = make([]row, len(infos)), make([]uint64, len(infos))
		clear(x.byName)
		clear(x.shapes)
		x.keys = x.keys[:0]
		for i, info := range infos {
			x.rows[i] = row{info: info, generation: -1}
			x.byName[info.Node().Name] = i
		}
		x.nodes.retain(x.byName)
	}
	x.stale = x.stale[:0]
	current := func(i int) bool { return x.rows[i].info.GetGeneration() == x.rows[i].generation }
	for i := range x.rows {
		if !current(i) {
			x.stale = append(x.stale, i)
		}
	}
	for _, name := range x.names {
		if i, ok := x.byName[name]; ok && current(i) {
			x.stale = append(x.stale, i)
		}
	}
	if len(x.stale) == 0 && !relisted {
		return
	}
	x.eachStale(func(i int) {
		r := &x.rows[i]
		r.generation = r.info.GetGeneration()
		if e := x.nodes.entryOf(r.info, false); e != r.entry {
			r.entry = e
			x.changed[i] = x.epoch
		}
	})
	x.usage.refresh(x, relisted)
	x.terms.refresh(x, relisted)
}

// eachStale calls the function for each of the stale rows, on all cores when they
// are many, as they are when this process has just started.
func (x *index) eachStale(do func(row int)) {
	if len(x.stale) <= smallCluster {
		for _, i := range x.stale {
			do(i)
		}
		return
	}
	workqueue.ParallelizeUntil(context.Background(), runtime.GOMAXPROCS(0), len(x.stale), func(k int) { do(x.stale[k]) }, workqueue.WithChunkSize(staleChunk))
}

// lists reports whether the rows are these nodes, in this order.
func (x *index) lists(infos []fwk.NodeInfo) bool {
	if len(x.rows) != len(infos) {
		return false
	}
	for i, info := range infos {
		if x.rows[i].info != info {
			return false
		}
	}
	return true
}

// entryOf returns the account of the node as the NodeInfo and the overlay show it.
func (x *index) entryOf(ni fwk.NodeInfo, whatIf bool) *entry {
	if i, ok := x.row(ni); ok && x.fresh(i) {
		return x.rows[i].entry
	}
	return x.nodes.entryOf(ni, whatIf)
}

// row returns the row of a node as it was at the last refresh. What-ifs have none.
func (x *index) row(ni fwk.NodeInfo) (i int, ok bool) {
	i, ok = x.byName[ni.Node().Name]
	return i, ok && x.rows[i].info == ni && x.rows[i].generation == ni.GetGeneration()
}

// fresh reports whether the overlay of the row's node is still the one that the
// row was made from. Within a cycle it changes when another pod's Binding fails,
// or when kube-scheduler reserves for several pods on one snapshot.
func (x *index) fresh(i int) bool {
	p, e := x.nodes.pods, x.rows[i].entry
	return p.version.Load() == x.overlay || p.versionOf(e.node.Name) == e.overlay
}

// outranks reports whether a pod of some node has a lower priority.
func (x *index) outranks(priority int32) bool {
	for i := range x.rows {
		if x.rows[i].entry.lowest < priority {
			return true
		}
	}
	return false
}

// shape is requests that every node answers alike.
type shape struct {
	index *index
	// fits has the nodes that can take such a pod, and hope those that could if
	// no other pod were there, by row. Room counts the former.
	fits, hope []bool
	room       int
	// worths has what the nodes that fit are worth to such a pod, with what is
	// expected of the pods to come, and order the best of them.
	worths []place.Worth
	order  tournament
	demand *place.Demand
	// epoch is the one up to which all this is true.
	epoch uint64
}

func newShape(x *index) *shape {
	n := len(x.rows)
	return &shape{index: x, fits: make([]bool, n), hope: make([]bool, n), worths: make([]place.Worth, n), order: newTournament(n)}
}

const (
	// staleChunk is how many stale rows a core takes at once.
	staleChunk = 64
	// maxShapes bounds the shapes that are kept, and shapeMemory the bytes that
	// they take: rowMemory for each row.
	maxShapes   = 512
	shapeMemory = 64 << 20
	rowMemory   = 42
	// smallCluster is up to how many rows one core alone brings up to date.
	smallCluster = 256
)

// shapeOf returns the shape of the cycle's request, up to date.
func (x *index) shapeOf(c *cycle) *shape {
	x.key = appendKey(x.key[:0], c)
	s, seen := x.shapes[string(x.key)]
	if !seen {
		s = x.add(string(x.key))
	}
	s.refresh(c)
	return s
}

// refresh asks the nodes that have changed, and those that fit when something else
// is expected of the pods to come.
func (s *shape) refresh(c *cycle) {
	x := s.index
	x.stale = x.stale[:0]
	for i, epoch := range x.changed {
		if epoch > s.epoch || s.demand != c.prefer.Demand && s.fits[i] {
			x.stale = append(x.stale, i)
		}
	}
	s.epoch, s.demand = x.epoch, c.prefer.Demand
	x.eachStale(func(i int) { s.ask(i, c) })
	if len(x.stale) <= smallCluster {
		for _, i := range x.stale {
			s.order.update(i, s.fits[i], s.better)
		}
	} else {
		s.order.play(s.fits, s.better)
	}
	s.room = members(s.fits)
}

// ask asks the node of the row whether it can take the pod, and what it is worth.
func (s *shape) ask(i int, c *cycle) {
	offer, refusal := place.Fit(s.index.rows[i].entry.node, &c.ask.Request, &c.prefer)
	fits := refusal.Code == place.Fits
	s.fits[i], s.hope[i] = fits, fits || !refusal.Permanent
	if fits {
		s.worths[i] = place.Rank(&offer, &c.prefer)
	}
}

// better reports whether the first row is the better one. There are no ties.
func (s *shape) better(a, b int) bool {
	return s.index.before(candidate{a, s.worths[a]}, candidate{b, s.worths[b]})
}

// candidate is a row and what its node is worth to a pod.
type candidate struct {
	row   int
	worth place.Worth
}

// before reports whether the first candidate is the better one. Where both are
// worth the same, the names of their nodes decide.
func (x *index) before(a, b candidate) bool {
	if order := a.worth.Compare(b.worth); order != 0 {
		return order > 0
	}
	return x.rows[a.row].entry.node.Name < x.rows[b.row].entry.node.Name
}

// add returns a new shape. When there are too many another one is forgotten for it,
// any of them: if it were the one that was not asked for the longest, each of a few
// more shapes than are kept would be forgotten just before it comes again.
func (x *index) add(key string) *shape {
	if len(x.keys) < min(maxShapes, max(1, shapeMemory/(rowMemory*max(1, len(x.rows))))) {
		x.keys, x.shapes[key] = append(x.keys, key), newShape(x)
		return x.shapes[key]
	}
	i := x.random.IntN(len(x.keys))
	s := x.shapes[x.keys[i]]
	delete(x.shapes, x.keys[i])
	x.keys[i], x.shapes[key], s.epoch = key, s, 0
	return s
}

// appendKey appends all that decides whether a node can take the pod and what it
// is worth: equal keys get equal answers.
func appendKey(key []byte, c *cycle) []byte {
	r, p := &c.ask.Request, &c.ask.Prefer
	flag := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	key = binary.AppendVarint(key, int64(r.CPU))
	for i := range r.Requests {
		req := &r.Requests[i]
		for _, v := range [...]int64{
			int64(req.Phase), int64(req.Cards), flag(req.Whole), flag(req.Exclusive),
			int64(req.Compute), int64(req.Memory.Amount), int64(req.Memory.Ratio),
		} {
			key = binary.AppendVarint(key, v)
		}
	}
	key = append(append(append(key, r.QoS...), '/'), r.Class...)
	key = binary.AppendVarint(append(key, '/'), int64(p.Node))
	for _, k := range p.Cards {
		key = binary.AppendVarint(key, int64(k))
	}
	key = binary.AppendVarint(key, flag(p.IgnoreLinks))
	for _, list := range [...][]gpu.CardID{r.Allow, r.Deny} {
		key = binary.AppendVarint(key, int64(len(list)))
		for _, id := range list {
			key = append(append(key, id...), ',')
		}
	}
	return key
}

// members returns how many rows are in the set.
func members(set []bool) (n int) {
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}
