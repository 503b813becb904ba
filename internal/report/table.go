package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// shownRefusals is how many nodes a table tells of; JSON has them all.
const shownRefusals = 10

// WriteTable prints the placements for people: what was placed as a table,
// then each pod that was not, with the reasons.
func (p *Placements) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	placed := 0
	for i := range p.Pods {
		if pod := &p.Pods[i]; pod.Node != "" {
			if placed == 0 {
				fmt.Fprintln(tw, "POD\tNODE\tCONTAINER\tCARD\tCOMPUTE\tMEMORY\tUUID")
			}
			placed++
			pod.writeRows(tw)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range p.Pods {
		if pod := &p.Pods[i]; pod.Node == "" {
			if _, err := io.WriteString(w, pod.story(placed > 0 || i > 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRows prints a row for each card. What a row shares with the one above it
// is left blank.
func (p *Placement) writeRows(w *tabwriter.Writer) {
	pod, node := p.Namespace+"/"+p.Name, p.Node
	for _, c := range p.Containers {
		container := c.Name
		for _, card := range c.Cards {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d%%\t%v\t%s\n", pod, node, container, card.Index,
				card.ComputePercent, gpu.MiB(card.MemoryMiB), cmp.Or(card.UUID, "picked by the vendor's plugin"))
			pod, node, container = "", "", ""
		}
	}
}

// story tells why a pod has no node.
func (p *Placement) story(gap bool) string {
	var b strings.Builder
	if gap {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s/%s", p.Namespace, p.Name)
	switch {
	case p.Error != "":
		b.WriteString(" is not admitted:\n")
		for _, problem := range p.Problems {
			fmt.Fprintf(&b, "  %s\n", problem)
		}
	case p.Note != "":
		fmt.Fprintf(&b, " %s.\n", p.Note)
	default:
		fmt.Fprintf(&b, " fits on %s\n", p.Summary)
		p.writeRefusals(&b)
	}
	return b.String()
}

// writeRefusals prints a line for each node up to a limit. Of nodes without
// cards the summary has told all there is to tell.
func (p *Placement) writeRefusals(b *strings.Builder) {
	refusals := slices.DeleteFunc(slices.Clone(p.Refusals), func(r Refusal) bool { return r.Code == place.NoCards.String() })
	for i, r := range refusals {
		if more := len(refusals) - i; i == shownRefusals && more > 1 {
			fmt.Fprintf(b, "  ... and %d more nodes; -o json tells of all\n", more)
			return
		}
		fmt.Fprintf(b, "  %s: %s\n", r.Node, r.Message)
	}
}
