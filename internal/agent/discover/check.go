package discover

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Limits of what a source may say about a card.
const (
	maxUUID  = 96
	maxModel = 32
	maxText  = 256
	maxMinor = 1 << 20
)

// bdfPattern is a PCI address: domain, bus, device, function.
var bdfPattern = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// check puts the cards in order and returns what is wrong with the picture.
// What is shown and not acted upon is made printable instead.
func (s *Snapshot) check() error {
	if len(s.Cards) > gpu.MaxCards {
		return fmt.Errorf("%d cards: a node may hold %d", len(s.Cards), gpu.MaxCards)
	}
	s.sort()
	s.Source, s.Driver, s.MACA = printable(s.Source), printable(s.Driver), printable(s.MACA)
	for i := range s.Cards {
		if err := s.Cards[i].check(); err != nil {
			return fmt.Errorf("%s: %w", s.Cards[i].label(), err)
		}
	}
	for i := range s.Cards {
		for j := range s.Cards[:i] {
			if what, value := clash(&s.Cards[j], &s.Cards[i]); what != "" {
				return fmt.Errorf("%s and %s have the same %s, %s", s.Cards[j].label(), s.Cards[i].label(), what, value)
			}
		}
	}
	for _, l := range s.Links {
		if l.A < 0 || l.B >= len(s.Cards) || l.A >= l.B {
			return fmt.Errorf("link %d-%d among %d cards", l.A, l.B, len(s.Cards))
		}
	}
	return nil
}

// sort orders cards by number and links by pair; links go with their cards.
func (s *Snapshot) sort() {
	order := make([]int, len(s.Cards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Cards[a].Minor, s.Cards[b].Minor) })
	s.arrange(order)
	slices.SortFunc(s.Links, func(a, b gpu.Link) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	s.Links = slices.Compact(s.Links)
}

// arrange keeps the cards of the given positions, in that order, and the links
// between them. A link of no card stays: it is for the check to reject.
func (s *Snapshot) arrange(order []int) {
	at := map[int]int{}
	cards := make([]Card, len(order))
	for to, from := range order {
		at[from], cards[to] = to, s.Cards[from]
	}
	var links []gpu.Link
	for _, l := range s.Links {
		a, hasA := at[l.A]
		b, hasB := at[l.B]
		switch {
		case hasA && hasB:
			links = append(links, gpu.Link{A: min(a, b), B: max(a, b)})
		case min(l.A, l.B) < 0 || max(l.A, l.B) >= len(s.Cards):
			links = append(links, l)
		}
	}
	s.Cards, s.Links = cards, links
}

func (c *Card) check() error {
	c.Vitals.Reason, c.Vitals.LinkFault, c.Figures.BIOS = printable(c.Vitals.Reason), printable(c.Vitals.LinkFault), printable(c.Figures.BIOS)
	if err := c.checkIdentity(); err != nil {
		return err
	}
	if c.Unavailable() && c.Memory == 0 {
		return nil
	}
	if c.Memory < gpu.MemoryStep {
		return fmt.Errorf("%d MiB of memory: a card has at least %d", c.Memory, gpu.MemoryStep)
	}
	facts := c.GPU()
	return facts.Validate()
}

func (c *Card) checkIdentity() error {
	switch {
	case c.Minor < 0 || c.Minor > maxMinor:
		return fmt.Errorf("number %d: want 0 to %d", c.Minor, maxMinor)
	case c.UUID == "" && !c.Unavailable():
		return errors.New("no uuid")
	case len(c.UUID) > maxUUID || !plain(c.UUID):
		return fmt.Errorf("uuid %.120q: want at most %d letters, digits and signs", c.UUID, maxUUID)
	case c.BDF == "" && !c.Unavailable():
		return errors.New("no PCI address")
	case c.BDF != "" && !bdfPattern.MatchString(c.BDF):
		return fmt.Errorf("PCI address %.60q: want one like 0000:0e:00.0", c.BDF)
	case c.Model == "" && !c.Unavailable():
		return errors.New("no model")
	case len(c.Model) > maxModel || printable(c.Model) != c.Model:
		return fmt.Errorf("model %.60q: want at most %d printable characters", c.Model, maxModel)
	}
	return nil
}

// GPU returns the card as it is placed on.
func (c *Card) GPU() gpu.Card {
	out := gpu.Card{
		ID: gpu.CardID(c.UUID), Minor: c.Minor, Model: gpu.ModelName(c.Model), Memory: c.Memory,
		Slots: gpu.MaxSlices, Healthy: !c.Unavailable(), Switch: c.PCIeSwitch,
	}
	if c.NUMA != nil && *c.NUMA >= 0 {
		out.NUMA, out.NUMAKnown = *c.NUMA, true
	}
	return out
}

// Unavailable reports whether the card is known to be out of order.
func (c *Card) Unavailable() bool { return c.Vitals.Available != nil && !*c.Vitals.Available }

// label names a card in messages.
func (c *Card) label() string {
	return fmt.Sprintf("card %d (%.60q)", c.Minor, cmp.Or(c.BDF, c.UUID))
}

// clash returns what two cards have in common and must not.
func clash(a, b *Card) (what, value string) {
	switch {
	case a.UUID != "" && a.UUID == b.UUID:
		return "uuid", a.UUID
	case a.BDF != "" && a.BDF == b.BDF:
		return "PCI address", a.BDF
	case a.Minor == b.Minor:
		return "number", strconv.Itoa(a.Minor)
	}
	return "", ""
}

// plain reports whether a text is made of ASCII that shows.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// printable returns a text in one line without characters that don't show,
// bounded in length.
func printable(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s[:min(len(s), 4*maxText)], "?")), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxText {
		s = strings.TrimSpace(strings.ToValidUTF8(s[:maxText], ""))
	}
	return s
}
