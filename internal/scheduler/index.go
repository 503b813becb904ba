package scheduler

import (
	"context"
	"encoding/binary"
	"math/bits"
	"runtime"

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
// after PreFilter but the overlay, whose version tells. So there are no locks
// here, and only the extension points of a cycle may use it.
type index struct {
	nodes *nodes

	rows   []row
	at     map[fwk.NodeInfo]int
	byName map[string]int
	// epoch counts the refreshes, and changed has the one that found each row
	// changed. It is apart from the rows because it is read most.
	epoch   uint64
	changed []uint64
	// scores has what each row is worth to the pod of the epoch that it names.
	// Nodes are scored in parallel, each in its own row.
	scores []score
	// devices and overlay are the versions that the rows were made from.
	devices, overlay uint64
	// stale are the rows that a refresh found out of date, and names room for
	// the nodes whose overlay changed.
	stale []int
	names []string

	shapes map[string]*shape
	key    []byte // room for the key at hand
}

// row is one node.
type row struct {
	info       fwk.NodeInfo
	generation int64
	entry      *entry
}

// score is what the best cards of a node are worth, found in an epoch.
type score struct {
	epoch uint64
	worth place.Worth
}

func newIndex(n *nodes) *index {
	return &index{nodes: n, at: map[fwk.NodeInfo]int{}, byName: map[string]int{}, shapes: map[string]*shape{}}
}

// refresh brings the rows up to date.
func (x *index) refresh(infos []fwk.NodeInfo) {
	x.epoch++
	devices := x.nodes.devices.version.Load()
	x.names, x.overlay = x.nodes.overlay.takeChanged(x.names[:0])
	if !x.lists(infos) {
		x.rows, x.changed, x.scores = make([]row, len(infos)), make([]uint64, len(infos)), make([]score, len(infos))
		clear(x.at)
		clear(x.byName)
		clear(x.shapes)
		for i, info := range infos {
			x.rows[i] = row{info: info, generation: -1}
			x.at[info], x.byName[info.Node().Name] = i, i
		}
	}
	x.stale = x.stale[:0]
	current := func(i int) bool {
		return devices == x.devices && x.rows[i].info.GetGeneration() == x.rows[i].generation
	}
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
	x.renew()
	x.devices = devices
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
		x.changed[i] = x.epoch
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

// entryOf returns the account of the node as the NodeInfo and the overlay show it.
func (x *index) entryOf(ni fwk.NodeInfo, whatIf bool) *entry {
	if i, ok := x.row(ni); ok && x.fresh(i) {
		return x.rows[i].entry
	}
	return x.nodes.entryOf(ni, whatIf)
}

// row returns the row of a node as it was at the last refresh. What-ifs have none.
func (x *index) row(ni fwk.NodeInfo) (i int, ok bool) {
	i, ok = x.at[ni]
	return i, ok && x.rows[i].generation == ni.GetGeneration()
}

// fresh reports whether the overlay of the row's node is still the one that the
// row was made from. Within a cycle it changes when another pod's Binding fails,
// or when kube-scheduler reserves for several pods on one snapshot.
func (x *index) fresh(i int) bool {
	o, e := x.nodes.overlay, x.rows[i].entry
	return o.version.Load() == x.overlay || o.versionOf(e.node.Name) == e.overlay
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
	// epoch is the one up to which the sets are true, and used the last that
	// asked for them.
	epoch, used uint64

	// worths has what the nodes were worth to such a pod, found with what was
	// expected of the pods to come, and since is the epoch from which that was
	// so. Not every shape has them.
	worths []score
	demand *place.Demand
	since  uint64
}

// expect prepares the shape for worths found with what is expected of the pods to
// come, which may be something else than before.
func (x *index) expect(s *shape, d *place.Demand) {
	if s.worths == nil {
		s.worths = x.worthsFor(s)
	}
	if s.demand != d {
		s.demand, s.since = d, x.epoch
	}
}

// worthsFor returns room for the shape's worths: that of the shape that was not
// asked for the longest once as much is in use as may be.
func (x *index) worthsFor(s *shape) []score {
	var oldest *shape
	inUse := 0
	for _, other := range x.shapes {
		if other == s || other.worths == nil {
			continue
		}
		inUse += len(other.worths)
		if oldest == nil || other.used < oldest.used {
			oldest = other
		}
	}
	if oldest == nil || inUse+len(x.rows) <= maxWorths {
		return make([]score, len(x.rows))
	}
	room := oldest.worths
	oldest.worths = nil
	clear(room)
	return room
}

// worth returns what the node of the row is worth to a pod of the shape, if that
// was found before and nothing has changed since.
func (x *index) worth(s *shape, i int) (place.Worth, bool) {
	w := &s.worths[i]
	return w.worth, w.epoch > 0 && w.epoch >= max(s.since, x.changed[i])
}

const (
	// renewChunk is how many rows a core brings up to date at once.
	renewChunk = 64
	// maxShapes bounds the shapes that are kept.
	maxShapes = 128
	// maxWorths bounds the worths that are kept of all shapes together, 32 bytes
	// each; one shape has them however many nodes there are.
	maxWorths = 1 << 19
	// smallCluster is up to how many nodes a shape is worked out when it is seen
	// for the first time. In larger ones it must have come before: where no two
	// pods are alike it would be work for nothing.
	smallCluster = 256
)

// shapeOf returns the shape of the request with its sets up to date, or nil when
// they are not known.
func (x *index) shapeOf(c *cycle) *shape {
	x.key = appendKey(x.key[:0], c)
	s, seen := x.shapes[string(x.key)]
	if !seen {
		x.makeRoom()
		s = &shape{fits: newRowSet(len(x.rows)), hope: newRowSet(len(x.rows))}
		x.shapes[string(x.key)] = s
	}
	s.used = x.epoch
	if !seen && len(x.rows) > smallCluster {
		return nil
	}
	for i, epoch := range x.changed {
		if epoch > s.epoch {
			v := c.judge(x.rows[i].entry)
			s.fits.set(i, v.fits())
			s.hope.set(i, v.fits() || !v.permanent())
		}
	}
	s.epoch = x.epoch
	return s
}

// makeRoom forgets the shape that was not asked for the longest.
func (x *index) makeRoom() {
	if len(x.shapes) < maxShapes {
		return
	}
	var oldest string
	used := x.epoch + 1
	for key, s := range x.shapes {
		if s.used < used || s.used == used && key < oldest {
			oldest, used = key, s.used
		}
	}
	delete(x.shapes, oldest)
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
	for _, devices := range c.wants {
		key = binary.AppendVarint(key, devices)
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
