package command

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
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

// explanation is an explanation in the making as text.
type explanation struct {
	strings.Builder
	*view.Explanation
	name string
}

// explainText renders the answer for people: of one pod, or of the pods of a
// workload.
func explainText(a *view.Explanations, p palette) string {
	if a.Workload == nil {
		return podText(&a.Pods[0], p, nil)
	}
	t := &explanation{name: p.paint(bold, fmt.Sprintf("%s %s/%s", a.Workload.Kind, a.Workload.Namespace, a.Workload.Name))}
	t.writeWorkload(a)
	for _, g := range groupPods(a.Pods, p) {
		t.WriteByte('\n')
		t.WriteString(podText(g[0], p, g[1:]))
	}
	return t.String()
}

// writeWorkload counts the pods of a workload, lists the placed ones and what keeps
// others from being created.
func (t *explanation) writeWorkload(a *view.Explanations) {
	states := map[string]int{}
	var placed []string
	for i := range a.Pods {
		states[a.Pods[i].State]++
		if a.Pods[i].State == view.StatePlaced {
			placed = append(placed, a.Pods[i].Name+" on "+a.Pods[i].Node)
		}
	}
	counts := []string{}
	for _, state := range []string{view.StatePlaced, view.StatePending, view.StateInadmissible, view.StateUnaccounted, view.StateNoCards, view.StateEnded} {
		if n := states[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := "has no pods"
	if len(a.Pods) > 0 {
		text = fmt.Sprintf("has %s: %s", view.Count(len(a.Pods), "pod"), strings.Join(counts, ", "))
	}
	t.sentence("%s", text)
	if len(placed) > 0 {
		t.line("placed", "%s", some(placed))
	}
	for _, f := range a.Workload.Failures {
		t.line("not created", "%s", eventText(&f))
		if f.Quota != "" {
			t.line("quota", "ResourceQuota %s leaves too little; daybreak status --namespaces -n %s shows what is used", f.Quota, a.Workload.Namespace)
		}
	}
}

// eventText renders an event with how often and when it last happened.
func eventText(e *view.Event) string {
	times := ""
	if e.Count > 1 {
		times = view.Count(e.Count, "time") + ", "
	}
	return fmt.Sprintf("%s (%slast at %s UTC)", e.Message, times, e.Last.Format(time.DateTime))
}

// groupPods puts pods with the same answer together. Those that are placed or need
// no place are counted elsewhere.
func groupPods(pods []view.Explanation, p palette) [][]*view.Explanation {
	var groups [][]*view.Explanation
	at := map[string]int{}
	for i := range pods {
		e := &pods[i]
		switch e.State {
		case view.StatePlaced, view.StateEnded, view.StateNoCards:
			if e.Error == "" {
				continue
			}
		}
		alike := *e
		alike.Name = ""
		key := podText(&alike, p, nil)
		if _, ok := at[key]; !ok {
			at[key] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[key]] = append(groups[at[key]], e)
	}
	return groups
}

// podText renders the explanation of a pod: one sentence, then at most nine lines.
// The same holds for the other pods.
func podText(e *view.Explanation, p palette, others []*view.Explanation) string {
	t := &explanation{Explanation: e, name: p.paint(bold, e.Namespace+"/"+e.Name)}
	t.write()
	if len(e.Evicted) > 0 {
		t.line("evicted", "%s to make room for it", some(e.Evicted))
	}
	if len(others) > 0 {
		names := make([]string, len(others))
		for i := range others {
			names[i] = others[i].Namespace + "/" + others[i].Name
		}
		t.line("same for", "%s", some(names))
	}
	return t.String()
}

func (t *explanation) write() {
	e := t.Explanation
	switch {
	case e.Limited != "" && e.Error == "" && e.Note == "":
		t.writeAlone()
	case e.State == view.StateInadmissible:
		t.sentence("is not admitted:")
		t.list(e.Problems)
	case e.Error != "":
		t.sentence("%s", e.Error)
		t.list(e.Problems)
	case e.Note != "":
		t.sentence("%s.", e.Note)
		t.writeScheduler()
	case e.State == view.StatePlaced:
		t.writePlaced()
	case e.Fits != "":
		t.sentence("is pending, but not for want of cards: it fits on %s", e.Fits)
		t.line("wants", "%s", e.Wants)
		if e.Scheduler == "" {
			t.line("scheduler", "no report yet: check that Daybreak's scheduler is running")
		}
		t.writeScheduler()
	default:
		t.sentence("is pending: %s", e.Summary)
		t.line("wants", "%s", e.Wants)
		t.writeReasons()
		t.writeHelp()
		t.writeScheduler()
	}
	if e.Limited != "" {
		for i := range e.Events {
			t.line("event", "%s: %s", e.Events[i].Reason, eventText(&e.Events[i]))
		}
		t.line("rights", "%s", e.Limited)
	}
}

// writeAlone prints what the pod itself shows.
func (t *explanation) writeAlone() {
	if t.Node == "" {
		text := "the scheduler has not reported on it"
		switch {
		case t.Unschedulable:
			text = "the scheduler found no node"
		case t.Scheduler != "":
			text = "see below"
		}
		t.sentence("is pending: %s", text)
		t.line("wants", "%s", t.Wants)
		t.writeScheduler()
		return
	}
	t.sentence("is on %s", t.Node)
	for i, c := range t.Written {
		if i == shownContainers {
			t.line("", "... and more containers; see -o json")
			break
		}
		for _, card := range c.Cards {
			t.line("has", "%s: card %s, %d%% and %v", c.Name, card.UUID, card.ComputePercent, gpu.MiB(card.MemoryMiB))
		}
	}
}

// sentence prints what is true of the pod.
func (t *explanation) sentence(format string, args ...any) {
	fmt.Fprintf(&t.Builder, "%s %s\n", t.name, fmt.Sprintf(format, args...))
}

// line prints one fact.
func (t *explanation) line(title, format string, args ...any) {
	fmt.Fprintf(&t.Builder, "  %-11s %s\n", title, oneLine(fmt.Sprintf(format, args...)))
}

// oneLine joins the lines of a text that others wrote.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (t *explanation) list(lines []string) {
	for i, text := range lines {
		if more := len(lines) - i; i == shownProblems && more > 1 {
			fmt.Fprintf(&t.Builder, "  ... and %d more; see -o json\n", more)
			return
		}
		fmt.Fprintf(&t.Builder, "  %s\n", oneLine(text))
	}
}

// writeReasons lists a few nodes one by one, and many by reason, each with the
// node that comes nearest. The sentence has counted the nodes without cards.
func (t *explanation) writeReasons() {
	reasons := slices.DeleteFunc(slices.Clone(t.Reasons), func(r place.Reason) bool { return r.Code == place.NoCards })
	if len(reasons) > 0 && reasons[0].Code == place.QuotaExceeded { // of all nodes alike
		t.line("quota", "daybreak status --namespaces -n %s shows what the namespace uses", t.Namespace)
		return
	}
	if nodesOf(reasons) <= shownReasons {
		for i := range t.Refusals {
			if r := &t.Refusals[i]; r.Cause != place.NoCards {
				t.line("node", "%s: %s", r.Node, r.Message)
			}
		}
		return
	}
	for i, r := range reasons {
		if i == shownReasons-1 && len(reasons) > shownReasons {
			t.line("and", "%s for other reasons; see -o json", view.Count(nodesOf(reasons[i:]), "node"))
			return
		}
		which := "nearest is "
		switch {
		case r.Nodes == 1:
			which = ""
		case r.Code == place.NodeExcluded:
			which = "for example " // none is nearer than another
		}
		nearest := t.nearest(r.Code)
		t.line(view.Count(r.Nodes, "node"), "%s: %s%s: %s", r.Code.Reason(), which, nearest.Node, nearest.Message)
	}
}

func nodesOf(reasons []place.Reason) (nodes int) {
	for _, r := range reasons {
		nodes += r.Nodes
	}
	return nodes
}

// nearest returns the refusal of the node that comes nearest to taking the pod, of
// those that refuse for the cause.
func (t *explanation) nearest(cause place.Code) (nearest *view.Refusal) {
	for i := range t.Refusals {
		if r := &t.Refusals[i]; r.Cause == cause && (nearest == nil || nearer(r, nearest)) {
			nearest = r
		}
	}
	return nearest
}

// nearer reports whether a node came nearer to taking the pod than another that
// refused for the same reason.
func nearer(a, b *view.Refusal) bool {
	if a.Permanent != b.Permanent {
		return b.Permanent
	}
	fits := place.TooFewCards.String()
	return cmp.Or(cmp.Compare(a.Cards[fits], b.Cards[fits]), cmp.Compare(b.Want-b.Have, a.Want-a.Have), cmp.Compare(b.Node, a.Node)) > 0
}

func (t *explanation) writeHelp() {
	if t.Help == nil {
		return
	}
	if s := t.Help.Smaller; s != nil {
		t.line("fits now", "%s (on %s)", s.Message, s.Node)
	}
	if r := t.Help.Room; r != nil {
		t.line("would fit", "on %s without %s", r.Node, some(r.Pods))
	}
}

// some names a few pods and counts the others.
func some(pods []string) string {
	text := several(pods, shownPods)
	if len(pods) > shownPods {
		text += " pods"
	}
	return text
}

func (t *explanation) writeScheduler() {
	if text := []rune(t.Scheduler); len(text) > shownSaid {
		t.line("scheduler", "%s...", string(text[:shownSaid]))
	} else if len(text) > 0 {
		t.line("scheduler", "%s", t.Scheduler)
	}
}

func (t *explanation) writePlaced() {
	since := ""
	if t.Why != nil && t.Why.Since != nil {
		since = ", placed at " + t.Why.Since.Format(time.DateTime) + " UTC"
	}
	t.sentence("is on %s%s", t.Node, since)
	if t.Wants != "" {
		t.line("wants", "%s", t.Wants)
	}
	shown := 0
	for _, c := range t.Containers {
		if len(c.Cards) == 0 {
			continue
		}
		if shown == shownContainers {
			t.line("", "... and more containers; see -o json")
			break
		}
		shown++
		t.line("has", "%s", cardsOf(&c))
	}
	if len(t.Neighbours) > 0 {
		var texts []string
		for _, n := range t.Neighbours {
			texts = append(texts, fmt.Sprintf("%s (%d%%, %v of card %d)", n.Pod, n.ComputePercent, gpu.MiB(n.MemoryMiB), n.Index))
		}
		t.line("shares with", "%s", some(texts))
	}
	if t.Why != nil {
		if t.Why.Links != "" {
			t.line("links", "%s: worth %d", t.Why.Links, t.Why.Score)
		}
		t.line("policy", "%s", t.Why.Policy)
		t.line("why there", "%s had room; %s", view.Count(t.Why.NodesWithRoom, "node"), t.Why.Message)
	}
	if len(t.Problems) > 0 {
		t.line("warning", "invalid request: %s", t.Problems[0])
	}
}

// cardsOf returns what a container has.
func cardsOf(c *view.Container) string {
	first := c.Cards[0]
	same := !slices.ContainsFunc(c.Cards, func(x view.Card) bool {
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
