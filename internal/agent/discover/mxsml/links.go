package mxsml

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// readLinks reads the ports of all cards and which cards they join. The cards
// are still in the library's order, so that a position is a device id. Where a
// card can't be asked nothing is known of links, which is not the same as none.
func (s *session) readLinks(out *discover.Snapshot, infos []deviceInfo) {
	var unread []error
	asked := false
	for id := range infos {
		card := &out.Cards[id]
		if infos[id].mode == modeVirtual || infos[id].uuid[0] == 0 {
			continue
		}
		s.readLinkFault(uint32(id), card)
		ports, err := s.ports(uint32(id), infos)
		if err != nil && !card.Unavailable() {
			unread = append(unread, fmt.Errorf("card %d: %w", id, err))
		}
		card.Vitals.Ports = ports
		asked = asked || ports != nil
	}
	if s.lib.linkRemote != nil && asked && len(unread) == 0 {
		out.Links, out.LinksKnown = linksOfPorts(out.Cards[:len(infos)]), true
		return
	}
	if s.lib.topology != nil {
		links, err := s.linksOfTopology(out.Cards, infos)
		if err == nil {
			out.Links, out.LinksKnown = links, true
			return
		}
		unread = append(unread, err)
	}
	if len(unread) > 0 {
		out.LinksUnread = unread[0].Error()
	}
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
// the library has no such call. A call that failed this time is an error.
func (s *session) ports(id uint32, infos []deviceInfo) ([]discover.Port, error) {
	states, err := s.portStates(id)
	if err != nil {
		return nil, err
	}
	speeds, err := s.portSpeeds(id)
	if states == nil && (err != nil || speeds == nil) {
		return nil, err
	}
	ports := []discover.Port{}
	for n := range max(len(states), len(speeds)) {
		if n < len(states) && !portMayBeUsed(states[n]) {
			continue
		}
		peer, err := s.peer(id, uint32(n), infos)
		if err != nil {
			return nil, err
		}
		port := discover.Port{Number: n, Peer: peer}
		if n < len(speeds) {
			port.SpeedGT, port.Width = finite(speeds[n].speed), int(min(speeds[n].width, math.MaxInt16))
		}
		cable := false
		if n < len(states) {
			port.Up, cable = states[n] == portUp, states[n] == portOpticalDown
		} else {
			port.Up = port.SpeedGT > 0 && port.Width > 0
		}
		if port.Up || cable || peer != "" {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// portMayBeUsed reports whether a port with a state may carry a link. One that
// is not trained, or whose optical module is missing, does so only if a card is
// known to be at its other end: most cards have ports without a use.
func portMayBeUsed(state uint32) bool {
	switch state {
	case portUp, portOpticalDown, portNoTraining, portOpticalOut:
		return true
	default:
		return false
	}
}

// portStates returns the states of a card's ports; nil if the library has none.
func (s *session) portStates(id uint32) ([]uint32, error) {
	if s.lib.linkPortState == nil {
		return nil, nil
	}
	var states padded[[linkPorts]uint32]
	n := uint32(linkPorts)
	switch code := s.lib.linkPortState(id, &states.value[0], &n); code {
	case success:
		return slices.Clone(states.value[:min(n, linkPorts)]), nil
	case operationNotSupport:
		return nil, nil
	default:
		return nil, s.call("mxSmlGetMetaXLinkPortState", code)
	}
}

// portSpeeds asks in the new way, then in the old; nil if the library has
// neither.
func (s *session) portSpeeds(id uint32) ([]portInfo, error) {
	var failure error
	if s.lib.linksV2 != nil {
		var ports padded[[32]portInfo]
		n := uint32(len(ports.value))
		switch code := s.lib.linksV2(id, &n, &ports.value[0]); code {
		case success:
			return slices.Clone(ports.value[:min(int(n), len(ports.value))]), nil
		case operationNotSupport:
		default:
			failure = s.call("mxSmlGetMetaXLinkInfo_v2", code)
		}
	}
	if s.lib.links == nil {
		return nil, failure
	}
	var all padded[linkInfo]
	switch code := s.lib.links(id, &all.value); code {
	case success:
	case operationNotSupport:
		return nil, failure
	default:
		return nil, s.call("mxSmlGetMetaXLinkInfo", code)
	}
	ports := make([]portInfo, linkPorts)
	for i := range ports {
		ports[i] = portInfo{speed: all.value.speed[i], width: all.value.width[i]}
	}
	return ports, nil
}

// peer returns the address of the card of this machine at a port's other end;
// none if there is no such card. Cards of other machines may have the same
// address, but not the same number.
func (s *session) peer(id, port uint32, infos []deviceInfo) (string, error) {
	if s.lib.linkRemote == nil {
		return "", nil
	}
	var remote padded[remoteInfo]
	switch code := s.lib.linkRemote(id, port, &remote.value); code {
	case success:
	case noDevice:
		return "", nil
	default:
		return "", fmt.Errorf("port %d: %w", port, s.call("mxSmlGetMetaXLinkRemoteInfo", code))
	}
	at := int(remote.value.deviceID)
	if at < 0 || at >= len(infos) || at == int(id) {
		return "", nil
	}
	_, bdf, _ := identity(infos[at])
	if peer := strings.ToLower(text(remote.value.bdf[:])); peer != "" && peer != bdf {
		return "", nil
	}
	return bdf, nil
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
		return infos[id].mode != modeVirtual && infos[id].uuid[0] != 0 && !cards[id].Unavailable()
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
	return v
}
