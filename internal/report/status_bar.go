package report

import (
	"fmt"
	"strconv"
	"strings"
)

// The signs of a card in the bar.
const (
	signFree      = "."
	signWhole     = "#"
	signUnhealthy = "!"
	signUnknown   = "?"
)

// bar draws a character for each card, zones set apart. The characters are
// plain ASCII: others are two columns wide on some terminals.
func (n *NodeStatus) bar(states map[string]bool) rich {
	if n.Problem != "" {
		states[signUnknown] = true
		return styled(red, signUnknown)
	}
	signs := make([]span, len(n.Cards))
	for i := range n.Cards {
		signs[i] = n.Cards[i].sign()
		states[signs[i].text] = true
	}
	if len(signs) > mostSigns {
		return tally(signs)
	}
	apart := n.zonesLieApart()
	var bar rich
	for i, s := range signs {
		if i > 0 && apart && zone(&n.Cards[i]) != zone(&n.Cards[i-1]) {
			bar = append(bar, span{" ", plainStyle})
			states[" "] = true
		}
		bar = append(bar, s)
	}
	return bar
}

// mostSigns is how many cards are drawn one by one.
const mostSigns = 20

// tally counts the cards of a large node by their sign.
func tally(signs []span) rich {
	counts := map[string]int{}
	styles := map[string]style{}
	for _, s := range signs {
		sign := s.text
		if s.style == yellow {
			sign = "1-9"
		}
		counts[sign]++
		styles[sign] = s.style
	}
	var r rich
	for _, sign := range []string{signWhole, "1-9", signFree, signUnhealthy} {
		if counts[sign] > 0 {
			if len(r) > 0 {
				r = append(r, span{" ", plainStyle})
			}
			r = append(r, span{fmt.Sprintf("%dx%s", counts[sign], sign), styles[sign]})
		}
	}
	return r
}

func zone(c *CardStatus) int {
	if c.Zone == nil {
		return 0
	}
	return *c.Zone
}

// zonesLieApart tells whether each zone's cards lie side by side, so that a gap
// can stand between zones.
func (n *NodeStatus) zonesLieApart() bool {
	seen := map[int]bool{}
	for i := range n.Cards {
		z := zone(&n.Cards[i])
		if i > 0 && z == zone(&n.Cards[i-1]) {
			continue
		}
		if seen[z] {
			return false
		}
		seen[z] = true
	}
	return true
}

// sign is the card's character: how much of it is used, in tenths.
func (c *CardStatus) sign() span {
	used := c.Slots > c.SlotsFree
	switch {
	case !c.Healthy:
		return span{signUnhealthy, red}
	case c.Exclusive:
		return span{signWhole, blue}
	case !used:
		return span{signFree, green}
	}
	most := max(int64(100-c.ComputeFreePercent), 100*int64(c.Slots-c.SlotsFree)/int64(max(1, c.Slots)))
	if c.MemoryMiB > 0 {
		most = max(most, 100*(c.MemoryMiB-c.MemoryFreeMiB)/c.MemoryMiB)
	}
	return span{strconv.FormatInt(min(9, max(1, (most+5)/10)), 10), yellow}
}

// legend explains the signs that were drawn.
func legend(states map[string]bool) string {
	var parts []string
	if states[signFree] {
		parts = append(parts, ". free")
	}
	for s := range states {
		if s >= "1" && s <= "9" {
			parts = append(parts, "1-9 tenths used")
			break
		}
	}
	if states[signWhole] {
		parts = append(parts, "# whole")
	}
	if states[signUnhealthy] {
		parts = append(parts, "! unhealthy")
	}
	if states[signUnknown] {
		parts = append(parts, "? can't be read")
	}
	if states[" "] {
		parts = append(parts, "gaps between zones")
	}
	return "cards: " + strings.Join(parts, ", ")
}
