package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// How much of an explanation people are shown; JSON has all of it. Together it
// is never more than ten lines.
const (
	shownReasons    = 5
	shownContainers = 3
	shownPods       = 3
	shownProblems   = 7
	shownSaid       = 400 // characters of what the scheduler said
)

// table renders the explanation for people: one sentence, then at most nine
// lines.
func (e *Explanation) table(colors bool) string {
	var b strings.Builder
	name := styled(bold, e.Namespace+"/"+e.Name).render(colors)
	line := func(title, format string, args ...any) {
		fmt.Fprintf(&b, "  %-11s %s\n", title, oneLine(fmt.Sprintf(format, args...)))
	}
	switch {
	case e.State == StateInadmissible:
		fmt.Fprintf(&b, "%s is not admitted:\n", name)
		list(&b, e.Problems)
	case e.Error != "":
		fmt.Fprintf(&b, "%s %s\n", name, e.Error)
		list(&b, e.Problems)
	case e.Note != "":
		fmt.Fprintf(&b, "%s %s.\n", name, e.Note)
		e.writeScheduler(line)
	case e.State == StatePlaced:
		e.writePlaced(&b, name, line)
	case e.Fits != "":
		fmt.Fprintf(&b, "%s is pending, but not for want of cards: it fits on %s\n", name, e.Fits)
		line("wants", "%s", e.Wants)
		if e.Scheduler == "" {
			line("scheduler", "has said nothing yet: is it running, and is the pod's schedulerName one that it serves?")
		}
		e.writeScheduler(line)
	default:
		fmt.Fprintf(&b, "%s is pending: %s\n", name, e.Summary)
		line("wants", "%s", e.Wants)
		e.writeReasons(line)
		e.writeHelp(line)
		e.writeScheduler(line)
	}
	return b.String()
}

// oneLine keeps texts of strangers from spreading over several lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func list(b *strings.Builder, lines []string) {
	for i, text := range lines {
		if more := len(lines) - i; i == shownProblems && more > 1 {
			fmt.Fprintf(b, "  ... and %d more; -o json tells of all\n", more)
			return
		}
		fmt.Fprintf(b, "  %s\n", oneLine(text))
	}
}

// reason is the nodes that refuse for one cause.
type reason struct {
	cause   place.Code
	nodes   int
	nearest *Refusal
}

// writeReasons tells of a few nodes one by one, and of many by reason, each with
// the node that comes nearest. Of nodes without cards the sentence has told all.
func (e *Explanation) writeReasons(line func(title, format string, args ...any)) {
	reasons, nodes := e.reasons()
	if nodes <= shownReasons {
		for i := range e.Refusals {
			if e.causes[i] != place.NoCards {
				line("node", "%s: %s", e.Refusals[i].Node, e.Refusals[i].Message)
			}
		}
		return
	}
	for i, r := range reasons {
		if i == shownReasons-1 && len(reasons) > shownReasons {
			rest := 0
			for _, r := range reasons[i:] {
				rest += r.nodes
			}
			line("and", "%s for other reasons; -o json tells of all", count(rest, "node"))
			return
		}
		nearest := "nearest is "
		switch {
		case r.nodes == 1:
			nearest = ""
		case r.cause == place.NodeExcluded:
			nearest = "for example " // none is nearer than another
		}
		line(count(r.nodes, "node"), "%s: %s%s: %s", r.cause.Reason(), nearest, r.nearest.Node, r.nearest.Message)
	}
}

// reasons groups the refusals of nodes that have cards, the commonest first and
// those that the pod may not use last.
func (e *Explanation) reasons() (reasons []reason, nodes int) {
	for i := range e.Refusals {
		r, cause := &e.Refusals[i], e.causes[i]
		if cause == place.NoCards {
			continue
		}
		nodes++
		k := slices.IndexFunc(reasons, func(x reason) bool { return x.cause == cause })
		if k < 0 {
			reasons = append(reasons, reason{cause: cause, nearest: r})
			k = len(reasons) - 1
		}
		reasons[k].nodes++
		if nearer(r, reasons[k].nearest) {
			reasons[k].nearest = r
		}
	}
	slices.SortFunc(reasons, func(a, b reason) int {
		return cmp.Or(compareBool(a.cause == place.NodeExcluded, b.cause == place.NodeExcluded), cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.cause, b.cause))
	})
	return reasons, nodes
}

// nearer tells whether a node came nearer to taking the pod than another that
// refused for the same reason.
func nearer(a, b *Refusal) bool {
	fits := place.TooFewCards.String()
	return cmp.Or(compareBool(b.Permanent, a.Permanent), cmp.Compare(a.Cards[fits], b.Cards[fits]), cmp.Compare(b.Want-b.Have, a.Want-a.Have), cmp.Compare(b.Node, a.Node)) > 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (e *Explanation) writeHelp(line func(title, format string, args ...any)) {
	if e.Help == nil {
		return
	}
	if s := e.Help.Smaller; s != nil {
		line("fits now", "%s (on %s)", s.Message, s.Node)
	}
	if r := e.Help.Room; r != nil {
		line("would fit", "on %s without %s", r.Node, some(r.Pods))
	}
}

// some names a few pods and counts the others.
func some(pods []string) string {
	if len(pods) <= shownPods {
		return strings.Join(pods, ", ")
	}
	return fmt.Sprintf("%s and %d more pods", strings.Join(pods[:shownPods-1], ", "), len(pods)-shownPods+1)
}

func (e *Explanation) writeScheduler(line func(title, format string, args ...any)) {
	if text := []rune(e.Scheduler); len(text) > shownSaid {
		line("scheduler", "%s...", string(text[:shownSaid]))
	} else if len(text) > 0 {
		line("scheduler", "%s", e.Scheduler)
	}
}

func (e *Explanation) writePlaced(b *strings.Builder, name string, line func(title, format string, args ...any)) {
	since := ""
	if e.Why != nil && e.Why.Since != nil {
		since = ", placed at " + e.Why.Since.Format(time.DateTime) + " UTC"
	}
	fmt.Fprintf(b, "%s is on %s%s\n", name, e.Node, since)
	if e.Wants != "" {
		line("wants", "%s", e.Wants)
	}
	shown := 0
	for _, c := range e.Containers {
		if len(c.Cards) == 0 {
			continue
		}
		if shown == shownContainers {
			line("", "... and more containers; -o json tells of all")
			break
		}
		shown++
		line("has", "%s", e.cardsOf(&c))
	}
	if len(e.Neighbours) > 0 {
		var texts []string
		for _, n := range e.Neighbours {
			texts = append(texts, fmt.Sprintf("%s (%d%%, %v of card %d)", n.Pod, n.ComputePercent, gpu.MiB(n.MemoryMiB), n.Index))
		}
		line("shares with", "%s", some(texts))
	}
	if e.Why != nil {
		if e.Why.Links != "" {
			line("links", "%s: worth %d", e.Why.Links, e.Why.Score)
		}
		line("policy", "%s", e.Why.Policy)
		line("why there", "%s had room; %s", count(e.Why.NodesWithRoom, "node"), e.Why.Message)
	}
	if len(e.Problems) > 0 {
		line("warning", "its request makes no sense: %s", e.Problems[0])
	}
}

// cardsOf tells what a container has.
func (e *Explanation) cardsOf(c *Container) string {
	first := c.Cards[0]
	same := !slices.ContainsFunc(c.Cards, func(x Card) bool {
		return x.ComputePercent != first.ComputePercent || x.MemoryMiB != first.MemoryMiB
	})
	var parts []string
	for _, card := range c.Cards {
		text := strconv.Itoa(card.Index)
		if !same {
			text += fmt.Sprintf(" (%d%%, %v)", card.ComputePercent, gpu.MiB(card.MemoryMiB))
		}
		parts = append(parts, text)
	}
	what := "card"
	if len(parts) > 1 {
		what = "cards"
	}
	text := fmt.Sprintf("%s: %s %s", c.Name, what, strings.Join(parts, ", "))
	if same {
		text += fmt.Sprintf(", %d%% and %v", first.ComputePercent, gpu.MiB(first.MemoryMiB))
		if len(parts) > 1 {
			text += " of each"
		}
	}
	if first.UUID == "" {
		text += "; the vendor's plugin picked which"
	}
	return text
}
