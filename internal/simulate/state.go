package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// state is what is in use on every node while pods arrive. It is the judge of
// all policies: what one of them chooses is booked here, and must fit.
type state struct {
	nodes []server
	kinds []kind
	// oneQoS makes a card in use take shares of one QoS class only.
	oneQoS bool
}

// server is the state of one node.
type server struct {
	*Node
	position int
	cpu      int64   // free, in thousandths of a core
	memory   gpu.MiB // free, of the host
	left     []int   // by card: the free thousandths
	qos      []gpu.QoS
	free     int64 // the free thousandths of all cards
	pods     int
	// holds counts the pods of each sort on the node, for clustering.
	holds [sorts]int
	// version counts changes.
	version uint32
}

// kind is what pods that ask for the same have in common, worked out once.
type kind struct {
	Pod  // one of them; its name means nothing
	id   int
	sort sort
}

// sort is how clustering tells pods apart.
type sort uint8

const (
	sortCPU sort = iota
	sortShare
	sortOne
	sortTwo
	sortFour
	sortEight
	sortOther
	sorts
)

func sortOf(p *Pod) sort {
	switch {
	case p.Cards == 0:
		return sortCPU
	case p.fractional():
		return sortShare
	}
	switch p.Cards {
	case 1:
		return sortOne
	case 2:
		return sortTwo
	case 4:
		return sortFour
	case 8:
		return sortEight
	}
	return sortOther
}

// kindsOf groups the pods by what they ask for. The second result has the
// kind of each pod.
func kindsOf(pods []Pod, oneQoS bool) ([]kind, []int) {
	var kinds []kind
	of := make([]int, len(pods))
	known := map[string]int{}
	for i := range pods {
		p := pods[i]
		p.Name = ""
		if !oneQoS {
			p.QoS = gpu.BestEffort
		}
		key := strings.Join([]string{
			strconv.FormatInt(p.CPU, 10), strconv.FormatInt(int64(p.Memory), 10), strconv.Itoa(p.Cards), strconv.Itoa(p.Milli),
			string(p.QoS), strings.Join(p.Models, "|"),
		}, ",")
		id, ok := known[key]
		if !ok {
			id = len(kinds)
			known[key] = id
			kinds = append(kinds, kind{Pod: p, id: id, sort: sortOf(&p)})
		}
		of[i] = id
	}
	return kinds, of
}

func newState(nodes []Node, kinds []kind, oneQoS bool) *state {
	s := &state{nodes: make([]server, len(nodes)), kinds: kinds, oneQoS: oneQoS}
	for i := range nodes {
		n := &nodes[i]
		s.nodes[i] = server{
			Node: n, position: i, cpu: n.CPU, memory: n.Memory, left: slices.Repeat([]int{wholeCard}, n.Cards),
			qos: make([]gpu.QoS, n.Cards), free: int64(n.Cards) * wholeCard,
		}
	}
	return s
}

// admits tells whether what is not about single cards lets the pod in: CPU,
// host memory and the card model. In a cluster that is kube-scheduler's part.
func (n *server) admits(k *kind) bool {
	if n.cpu < k.CPU || n.memory < k.Memory {
		return false
	}
	return k.Cards == 0 || k.Models == nil || slices.Contains(k.Models, n.Model)
}

// takes tells whether card c could hold one share of the pod.
func (s *state) takes(n *server, c int, k *kind) bool {
	if n.left[c] < k.Milli {
		return false
	}
	return !s.oneQoS || n.left[c] == wholeCard || n.qos[c] == k.QoS
}

// fits tells whether the node could hold the pod.
func (s *state) fits(n *server, k *kind) bool {
	if !n.admits(k) || n.free < k.Demand() {
		return false
	}
	found := 0
	for c := 0; c < len(n.left) && found < k.Cards; c++ {
		if s.takes(n, c, k) {
			found++
		}
	}
	return found == k.Cards
}

// book puts the pod on the cards. What does not fit is a fault of the policy.
func (s *state) book(node int, cards gpu.Set, k *kind) error {
	n := &s.nodes[node]
	if !n.admits(k) || cards.Len() != k.Cards || cards&^gpu.FirstCards(n.Cards) != 0 {
		return fmt.Errorf("a pod of %d cards does not fit on cards %v of %s", k.Cards, cards.Indices(), n.Name)
	}
	for c := range cards.All() {
		if !s.takes(n, c, k) {
			return fmt.Errorf("card %d of %s has %d thousandths left, and a pod with %d was put there", c, n.Name, n.left[c], k.Milli)
		}
	}
	n.cpu -= k.CPU
	n.memory -= k.Memory
	for c := range cards.All() {
		n.left[c] -= k.Milli
		n.qos[c] = k.QoS
	}
	n.free -= k.Demand()
	n.pods++
	n.holds[k.sort]++
	n.version++
	return nil
}

// tightest returns the card with the least left that takes a share of the pod.
func (s *state) tightest(n *server, k *kind) int {
	best := -1
	for c := range n.left {
		if s.takes(n, c, k) && (best < 0 || n.left[c] < n.left[best]) {
			best = c
		}
	}
	return best
}

// idleCards returns the lowest idle cards that the pod asks for.
func idleCards(n *server, count int) gpu.Set {
	var set gpu.Set
	for c := 0; c < len(n.left) && set.Len() < count; c++ {
		if n.left[c] == wholeCard {
			set |= gpu.SetOf(c)
		}
	}
	return set
}

// usualCards is how the published baselines choose inside a node: the tightest
// card for a share, the first idle ones otherwise.
func (s *state) usualCards(n *server, k *kind) gpu.Set {
	if k.fractional() {
		return gpu.SetOf(s.tightest(n, k))
	}
	return idleCards(n, k.Cards)
}
