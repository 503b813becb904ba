package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/view"
)

// showNamespaces shows what namespaces hold and may hold.
func (o *statusOptions) showNamespaces(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, colors palette) error {
	objects, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	answer := view.NewNamespaces(objects.Snapshot(), o.space)
	if o.output != "json" {
		for _, note := range answer.Notes {
			fmt.Fprintln(stderr, "note:", note)
		}
	}
	return o.answer(stdout, true, "Namespaces", answer, func() string { return o.namespacesText(answer, colors, columns(stdout)) })
}

func (o *statusOptions) namespacesText(answer *view.Namespaces, colors palette, columns int) string {
	if len(answer.Namespaces) == 0 {
		return "no namespace has pods with cards or a quota about cards\n"
	}
	all := table{gap: 2, right: map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true}}
	all.header(colors, "NAMESPACE", "PODS", "WAITING", "COMPUTE", "MEMORY", "CARDS")
	limits := table{gap: 2, right: map[int]bool{3: true, 4: true}}
	limits.header(colors, "NAMESPACE", "QUOTA", "LIMIT", "USED", "HARD", "ENFORCED")
	warnings, unmetered := section{color: yellow, title: "WARNINGS"}, section{color: yellow, title: "UNMETERED"}
	for i := range answer.Namespaces {
		n := &answer.Namespaces[i]
		percent := func(v int64) string { return fmt.Sprintf("%d%%", v) }
		number := func(v int64) string { return strconv.FormatInt(v, 10) }
		all.row(n.Name, strconv.Itoa(n.Pods), strconv.Itoa(n.Waiting), ofBudget(colors, n.ComputePercent, n.Used.ComputePercent, n.Budget.ComputePercent, percent),
			ofBudget(colors, n.MemoryMiB, n.Used.MemoryMiB, n.Budget.MemoryMiB, view.UsedSize), ofBudget(colors, n.Cards, n.Used.Cards, n.Budget.Cards, number))
		for k := range n.Quotas {
			q := &n.Quotas[k]
			limits.row(n.Name, q.Name, q.Resource, q.Amount(q.Used), q.Amount(q.Hard), map[bool]string{true: "yes", false: "no"}[q.Enforced])
		}
		for _, w := range n.Warnings {
			warnings.items = append(warnings.items, n.Name+": "+w.Message)
		}
		for _, pod := range n.Unmetered {
			unmetered.items = append(unmetered.items, n.Name+"/"+pod)
		}
	}
	all.fit(columns)
	blocks := [][]string{all.lines()}
	if o.output == "wide" && len(limits.rows) > 1 {
		blocks = append(blocks, limits.lines())
	}
	t := &statusText{palette: colors, columns: columns}
	blocks = append(blocks, warnings.lines(t, 0))
	if o.unmetered {
		if len(unmetered.items) == 0 {
			unmetered.items = []string{"every pod with cards carries amounts"}
		}
		blocks = append(blocks, unmetered.lines(t, 0))
	}
	return strings.Join(joined(blocks), "\n") + "\n"
}

// ofBudget renders what is used of a budget, or what pods hold where there is none.
func ofBudget(colors palette, held int64, used, budget *int64, amount func(int64) string) string {
	if budget == nil {
		return amount(held)
	}
	share := part(*used, *budget)
	if *budget == 0 && *used > 0 {
		share = "over"
	}
	text := fmt.Sprintf("%s/%s %4s", amount(*used), amount(*budget), share)
	if 10*(*used) >= 9*(*budget) {
		return colors.paint(yellow, text)
	}
	return text
}
