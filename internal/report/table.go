package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
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
				fmt.Fprintln(tw, "POD\tNODE\tCONTAINER\tCARDS\tCOMPUTE\tMEMORY\tUUID")
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

func (p *Placement) writeRows(w io.Writer) {
	name, node := p.Namespace+"/"+p.Name, p.Node
	for _, c := range p.Containers {
		if len(c.Cards) == 0 {
			continue
		}
		var indices, uuids []string
		for _, card := range c.Cards {
			indices = append(indices, strconv.Itoa(card.Index))
			uuids = append(uuids, card.UUID)
		}
		// All cards of one container carry the same share, but for the memory
		// of cards that differ.
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d%%\t%s\t%s\n", name, node, c.Name, strings.Join(indices, ","),
			c.Cards[0].ComputePercent, memories(c.Cards), strings.Join(uuids, ","))
		name, node = "", ""
	}
}

func memories(cards []Card) string {
	first := gpu.MiB(cards[0].MemoryMiB).String()
	for _, c := range cards[1:] {
		if c.MemoryMiB != cards[0].MemoryMiB {
			var all []string
			for _, c := range cards {
				all = append(all, gpu.MiB(c.MemoryMiB).String())
			}
			return strings.Join(all, ",")
		}
	}
	return first
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
		fmt.Fprintf(&b, " fits nowhere: %s\n", p.Summary)
		for i, r := range p.Refusals {
			if i == shownRefusals {
				fmt.Fprintf(&b, "  ... and %d more nodes; -o json tells of all\n", len(p.Refusals)-i)
				break
			}
			fmt.Fprintf(&b, "  %s: %s\n", r.Node, r.Message)
		}
	}
	return b.String()
}
