package mxsml

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// readLinks reads the ports of all cards and which cards they join. The cards
// are still in the library's order, so that a position is a device id.
func (s *session) readLinks(out *discover.Snapshot, infos []deviceInfo) error {
	for id := range infos {
		if infos[id].mode == modeVirtual || infos[id].uuid[0] == 0 {
			continue
		}
		s.readLinkFault(uint32(id), &out.Cards[id])
		out.Cards[id].Vitals.Ports = s.ports(uint32(id), infos)
	}
	switch {
	case s.lib.linkRemote != nil:
		out.Links, out.LinksKnown = linksOfPorts(out.Cards[:len(infos)]), true
	case s.lib.topology != nil:
		links, err := s.linksOfTopology(out.Cards, infos)
		if err != nil && s.linked {
			return err // links don't come and go with an answer
		}
		out.Links, out.LinksKnown = links, err == nil
		s.linked = s.linked || err == nil
	}
	return nil
}

// readLinkFault asks why the card's links are off, if they are. Off on purpose
// is no fault.
func (s *session) readLinkFault(id uint32, card *discover.Card) {
	if s.lib.linkState == nil {
		return
	}
	var state uint32
	var buffer padded[[128]byte]
	size := uint32(len(buffer.value))
	if s.lib.linkState(id, &state, &buffer.value[0], &size) != success {
		return
	}
	words := text(buffer.value[:])
	switch state {
	case linkTopologyInvalid:
		card.Vitals.LinkFault = cleanOr(words, "the number of cards does not suit the topology")
	case linkTrainingFailed:
		card.Vitals.LinkFault = cleanOr(words, "training failed")
	}
}

// ports returns the ports of a card that are in use or should be, or nil if
// the library can't tell.
func (s *session) ports(id uint32, infos []deviceInfo) []discover.Port {
	states, statesKnown := s.portStates(id)
	speeds := s.portSpeeds(id)
	if !statesKnown && speeds == nil {
		return nil
	}
	ports := []discover.Port{}
	for n := range max(len(states), len(speeds)) {
		port := discover.Port{Number: n, Peer: s.peer(id, uint32(n), infos)}
		if n < len(speeds) {
			port.SpeedGT, port.Width = finite(speeds[n].speed), int(min(speeds[n].width, math.MaxInt16))
		}
		inUse := port.Peer != ""
		if n < len(states) {
			port.Up = states[n] == portUp
			inUse = portInUse(states[n], inUse)
		} else {
			port.Up = port.SpeedGT > 0 && port.Width > 0
			inUse = inUse || port.Up
		}
		if inUse {
			ports = append(ports, port)
		}
	}
	return ports
}

// portInUse says whether a port with a state should carry a link. A port that
// is not trained, or whose optical module is missing, does so only if someone
// is known to be at its other end: most cards have ports nobody uses.
func portInUse(state uint32, hasPeer bool) bool {
	switch state {
	case portUp, portOpticalDown:
		return true
	case portNoTraining, portOpticalOut:
		return hasPeer
	default:
		return false
	}
}

func (s *session) portStates(id uint32) ([]uint32, bool) {
	if s.lib.linkPortState == nil {
		return nil, false
	}
	var states padded[[linkPorts]uint32]
	n := uint32(linkPorts)
	if s.lib.linkPortState(id, &states.value[0], &n) != success {
		return nil, false
	}
	return slices.Clone(states.value[:min(n, linkPorts)]), true
}

// portSpeeds asks in the new way, then in the old.
func (s *session) portSpeeds(id uint32) []portInfo {
	if s.lib.linksV2 != nil {
		var ports padded[[32]portInfo]
		n := uint32(len(ports.value))
		if s.lib.linksV2(id, &n, &ports.value[0]) == success {
			return slices.Clone(ports.value[:min(int(n), len(ports.value))])
		}
	}
	if s.lib.links == nil {
		return nil
	}
	var all padded[linkInfo]
	if s.lib.links(id, &all.value) != success {
		return nil
	}
	ports := make([]portInfo, linkPorts)
	for i := range ports {
		ports[i] = portInfo{speed: all.value.speed[i], width: all.value.width[i]}
	}
	return ports
}

// peer returns the address of the card of this machine at a port's other end.
// Cards of other machines may have the same address, but not the same number.
func (s *session) peer(id, port uint32, infos []deviceInfo) string {
	if s.lib.linkRemote == nil {
		return ""
	}
	var remote padded[remoteInfo]
	if s.lib.linkRemote(id, port, &remote.value) != success {
		return ""
	}
	at := int(remote.value.deviceID)
	if at < 0 || at >= len(infos) || at == int(id) {
		return ""
	}
	_, bdf, _ := identity(infos[at])
	if said := strings.ToLower(text(remote.value.bdf[:])); said != "" && said != bdf {
		return ""
	}
	return bdf
}

// linksOfPorts returns the pairs of cards that both have a port up to each
// other.
func linksOfPorts(cards []discover.Card) []gpu.Link {
	var links []gpu.Link
	up := func(from, to int) bool {
		return slices.ContainsFunc(cards[from].Vitals.Ports, func(p discover.Port) bool {
			return p.Up && p.Peer != "" && p.Peer == cards[to].BDF
		})
	}
	for a := range cards {
		for b := a + 1; b < len(cards); b++ {
			if up(a, b) && up(b, a) {
				links = append(links, gpu.Link{A: a, B: b})
			}
		}
	}
	return links
}

// linksOfTopology returns the pairs of cards that the library calls joined by
// MetaXLink.
func (s *session) linksOfTopology(cards []discover.Card, infos []deviceInfo) ([]gpu.Link, error) {
	var links []gpu.Link
	able := func(id int) bool {
		available := cards[id].Vitals.Available
		return infos[id].mode != modeVirtual && infos[id].uuid[0] != 0 && (available == nil || *available)
	}
	for a := range infos {
		for b := a + 1; b < len(infos); b++ {
			if !able(a) || !able(b) {
				continue
			}
			var level uint32
			if err := s.lib.failure(s.lib.topology(uint32(a), uint32(b), &level)); err != nil {
				return nil, fmt.Errorf("mxSmlGetDeviceTopology of cards %d and %d: %w", a, b, err)
			}
			if level == topologyMetaXLink {
				links = append(links, gpu.Link{A: a, B: b})
			}
		}
	}
	return links, nil
}

func finite(f float32) float64 {
	v := float64(f)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return cmp.Or(v, 0)
}
