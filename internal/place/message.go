package place

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Message says in one sentence why the node refused, with the numbers.
func (r *Refusal) Message(n *ledger.Node) string {
	e := &r.WhenEmpty
	fewer := e.Code == TooFewCards && !e.Total && e.Have > r.Have
	if e.Code == Fits || e.Code == r.Code && e.Total == r.Total && !fewer {
		return r.message(n)
	}
	never := r.cause()
	never.WhenEmpty, never.Cards = Shortage{}, [codes]uint8{}
	today := r.tally()
	if today == "" {
		today = r.message(n)
	}
	return never.message(n) + ", even on an empty node; today " + today
}

func (r *Refusal) message(n *ledger.Node) string {
	switch {
	case r.Code == NodeExcluded:
		return r.Exclusion.Message()
	case r.Budget != nil && r.Budget.Problem != "":
		return r.fill("ResourceQuota {quota}: {limit} "+r.Budget.Problem, nil)
	case r.Budget != nil && r.Want > r.Budget.Hard:
		return r.fill("wants {want}, ResourceQuota {quota} allows {hard} in all ({limit})", nil)
	case r.Code == Unhealthy && r.Paused:
		return "the node hands out no cards for now: " + n.Paused
	case r.Absent != "":
		return r.fill("no card of the node has {uuids}", n)
	case r.Total:
		return r.fill(descriptions[r.Code].Total.Node, n)
	}
	return r.fill(descriptions[r.Code].Node, n)
}

// fill replaces the placeholders of a sentence; the node may be nil where the
// sentence names nothing of it.
func (r *Refusal) fill(text string, n *ledger.Node) string {
	unit, hard := descriptions[r.Code].Unit, []string(nil)
	if b := r.Budget; b != nil {
		unit = b.Unit
		hard = []string{"{quota}", b.Quota, "{limit}", b.Limit, "{hard}", unit.text(b.Hard)}
	}
	values := []string{
		"{want}", unit.text(r.Want), "{have}", unit.text(r.Have), "{missing}", unit.text(r.Want - r.Have),
		"{cards}", cards(r.Want), "{fit}", fmt.Sprintf("%d %s", r.Have, inflect(r.Have, "fit")),
		"{tally}", prefixed(": ", r.tally()), "{others}", prefixed("; ", r.others()), "{uuids}", r.uuids(),
	}
	values = append(values, hard...)
	if n != nil {
		values = append(values, "{serves}", serves(n.Serves), "{problem}", fmt.Sprint(n.Problem))
		if unknown := n.Unknown(); len(unknown) > 0 {
			values = append(values, "{pod}", string(unknown[0]))
		}
	}
	return strings.NewReplacer(values...).Replace(text)
}

// uuids names the cards that the pod lists and the node does not have.
func (r *Refusal) uuids() string {
	if r.Listed > 1 {
		return fmt.Sprintf("one of the %d UUIDs of use-gpuuuid (such as %s)", r.Listed, r.Absent)
	}
	return fmt.Sprintf("the UUID %s of use-gpuuuid", r.Absent)
}

// text returns a number in the unit.
func (u Unit) text(n int64) string {
	switch u {
	case UnitMiB:
		return gpu.MiB(n).String()
	case UnitPercent:
		return fmt.Sprintf("%d%%", n)
	}
	return strconv.FormatInt(n, 10)
}

// inflect makes a text that begins with a verb in the plural fit the number.
func inflect(n int64, text string) string {
	if n != 1 {
		return text
	}
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "are":
		verb = "is"
	case "have":
		verb = "has"
	case "do":
		verb = "does"
	case "may":
	default:
		verb += "s"
	}
	return strings.TrimSpace(verb + " " + rest)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// summarizeExcluded lists the nodes that the pod may not use, by reason.
func summarizeExcluded(refusals []Refusal) []string {
	var count [exclusions]int
	for i := range refusals {
		if refusals[i].Code == NodeExcluded {
			count[refusals[i].Exclusion]++
		}
	}
	var parts []string
	for x, n := range count {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, inflect(int64(n), exclusionTexts[x].nodes)))
		}
	}
	return parts
}

func serves(s ledger.Serves) string {
	switch {
	case s.Seats:
		return "serves shared cards without isolation (metax-tech.com/gpu), not slices"
	case s.Whole:
		return "serves whole cards (metax-tech.com/gpu), not slices"
	case s.Slices:
		return "serves slices (metax-tech.com/sgpu), not whole cards"
	}
	return "serves neither whole cards nor slices"
}

// others returns the reasons of the cards that the sentence does not cover.
func (r *Refusal) others() string {
	rest := *r
	rest.Cards[r.Code] = 0
	return rest.tally()
}

// tally counts the cards by the reason each gave.
func (r *Refusal) tally() string {
	var parts []string
	for c := NoCards; c < TooFewCards; c++ {
		if n := int64(r.Cards[c]); n > 0 {
			text := descriptions[c].Cards
			if r.Idle {
				text = cmp.Or(descriptions[c].IdleCards, text)
			}
			if text == "" {
				text = "are out: " + c.Reason()
			}
			parts = append(parts, cards(n)+" "+inflect(n, text))
		}
	}
	return strings.Join(parts, ", ")
}

func cards(n int64) string {
	if n == 1 {
		return "1 card"
	}
	return fmt.Sprintf("%d cards", n)
}

// summary describes n nodes that refused for this code; r is the nearest miss.
func (r *Refusal) summary(n int) string {
	d := &descriptions[r.Code]
	text := d.Nodes
	switch {
	case r.Code == Unhealthy && r.Paused:
		text = "have cards that are unhealthy or not handed out for now"
	case r.Absent != "":
		text = "have no card with {uuids}"
	case r.Total:
		text = d.Total.Nodes
	case r.Idle:
		text = cmp.Or(d.Idle, text)
	}
	return fmt.Sprintf("%d %s", n, r.fill(inflect(int64(n), text), nil))
}
