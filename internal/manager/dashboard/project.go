package dashboard

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// sight is which pods a viewer may see.
type sight struct {
	all        bool
	namespaces map[string]bool
}

// everything is the sight of a user who may list pods in all namespaces.
var everything = &sight{all: true}

func (s *sight) sees(namespace string) bool { return s.all || s.namespaces[namespace] }

// seesPod is the same for a pod that is named as namespace/name.
func (s *sight) seesPod(pod string) bool { return s.sees(namespaceOf(pod)) }

// projection is a world as one viewer sees it, as JSON and in parts, so that
// parts which did not change need not be sent again.
type projection struct {
	revision                               uint64
	names                                  []string // of the nodes
	nodes                                  map[string][]byte
	cluster, pending, findings, namespaces []byte
}

// see returns what a viewer with this sight sees of the world.
func (w *world) see(s *sight) (*projection, error) {
	if s.all {
		return w.whole()
	}
	return w.project(s)
}

func (w *world) project(s *sight) (*projection, error) {
	p := &projection{revision: w.revision, nodes: make(map[string][]byte, len(w.status.Nodes))}
	summary := Summary{ClusterStatus: w.status.Cluster}
	pending := slices.DeleteFunc(slices.Clone(w.status.Pending), func(p view.PendingStatus) bool { return !s.sees(p.Namespace) })
	summary.HiddenPending = len(w.status.Pending) - len(pending)
	findings := make([]Finding, len(w.findings))
	for i := range w.findings {
		findings[i] = w.findings[i].seenBy(s)
	}
	budgets := slices.DeleteFunc(slices.Clone(w.budgets), func(n view.NamespaceStatus) bool { return !s.sees(n.Name) })
	for _, part := range []struct {
		text  *[]byte
		value any
	}{{&p.namespaces, budgets}, {&p.cluster, summary}, {&p.pending, pending}, {&p.findings, findings}} {
		var err error
		if *part.text, err = json.Marshal(part.value); err != nil {
			return nil, err
		}
	}
	for i := range w.status.Nodes {
		node := &w.status.Nodes[i]
		text, err := json.Marshal(nodeSeenBy(s, node))
		if err != nil {
			return nil, err
		}
		p.names = append(p.names, node.Name)
		p.nodes[node.Name] = text
	}
	return p, nil
}

// nodeSeenBy returns the node without the names that must not be seen.
func nodeSeenBy(s *sight, status *view.NodeStatus) Node {
	n := Node{NodeStatus: *status}
	if s.all {
		return n
	}
	all := len(n.Unaccounted)
	n.Unaccounted = slices.DeleteFunc(slices.Clone(n.Unaccounted), func(pod string) bool { return !s.seesPod(pod) })
	n.HiddenUnaccounted = all - len(n.Unaccounted)
	n.Cards = slices.Clone(n.Cards)
	for i := range n.Cards {
		n.Cards[i].Holders = slices.Clone(n.Cards[i].Holders)
		for k := range n.Cards[i].Holders {
			if h := &n.Cards[i].Holders[k]; !s.sees(h.Namespace) {
				h.Namespace, h.Pod, h.Created, h.Containers, h.Hidden = "", "", nil, nil, true
			}
		}
	}
	return n
}

// seenBy returns the finding without its message if that names pods that must
// not be seen.
func (f Finding) seenBy(s *sight) Finding {
	named := len(f.Pods)
	f.Pods = slices.DeleteFunc(slices.Clone(f.Pods), func(pod string) bool { return !s.seesPod(pod) })
	if len(f.Pods) < named {
		f.Message, f.Hidden = "", true
	}
	return f
}

// since returns what has changed since the earlier projection; nil is none, and
// everything has.
func (p *projection) since(earlier *projection) *State {
	st := &State{Revision: p.revision, Full: earlier == nil}
	if earlier == nil {
		earlier = &projection{}
	}
	changed := func(now, before []byte) json.RawMessage {
		if bytes.Equal(now, before) {
			return nil
		}
		return now
	}
	st.Cluster, st.Pending, st.Findings = changed(p.cluster, earlier.cluster), changed(p.pending, earlier.pending), changed(p.findings, earlier.findings)
	st.Namespaces = changed(p.namespaces, earlier.namespaces)
	for _, name := range p.names {
		if text := changed(p.nodes[name], earlier.nodes[name]); text != nil {
			st.Nodes = append(st.Nodes, text)
		}
	}
	for _, name := range earlier.names {
		if _, ok := p.nodes[name]; !ok {
			st.Gone = append(st.Gone, name)
		}
	}
	return st
}

// empty reports whether nothing has changed.
func (st *State) empty() bool {
	return st.Cluster == nil && st.Pending == nil && st.Findings == nil && st.Namespaces == nil && len(st.Nodes) == 0 && len(st.Gone) == 0
}

// pod returns a pod's own view, or nil where there is none that may be seen.
func (w *world) pod(s *sight, namespace, name string) *Pod {
	pod, ok := w.pods[ledger.Holder(namespace+"/"+name)]
	if !ok || !s.sees(namespace) {
		return nil
	}
	p := &Pod{Explanation: *view.Explain(w.snapshot, pod, place.Default)}
	if !s.all {
		p.hide(w, s)
	}
	return p
}

// hide takes the names out that must not be seen.
func (p *Pod) hide(w *world, s *sight) {
	neighbours := len(p.Neighbours)
	p.Neighbours = slices.DeleteFunc(p.Neighbours, func(n view.Neighbour) bool { return !s.seesPod(n.Pod) })
	p.HiddenNeighbours = neighbours - len(p.Neighbours)
	if p.Help != nil && p.Help.Room != nil {
		room := *p.Help.Room
		room.Pods = slices.DeleteFunc(slices.Clone(room.Pods), func(pod string) bool { return !s.seesPod(pod) })
		p.HiddenInTheWay = len(p.Help.Room.Pods) - len(room.Pods)
		help := *p.Help
		help.Room, p.Help = &room, &help
	}
	for i := range p.Refusals {
		// This is the one refusal that names a pod.
		if r := &p.Refusals[i]; r.Code == place.Unaccounted.String() && w.hidesUnaccounted(r.Node, s) {
			r.Message = place.Unaccounted.Reason()
		}
	}
}

// hidesUnaccounted reports whether a pod with unknown cards is on the node that
// must not be seen.
func (w *world) hidesUnaccounted(node string, s *sight) bool {
	return slices.ContainsFunc(w.status.Nodes, func(n view.NodeStatus) bool {
		return n.Name == node && slices.ContainsFunc(n.Unaccounted, func(pod string) bool { return !s.seesPod(pod) })
	})
}
