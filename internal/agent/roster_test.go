package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// seen is a snapshot with the named cards at minor numbers from 0, each
// "ID" or "ID@slot" where its address is not that of its number.
func seen(cards ...string) *discover.Snapshot {
	s := &discover.Snapshot{Driver: "3.8.30", LinksKnown: true}
	for i, text := range cards {
		id, slot, other := strings.Cut(text, "@")
		if !other {
			slot = strconv.Itoa(i)
		}
		c := *goodCard()
		c.UUID, c.Minor, c.BDF = id, i, "slot-"+slot
		s.Cards = append(s.Cards, c)
	}
	return s
}

// linked adds links between cards, by position, with a port at each end.
func linked(s *discover.Snapshot, pairs ...gpu.Link) *discover.Snapshot {
	s.Links = append(s.Links, pairs...)
	for _, l := range pairs {
		for _, end := range []gpu.Link{l, {A: l.B, B: l.A}} {
			v := &s.Cards[end.A].Vitals
			v.Ports = append(v.Ports, discover.Port{Number: len(v.Ports), Up: true, Peer: s.Cards[end.B].BDF, SpeedGT: 32, Width: 16})
		}
	}
	return s
}

func noCard(gpu.CardID) bool { return false }

func names(ids ...gpu.CardID) func(gpu.CardID) bool {
	return func(id gpu.CardID) bool { return slices.Contains(ids, id) }
}

// published returns the roster's cards as they are published, "minor=ID", lost
// ones in brackets.
func published(t *testing.T, r *roster) string {
	t.Helper()
	p := publicationOf(t, r)
	var list []string
	for i := range p.Topology.Len() {
		c := p.Topology.Card(i)
		text := fmt.Sprintf("%d=%s", c.Minor, c.ID)
		if !c.Healthy {
			text = "(" + text + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

func publicationOf(t *testing.T, r *roster) *inventory.Publication {
	t.Helper()
	p, err := r.publication("n1", "uid-1", &modeDecision{mode: gpu.ModeSGPU}, nil, at(0))
	gputest.Must(t, err)
	return p
}

func TestNumber(t *testing.T) {
	cases := map[string]struct {
		looks    []*discover.Snapshot
		named    func(gpu.CardID) bool
		want     string
		replaced []gpu.CardID
	}{
		"cards as the driver numbers them":     {[]*discover.Snapshot{seen("a", "b", "c")}, noCard, "0=a 1=b 2=c", nil},
		"a lost card keeps its number":         {[]*discover.Snapshot{seen("a", "b", "c"), {Cards: seen("a", "b", "c").Cards[:2]}}, noCard, "0=a 1=b (2=c)", nil},
		"all are lost":                         {[]*discover.Snapshot{seen("a", "b"), seen()}, noCard, "(0=a) (1=b)", nil},
		"the driver counts again after a loss": {[]*discover.Snapshot{seen("a", "b", "c"), seen("b@1", "c@2")}, noCard, "(0=a) 1=b 2=c", nil},
		"it does, and a card is added": {
			[]*discover.Snapshot{seen("a", "b", "c"), seen("b@1", "c@2", "new@9")}, noCard, "(0=a) 1=b 2=c 3=new", nil,
		},
		"it does, but a pod names the lost one": {
			[]*discover.Snapshot{seen("a", "b", "c"), seen("b@1", "c@2")}, names("a"), "(0=a) 1=b 2=c", nil,
		},
		"another card in its place": {
			[]*discover.Snapshot{seen("a", "b", "c"), seen("a", "x", "c")}, noCard, "0=a 1=x 2=c", []gpu.CardID{"b"},
		},
		"another card in its place, but a pod names it": {
			[]*discover.Snapshot{seen("a", "b", "c"), seen("a", "x", "c")}, names("b"), "0=a (1=b) 2=c 3=x", nil,
		},
		"an old card moved into its place": {
			[]*discover.Snapshot{seen("a", "b"), seen("b@0")}, noCard, "(0=a) 1=b", nil,
		},
		"cards change places": {[]*discover.Snapshot{seen("a", "b"), seen("b", "a")}, noCard, "0=a 1=b", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var r roster
			var replaced []gpu.CardID
			for i, s := range tc.looks {
				r.look(s, at(3*i))
				replaced = r.number(tc.named)
			}
			gputest.Equal(t, "published", tc.want, published(t, &r))
			gputest.Equal(t, "replaced", tc.replaced, replaced)
			again := published(t, &r)
			r.number(tc.named)
			if got := published(t, &r); got != again {
				t.Errorf("numbered again: %s, was %s", got, again)
			}
		})
	}
}

// A card that does not report its UUID any more is the one that was at its
// address.
func TestIdentifyByAddress(t *testing.T) {
	var r roster
	r.look(seen("a", "b"), at(0))
	nameless := seen("a", "")
	nameless.Cards[1] = discover.Card{Minor: 5, BDF: "slot-1", Vitals: discover.Vitals{Available: new(false), Reason: "off"}}
	if c := r.look(nameless, at(3)).Cards[1]; c.UUID != "b" || c.Minor != 1 || c.Memory != 64<<10 || c.Model != "C500" || c.Vitals.Reason != "off" {
		t.Errorf("card 1 is %+v", c)
	}
	r.number(noCard)
	gputest.Equal(t, "published", "0=a (1=b)", published(t, &r))
	p := publicationOf(t, &r)
	if c := p.Topology.Card(1); c.Memory != 64<<10 || c.Model != "C500" || p.Cards[1].BusID != "slot-1" {
		t.Errorf("it forgot what it knew: %+v, %+v", c, p.Cards[1])
	}
	if got := conditionOf(&p.Cards[1], wire.ConditionHealthy).Reason; got != reasonUnavailable {
		t.Errorf("reason %s, want %s: it is there", got, reasonUnavailable)
	}
	t.Run("an address that is not known", func(t *testing.T) {
		strange := seen("a", "")
		strange.Cards[1].BDF = "slot-9"
		r.look(strange, at(6))
		gputest.Equal(t, "nameless", []string{"slot-9"}, r.nameless)
	})
	t.Run("the card was moved", func(t *testing.T) {
		got := r.look(seen("a", "", "b@9"), at(9)).Cards
		if got[1].UUID != "" || got[2].UUID != "b" || got[2].BDF != "slot-9" {
			t.Errorf("cards %+v", got)
		}
	})
	t.Run("the last of two at one address", func(t *testing.T) {
		r.look(seen("a", "x"), at(12))
		r.look(seen("a", "y"), at(15))
		gputest.Equal(t, "UUID", "y", r.look(seen("a", ""), at(18)).Cards[1].UUID)
		r.look(seen("a", "x"), at(21))
		gputest.Equal(t, "UUID", "x", r.look(seen("a", ""), at(24)).Cards[1].UUID)
	})
}

// A port that was up once stays listed, with its peer.
func TestRememberedPorts(t *testing.T) {
	var r roster
	ports := func(given []discover.Port) []discover.Port {
		s := seen("a")
		s.Cards[0].Vitals.Ports = given
		return r.look(s, at(0)).Cards[0].Vitals.Ports
	}
	up := []discover.Port{{Number: 0, Up: true, Peer: "slot-1"}, {Number: 3, Up: true, Peer: "slot-2"}}
	gputest.Equal(t, "at first", up, ports(up))
	if got := ports(nil); got != nil {
		t.Errorf("where the source reports none: %v", got)
	}
	want := []discover.Port{{Number: 0, Peer: "slot-1"}, {Number: 3, Peer: "slot-2"}}
	gputest.Equal(t, "later", want, ports([]discover.Port{{Number: 3}}))
}

// A roster that was filled from a Device goes on as the one that wrote it.
func TestRemember(t *testing.T) {
	var before roster
	s := linked(seen("a", "b", "c"), gpu.Link{A: 0, B: 1}, gpu.Link{A: 1, B: 2})
	s.Cards[1].NUMA, s.Cards[1].PCIeRoot, s.Cards[1].PCIeSwitch = new(1), "pci0000:3a", "sw"
	before.look(s, at(0))
	s.Cards[0].Vitals.Available = new(false)
	s.Cards[2].UUID = "x"
	before.look(s, at(3))
	before.number(names("c"))
	device, err := inventory.EncodeDevice(publicationOf(t, &before))
	gputest.Must(t, err)
	p, err := inventory.DecodePublication(device)
	gputest.Must(t, err)
	var after roster
	after.remember(p, at(10))
	if got, want := published(t, &after), published(t, &before); got != want {
		t.Errorf("remembered %s, was %s", got, want)
	}
	unknown := *s
	unknown.LinksKnown = false
	after.look(&unknown, at(10))
	after.number(names("c"))
	got, err := inventory.EncodeDevice(publicationOf(t, &after))
	gputest.Must(t, err)
	gputest.Equal(t, "the Device before and after a restart", device, got)
}

func TestDescribe(t *testing.T) {
	s := linked(seen("a", "b"), gpu.Link{A: 0, B: 1})
	d, err := Describe("n1", "uid-1", "", s, start)
	gputest.Must(t, err)
	inv := inventory.ReadInventory(nil, d)
	if inv.Problem != nil || inv.Topology.Len() != 2 || !inv.Topology.Linked(0).Has(1) || inv.Mode != gpu.ModeSGPU {
		t.Errorf("inventory %+v", inv)
	}
}
