package scheduler

import (
	"context"
	"encoding/binary"
	"math/bits"
	"runtime"

	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// index has the accounts of the nodes in the order of kube-scheduler's own list,
// and knows of each shape of request which of them can take it. Between two pods
// one node changes, or a few: only these are looked at again.
//
// Scheduling cycles come one after the other, and within one nothing changes
// after PreFilter. So there are no locks here, and nobody but the extension
// points of a cycle may use it.
type index struct {
	nodes *nodes

	rows []row
	at   map[fwk.NodeInfo]int
	// walks counts the walks, and changed has of each row the one that found it
	// changed. It is apart from the rows because it is read most.
	walks   uint64
	changed []uint64
	// scores has of each row what it is worth to the pod of the walk that it
	// names. Nodes are scored side by side, each in its own row.
	scores []score
	// devices is the version of the Devices that the rows were made from.
	devices uint64
	// stale are the rows that a walk has found to be out of date.
	stale []int

	shapes map[string]*shape
	key    []byte // room for the key at hand
}

// row is one node.
type row struct {
	info       fwk.NodeInfo
	generation int64
	entry      *entry
}

// score is what the best cards of a node are worth, found after a walk.
type score struct {
	walk  uint64
	worth place.Worth
}

func newIndex(n *nodes) *index {
	return &index{nodes: n, at: map[fwk.NodeInfo]int{}, shapes: map[string]*shape{}}
}

// walk brings the rows up to date.
func (x *index) walk(infos []fwk.NodeInfo) {
	x.walks++
	version := x.nodes.devices.version.Load()
	if !x.lists(infos) {
		x.rows, x.changed, x.scores = make([]row, len(infos)), make([]uint64, len(infos)), make([]score, len(infos))
		clear(x.at)
		clear(x.shapes)
		for i, info := range infos {
			x.rows[i] = row{info: info, generation: -1}
			x.at[info] = i
		}
	}
	x.stale = x.stale[:0]
	for i := range x.rows {
		if version != x.devices || x.rows[i].info.GetGeneration() != x.rows[i].generation {
			x.stale = append(x.stale, i)
		}
	}
	x.renew()
	x.devices = version
}

// renew brings the stale rows up to date, on all cores when they are many, as
// they are when this process has just started.
func (x *index) renew() {
	if len(x.stale) > smallCluster {
		workqueue.ParallelizeUntil(context.Background(), runtime.GOMAXPROCS(0), len(x.stale), x.renewOne, workqueue.WithChunkSize(renewChunk))
		return
	}
	for k := range x.stale {
		x.renewOne(k)
	}
}

func (x *index) renewOne(k int) {
	i := x.stale[k]
	r := &x.rows[i]
	r.generation = r.info.GetGeneration()
	if e := x.nodes.entryOf(r.info, false); e != r.entry {
		r.entry = e
		x.changed[i] = x.walks
	}
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

// of returns the account of the node as the NodeInfo shows it.
func (x *index) of(ni fwk.NodeInfo, whatIf bool) *ledger.Node {
	if i, ok := x.row(ni); ok {
		return x.rows[i].entry.node
	}
	return x.nodes.of(ni, whatIf)
}

// row returns the row of a node as it was at the last walk. What-ifs have none.
func (x *index) row(ni fwk.NodeInfo) (i int, ok bool) {
	i, ok = x.at[ni]
	return i, ok && x.rows[i].generation == ni.GetGeneration()
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
	// fits has the nodes that can take such a pod, and hope those that could if
	// nobody else were there.
	fits, hope rowSet
	// walk is the one up to which the sets are true, and used the last that
	// asked for them.
	walk, used uint64

	// worths has what the nodes were worth to such a pod, found with what was
	// expected of the pods to come, and since is the walk from which that was so.
	worths []score
	demand *place.Demand
	since  uint64
}

// expect tells what is expected of the pods to come, which may be something else
// than before.
func (s *shape) expect(d *place.Demand, walk uint64, rows int) {
	if s.worths == nil {
		s.worths = make([]score, rows)
	}
	if s.demand != d {
		s.demand, s.since = d, walk
	}
}

// worth returns what the node of the row is worth to a pod of the shape, if that
// was found before and nothing has changed since.
func (x *index) worth(s *shape, i int) (place.Worth, bool) {
	w := &s.worths[i]
	return w.worth, w.walk > 0 && w.walk >= max(s.since, x.changed[i])
}

const (
	// renewChunk is how many rows a core brings up to date at once.
	renewChunk = 64
	// maxShapes bounds the shapes that are kept.
	maxShapes = 128
	// smallCluster is up to how many nodes a shape is worked out when it is seen
	// for the first time. In larger ones it must have come before: where no two
	// pods are alike it would be work for nothing.
	smallCluster = 256
)

// shapeOf returns the shape of the request with its sets up to date, or nil when
// they are not known.
func (x *index) shapeOf(r *gpu.PodRequest, p *place.Preference) *shape {
	x.key = appendKey(x.key[:0], r, p)
	s, seen := x.shapes[string(x.key)]
	if !seen {
		x.makeRoom()
		s = &shape{fits: newRowSet(len(x.rows)), hope: newRowSet(len(x.rows))}
		x.shapes[string(x.key)] = s
	}
	s.used = x.walks
	if !seen && len(x.rows) > smallCluster {
		return nil
	}
	for i, walk := range x.changed {
		if walk > s.walk {
			_, refusal := place.Fit(x.rows[i].entry.node, r, p)
			s.fits.set(i, refusal.Code == place.Fits)
			s.hope.set(i, refusal.Code == place.Fits || !refusal.Permanent)
		}
	}
	s.walk = x.walks
	return s
}

// makeRoom forgets the shape that was not asked for the longest.
func (x *index) makeRoom() {
	if len(x.shapes) < maxShapes {
		return
	}
	var oldest string
	used := x.walks + 1
	for key, s := range x.shapes {
		if s.used < used || s.used == used && key < oldest {
			oldest, used = key, s.used
		}
	}
	delete(x.shapes, oldest)
}

// appendKey appends all that decides whether a node can take the pod and what it
// is worth: equal keys get equal answers.
func appendKey(key []byte, r *gpu.PodRequest, p *place.Preference) []byte {
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

// rowSet is a set of rows.
type rowSet struct {
	words []uint64
	n     int
}

func newRowSet(rows int) rowSet { return rowSet{words: make([]uint64, (rows+63)/64)} }

func (s *rowSet) set(i int, in bool) {
	word, bit := &s.words[i/64], uint64(1)<<(i%64)
	switch was := *word&bit != 0; {
	case in && !was:
		*word |= bit
		s.n++
	case !in && was:
		*word &^= bit
		s.n--
	}
}

func (s *rowSet) has(i int) bool { return s.words[i/64]&(1<<(i%64)) != 0 }

// all yields the members in order.
func (s *rowSet) all(yield func(int) bool) {
	for w, word := range s.words {
		for ; word != 0; word &= word - 1 {
			if !yield(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
