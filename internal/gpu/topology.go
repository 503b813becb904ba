package gpu

import (
	"errors"
	"fmt"
)

// Weights of a pair of cards. They are the vendor's: its published tables of
// scores and losses come out of them to the last digit.
const (
	// WeightLink is a direct MetaXLink, whatever else joins the two cards.
	WeightLink = 110
	// WeightNear is the same zone without a direct link, or the same switch.
	WeightNear = 50
	// WeightFar is any other pair.
	WeightFar = 10
)

// ErrTopology is what every error of [NewTopology] wraps.
var ErrTopology = errors.New("gpu: topology")

// Link is a direct MetaXLink between two cards, by index.
type Link struct{ A, B int }

// ZoneLinks returns the links of cards of which only the zone is known: every
// two cards of one zone count as linked. A zone of 0 is no zone.
func ZoneLinks(zones []int) []Link {
	var links []Link
	for i, zi := range zones {
		for j, zj := range zones[:i] {
			if zi > 0 && zi == zj {
				links = append(links, Link{A: j, B: i})
			}
		}
	}
	return links
}

// Topology is the immutable picture of one node's cards. It is built once for
// each version of the node's inventory and shared by all its readers.
type Topology struct {
	cards   []Card
	joined  []joins
	zones   []Set // zones of two cards or more, by lowest index
	zoneOf  []int // by card: its zone's position in zones plus one, or 0
	healthy Set

	// Memo caches long searches over this topology. [Memos.Share] lets
	// topologies whose cards are joined in the same way have one.
	Memo *Memo
}

// joins is how one card is joined to the others.
type joins struct {
	link   Set // the cards directly linked to it
	near   Set // the cards of weight WeightNear
	others Set // all cards but itself
	twins  Set // the cards that every third card sees alike, itself included
}

// NewTopology checks the facts and derives zones, weights and symmetry. The
// order of cards is the order of the inventory: index i is cards[i].
func NewTopology(cards []Card, links []Link) (*Topology, error) {
	n := len(cards)
	if n > MaxCards {
		return nil, fmt.Errorf("%w: %d cards, a node may hold %d", ErrTopology, n, MaxCards)
	}
	t := &Topology{cards: append([]Card(nil), cards...), Memo: &Memo{}}
	seen := make(map[CardID]int, n)
	for i, c := range cards {
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTopology, err)
		}
		if j, ok := seen[c.ID]; ok && c.ID != "" {
			return nil, fmt.Errorf("%w: cards %d and %d have the same id %q", ErrTopology, j, i, c.ID)
		}
		seen[c.ID] = i
		if c.Healthy {
			t.healthy |= SetOf(i)
		}
	}
	t.joined = make([]joins, n)
	for _, l := range links {
		if l.A < 0 || l.A >= n || l.B < 0 || l.B >= n || l.A == l.B {
			return nil, fmt.Errorf("%w: link %d-%d on a node with %d cards", ErrTopology, l.A, l.B, n)
		}
		t.joined[l.A].link |= SetOf(l.B)
		t.joined[l.B].link |= SetOf(l.A)
	}
	t.findZones()
	t.findNear()
	t.findTwins()
	return t, nil
}

// findZones collects the connected components of the links.
func (t *Topology) findZones() {
	t.zoneOf = make([]int, len(t.cards))
	for i := range t.cards {
		if t.zoneOf[i] != 0 || t.joined[i].link == 0 {
			continue
		}
		zone := SetOf(i)
		for grown := Set(0); grown != zone; {
			grown = zone
			for c := range grown.All() {
				zone |= t.joined[c].link
			}
		}
		t.zones = append(t.zones, zone)
		for c := range zone.All() {
			t.zoneOf[c] = len(t.zones)
		}
	}
}

func (t *Topology) findNear() {
	for i := range t.cards {
		t.joined[i].others = t.All() &^ SetOf(i)
		for j := range t.cards {
			sameZone := t.zoneOf[i] != 0 && t.zoneOf[i] == t.zoneOf[j]
			sameSwitch := t.cards[i].Switch != "" && t.cards[i].Switch == t.cards[j].Switch
			if i != j && !t.joined[i].link.Has(j) && (sameZone || sameSwitch) {
				t.joined[i].near |= SetOf(j)
			}
		}
	}
}

// findTwins groups cards that can stand for each other: every third card has
// the same weight to both, so any choice may be made with the lower index.
func (t *Topology) findTwins() {
	for i := range t.cards {
		for j := range t.cards {
			third := ^SetOf(i, j)
			if t.joined[i].link&third == t.joined[j].link&third && t.joined[i].near&third == t.joined[j].near&third {
				t.joined[i].twins |= SetOf(j)
			}
		}
	}
}

// Len returns the number of cards.
func (t *Topology) Len() int { return len(t.cards) }

// Card returns the card with the given index; the caller must not change it.
func (t *Topology) Card(i int) *Card { return &t.cards[i] }

// All returns the set of all cards.
func (t *Topology) All() Set { return FirstCards(len(t.cards)) }

// Healthy returns the set of healthy cards.
func (t *Topology) Healthy() Set { return t.healthy }

// LargestCard returns the memory of the largest card, 0 if there is none.
func (t *Topology) LargestCard() (largest MiB) {
	for i := range t.cards {
		largest = max(largest, t.cards[i].Memory)
	}
	return largest
}

// Zones returns the zones of two cards or more, ordered by their lowest index.
// The caller must not change them.
func (t *Topology) Zones() []Set { return t.zones }

// ZoneOf returns the number of the card's zone, counted from 1; a card without
// a link has none.
func (t *Topology) ZoneOf(i int) (zone int, ok bool) { return t.zoneOf[i], t.zoneOf[i] != 0 }

// Linked returns the cards with a direct link to card i.
func (t *Topology) Linked(i int) Set { return t.joined[i].link }

// LinkedPairs returns how many pairs of the set have a direct link.
func (t *Topology) LinkedPairs(s Set) int {
	ends := 0
	for i := range s.All() {
		ends += (t.Linked(i) & s).Len()
	}
	return ends / 2
}

// Near returns the cards without a direct link to card i that are still near it:
// of the same zone, or under the same switch.
func (t *Topology) Near(i int) Set { return t.joined[i].near }

// Twins returns the cards, i among them, that may stand for card i in any
// choice without changing what the choice is worth.
func (t *Topology) Twins(i int) Set { return t.joined[i].twins }

// Index returns the index of the card with the given id.
func (t *Topology) Index(id CardID) (int, bool) {
	for i := range t.cards {
		if t.cards[i].ID == id && id != "" {
			return i, true
		}
	}
	return 0, false
}

// Pull returns the sum of the weights between card i and the cards of s, i
// itself left out.
func (t *Topology) Pull(i int, s Set) int64 {
	j := &t.joined[i]
	return int64(WeightFar*(s&j.others).Len() +
		(WeightLink-WeightFar)*(s&j.link).Len() +
		(WeightNear-WeightFar)*(s&j.near).Len())
}

// Heaviest returns the sum of the n heaviest weights between card i and cards
// of s: no n of them pull more.
func (t *Topology) Heaviest(i int, s Set, n int) int64 {
	links := min(n, (s & t.joined[i].link).Len())
	near := min(n-links, (s & t.joined[i].near).Len())
	return int64(WeightLink*links + WeightNear*near + WeightFar*(n-links-near))
}

// Score returns the sum of the pair weights inside s: what the set is worth to
// a job that runs on it.
func (t *Topology) Score(s Set) int64 {
	var twice int64
	for i := range s.All() {
		twice += t.Pull(i, s)
	}
	return twice / 2
}

// Loss returns what taking s out of free costs those who come later: the score
// of free, less the score of s and of what is left. That is the sum of the
// weights that the cut goes through.
func (t *Topology) Loss(s, free Set) int64 {
	rest := free &^ s
	var cut int64
	for i := range s.All() {
		cut += t.Pull(i, rest)
	}
	return cut
}
