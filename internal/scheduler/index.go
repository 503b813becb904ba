package scheduler

import (
	"context"
	"runtime"
	"slices"

	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// index brings the nodes of kube-scheduler's own list onto the board. Between two pods
// one node changes, or a few: only these are looked at again.
//
// Scheduling cycles come one after the other, and within one nothing changes
// after PreFilter but the overlay, which has a version. So there are no locks
// here, and only the extension points of a cycle may use it.
type index struct {
	nodes *nodes
	board *place.Board

	// rows has what else is known of each node, and listed the nodes in the order of
	// the list.
	rows   []row // by NodeID
	listed []place.NodeID
	// epoch counts the refreshes.
	epoch uint64
	// overlay is the version that the rows were made from.
	overlay uint64
	// stale are the NodeInfos that a refresh found out of date, changed the nodes that
	// it set or removed, and names room for the nodes whose overlay or Device changed.
	stale   []fwk.NodeInfo
	changed []place.NodeID
	names   []string

	// census counts the pods on the nodes, for what is expected of those to come, and
	// supply is the version of the supply that it knows.
	census *place.Census
	supply uint64
	// usage has what the pods of each namespace hold, and terms which other pods they
	// prefer near or far.
	usage usage
	terms affinityTerms
}

// row is one node. That of a node that is not listed is empty.
type row struct {
	info       fwk.NodeInfo
	generation int64
	entry      *entry
}

const (
	// smallCluster is up to how many rows one core alone brings up to date, and
	// staleChunk how many a core takes at once where they are more.
	smallCluster = 256
	staleChunk   = 64
)

func newIndex(n *nodes) *index {
	return &index{nodes: n, board: place.NewBoard(), census: place.NewCensus(), terms: newAffinityTerms()}
}

// refresh brings the board up to date with the snapshot and the overlay.
func (x *index) refresh(infos []fwk.NodeInfo) {
	x.epoch++
	if x.lists(infos) {
		x.follow()
		return
	}
	x.begin()
	x.relist(infos)
	x.fold(true)
}

// follow brings the board up to date with what changed on the nodes that are listed.
// Within a cycle that is the overlay alone.
func (x *index) follow() {
	x.begin()
	x.findStale()
	if len(x.stale) > 0 {
		x.fold(false)
	}
}

func (x *index) begin() {
	x.names, x.overlay = x.nodes.pods.takeChanged(x.names[:0])
	x.stale, x.changed = x.stale[:0], x.changed[:0]
}

// fold brings what is known of the stale nodes up to date.
func (x *index) fold(relisted bool) {
	x.foldStale(relisted)
	x.usage.refresh(x, relisted)
	x.terms.refresh(x)
}

// lists reports whether these nodes are listed, in this order.
func (x *index) lists(infos []fwk.NodeInfo) bool {
	return slices.EqualFunc(x.listed, infos, func(id place.NodeID, info fwk.NodeInfo) bool { return x.rows[id].info == info })
}

// relist takes the nodes off the board that are not listed any more, and finds all
// others stale.
func (x *index) relist(infos []fwk.NodeInfo) {
	names := make(map[string]struct{}, len(infos))
	for _, info := range infos {
		names[info.Node().Name] = struct{}{}
	}
	listed := func(name string) bool {
		_, ok := names[name]
		return ok
	}
	for _, id := range x.listed {
		if name := x.board.Node(id).Name; !listed(name) {
			x.board.Remove(id)
			x.count(x.rows[id].entry, -1)
			x.rows[id] = row{}
			x.changed = append(x.changed, id)
		}
	}
	x.nodes.retain(listed)
	x.listed, x.stale = x.listed[:0], append(x.stale, infos...)
}

// findStale finds the nodes whose pods or whose overlay changed.
func (x *index) findStale() {
	current := func(r *row) bool { return r.info.GetGeneration() == r.generation }
	for _, id := range x.listed {
		if r := &x.rows[id]; !current(r) {
			x.stale = append(x.stale, r.info)
		}
	}
	for _, name := range x.names {
		if id, ok := x.board.Find(name); ok && current(&x.rows[id]) {
			x.stale = append(x.stale, x.rows[id].info)
		}
	}
}

// foldStale makes the accounts of the stale nodes, on all cores when they are many,
// as they are when this process has just started, and sets those that are new.
func (x *index) foldStale(relisted bool) {
	entries := make([]*entry, len(x.stale))
	fold := func(i int) { entries[i] = x.nodes.entryOf(x.stale[i], false) }
	if len(x.stale) <= smallCluster {
		for i := range x.stale {
			fold(i)
		}
	} else {
		workqueue.ParallelizeUntil(context.Background(), runtime.GOMAXPROCS(0), len(x.stale), fold, workqueue.WithChunkSize(staleChunk))
	}
	for i, info := range x.stale {
		now := entries[i]
		id, known := x.board.Find(now.node.Name)
		if !known || x.rows[id].entry != now {
			id = x.board.Set(now.node)
			x.changed = append(x.changed, id)
			if int(id) == len(x.rows) {
				x.rows = append(x.rows, row{})
			}
			x.count(x.rows[id].entry, -1)
			x.count(now, 1)
		}
		x.rows[id] = row{info: info, generation: info.GetGeneration(), entry: now}
		if relisted {
			x.listed = append(x.listed, id)
		}
	}
}

// count counts the pods of the node in or out. The entry may be nil.
func (x *index) count(e *entry, pods int) {
	if e == nil {
		return
	}
	for i := range e.read {
		x.census.Add(e.read[i].kinds, pods)
	}
	for _, res := range e.beyond {
		x.census.Add(res.kinds, pods)
	}
}

// demand returns what is expected of the pods to come: more like those that are there.
func (x *index) demand() *place.Demand {
	if version := x.nodes.supplyVersion(); version != x.supply {
		x.supply = version
		x.census.SetSupply(x.nodes.supplied())
	}
	return x.census.Demand()
}

// has reports whether the node is listed.
func (x *index) has(name string) bool {
	_, ok := x.board.Find(name)
	return ok
}

// entryOf returns the account of the node as the NodeInfo and the overlay show it.
func (x *index) entryOf(ni fwk.NodeInfo, whatIf bool) *entry {
	if id, ok := x.row(ni); ok && x.fresh(id) {
		return x.rows[id].entry
	}
	return x.nodes.entryOf(ni, whatIf)
}

// row returns the row of a node as it was at the last refresh. What-ifs have none.
func (x *index) row(ni fwk.NodeInfo) (id place.NodeID, ok bool) {
	id, ok = x.board.Find(ni.Node().Name)
	return id, ok && x.rows[id].info == ni && x.rows[id].generation == ni.GetGeneration()
}

// fresh reports whether the overlay of the row's node is still the one that the
// row was made from. Within a cycle it changes when another pod's Binding fails,
// or when kube-scheduler reserves for several pods on one snapshot.
func (x *index) fresh(id place.NodeID) bool {
	p, e := x.nodes.pods, x.rows[id].entry
	return p.version.Load() == x.overlay || p.versionOf(e.node.Name) == e.overlay
}

// outranks reports whether a pod of some node has a lower priority.
func (x *index) outranks(priority int32) bool {
	for _, id := range x.listed {
		if x.rows[id].entry.lowest < priority {
			return true
		}
	}
	return false
}
