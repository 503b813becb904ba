package gpu

import (
	"encoding/binary"
	"sync"
)

// Memo is a bounded cache of searches, safe for concurrent use. The zero Memo
// is empty and ready.
type Memo struct {
	mu      sync.RWMutex
	answers map[[4]uint64]MemoAnswer
}

// MemoAnswer is what a search found.
type MemoAnswer struct {
	Cards Set
	// Complete is false when the search ended before it had seen everything.
	Complete bool
}

// memoLimit bounds a cache, which takes 0.4 MiB when it is full. A node passes
// through few states between two changes of its inventory; when a long life
// fills the cache it starts over, which costs one search per state.
const memoLimit = 4096

// Get returns the stored answer.
func (m *Memo) Get(key [4]uint64) (MemoAnswer, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	a, ok := m.answers[key]
	return a, ok
}

// Put stores an answer.
func (m *Memo) Put(key [4]uint64, a MemoAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers == nil || len(m.answers) >= memoLimit {
		m.answers = make(map[[4]uint64]MemoAnswer)
	}
	m.answers[key] = a
}

// Memos gives topologies whose cards are joined in the same way one memo: the
// answer of a search depends on nothing else. The owner of the nodes has one
// Memos. The zero Memos is ready, and safe for concurrent use.
type Memos struct {
	mu    sync.Mutex
	alike map[string]*Memo // by how the cards are joined
}

// memosLimit bounds the kinds of topology that are kept; then it starts over.
const memosLimit = 1024

// Share gives the topology the memo of its kind. It must be called before the
// topology is used by more than one goroutine. Nil is no topology.
func (m *Memos) Share(t *Topology) {
	if t == nil {
		return
	}
	var key []byte
	for i := range t.joined {
		key = binary.LittleEndian.AppendUint64(key, uint64(t.joined[i].link))
		key = binary.LittleEndian.AppendUint64(key, uint64(t.joined[i].near))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	memo, ok := m.alike[string(key)]
	if !ok {
		if m.alike == nil || len(m.alike) >= memosLimit {
			m.alike = make(map[string]*Memo)
		}
		memo = &Memo{}
		m.alike[string(key)] = memo
	}
	t.Memo = memo
}
