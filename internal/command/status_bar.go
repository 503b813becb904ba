package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/view"
)

// The signs of a card in the bar.
const (
	signFree      = "."
	signWhole     = "#"
	signNoSlice   = "="
	signViolation = "X"
	signUnhealthy = "!"
	signUnknown   = "?"
)

// bar draws a character for each card, zones set apart, and notes the signs that
// it draws. The characters are plain ASCII: others are two columns wide on some
// terminals.
func bar(n *view.NodeStatus, p palette, drawn map[string]bool) string {
	if n.Problem != "" || n.MissingDevice != "" {
		drawn[signUnknown] = true
		return p.paint(red, signUnknown)
	}
	signs, colors := make([]string, len(n.Cards)), make([]string, len(n.Cards))
	for i := range n.Cards {
		signs[i], colors[i] = sign(&n.Cards[i])
		drawn[signs[i]] = true
	}
	if len(signs) > mostSigns {
		return tally(signs, colors, p)
	}
	apart := zonesLieApart(n)
	var b strings.Builder
	for i := range signs {
		if i > 0 && apart && zone(&n.Cards[i]) != zone(&n.Cards[i-1]) {
			b.WriteByte(' ')
			drawn[" "] = true
		}
		b.WriteString(p.paint(colors[i], signs[i]))
	}
	return b.String()
}

// mostSigns is how many cards are drawn one by one.
const mostSigns = 20

// tally counts the cards of a large node by their sign.
func tally(signs, colors []string, p palette) string {
	counts := map[string]int{}
	for i, sign := range signs {
		if colors[i] == yellow {
			sign = "1-9"
		}
		counts[sign]++
	}
	var parts []string
	for _, x := range []struct{ sign, color string }{
		{signWhole, blue}, {"1-9", yellow}, {signNoSlice, magenta}, {signFree, green}, {signViolation, red}, {signUnhealthy, red},
	} {
		if counts[x.sign] > 0 {
			parts = append(parts, p.paint(x.color, fmt.Sprintf("%dx%s", counts[x.sign], x.sign)))
		}
	}
	return strings.Join(parts, " ")
}

func zone(c *view.CardStatus) int {
	if c.Zone == nil {
		return 0
	}
	return *c.Zone
}

// zonesLieApart reports whether each zone's cards lie side by side, so that a gap
// can stand between zones.
func zonesLieApart(n *view.NodeStatus) bool {
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

// sign returns the card's character, which is how much of it is used in tenths,
// and its color.
func sign(c *view.CardStatus) (text, color string) {
	switch {
	case len(c.Violations) > 0:
		return signViolation, red
	case !c.Healthy:
		return signUnhealthy, red
	case c.Exclusive:
		return signWhole, blue
	case c.Slots <= c.SlotsFree:
		return signFree, green
	case c.OutOfSlices():
		return signNoSlice, magenta
	}
	most := max(int64(100-c.ComputeFreePercent), 100*int64(c.Slots-c.SlotsFree)/int64(max(1, c.Slots)))
	if c.MemoryMiB > 0 {
		most = max(most, 100*(c.MemoryMiB-c.MemoryFreeMiB)/c.MemoryMiB)
	}
	return strconv.FormatInt(min(9, max(1, (most+5)/10)), 10), yellow
}

// legend explains the signs that were drawn.
func legend(drawn map[string]bool) string {
	var parts []string
	for _, x := range []struct{ signs, text string }{
		{signFree, ". free"}, {"123456789", "1-9 tenths used"}, {signWhole, "# whole"}, {signNoSlice, "= no slice left"},
		{signViolation, "X violation"}, {signUnhealthy, "! unhealthy"}, {signUnknown, "? can't be read"}, {" ", "gaps between zones"},
	} {
		if slices.ContainsFunc(strings.Split(x.signs, ""), func(sign string) bool { return drawn[sign] }) {
			parts = append(parts, x.text)
		}
	}
	return "cards: " + strings.Join(parts, ", ")
}
