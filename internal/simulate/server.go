package simulate

import (
	"fmt"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// server is a node of a run: its account, and what the account has no room for.
type server struct {
	*ledger.Node
	// name is the server's own. The account's name is its position, since a board
	// takes the first by name of nodes that are worth the same.
	name     string
	position int
	model    string
	memory   gpu.MiB // free, of the host
	free     int64   // thousandths of cards
	// holds counts the jobs on the server by size, for clustering.
	holds map[string]int
	// version changes with everything that is booked and released. The first is 1.
	version int
}

func newServer(position int, name string, t *gpu.Topology) *server {
	s := &server{
		Node: ledger.NewNode(fmt.Sprintf("%06d", position), t, ledger.Serves{Whole: true, Slices: true}), name: name, position: position,
		free: int64(t.Len()) * wholeCard, holds: map[string]int{}, version: 1,
	}
	if t.Len() > 0 {
		s.model = t.Card(0).Model
	}
	return s
}

// cardMemory is what every card is taken to have: a C500's. Jobs ask for the
// same part of it as of the compute.
const cardMemory gpu.MiB = 64 << 10

func newTopology(cards int, model string, links []gpu.Link) (*gpu.Topology, error) {
	list := make([]gpu.Card, cards)
	for i := range list {
		list[i] = gpu.Card{
			ID: gpu.CardID(fmt.Sprintf("GPU-%d", i)), Minor: i, Model: model, Memory: cardMemory,
			Slots: gpu.MaxSlices, Healthy: true,
		}
	}
	return gpu.NewTopology(list, links)
}

// cards returns how many cards the server has.
func (s *server) cards() int { return s.Topology().Len() }

// left returns what is free of a card.
func (s *server) left(card int) gpu.Percent { return gpu.FullCompute - s.Now().Usage[card].Compute }

// idle returns the cards that are not in use.
func (s *server) idle() gpu.Set {
	var set gpu.Set
	usage := s.Now().Usage
	for c := range usage {
		if usage[c].Idle() {
			set |= gpu.SetOf(c)
		}
	}
	return set
}

// room returns the cards that can take one share of the kind.
func (s *server) room(k *kind) gpu.Set {
	var set gpu.Set
	usage := s.Now().Usage
	for c := range usage {
		u := &usage[c]
		if u.Compute+k.share <= gpu.FullCompute && (u.Idle() || u.QoS == k.request.QoS.Set()) {
			set |= gpu.SetOf(c)
		}
	}
	return set
}

// admits reports whether all that is not about single cards lets the job in:
// CPU, host memory and the card model. In a cluster that is kube-scheduler's part.
func (s *server) admits(k *kind) bool {
	return s.FreeCPU >= k.cpu && s.memory >= k.memory && k.runsOn(s.model)
}

// fits reports whether the server could hold the job.
func (s *server) fits(k *kind) bool {
	return s.admits(k) && s.free >= k.demand() && s.room(k).Len() >= k.cards
}

// takes reports whether the job can be booked on the cards.
func (s *server) takes(k *kind, cards gpu.Set) bool {
	return s.admits(k) && cards.Len() == k.cards && cards&^s.room(k) == 0
}

// book puts a job on the cards.
func (s *server) book(h ledger.Holder, k *kind, cards gpu.Set) error {
	if k.cards > 0 {
		offer := s.NewOffer(1)
		offer.SetCards(0, cards)
		if _, err := s.Commit(offer, h, &k.request); err != nil {
			return err
		}
	}
	s.count(k, 1)
	return nil
}

// release takes a job off the server.
func (s *server) release(h ledger.Holder, k *kind) {
	s.Release(h)
	s.count(k, -1)
}

// count brings up to date what the account does not know.
func (s *server) count(k *kind, jobs int) {
	s.FreeCPU -= gpu.MilliCPU(jobs) * k.cpu
	s.memory -= gpu.MiB(jobs) * k.memory
	s.free -= int64(jobs) * k.demand()
	s.holds[k.size] += jobs
	s.version++
}

// usualCards is how the published baselines choose inside a server that fits:
// the card with the least left for a share, the first idle cards otherwise.
func (s *server) usualCards(k *kind) gpu.Set {
	room := s.room(k)
	if !k.fractional() {
		return first(room, k.cards)
	}
	best := room.First()
	for c := range room.All() {
		if s.left(c) < s.left(best) {
			best = c
		}
	}
	return gpu.SetOf(best)
}

// first returns the n cards with the lowest indices.
func first(cards gpu.Set, n int) gpu.Set { return cards &^ last(cards, cards.Len()-n) }

// last returns the n cards with the highest indices.
func last(cards gpu.Set, n int) gpu.Set {
	for cards.Len() > n {
		cards &= cards - 1
	}
	return cards
}
