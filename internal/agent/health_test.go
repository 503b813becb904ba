package agent

import (
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// start is when tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a moment of a test.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// The steps are looks three seconds apart, "+" for a good one and "-" for a bad
// one; want says of each whether the damper is down ("d") or up ("u").
func TestDamper(t *testing.T) {
	cases := map[string]struct{ looks, want string }{
		"what was never down stays up":                      {"+++++", "uuuuu"},
		"down at once, up after ten seconds of good looks":  {"+-++++++", "uddddduu"},
		"a bad look in between starts the wait again":       {"-++-++++++", "dddddddduu"},
		"down for long, then good":                          {"------+++++", "ddddddddddu"},
		"the second time it takes forty seconds":            {"-+++++-++++++++++++++++", "ddddduddddddddddddddduu"},
		"the second time thirty-six seconds are not enough": {"-+++++-+++++++++++++-", "ddddduddddddddddddddd"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var d damper
			var got []byte
			for i, look := range tc.looks {
				d.see(look == '+', at(3*i))
				if d.down {
					got = append(got, 'd')
				} else {
					got = append(got, 'u')
				}
			}
			if string(got) != tc.want {
				t.Errorf("looks %s\n got  %s\n want %s", tc.looks, got, tc.want)
			}
		})
	}
}

func TestDamperHold(t *testing.T) {
	var d damper
	now := start
	want := []time.Duration{10 * time.Second, 40 * time.Second, 160 * time.Second, 640 * time.Second, 30 * time.Minute, 30 * time.Minute}
	for i, hold := range want {
		d.see(false, now)
		if d.hold() != hold {
			t.Errorf("after %d falls it holds for %s, want %s", i+1, d.hold(), hold)
		}
		d.see(true, now.Add(time.Second))
		d.see(true, now.Add(time.Second).Add(hold))
		if d.down {
			t.Fatalf("still down after %d falls and %s", i+1, hold)
		}
		d.falls[len(d.falls)-1] = now // as if it had been quick
	}
	d.see(false, now.Add(2*time.Hour))
	gputest.Equal(t, "falls of long ago count: it holds for", firstHold, d.hold())
}

// Two good looks are needed however far apart they are.
func TestDamperWantsTwoGoodLooks(t *testing.T) {
	var d damper
	d.see(false, at(0))
	d.see(true, at(3600))
	if !d.down {
		t.Error("up after one good look")
	}
	d.see(true, at(7200))
	if d.down {
		t.Error("down after two")
	}
}

// goodCard is a card with nothing wrong.
func goodCard(change ...func(*discover.Card)) *discover.Card {
	c := &discover.Card{UUID: "GPU-0", BDF: "0000:11:00.0", Model: "C500", Memory: 64 << 10}
	c.Vitals = discover.Vitals{Available: new(true), ECC: &discover.ECC{}}
	for _, f := range change {
		f(c)
	}
	return c
}

func unavailable(reason string) func(*discover.Card) {
	return func(c *discover.Card) { c.Vitals.Available, c.Vitals.Reason = new(false), reason }
}

func errorsOf(sram, dram int64) func(*discover.Card) {
	return func(c *discover.Card) {
		c.Vitals.ECC = &discover.ECC{SRAMUncorrectable: sram, DRAMUncorrectable: dram, DRAMCorrectable: 999}
	}
}

func pages(n int64) func(*discover.Card) {
	return func(c *discover.Card) { c.Vitals.ECC.RetiredPages = n }
}

func TestHealth(t *testing.T) {
	lost := (*discover.Card)(nil)
	unknown := goodCard(func(c *discover.Card) { c.Vitals = discover.Vitals{} })
	good := goodCard()
	cases := map[string]struct {
		looks []*discover.Card // three seconds apart
		want  string           // reason and message
	}{
		"a good card":                        {[]*discover.Card{good}, "DeviceHealthy: device is healthy"},
		"a source that reports nothing":      {[]*discover.Card{unknown}, "DeviceHealthy: device is healthy"},
		"the driver says why":                {[]*discover.Card{good, goodCard(unavailable("overheated"))}, "DeviceUnavailable: reported by the driver: overheated"},
		"the driver does not say why":        {[]*discover.Card{goodCard(unavailable(""))}, "DeviceUnavailable: the driver reports the card as unavailable"},
		"a card that is gone":                {[]*discover.Card{good, lost}, "CardLost: the card is no longer found"},
		"a card that came back just now":     {[]*discover.Card{good, lost, good}, "Recovering: the card is no longer found; recovering, healthy after 10s without a fault"},
		"a card that came back to stay":      {[]*discover.Card{lost, good, good, good, good, good}, "DeviceHealthy: device is healthy"},
		"errors of before the agent":         {[]*discover.Card{goodCard(errorsOf(3, 4))}, "DeviceHealthy: device is healthy"},
		"errors that stay as they are":       {[]*discover.Card{goodCard(errorsOf(3, 4)), goodCard(errorsOf(3, 4))}, "DeviceHealthy: device is healthy"},
		"memory errors rise":                 {[]*discover.Card{goodCard(errorsOf(0, 4)), goodCard(errorsOf(0, 5))}, "UncorrectableECC: uncorrectable memory errors rose from 4 to 5"},
		"those on the chip rise":             {[]*discover.Card{good, goodCard(errorsOf(1, 0))}, "UncorrectableECC: uncorrectable memory errors rose from 0 to 1"},
		"they rise again":                    {[]*discover.Card{good, goodCard(errorsOf(0, 1)), goodCard(errorsOf(0, 3))}, "UncorrectableECC: uncorrectable memory errors rose from 1 to 3"},
		"no new ones for long":               {append([]*discover.Card{good}, repeat(goodCard(errorsOf(0, 1)), 100)...), "UncorrectableECC: uncorrectable memory errors rose from 0 to 1"},
		"a look without counters":            {[]*discover.Card{good, goodCard(errorsOf(0, 1)), unknown}, "UncorrectableECC: uncorrectable memory errors rose from 0 to 1"},
		"the counters began again":           {append([]*discover.Card{goodCard(errorsOf(0, 5)), goodCard(errorsOf(0, 6))}, repeat(good, 6)...), "DeviceHealthy: device is healthy"},
		"again, and there is one already":    {append([]*discover.Card{goodCard(errorsOf(0, 5))}, repeat(goodCard(errorsOf(0, 1)), 6)...), "UncorrectableECC: uncorrectable memory errors rose from 0 to 1"},
		"lost after memory errors, and back": {append([]*discover.Card{good, goodCard(errorsOf(0, 1)), lost}, repeat(goodCard(errorsOf(0, 1)), 9)...), "UncorrectableECC: uncorrectable memory errors rose"},
		"as many pages as a card may lose":   {[]*discover.Card{goodCard(pages(64))}, "DeviceHealthy: device is healthy"},
		"one page more":                      {[]*discover.Card{goodCard(pages(65))}, "RetiredPages: more than 64 pages of its memory are retired"},
		"no memory":                          {[]*discover.Card{goodCard(func(c *discover.Card) { c.Memory = 0 })}, "NoMemory: the driver reports no memory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var h health
			for i, c := range tc.looks {
				h.look(c, at(3*i))
			}
			healthy, why := h.verdict()
			gputest.Equal(t, "message", tc.want, why.reason+": "+why.message)
			if healthy != (why.reason == reasonHealthy) {
				t.Errorf("healthy %t for %s", healthy, why.reason)
			}
		})
	}
}

func repeat(c *discover.Card, n int) []*discover.Card {
	var list []*discover.Card
	for range n {
		list = append(list, c)
	}
	return list
}

// An agent that restarts goes on where the last one stopped.
func TestHealthRemembered(t *testing.T) {
	cases := map[string]struct {
		healthy bool
		why     fault
		errors  *int64
		card    *discover.Card // at every look from then on
		want    string         // at the first look and after a minute
	}{
		"it was well":                     {true, fault{}, new(int64(2)), goodCard(errorsOf(0, 2)), "DeviceHealthy, DeviceHealthy"},
		"errors rose while no agent ran":  {true, fault{}, new(int64(2)), goodCard(errorsOf(0, 3)), "UncorrectableECC, UncorrectableECC"},
		"errors not counted before":       {true, fault{}, nil, goodCard(errorsOf(0, 3)), "DeviceHealthy, DeviceHealthy"},
		"a latched fault stays":           {false, fault{reasonECC, "x"}, new(int64(3)), goodCard(errorsOf(0, 3)), "UncorrectableECC, UncorrectableECC"},
		"a reset in between ends it":      {false, fault{reasonECC, "x"}, new(int64(3)), goodCard(errorsOf(0, 0)), "Recovering, DeviceHealthy"},
		"a lost card is back":             {false, lostFault, nil, goodCard(), "Recovering, DeviceHealthy"},
		"a lost card is still gone":       {false, lostFault, nil, nil, "CardLost, CardLost"},
		"it was about to be healthy":      {false, fault{reasonRecovering, "x; good again"}, nil, goodCard(), "Recovering, DeviceHealthy"},
		"a Device that does not say more": {false, fault{reason: reasonUnknown}, nil, goodCard(), "Recovering, DeviceHealthy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := remembered(tc.healthy, tc.why, tc.errors, at(0))
			h.look(tc.card, at(0))
			_, first := h.verdict()
			for i := range 20 {
				h.look(tc.card, at(3+3*i))
			}
			_, last := h.verdict()
			gputest.Equal(t, "reason", tc.want, first.reason+", "+last.reason)
		})
	}
}

func TestRepaired(t *testing.T) {
	var h health
	h.look(goodCard(), at(0))
	for i := range 10 {
		h.look(goodCard(errorsOf(0, 1)), at(3+3*i))
	}
	h.latched = false
	for i := range 10 {
		h.look(goodCard(errorsOf(0, 1)), at(60+3*i))
	}
	if healthy, why := h.verdict(); !healthy {
		t.Errorf("still %s after it was repaired", why.reason)
	}
	h.look(goodCard(errorsOf(0, 2)), at(120))
	if healthy, _ := h.verdict(); healthy {
		t.Error("new errors do not count after it was repaired")
	}
}
