package agent

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Reasons for which a card is not linked as it should be. It stays healthy: only jobs
// on several cards miss the link.
const (
	reasonLinkDown  = "LinkDown"
	reasonLinkFault = "LinkFault"
	// reasonLinksUnread is that of an unknown state: links stay as they were.
	reasonLinksUnread = "LinksUnreadable"
)

// pair is two cards, the lower id first.
type pair struct{ a, b gpu.CardID }

func pairOf(a, b gpu.CardID) pair { return pair{min(a, b), max(a, b)} }

// of returns the other card of a pair that the card belongs to.
func (p pair) of(id gpu.CardID) (other gpu.CardID, ok bool) {
	switch id {
	case p.a:
		return p.b, true
	case p.b:
		return p.a, true
	}
	return "", false
}

// links remembers every link that was ever seen, and whether it works.
type links struct {
	pairs map[pair]*damper
	// unread is why the last look could not read the links.
	unread string
}

// remember takes the links of an earlier publication as working.
func (l *links) remember(t *gpu.Topology) {
	for i := range t.Len() {
		for j := range t.Linked(i).All() {
			l.add(pairOf(t.Card(i).ID, t.Card(j).ID))
		}
	}
}

func (l *links) add(p pair) {
	if l.pairs == nil {
		l.pairs = map[pair]*damper{}
	}
	if l.pairs[p] == nil {
		l.pairs[p] = &damper{}
	}
}

// look notes the links of a snapshot whose cards have the given ids. Where the source
// does not know links they stay as they were.
func (l *links) look(s *discover.Snapshot, ids []gpu.CardID, now time.Time) {
	l.unread = s.LinksUnread
	if !s.LinksKnown {
		return
	}
	works := map[pair]bool{}
	for _, link := range s.Links {
		a, b := &s.Cards[link.A], &s.Cards[link.B]
		if ids[link.A] == "" || ids[link.B] == "" || a.Virtual || b.Virtual {
			continue
		}
		p := pairOf(ids[link.A], ids[link.B])
		works[p] = carries(a, b) && carries(b, a)
		l.add(p)
	}
	for p, d := range l.pairs {
		d.see(works[p], now)
	}
}

// carries reports whether a's side of its link to b works: one good port is enough,
// and ports without a known peer are not doubted.
func carries(a, b *discover.Card) bool {
	if a.Vitals.LinkFault != "" {
		return false
	}
	towards := 0
	for _, p := range a.Vitals.Ports {
		if p.Peer != "" && p.Peer == b.BDF {
			towards++
			if goodPort(p) {
				return true
			}
		}
	}
	return towards == 0
}

// goodPort follows the vendor: 16 lanes at 32 GT/s, or at 2.5 when idle.
func goodPort(p discover.Port) bool {
	trained := p.SpeedGT != 0 || p.Width != 0
	return p.Up && (!trained || p.Width == 16 && (p.SpeedGT == 32 || p.SpeedGT == 2.5))
}

// between returns the working links between the cards, by position.
func (l *links) between(members []*member) []gpu.Link {
	var out []gpu.Link
	for j, b := range members {
		for i, a := range members[:j] {
			if !a.here || !b.here || a.card.Virtual || b.card.Virtual {
				continue
			}
			if d, ok := l.pairs[pairOf(a.id, b.id)]; ok && !d.down {
				out = append(out, gpu.Link{A: i, B: j})
			}
		}
	}
	return out
}

// fault returns what is wrong with a card's links, except those to cards that are
// gone, by id or address: these are reported themselves.
func (l *links) fault(m *member, gone map[string]bool) (fault, bool) {
	if !m.here || m.card.Virtual {
		return fault{}, false
	}
	v := &m.card.Vitals
	if v.LinkFault != "" {
		return fault{reasonLinkFault, "MetaXLink is off: " + v.LinkFault}, true
	}
	var ports, peers []string
	for _, p := range v.Ports {
		switch text := "port " + strconv.Itoa(p.Number); {
		case goodPort(p), gone[p.Peer]:
		case p.Peer != "":
			ports = append(ports, text+" to "+p.Peer)
		default:
			ports = append(ports, text)
		}
	}
	if len(ports) > 0 {
		return fault{reasonLinkDown, "MetaXLink is down or slow: " + strings.Join(ports, ", ")}, true
	}
	// Without ports, links that were there before show it.
	for p, d := range l.pairs {
		peer, ours := p.of(m.id)
		if ours && d.down && !gone[string(peer)] {
			peers = append(peers, string(peer))
		}
	}
	slices.Sort(peers)
	return fault{reasonLinkDown, "no MetaXLink to " + strings.Join(peers, ", ")}, len(peers) > 0
}

func (l *links) drop(id gpu.CardID) {
	maps.DeleteFunc(l.pairs, func(p pair, _ *damper) bool { return p.a == id || p.b == id })
}
