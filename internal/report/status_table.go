package report

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
)

// shownPending is how many waiting pods a table tells of; JSON has them all.
const shownPending = 10

// view is how a status is shown.
type view struct {
	wide   bool
	colors bool
	now    time.Time
	// oneNode: the sums of the cluster are left out.
	oneNode bool
}

// table renders the status for people.
func (st *Status) table(v view) string {
	var b strings.Builder
	if !v.oneNode {
		st.writeCluster(&b, v)
	}
	st.writeNodes(&b, v)
	if v.wide {
		st.writeCards(&b, v)
	}
	st.writeUnhealthy(&b, v)
	st.writeBlocked(&b, v)
	if !v.oneNode {
		st.writePending(&b, v)
	}
	return b.String()
}

// writeCluster adds everything up in two sentences.
func (st *Status) writeCluster(b *strings.Builder, v view) {
	c := &st.Cluster
	var models []string
	for _, m := range slices.SortedFunc(maps.Keys(c.Models), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.Models[y], c.Models[x]), cmp.Compare(x, y))
	}) {
		models = append(models, fmt.Sprintf("%d %s", c.Models[m], m))
	}
	line := rich{{fmt.Sprintf("%s, %s", count(c.NodesWithCards, "node"), count(c.Cards, "card")), bold}}
	if len(models) > 0 {
		line = append(line, span{" (" + strings.Join(models[:min(4, len(models))], ", ") + ")", plainStyle})
	}
	if sick := c.Cards - c.Healthy; sick > 0 {
		line = append(line, span{", ", plainStyle}, span{fmt.Sprintf("%d unhealthy", sick), red})
	}
	if c.Pending > 0 {
		line = append(line, span{", ", plainStyle}, span{count(c.Pending, "pod") + " pending", yellow})
	}
	b.WriteString(line.render(v.colors) + "\n")
	if c.Cards > 0 {
		fmt.Fprintf(b, "free: %s, %s of compute, %s of %s of memory\n",
			count(c.Free.WholeCards, "whole card"), part(c.Free.ComputePercent, c.Total.ComputePercent), size(c.Free.MemoryMiB), size(c.Total.MemoryMiB))
	}
	if without := c.Nodes - c.NodesWithCards; without > 0 {
		fmt.Fprintf(b, "%s without MetaX cards left out\n", count(without, "node"))
	}
}

// writeNodes prints a line for each node that has cards, or should have.
func (st *Status) writeNodes(b *strings.Builder, v view) {
	g := grid{right: map[int]bool{4: true, 5: true, 6: true}}
	g.header("NODE", "MODE", "SERVED BY", "CARDS", "FREE: CARDS", "COMPUTE", "MEMORY", "BIGGEST")
	states := map[string]bool{}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if len(n.Cards) == 0 && n.Problem == "" && !v.oneNode {
			continue
		}
		g.row(n.title(), plainText(cmp.Or(n.Mode, "-")), plainText(n.ServedBy), n.bar(states), plainText(strconv.Itoa(n.Free.WholeCards)),
			plainText(fmt.Sprintf("%d%%", n.Free.ComputePercent)), plainText(size(n.Free.MemoryMiB)), n.biggest())
	}
	if len(g.rows) == 1 {
		return
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	if !v.wide {
		g.fit(lineWidth)
	}
	g.write(b, v.colors)
	b.WriteString(styled(dim, legend(states)).render(v.colors) + "\n")
}

// title is the node's name, in yellow when Kubernetes gives it no pods.
func (n *NodeStatus) title() rich {
	if !n.Ready || !n.Schedulable {
		return styled(yellow, n.Name)
	}
	return plainText(n.Name)
}

// biggest says what the largest request is that the node could take.
func (n *NodeStatus) biggest() rich {
	f := &n.Free
	switch {
	case n.Problem != "" || len(n.Unaccounted) > 0:
		return styled(red, "takes no pods")
	case !n.Ready:
		return styled(yellow, "not ready")
	case !n.Schedulable:
		return styled(yellow, "cordoned")
	case f.LinkedCards > 1:
		return plainText(fmt.Sprintf("%d linked cards", f.LinkedCards))
	case f.WholeCards > 0:
		return plainText(count(f.WholeCards, "card"))
	case f.LargestSlice.ComputePercent > 0 && f.LargestSlice.MemoryMiB > 0 && n.Mode == string(gpu.ModeSGPU):
		return plainText(fmt.Sprintf("%d%% and %s", f.LargestSlice.ComputePercent, size(f.LargestSlice.MemoryMiB)))
	case n.Mode == string(gpu.ModeShared) && f.MemoryMiB > 0:
		return plainText("seats")
	}
	return styled(dim, "nothing")
}

// writeCards lists every card with its shares. What the shares of a card have in
// common is not repeated.
func (st *Status) writeCards(b *strings.Builder, v view) {
	g := grid{right: map[int]bool{1: true, 8: true, 9: true, 12: true, 13: true}}
	g.header("NODE", "CARD", "MODEL", "ZONE", "NUMA", "HEALTH", "QOS", "UUID", "FREE: COMPUTE", "MEMORY", "POD", "CONTAINER", "COMPUTE", "MEMORY")
	for i := range st.Nodes {
		node := st.Nodes[i].Name
		for k := range st.Nodes[i].Cards {
			c := &st.Nodes[i].Cards[k]
			row := []rich{
				plainText(node), plainText(strconv.Itoa(c.Index)), plainText(c.Model), number(c.Zone), number(c.NUMA), health(c), plainText(cmp.Or(c.QoS, "-")),
				plainText(cmp.Or(c.UUID, "-")), plainText(fmt.Sprintf("%d%%", c.ComputeFreePercent)), plainText(size(c.MemoryFreeMiB)),
			}
			if len(c.Shares) == 0 {
				g.row(row...)
			}
			for _, s := range c.Shares {
				g.row(append(row, plainText(s.Namespace+"/"+s.Pod), plainText(s.Container), plainText(fmt.Sprintf("%d%%", s.ComputePercent)), plainText(size(s.MemoryMiB)))...)
				row = make([]rich, len(row))
			}
		}
	}
	if len(g.rows) > 1 {
		b.WriteByte('\n')
		g.write(b, v.colors)
	}
}

func number(n *int) rich {
	if n == nil {
		return plainText("-")
	}
	return plainText(strconv.Itoa(*n))
}

func health(c *CardStatus) rich {
	if !c.Healthy {
		return styled(red, "unhealthy")
	}
	return styled(green, "ok")
}

// writeUnhealthy tells of each unhealthy card why, and who is on it.
func (st *Status) writeUnhealthy(b *strings.Builder, v view) {
	var lines []string
	for i := range st.Nodes {
		for k := range st.Nodes[i].Cards {
			c := &st.Nodes[i].Cards[k]
			if c.Healthy {
				continue
			}
			text := fmt.Sprintf("%s card %d: %s", st.Nodes[i].Name, c.Index, cmp.Or(c.HealthReason, "no reason given"))
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
	section(b, v, red, "UNHEALTHY", lines)
}

// writeBlocked tells of nodes that take no pods though they have cards.
func (st *Status) writeBlocked(b *strings.Builder, v view) {
	var lines []string
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if len(n.Cards) == 0 && n.Problem == "" {
			continue
		}
		switch {
		case n.Problem != "":
			lines = append(lines, fmt.Sprintf("%s: its cards can't be read: %s", n.Name, n.Problem))
		case len(n.Unaccounted) > 0:
			lines = append(lines, fmt.Sprintf("%s: nobody can tell which cards are held by %s", n.Name, strings.Join(n.Unaccounted, ", ")))
		case n.Paused != "":
			lines = append(lines, fmt.Sprintf("%s: hands out no cards for now: %s", n.Name, n.Paused))
		case !n.Ready:
			lines = append(lines, n.Name+": the node is not ready")
		case !n.Schedulable:
			lines = append(lines, n.Name+": the node is cordoned")
		}
	}
	section(b, v, yellow, "TAKES NO PODS", lines)
}

// writePending tells of each waiting pod why it waits.
func (st *Status) writePending(b *strings.Builder, v view) {
	var lines []string
	for i, p := range st.Pending {
		if more := len(st.Pending) - i; i == shownPending && more > 1 {
			lines = append(lines, fmt.Sprintf("... and %d more; -o json tells of all", more))
			break
		}
		text := p.Namespace + "/" + p.Name
		if p.Created != nil {
			text += " (" + duration.HumanDuration(v.now.Sub(*p.Created)) + ")"
		}
		if p.Wants != "" {
			text += " wants " + p.Wants + ":"
		}
		lines = append(lines, text+" "+p.Message)
	}
	section(b, v, yellow, "PENDING", lines)
}

// section prints a title and its lines, if there are any.
func section(b *strings.Builder, v view, s style, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	b.WriteString("\n" + styled(s, title).render(v.colors) + "\n")
	for _, line := range lines {
		b.WriteString(wrap("  ", line) + "\n")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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
