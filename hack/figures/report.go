package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// branchy is the complexity above which a function is told of.
const branchy = 15

const head = `| lines | file p50 / p95 / max | func p50 / p95 / p99 | cyclo p95 / share >15 | comment % | exported with doc | globals per kLOC | errors wrap : no-wrap |
|---|---|---|---|---|---|---|---|`

// Row returns the figures as a row of the table.
func (c *Code) Row() string {
	files, functions, branches := make([]int, 0, len(c.Files)), make([]int, 0, len(c.Functions)), make([]int, 0, len(c.Functions))
	for _, f := range c.Files {
		files = append(files, f.Lines)
	}
	many := 0
	for _, f := range c.Functions {
		functions, branches = append(functions, f.Lines), append(branches, f.Complexity)
		if f.Complexity > branchy {
			many++
		}
	}
	return fmt.Sprintf("| %.1fk | %d / %d / %d | %d / %d / %d | %d / %.1f%% | %.0f | %.0f%% | %.1f | %d : %d |",
		float64(c.Lines+c.Comments)/1000,
		percentile(files, 50), percentile(files, 95), percentile(files, 100),
		percentile(functions, 50), percentile(functions, 95), percentile(functions, 99),
		percentile(branches, 95), share(many, len(c.Functions)),
		share(c.Comments, c.Lines+c.Comments), share(c.Exported-len(c.Unexplained), c.Exported),
		share(c.Globals, c.Lines+c.Comments)*10, c.Wrapped, c.Unwrapped)
}

// share returns a part in percent.
func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// percentile returns the least number that p percent of the numbers do not exceed.
func percentile(numbers []int, p int) int {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// writeWorst lists what stands out.
func (c *Code) writeWorst(w io.Writer, n int) error {
	longest := make([]Sized, len(c.Functions))
	branched := make([]Sized, len(c.Functions))
	for i, f := range c.Functions {
		longest[i], branched[i] = f.Sized, Sized{f.Name, f.Complexity}
	}
	for _, part := range []struct {
		title string
		list  []Sized
	}{{"longest files", c.Files}, {"longest functions", longest}, {"most branched functions", branched}} {
		if _, err := fmt.Fprintf(w, "\n%s\n", part.title); err != nil {
			return err
		}
		list := slices.Clone(part.list)
		slices.SortFunc(list, func(a, b Sized) int { return cmp.Or(cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Name, b.Name)) })
		for _, s := range list[:min(n, len(list))] {
			if _, err := fmt.Fprintf(w, "%5d %s\n", s.Lines, s.Name); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprintln(w, "\nexported without a comment"); err != nil {
		return err
	}
	for _, name := range c.Unexplained {
		if _, err := fmt.Fprintln(w, "     ", name); err != nil {
			return err
		}
	}
	return nil
}
