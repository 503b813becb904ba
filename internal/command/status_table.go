package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// shownPending is how many waiting pods a table lists; JSON has them all.
const shownPending = 10

// shownNodes is how many nodes a line lists.
const shownNodes = 8

// statusText renders a status for people.
type statusText struct {
	palette
	*view.Status
	wide bool
	now  time.Time
	// oneNode leaves out the sums of the cluster.
	oneNode bool
	// columns is how wide a line may be.
	columns int
}

// text renders all of it.
func (t *statusText) text() string {
	blocks := [][]string{t.cluster(), t.nodes(0)}
	if t.wide {
		blocks = append(blocks, t.cards())
	}
	for _, s := range t.sections() {
		blocks = append(blocks, s.lines(t, 0))
	}
	return strings.Join(joined(blocks), "\n") + "\n"
}

// joined puts an empty line between blocks that have lines.
func joined(blocks [][]string) (lines []string) {
	for _, block := range blocks {
		if len(block) > 0 && len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, block...)
	}
	return lines
}

// fitting renders the status in so many lines. Where that is too few for all of it,
// what is wrong comes before the nodes, and each part is cut.
func (t *statusText) fitting(rows int) []string {
	if t.shown() <= rows { // else there are more nodes than rows
		if all := strings.Split(strings.TrimSuffix(t.text(), "\n"), "\n"); len(all) <= rows {
			return all
		}
	}
	head, nodes, sections := t.cluster(), t.nodes(rows), t.sections()
	if t.wide {
		nodes = append(append(nodes, ""), t.cards()...)
	}
	blocks := [][]string{head}
	left := rows - len(head)
	// A third of the lines is for the nodes, if they need so many.
	spare := left - min(len(nodes)+1, max(left/3, 4))
	for i := range sections {
		lines := sections[i].lines(t, max(2, spare/(len(sections)-i)-1))
		spare -= len(lines) + 1
		left -= len(lines) + 1
		blocks = append(blocks, lines)
	}
	if room := left - 1; room > 1 {
		blocks = append(blocks, t.cut(nodes, room))
	}
	return joined(blocks)
}

// cut leaves out nodes, and says how many.
func (t *statusText) cut(lines []string, rows int) []string {
	if len(lines) <= rows {
		return lines
	}
	shown, all := rows-2, t.shown() // besides the header and the line below
	text := "... and cards"
	switch {
	case shown < all:
		text = "... and " + view.Count(all-shown, "more node")
	case !t.wide: // a part of the legend is left out
		return lines[:rows]
	}
	return append(lines[:rows-1:rows-1], t.paint(dim, text))
}

// shown counts the nodes that have cards, or should have.
func (t *statusText) shown() (n int) {
	for i := range t.Nodes {
		if t.Nodes[i].HasCards() {
			n++
		}
	}
	return n
}

// cluster adds everything up in a few sentences.
func (t *statusText) cluster() (lines []string) {
	c := &t.Cluster
	say := func(text string) { lines = append(lines, wrap("", text, t.columns)...) }
	if t.oneNode {
		if n := t.violated(); n > 0 {
			say(t.paint(red, view.Count(n, "card")+" with violations: run daybreak audit"))
		}
		return lines
	}
	say(t.totals())
	if c.Cards > 0 {
		free, total := view.FreeOf(c.Free.MemoryMiB, c.Total.MemoryMiB)
		say(fmt.Sprintf("free: %s, %s of compute, %s of %s of memory",
			view.Count(c.Free.WholeCards, "whole card"), part(c.Free.ComputePercent, c.Total.ComputePercent), free, total))
		say("fragmentation: " + fragmentation(c))
	}
	if without := c.Nodes - c.NodesWithCards; without > 0 {
		say(view.Count(without, "node") + " without MetaX cards left out")
	}
	if c.Violations != nil && *c.Violations > 0 {
		say(t.paint(red, view.Count(*c.Violations, "violation")+": run daybreak audit"))
	}
	return lines
}

// violated counts the cards that break a rule of the audit.
func (t *statusText) violated() (n int) {
	for i := range t.Nodes {
		for k := range t.Nodes[i].Cards {
			if len(t.Nodes[i].Cards[k].Violations) > 0 {
				n++
			}
		}
	}
	return n
}

// totals counts nodes and cards, and what is wrong with them.
func (t *statusText) totals() string {
	c := &t.Cluster
	text := t.paint(bold, view.Count(c.NodesWithCards, "node")+", "+view.Count(c.Cards, "card"))
	var models []string
	for _, m := range slices.SortedFunc(maps.Keys(c.Models), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.Models[y], c.Models[x]), cmp.Compare(x, y))
	}) {
		models = append(models, fmt.Sprintf("%d %s", c.Models[m], m))
	}
	if len(models) > 0 {
		text += " (" + strings.Join(models[:min(4, len(models))], ", ") + ")"
	}
	if unhealthy := c.Cards - c.Healthy; unhealthy > 0 {
		text += ", " + t.paint(red, fmt.Sprintf("%d unhealthy", unhealthy))
	}
	if c.Pending > 0 {
		text += ", " + t.paint(yellow, view.Count(c.Pending, "pod")+" pending")
	}
	return text
}

// fragmentation says how much of what is free is of no use, or why that is not
// known.
func fragmentation(c *view.ClusterStatus) string {
	switch {
	case c.FragmentationPercent != nil:
		return fmt.Sprintf("%d%% of what is free is of no use", *c.FragmentationPercent)
	case c.FragmentationUnknown == view.TooFewPods:
		return "–, too few pods"
	}
	return "–, nothing is free"
}

// nodes prints a line for each node that has cards, or should have: for so many of
// them at most, if that is not 0.
func (t *statusText) nodes(most int) []string {
	nodes := table{gap: 2, right: map[int]bool{5: true, 6: true, 7: true}, optional: []int{3, 2, 1}}
	nodes.header(t.palette, "NODE", "MODEL", "MODE", "SERVED BY", "CARDS", "FREE: CARDS", "COMPUTE", "MEMORY", "BIGGEST")
	drawn := map[string]bool{}
	var blocked []int // rows of nodes that Kubernetes gives no pods
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if !n.HasCards() && !t.oneNode {
			continue
		}
		if most > 0 && len(nodes.rows) > most {
			break
		}
		if !n.TakesPods() {
			blocked = append(blocked, len(nodes.rows))
		}
		nodes.row(n.Name, models(n), cmp.Or(n.Mode, "-"), n.ServedBy, bar(n, t.palette, drawn), strconv.Itoa(n.Free.WholeCards),
			fmt.Sprintf("%d%%", n.Free.ComputePercent), view.FreeSize(n.Free.MemoryMiB), t.biggest(n))
	}
	if len(nodes.rows) == 1 {
		return nil
	}
	if len(t.Cluster.Models) < 2 {
		nodes.drop(map[int]bool{1: true})
		nodes.optional = []int{2, 1}
	}
	if !t.wide {
		nodes.fit(t.columns)
	}
	for _, row := range blocked {
		nodes.rows[row][0] = t.paint(yellow, nodes.rows[row][0])
	}
	lines := nodes.lines()
	for _, line := range wrap("", legend(drawn), t.columns) {
		lines = append(lines, t.paint(dim, line))
	}
	return lines
}

// models lists the models of a node's cards.
func models(n *view.NodeStatus) string {
	var models []string
	for i := range n.Cards {
		models = append(models, cmp.Or(n.Cards[i].Model, "unknown"))
	}
	slices.Sort(models)
	return cmp.Or(strings.Join(slices.Compact(models), ", "), "-")
}

// biggest returns the largest request that the node could take.
func (t *statusText) biggest(n *view.NodeStatus) string {
	f := &n.Free
	switch {
	case n.Problem != "" || n.MissingDevice != "" || len(n.Unaccounted) > 0:
		return t.paint(red, "takes no pods")
	case !n.Ready:
		return t.paint(yellow, "not ready")
	case !n.Schedulable:
		return t.paint(yellow, "cordoned")
	case n.Taint != "":
		return t.paint(yellow, "tainted")
	case f.LinkedCards > 1:
		return fmt.Sprintf("%d linked cards", f.LinkedCards)
	case f.WholeCards > 0:
		return view.Count(f.WholeCards, "card")
	case f.LargestSlice.ComputePercent > 0 && f.LargestSlice.MemoryMiB > 0 && n.Mode == string(gpu.ModeSGPU):
		return fmt.Sprintf("%d%% and %s", f.LargestSlice.ComputePercent, view.FreeSize(f.LargestSlice.MemoryMiB))
	case n.Mode == string(gpu.ModeShared) && f.MemoryMiB > 0:
		return "seats"
	}
	return t.paint(dim, "nothing")
}

// cards lists every card with its shares. What the shares of a card have in
// common is not repeated.
func (t *statusText) cards() []string {
	cards := table{gap: 2, right: map[int]bool{1: true, 7: true, 9: true, 10: true, 13: true, 14: true}}
	cards.header(t.palette, "NODE", "CARD", "MODEL", "ZONE", "NUMA", "HEALTH", "QOS", "SLICES", "UUID", "FREE: COMPUTE", "MEMORY", "POD", "CONTAINER", "COMPUTE", "MEMORY")
	for i := range t.Nodes {
		node := t.Nodes[i].Name
		for k := range t.Nodes[i].Cards {
			c := &t.Nodes[i].Cards[k]
			row := []string{
				node, strconv.Itoa(c.Index), cmp.Or(c.Model, "-"), number(c.Zone), number(c.NUMA), t.health(c), cmp.Or(c.QoS, "-"), t.slices(c),
				cmp.Or(c.UUID, "-"), fmt.Sprintf("%d%%", c.Free.ComputePercent), view.FreeSize(c.Free.MemoryMiB),
			}
			if len(c.Shares) == 0 {
				cards.row(row...)
			}
			for _, s := range c.Shares {
				cards.row(append(row, s.Namespace+"/"+s.Pod, s.Container, fmt.Sprintf("%d%%", s.ComputePercent), view.UsedSize(s.MemoryMiB))...)
				row = make([]string, len(row))
			}
		}
	}
	if len(cards.rows) == 1 {
		return nil
	}
	return cards.lines()
}

// health says whether the card is healthy, and which rules are broken on it.
func (t *statusText) health(c *view.CardStatus) string {
	var words []string
	if !c.Healthy {
		words = append(words, "unhealthy")
	}
	for _, rule := range c.Violations {
		words = append(words, string(rule))
	}
	if len(words) == 0 {
		return t.paint(green, "ok")
	}
	return t.paint(red, strings.Join(words, ", "))
}

// slices counts those in use, of those that the card takes; a card that is held as a
// whole has none.
func (t *statusText) slices(c *view.CardStatus) string {
	if c.Exclusive {
		return "-"
	}
	text := fmt.Sprintf("%d/%d", c.Slots-c.SlotsFree, c.Slots)
	if c.OutOfSlices() {
		return t.paint(magenta, text)
	}
	return text
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// section is a title and what belongs to it.
type section struct {
	color, title string
	items        []string
}

// lines renders the section in at most so many lines; 0 means no limit. Without
// items there are none.
func (s *section) lines(t *statusText, most int) []string {
	if len(s.items) == 0 {
		return nil
	}
	lines := []string{t.paint(s.color, s.title)}
	for i, item := range s.items {
		wrapped := wrap("  ", item, t.columns)
		// The last item needs no line that counts those left out.
		needed := len(lines) + len(wrapped) + min(1, len(s.items)-1-i)
		if most > 0 && needed > most {
			return append(lines, fmt.Sprintf("  ... and %d more", len(s.items)-i))
		}
		lines = append(lines, wrapped...)
	}
	return lines
}

// sections lists what is wrong.
func (t *statusText) sections() (sections []section) {
	all := []section{{red, "UNHEALTHY", t.unhealthy()}, {yellow, "TAKES NO PODS", t.blocked()}}
	if !t.oneNode {
		all = append(all, section{yellow, "PENDING", t.pending()})
	}
	for _, s := range all {
		if len(s.items) > 0 {
			sections = append(sections, s)
		}
	}
	return sections
}

// unhealthy lists the unhealthy cards, with the reason and the pods on them.
func (t *statusText) unhealthy() (items []string) {
	for i := range t.Nodes {
		for k := range t.Nodes[i].Cards {
			c := &t.Nodes[i].Cards[k]
			if c.Healthy {
				continue
			}
			text := fmt.Sprintf("%s card %d: %s", t.Nodes[i].Name, c.Index, cmp.Or(c.HealthReason, "no reason given"))
			var pods []string
			for _, s := range c.Shares {
				pods = append(pods, s.Namespace+"/"+s.Pod)
			}
			if pods = slices.Compact(pods); len(pods) > 0 {
				text += "; still in use by " + strings.Join(pods, ", ")
			}
			items = append(items, text)
		}
	}
	return items
}

// blocked lists the nodes that have cards and take no pods, those with the same
// reason together.
func (t *statusText) blocked() (items []string) {
	var reasons []string
	nodes := map[string][]string{} // by reason
	for i := range t.Nodes {
		n := &t.Nodes[i]
		reason := blockedBy(n)
		if !n.HasCards() || reason == "" {
			continue
		}
		if nodes[reason] == nil {
			reasons = append(reasons, reason)
		}
		nodes[reason] = append(nodes[reason], n.Name)
	}
	for _, reason := range reasons {
		items = append(items, several(nodes[reason], shownNodes)+": "+reason)
	}
	return items
}

// several lists names, a few of many.
func several(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
}

// blockedBy says why the node takes no pods, or nothing.
func blockedBy(n *view.NodeStatus) string {
	switch {
	case n.Problem != "":
		return "its cards can't be read: " + n.Problem
	case n.MissingDevice != "":
		return n.MissingDevice
	case len(n.Unaccounted) > 0:
		return "it is not known which cards are held by " + strings.Join(n.Unaccounted, ", ")
	case n.Paused != "":
		return "hands out no cards for now: " + n.Paused
	case !n.Ready:
		return "the node is not ready"
	case !n.Schedulable:
		return "the node is cordoned"
	case n.Taint != "":
		return "the node has the taint " + n.Taint
	}
	return ""
}

// pending lists the waiting pods, with the reason.
func (t *statusText) pending() (items []string) {
	for i, p := range t.Pending {
		if more := len(t.Pending) - i; i == shownPending && more > 1 {
			return append(items, fmt.Sprintf("... and %d more; see -o json", more))
		}
		text := p.Namespace + "/" + p.Name
		if p.Created != nil {
			text += " (" + duration.HumanDuration(t.now.Sub(*p.Created)) + ")"
		}
		if p.Wants != "" {
			text += " wants " + p.Wants + ":"
		}
		items = append(items, text+" "+p.Message)
	}
	return items
}

// part renders a of b in percent, rounded down: "100%" means all of it.
func part(a, b int64) string {
	if b == 0 {
		return "0%"
	}
	return fmt.Sprintf("%d%%", 100*a/b)
}
