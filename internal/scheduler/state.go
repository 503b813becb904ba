package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

const stateKey fwk.StateKey = "PreFilter" + Name

// cycle is what one scheduling attempt of a pod knows.
type cycle struct {
	plugin *Plugin
	ask    *request.PodRequest
	// prefer is what the pod likes, with what is expected of those to come.
	// Whether it fits at all does not depend on that: Filter does without.
	prefer place.Preference
	// whatIf marks the copies that kube-scheduler makes to try changes of a
	// node out, which must leave no trace.
	whatIf bool
	// start is when the attempt began.
	start time.Time
	// ranking is what the nodes answer to requests like this one.
	ranking *place.Ranking
	// scored are the nodes to choose from, and candidates is how many of them had
	// room when they were compared; one alone is not.
	scored     []fwk.NodeInfo
	candidates int
	// found is the node that the search has found, unless it is nil.
	found fwk.NodeInfo
	// kept has the nodes that PreFilter left over; nil: it left out none.
	kept sets.Set[string]
	*findings
}

// findings collects the pods that would be evicted from each node, and what
// nodes are worth.
type findings struct {
	mu      sync.Mutex
	victims map[string]victims
	// tries is the work that the search for victims took.
	tries int
	// ranks has what the index does not know of nodes.
	ranks map[string]rank
}

// victims are the pods that would be evicted from a node, and how many of them a budget
// protects.
type victims struct {
	pods       []*corev1.Pod
	violations int
}

// holders returns the names of the pods.
func (v victims) holders() []ledger.Holder {
	holders := make([]ledger.Holder, len(v.pods))
	for i, pod := range v.pods {
		holders[i] = allocation.HolderOf(pod)
	}
	return holders
}

// rank is what a node is worth, if it has room.
type rank struct {
	worth place.Worth
	room  bool
}

// rank remembers what the best cards of the node are worth, if it has room.
func (f *findings) rank(node string, worth place.Worth, room bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ranks == nil {
		f.ranks = map[string]rank{}
	}
	f.ranks[node] = rank{worth: worth, room: room}
}

// rankedNode is a node among those to choose from.
type rankedNode struct {
	rank
	position int // in the list of scores
}

// ranked returns the nodes from the best to the worst.
func (c *cycle) ranked(scores fwk.NodeScoreList, x *index) []rankedNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	order := make([]rankedNode, len(scores))
	for i := range order {
		order[i].position = i
		if noted, ok := c.ranks[scores[i].Name]; ok {
			order[i].rank = noted
		} else if i < len(c.scored) && c.scored[i].Node().Name == scores[i].Name {
			if id, ok := x.row(c.scored[i]); ok {
				worth, fits, _ := c.ranking.At(id)
				order[i].rank = rank{worth: worth, room: fits}
			}
		}
	}
	c.candidates = 0
	for i := range order {
		if order[i].room {
			c.candidates++
		}
	}
	slices.SortFunc(order, func(a, b rankedNode) int {
		if a.room != b.room {
			if a.room {
				return -1
			}
			return 1
		}
		return cmp.Or(b.worth.Compare(a.worth), cmp.Compare(scores[a.position].Name, scores[b.position].Name))
	})
	return order
}

// noteVictims remembers which pods would be evicted from the node.
func (f *findings) noteVictims(node string, pods []*corev1.Pod, violations int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.victims == nil {
		f.victims = map[string]victims{}
	}
	f.victims[node] = victims{pods: pods, violations: violations}
}

// victimsOn returns the pods that would be evicted from the node, if they are known.
func (f *findings) victimsOn(node string) (v victims, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok = f.victims[node]
	return v, ok
}

// evicting returns the event's words for an eviction from the node.
func (f *findings) evicting(node string) string {
	v, _ := f.victimsOn(node)
	pods := "1 pod"
	if n := len(v.pods); n != 1 {
		pods = fmt.Sprintf("%d pods", n)
	}
	return fmt.Sprintf("evicting %s of lower priority from %s", pods, node)
}

// Clone is called before pods are added to or removed from a node.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{plugin: c.plugin, ask: c.ask, prefer: c.prefer, whatIf: true, start: c.start, ranking: c.ranking, kept: c.kept, findings: c.findings}
}

func readState(cs fwk.CycleState) (*cycle, error) {
	data, err := cs.Read(stateKey)
	if err != nil {
		return nil, fmt.Errorf("read %q of the scheduling cycle: %w", stateKey, err)
	}
	c, ok := data.(*cycle)
	if !ok {
		return nil, fmt.Errorf("%q of the scheduling cycle is a %T", stateKey, data)
	}
	return c, nil
}
