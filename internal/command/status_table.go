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

// statusText is a status in the making as text.
type statusText struct {
	strings.Builder
	palette
	*view.Status
	wide bool
	now  time.Time
	// oneNode leaves out the sums of the cluster.
	oneNode bool
}

// text renders the status for people.
func (t *statusText) text() string {
	if !t.oneNode {
		t.writeCluster()
	}
	t.writeNodes()
	if t.wide {
		t.writeCards()
	}
	t.writeUnhealthy()
	t.writeBlocked()
	if !t.oneNode {
		t.writePending()
	}
	return t.Builder.String()
}

// writeCluster adds everything up in two sentences.
func (t *statusText) writeCluster() {
	c := &t.Cluster
	var models []string
	for _, m := range slices.SortedFunc(maps.Keys(c.Models), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.Models[y], c.Models[x]), cmp.Compare(x, y))
	}) {
		models = append(models, fmt.Sprintf("%d %s", c.Models[m], m))
	}
	t.WriteString(t.paint(bold, view.Count(c.NodesWithCards, "node")+", "+view.Count(c.Cards, "card")))
	if len(models) > 0 {
		t.WriteString(" (" + strings.Join(models[:min(4, len(models))], ", ") + ")")
	}
	if unhealthy := c.Cards - c.Healthy; unhealthy > 0 {
		t.WriteString(", " + t.paint(red, fmt.Sprintf("%d unhealthy", unhealthy)))
	}
	if c.Pending > 0 {
		t.WriteString(", " + t.paint(yellow, view.Count(c.Pending, "pod")+" pending"))
	}
	t.WriteByte('\n')
	if c.Cards > 0 {
		fmt.Fprintf(&t.Builder, "free: %s, %s of compute, %s of %s of memory\n",
			view.Count(c.Free.WholeCards, "whole card"), part(c.Free.ComputePercent, c.Total.ComputePercent), size(c.Free.MemoryMiB), size(c.Total.MemoryMiB))
	}
	if without := c.Nodes - c.NodesWithCards; without > 0 {
		fmt.Fprintf(&t.Builder, "%s without MetaX cards left out\n", view.Count(without, "node"))
	}
}

// writeNodes prints a line for each node that has cards, or should have.
func (t *statusText) writeNodes() {
	nodes := table{gap: 2, right: map[int]bool{4: true, 5: true, 6: true}}
	nodes.header(t.palette, "NODE", "MODE", "SERVED BY", "CARDS", "FREE: CARDS", "COMPUTE", "MEMORY", "BIGGEST")
	drawn := map[string]bool{}
	var blocked []int // rows of nodes that Kubernetes gives no pods
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if len(n.Cards) == 0 && n.Problem == "" && !t.oneNode {
			continue
		}
		if !n.Ready || !n.Schedulable {
			blocked = append(blocked, len(nodes.rows))
		}
		nodes.row(n.Name, cmp.Or(n.Mode, "-"), n.ServedBy, bar(n, t.palette, drawn), strconv.Itoa(n.Free.WholeCards),
			fmt.Sprintf("%d%%", n.Free.ComputePercent), size(n.Free.MemoryMiB), t.biggest(n))
	}
	if len(nodes.rows) == 1 {
		return
	}
	if t.Len() > 0 {
		t.WriteByte('\n')
	}
	if !t.wide {
		nodes.fit(lineWidth)
	}
	for _, row := range blocked {
		nodes.rows[row][0] = t.paint(yellow, nodes.rows[row][0])
	}
	nodes.write(&t.Builder)
	t.WriteString(t.paint(dim, legend(drawn)) + "\n")
}

// biggest returns the largest request that the node could take.
func (t *statusText) biggest(n *view.NodeStatus) string {
	f := &n.Free
	switch {
	case n.Problem != "" || len(n.Unaccounted) > 0:
		return t.paint(red, "takes no pods")
	case !n.Ready:
		return t.paint(yellow, "not ready")
	case !n.Schedulable:
		return t.paint(yellow, "cordoned")
	case f.LinkedCards > 1:
		return fmt.Sprintf("%d linked cards", f.LinkedCards)
	case f.WholeCards > 0:
		return view.Count(f.WholeCards, "card")
	case f.LargestSlice.ComputePercent > 0 && f.LargestSlice.MemoryMiB > 0 && n.Mode == string(gpu.ModeSGPU):
		return fmt.Sprintf("%d%% and %s", f.LargestSlice.ComputePercent, size(f.LargestSlice.MemoryMiB))
	case n.Mode == string(gpu.ModeShared) && f.MemoryMiB > 0:
		return "seats"
	}
	return t.paint(dim, "nothing")
}

// writeCards lists every card with its shares. What the shares of a card have in
// common is not repeated.
func (t *statusText) writeCards() {
	cards := table{gap: 2, right: map[int]bool{1: true, 8: true, 9: true, 12: true, 13: true}}
	cards.header(t.palette, "NODE", "CARD", "MODEL", "ZONE", "NUMA", "HEALTH", "QOS", "UUID", "FREE: COMPUTE", "MEMORY", "POD", "CONTAINER", "COMPUTE", "MEMORY")
	for i := range t.Nodes {
		node := t.Nodes[i].Name
		for k := range t.Nodes[i].Cards {
			c := &t.Nodes[i].Cards[k]
			health := t.paint(green, "ok")
			if !c.Healthy {
				health = t.paint(red, "unhealthy")
			}
			row := []string{
				node, strconv.Itoa(c.Index), c.Model, number(c.Zone), number(c.NUMA), health, cmp.Or(c.QoS, "-"),
				cmp.Or(c.UUID, "-"), fmt.Sprintf("%d%%", c.ComputeFreePercent), size(c.MemoryFreeMiB),
			}
			if len(c.Shares) == 0 {
				cards.row(row...)
			}
			for _, s := range c.Shares {
				cards.row(append(row, s.Namespace+"/"+s.Pod, s.Container, fmt.Sprintf("%d%%", s.ComputePercent), size(s.MemoryMiB))...)
				row = make([]string, len(row))
			}
		}
	}
	if len(cards.rows) > 1 {
		t.WriteByte('\n')
		cards.write(&t.Builder)
	}
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// writeUnhealthy lists the unhealthy cards, with the reason and the pods on them.
func (t *statusText) writeUnhealthy() {
	var lines []string
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
			lines = append(lines, text)
		}
	}
	t.section(red, "UNHEALTHY", lines)
}

// writeBlocked lists the nodes that have cards and take no pods.
func (t *statusText) writeBlocked() {
	var lines []string
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if len(n.Cards) == 0 && n.Problem == "" {
			continue
		}
		switch {
		case n.Problem != "":
			lines = append(lines, fmt.Sprintf("%s: its cards can't be read: %s", n.Name, n.Problem))
		case len(n.Unaccounted) > 0:
			lines = append(lines, fmt.Sprintf("%s: it is not known which cards are held by %s", n.Name, strings.Join(n.Unaccounted, ", ")))
		case n.Paused != "":
			lines = append(lines, fmt.Sprintf("%s: hands out no cards for now: %s", n.Name, n.Paused))
		case !n.Ready:
			lines = append(lines, n.Name+": the node is not ready")
		case !n.Schedulable:
			lines = append(lines, n.Name+": the node is cordoned")
		}
	}
	t.section(yellow, "TAKES NO PODS", lines)
}

// writePending lists the waiting pods, with the reason.
func (t *statusText) writePending() {
	var lines []string
	for i, p := range t.Pending {
		if more := len(t.Pending) - i; i == shownPending && more > 1 {
			lines = append(lines, fmt.Sprintf("... and %d more; see -o json", more))
			break
		}
		text := p.Namespace + "/" + p.Name
		if p.Created != nil {
			text += " (" + duration.HumanDuration(t.now.Sub(*p.Created)) + ")"
		}
		if p.Wants != "" {
			text += " wants " + p.Wants + ":"
		}
		lines = append(lines, text+" "+p.Message)
	}
	t.section(yellow, "PENDING", lines)
}

// section prints a title and its lines, if there are any.
func (t *statusText) section(color, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.WriteString("\n" + t.paint(color, title) + "\n")
	for _, line := range lines {
		t.WriteString(wrap("  ", line) + "\n")
	}
}

// part renders a of b in percent, rounded down: "100%" means all of it.
func part(a, b int64) string {
	if b == 0 {
		return "0%"
	}
	return fmt.Sprintf("%d%%", 100*a/b)
}

// size renders MiB in the largest unit that keeps a digit of precision.
func size(mib int64) string {
	switch {
	case mib >= 10<<20:
		return fmt.Sprintf("%d TiB", mib>>20)
	case mib >= 1<<20:
		return strings.Replace(fmt.Sprintf("%.1f TiB", float64(mib)/(1<<20)), ".0 ", " ", 1)
	case mib >= 1<<10 && mib%(1<<10) != 0 && mib < 100<<10:
		return fmt.Sprintf("%.1f GiB", float64(mib)/(1<<10))
	case mib >= 1<<10:
		return fmt.Sprintf("%d GiB", mib>>10)
	case mib == 0:
		return "0"
	}
	return fmt.Sprintf("%d MiB", mib)
}
