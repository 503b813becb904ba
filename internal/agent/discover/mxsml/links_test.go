package mxsml

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// goLibrary is a library of n cards, in Go, without any optional function.
func goLibrary(n uint32) *library {
	return &library{
		path:        "in Go",
		start:       func() uint32 { return success },
		count:       func() uint32 { return n },
		errorString: func(code uint32) string { return fmt.Sprintf("error %d", code) },
		info: func(id uint32, out *deviceInfo) uint32 {
			copy(out.uuid[:], fmt.Sprintf("GPU-%d", id))
			copy(out.bdf[:], bdfOf(int(id)))
			copy(out.name[:], "MXC500")
			return success
		},
		memory: func(_ uint32, out *memoryInfo) uint32 {
			out.vramTotal = 64 << 20
			return success
		},
	}
}

func bdfOf(id int) string { return fmt.Sprintf("0000:%02x:00.0", 16+id) }

func sessionOf(l *library) *session {
	s := newSession("")
	s.lib = l
	return s
}

// call calls a method as net/rpc does.
func call[A, R any](method func(A, *R) error, args A) (*R, error) {
	out := new(R)
	return out, method(args, out)
}

func lookAt(t *testing.T, l *library) *discover.Snapshot {
	t.Helper()
	s, err := call(sessionOf(l).Look, false)
	gputest.Must(t, err)
	return s
}

// Levels are names, not an order: 5 is MetaXLink in every version, and what is
// above and below it is something else.
func TestTopologyLevels(t *testing.T) {
	for level, want := range map[uint32]bool{0: false, 1: false, 2: false, 3: false, 4: false, 5: true, 6: false, 7: false, 8: false, 9: false} {
		l := goLibrary(2)
		l.topology = func(_, _ uint32, out *uint32) uint32 { *out = level; return success }
		s := lookAt(t, l)
		if linked := len(s.Links) == 1; linked != want || !s.LinksKnown {
			t.Errorf("level %d: linked %v (known: %v), want %v", level, linked, s.LinksKnown, want)
		}
	}
	l, broken := goLibrary(3), true
	l.topology = func(a, b uint32, out *uint32) uint32 {
		*out = topologyMetaXLink
		if broken && a == 1 && b == 2 {
			return 4
		}
		return success
	}
	session := sessionOf(l)
	if s, err := call(session.Look, false); err != nil || s.LinksKnown || s.Links != nil {
		t.Errorf("a pair that can't be read: %v, links %v (known: %v), want none known", err, s.Links, s.LinksKnown)
	}
	broken = false
	if s, err := call(session.Look, false); err != nil || len(s.Links) != 3 {
		t.Errorf("later: %v, links %v", err, s.Links)
	}
	broken = true
	if s, err := call(session.Look, false); err != nil || s.LinksKnown || s.LinksUnread != "mxSmlGetDeviceTopology of cards 1 and 2: error 4 (code 4)" {
		t.Errorf("once they were known: %+v, %v, want them unread", s, err)
	}
	l.state = func(id uint32, available *int32) uint32 { *available = 1 - int32(id/2); return success }
	if s, err := call(session.Look, false); err != nil || len(s.Links) != 1 {
		t.Errorf("a card that is not available: %v, links %v, want that of the others", err, s.Links)
	}
}

// wire is what that library reports of one port.
type wire struct {
	peer  int32
	bdf   string
	state uint32
}

// withPorts adds ports to such a library.
func withPorts(l *library, ports map[uint32][]wire) {
	l.linkPortState = func(id uint32, states *uint32, n *uint32) uint32 {
		out := (*[linkPorts]uint32)(ptr(states))
		for i := range out {
			out[i] = 5 // not in use
			if i < len(ports[id]) {
				out[i] = ports[id][i].state
			}
		}
		*n = linkPorts
		return success
	}
	l.linkRemote = func(id, port uint32, out *remoteInfo) uint32 {
		if int(port) >= len(ports[id]) || ports[id][port].peer == -2 {
			return noDevice
		}
		out.deviceID = ports[id][port].peer
		copy(out.bdf[:], ports[id][port].bdf)
		return success
	}
}

func TestPorts(t *testing.T) {
	to := func(peer int32, state uint32) wire { return wire{peer, bdfOf(int(peer)), state} }
	cases := map[string]struct {
		ports     map[uint32][]wire
		wantLinks []gpu.Link
		// wantPorts are those of card 0.
		wantPorts []discover.Port
	}{
		"a link":                            {map[uint32][]wire{0: {to(1, 1)}, 1: {to(0, 1)}}, []gpu.Link{{A: 0, B: 1}}, []discover.Port{{Number: 0, Up: true, Peer: bdfOf(1)}}},
		"two ports to one card, one down":   {map[uint32][]wire{0: {to(1, 0), to(1, 1)}, 1: {to(0, 1)}}, []gpu.Link{{A: 0, B: 1}}, []discover.Port{{Number: 0, Peer: bdfOf(1)}, {Number: 1, Up: true, Peer: bdfOf(1)}}},
		"one end is down":                   {map[uint32][]wire{0: {to(1, 1)}, 1: {to(0, 0)}}, nil, []discover.Port{{Number: 0, Up: true, Peer: bdfOf(1)}}},
		"a card of another machine":         {map[uint32][]wire{0: {{-1, bdfOf(1), 1}}}, nil, []discover.Port{{Number: 0, Up: true}}},
		"a number and another one's place":  {map[uint32][]wire{0: {{1, "0000:99:00.0", 1}}, 1: {to(0, 1)}}, nil, []discover.Port{{Number: 0, Up: true}}},
		"a number without a place":          {map[uint32][]wire{0: {{1, "", 1}}, 1: {{0, "", 1}}}, []gpu.Link{{A: 0, B: 1}}, []discover.Port{{Number: 0, Up: true, Peer: bdfOf(1)}}},
		"a number that is no card":          {map[uint32][]wire{0: {{77, "", 1}}}, nil, []discover.Port{{Number: 0, Up: true}}},
		"a card linked to itself":           {map[uint32][]wire{0: {to(0, 1)}}, nil, []discover.Port{{Number: 0, Up: true}}},
		"a cable without a link":            {map[uint32][]wire{0: {{-2, "", 2}}}, nil, []discover.Port{{Number: 0}}},
		"an unused port":                    {map[uint32][]wire{0: {{-2, "", 4}, {-2, "", 5}, {-2, "", 0}, {-2, "", 3}, {-2, "", 99}}}, nil, []discover.Port{}},
		"no training, but a peer":           {map[uint32][]wire{0: {to(1, 0)}, 1: {to(0, 0)}}, nil, []discover.Port{{Number: 0, Peer: bdfOf(1)}}},
		"a module out of place, and a peer": {map[uint32][]wire{0: {to(1, 3)}}, nil, []discover.Port{{Number: 0, Peer: bdfOf(1)}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := goLibrary(2)
			withPorts(l, tc.ports)
			// Its answer must not matter where ports are known.
			l.topology = func(_, _ uint32, out *uint32) uint32 { *out = topologyMetaXLink; return success }
			s := lookAt(t, l)
			if diff := cmp.Diff(tc.wantLinks, s.Links); diff != "" || !s.LinksKnown {
				t.Errorf("known: %v, links (-want +got):\n%s", s.LinksKnown, diff)
			}
			gputest.Equal(t, "ports", tc.wantPorts, s.Cards[0].Vitals.Ports)
		})
	}
}

// Without states, a port with a speed is up; nonsense is no speed.
func TestPortSpeeds(t *testing.T) {
	nan := float32(math.NaN())
	l := goLibrary(1)
	l.links = func(_ uint32, out *linkInfo) uint32 {
		out.speed = [linkPorts]float32{32, 2.5, 0, nan, float32(math.Inf(1)), 16}
		out.width = [linkPorts]uint32{16, 16, 0, 16, 16, 0}
		return success
	}
	want := []discover.Port{{Number: 0, Up: true, SpeedGT: 32, Width: 16}, {Number: 1, Up: true, SpeedGT: 2.5, Width: 16}}
	gputest.Equal(t, "ports", want, lookAt(t, l).Cards[0].Vitals.Ports)
	l.linksV2 = func(_ uint32, n *uint32, _ *portInfo) uint32 { *n = 1 << 30; return success }
	if got := lookAt(t, l).Cards[0].Vitals.Ports; len(got) != 0 {
		t.Errorf("a number of ports that is nonsense: %v", got)
	}
	l.linksV2 = func(uint32, *uint32, *portInfo) uint32 { return 4 }
	gputest.Equal(t, "the new function fails, the old one does not", want, lookAt(t, l).Cards[0].Vitals.Ports)
}

// What a library without most functions knows is reported, and nothing else.
func TestCoreAlone(t *testing.T) {
	want := &discover.Snapshot{Source: "mxsml in Go", Cards: []discover.Card{{
		UUID: "GPU-0", BDF: bdfOf(0), Model: "C500", Memory: 65536,
		Figures: discover.Figures{MemoryTotalKiB: new(int64(64 << 20)), MemoryUsedKiB: new(int64(0))},
	}}}
	gputest.Equal(t, "snapshot", want, lookAt(t, goLibrary(1)))
}

// A port without a peer and one that can't be asked are two answers: after the
// second one nothing is known of links, unless the topology has them.
func TestPortsCanNotBeAsked(t *testing.T) {
	to := func(peer int32) wire { return wire{peer, bdfOf(int(peer)), portUp} }
	const sysfsError = 4
	remoteFails := func(l *library) { l.linkRemote = func(_, _ uint32, _ *remoteInfo) uint32 { return sysfsError } }
	cases := map[string]struct {
		breaks    func(l *library)
		topology  bool
		down      bool
		wantLinks int
		wantKnown bool
		want      string
	}{
		"all answer":            {breaks: func(*library) {}, wantLinks: 1, wantKnown: true},
		"a peer can't be asked": {breaks: remoteFails, want: "card 0: port 0: mxSmlGetMetaXLinkRemoteInfo: error 4 (code 4)"},
		"the states can't be asked": {
			breaks: func(l *library) { l.linkPortState = func(uint32, *uint32, *uint32) uint32 { return sysfsError } },
			want:   "card 0: mxSmlGetMetaXLinkPortState: error 4 (code 4)",
		},
		"the topology has them instead":            {breaks: remoteFails, topology: true, wantLinks: 1, wantKnown: true},
		"cards that are out of order do not count": {breaks: remoteFails, down: true},
		"the library has no ports":                 {breaks: func(l *library) { l.linkPortState = nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := goLibrary(2)
			withPorts(l, map[uint32][]wire{0: {to(1)}, 1: {to(0)}})
			tc.breaks(l)
			l.state = func(_ uint32, available *int32) uint32 {
				if *available = 1; tc.down {
					*available = 0
				}
				return success
			}
			if tc.topology {
				l.topology = func(_, _ uint32, out *uint32) uint32 { *out = topologyMetaXLink; return success }
			}
			s := lookAt(t, l)
			if len(s.Links) != tc.wantLinks || s.LinksKnown != tc.wantKnown || s.LinksUnread != tc.want {
				t.Errorf("links %v, known %v, unread %q", s.Links, s.LinksKnown, s.LinksUnread)
			}
		})
	}
}
