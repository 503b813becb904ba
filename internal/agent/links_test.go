package agent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// three cards, linked 0-1 (two ports) and 1-2.
func three(change ...func(*discover.Snapshot)) *discover.Snapshot {
	s := linked(seen("a", "b", "c"), gpu.Link{A: 0, B: 1}, gpu.Link{A: 0, B: 1}, gpu.Link{A: 1, B: 2})
	for _, f := range change {
		f(s)
	}
	return s
}

// port changes a port of card b.
func port(number int, change func(*discover.Port)) func(*discover.Snapshot) {
	return func(s *discover.Snapshot) { change(&s.Cards[1].Vitals.Ports[number]) }
}

func downPort(p *discover.Port) { p.Up = false }

func TestLinks(t *testing.T) {
	noLink := func(s *discover.Snapshot) { s.Links = s.Links[:2] }
	cases := map[string]struct {
		looks []*discover.Snapshot // three seconds apart
		want  string               // rows of the matrix
		fault string               // of card b
	}{
		"all is well":                                {[]*discover.Snapshot{three()}, "-M. M-M .M-", ""},
		"one of two ports is down":                   {[]*discover.Snapshot{three(), three(port(0, downPort))}, "-M. M-M .M-", "LinkDown: MetaXLink is down or slow: port 0 to slot-0"},
		"both are down, at one end":                  {[]*discover.Snapshot{three(port(0, downPort), port(1, downPort))}, "-.. .-M .M-", "LinkDown: MetaXLink is down or slow: port 0 to slot-0, port 1 to slot-0"},
		"the only port has half its lanes":           {[]*discover.Snapshot{three(port(2, func(p *discover.Port) { p.Width = 8 }))}, "-M. M-. ..-", "LinkDown: MetaXLink is down or slow: port 2 to slot-2"},
		"it idles at low speed":                      {[]*discover.Snapshot{three(port(2, func(p *discover.Port) { p.SpeedGT = 2.5 }))}, "-M. M-M .M-", ""},
		"it was trained too slow":                    {[]*discover.Snapshot{three(port(2, func(p *discover.Port) { p.SpeedGT = 16 }))}, "-M. M-. ..-", "LinkDown: MetaXLink is down or slow: port 2 to slot-2"},
		"what it was trained to is not known":        {[]*discover.Snapshot{three(port(2, func(p *discover.Port) { p.SpeedGT, p.Width = 0, 0 }))}, "-M. M-M .M-", ""},
		"the source lists the link no more":          {[]*discover.Snapshot{three(), three(noLink)}, "-M. M-. ..-", "LinkDown: no MetaXLink to c"},
		"all links are off by a fault":               {[]*discover.Snapshot{three(func(s *discover.Snapshot) { s.Cards[1].Vitals.LinkFault = "training failed" })}, "-.. .-. ..-", "LinkFault: MetaXLink is off: training failed"},
		"ports without peers are not doubted":        {[]*discover.Snapshot{three(port(2, func(p *discover.Port) { p.Peer, p.Up = "", false }))}, "-M. M-M .M-", "LinkDown: MetaXLink is down or slow: port 2"},
		"back, but not for long enough":              {[]*discover.Snapshot{three(), three(noLink), three(), three()}, "-M. M-. ..-", "LinkDown: no MetaXLink to c"},
		"back to stay":                               {[]*discover.Snapshot{three(), three(noLink), three(), three(), three(), three(), three()}, "-M. M-M .M-", ""},
		"links that could not be read":               {[]*discover.Snapshot{three(), {Cards: three().Cards, LinksUnread: "no answer"}}, "-M. M-M .M-", "LinksUnreadable: the links could not be read and stay as they were: no answer"},
		"a look that does not know":                  {[]*discover.Snapshot{three(), {Cards: three().Cards}}, "-M. M-M .M-", ""},
		"a card of the link is lost":                 {[]*discover.Snapshot{three(), seen("a", "b")}, "-.. .-. ..-", "LinkDown: no MetaXLink to a"},
		"a card is lost, and links are not known":    {[]*discover.Snapshot{three(), {Cards: three().Cards[:2]}}, "-M. M-. ..-", ""},
		"a card is lost, and the ports to it say so": {[]*discover.Snapshot{three(), {Cards: three(port(2, downPort)).Cards[:2], Links: three().Links[:2], LinksKnown: true}}, "-M. M-. ..-", ""},
		"virtual functions have none":                {[]*discover.Snapshot{three(func(s *discover.Snapshot) { s.Cards[1].Virtual = true })}, "-.. .-. ..-", ""},
		"a link of a card that has no name":          {[]*discover.Snapshot{three(), three(func(s *discover.Snapshot) { s.Cards[2].UUID, s.Cards[2].BDF = "", "elsewhere" })}, "-M. M-. ..-", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var r roster
			for i, s := range tc.looks {
				r.look(s, at(3*i))
			}
			r.number(noCard)
			p := publicationOf(t, &r)
			gputest.Equal(t, "links", tc.want, matrix(p.Topology))
			c := conditionOf(&p.Cards[1], wire.ConditionLinked)
			got := ""
			if c.Reason != "" {
				got = c.Reason + ": " + c.Message
			}
			if got != tc.fault {
				t.Errorf("got  %s\nwant %s", got, tc.fault)
			}
			if !p.Topology.Card(1).Healthy {
				t.Error("a card whose links are down is not healthy any more")
			}
		})
	}
}

// matrix draws the links.
func matrix(t *gpu.Topology) string {
	var rows []string
	for i := range t.Len() {
		row := bytes.Repeat([]byte("."), t.Len())
		row[i] = '-'
		for j := range t.Linked(i).All() {
			row[j] = 'M'
		}
		rows = append(rows, string(row))
	}
	return strings.Join(rows, " ")
}

func TestLinksOfAForgottenCard(t *testing.T) {
	var r roster
	r.look(three(), at(0))
	r.look(seen("a", "b"), at(3))
	r.drop("c")
	r.number(noCard)
	c := conditionOf(&publicationOf(t, &r).Cards[1], wire.ConditionLinked)
	gputest.Equal(t, "card b says", "no MetaXLink to a", c.Message)
}
