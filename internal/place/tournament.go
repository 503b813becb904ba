package place

import "iter"

// tournament keeps the order of a set of nodes while members come, go and change:
// each change plays again the matches on the way from its leaf to the top, and so
// takes the logarithm of the number of nodes.
type tournament struct {
	// first is the position of the first leaf. The matches before it have their
	// winners: match i is between 2i and 2i+1, and match 1 is the final.
	first   int
	winner  []int32
	members int
}

// absent is in place of a node that is not a member.
const absent = -1

func newTournament(nodes int) tournament {
	first := 1
	for first < nodes {
		first *= 2
	}
	t := tournament{first: first, winner: make([]int32, 2*first)}
	for i := range t.winner {
		t.winner[i] = absent
	}
	return t
}

// update makes the node a member or not, and plays the matches that it is in.
func (t *tournament) update(id NodeID, member bool, better func(a, b NodeID) bool) {
	t.enter(id, member)
	for i := (t.first + int(id)) / 2; i > 0; i /= 2 {
		t.match(i, better)
	}
}

// play sets who is a member, and plays all matches.
func (t *tournament) play(member []bool, better func(a, b NodeID) bool) {
	for id, in := range member {
		t.enter(NodeID(id), in)
	}
	for i := t.first - 1; i > 0; i-- {
		t.match(i, better)
	}
}

func (t *tournament) enter(id NodeID, member bool) {
	leaf := &t.winner[t.first+int(id)]
	switch {
	case member && *leaf == absent:
		*leaf = int32(id)
		t.members++
	case !member && *leaf != absent:
		*leaf = absent
		t.members--
	}
}

func (t *tournament) match(i int, better func(a, b NodeID) bool) {
	a, b := t.winner[2*i], t.winner[2*i+1]
	if a == absent || b != absent && better(NodeID(b), NodeID(a)) {
		a = b
	}
	t.winner[i] = a
}

// ranked returns the members from the best to the worst, each in the time that the
// logarithm of their number takes. It changes nothing: the winner of a match beat all
// that are below it, so whoever is next won a match beside the way of one before.
func (t *tournament) ranked(better func(a, b NodeID) bool) iter.Seq[NodeID] {
	return func(yield func(NodeID) bool) {
		open := matches{tournament: t, better: better}
		open.push(1)
		for len(open.heap) > 0 {
			i := open.pop()
			best := t.winner[i]
			if !yield(NodeID(best)) {
				return
			}
			for i < t.first {
				i *= 2
				if t.winner[i] == best {
					open.push(i + 1)
				} else {
					open.push(i)
					i++
				}
			}
		}
	}
}

// matches is a heap of matches, the one with the best winner on top.
type matches struct {
	*tournament
	better func(a, b NodeID) bool
	heap   []int
}

func (m *matches) before(a, b int) bool {
	return m.better(NodeID(m.winner[m.heap[a]]), NodeID(m.winner[m.heap[b]]))
}

// push adds the match, unless nobody won it.
func (m *matches) push(match int) {
	if m.winner[match] == absent {
		return
	}
	m.heap = append(m.heap, match)
	for i := len(m.heap) - 1; i > 0 && m.before(i, (i-1)/2); i = (i - 1) / 2 {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
	}
}

// pop takes the match with the best winner away.
func (m *matches) pop() int {
	top, last := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			return top
		}
		if next+1 < last && m.before(next+1, next) {
			next++
		}
		if !m.before(next, i) {
			return top
		}
		m.heap[i], m.heap[next] = m.heap[next], m.heap[i]
		i = next
	}
}
