package command

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// shownRefusals is how many nodes a table lists; JSON has them all.
const shownRefusals = 10

// placeText renders the placements for people: what was placed as a table, then
// each pod that was not, with the reasons.
func placeText(p *view.Placements) string {
	var b strings.Builder
	placed := table{gap: 3}
	for i := range p.Pods {
		addPlaced(&placed, &p.Pods[i])
	}
	placed.write(&b)
	for i := range p.Pods {
		if pod := &p.Pods[i]; pod.Node == "" {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			writeRefused(&b, pod)
		}
	}
	return b.String()
}

// addPlaced adds a row for each card of the pod. What a row shares with the one
// above it is left blank.
func addPlaced(t *table, p *view.Placement) {
	if p.Node != "" && len(t.rows) == 0 {
		t.row("POD", "NODE", "CONTAINER", "CARD", "COMPUTE", "MEMORY", "UUID")
	}
	pod, node := p.Namespace+"/"+p.Name, p.Node
	for _, c := range p.Containers {
		container := c.Name
		for _, card := range c.Cards {
			t.row(pod, node, container, strconv.Itoa(card.Index), fmt.Sprintf("%d%%", card.ComputePercent),
				gpu.MiB(card.MemoryMiB).String(), cmp.Or(card.UUID, "picked by the vendor's plugin"))
			pod, node, container = "", "", ""
		}
	}
}

// writeRefused prints why a pod has no node.
func writeRefused(b *strings.Builder, p *view.Placement) {
	fmt.Fprintf(b, "%s/%s", p.Namespace, p.Name)
	switch {
	case p.Error != "":
		b.WriteString(" is not admitted:\n")
		for _, problem := range p.Problems {
			fmt.Fprintf(b, "  %s\n", problem)
		}
	case p.Note != "":
		fmt.Fprintf(b, " %s.\n", p.Note)
	default:
		fmt.Fprintf(b, " fits on %s\n", p.Summary)
		if p.Preempts != nil {
			fmt.Fprintf(b, "  the scheduler would preempt %s on %s\n", some(p.Preempts.Pods), p.Preempts.Node)
		}
		writeRefusals(b, p.Refusals)
	}
}

// writeRefusals prints a line for each node up to a limit. The summary has counted
// the nodes without cards.
func writeRefusals(b *strings.Builder, all []view.Refusal) {
	refusals := slices.DeleteFunc(slices.Clone(all), func(r view.Refusal) bool { return r.Code == place.NoCards.String() })
	for i, r := range refusals {
		if more := len(refusals) - i; i == shownRefusals && more > 1 {
			fmt.Fprintf(b, "  ... and %d more nodes; see -o json\n", more)
			return
		}
		fmt.Fprintf(b, "  %s: %s\n", r.Node, r.Message)
	}
}
