package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// Result is how a check came out.
type Result string

// The results. Unknown: the node gives no answer, so nothing is confirmed.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Unknown Result = "unknown"
)

// Outcome is one check of a report.
type Outcome struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Detail is what was found, Advice what to do about it.
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

// Report is the outcome of all checks, in the order of the table.
type Report struct {
	Checks []Outcome `json:"checks"`
}

// Run runs the checks over the answers of a node.
func Run(f *Facts) *Report {
	r := &Report{}
	for i := range table {
		c := &table[i]
		o := c.run(f)
		o.Name = c.name
		if o.Result == Failed || o.Result == Unknown && c.always {
			o.Advice = c.advice
		}
		r.Checks = append(r.Checks, o)
	}
	return r
}

// Failed reports whether a check failed.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(o Outcome) bool { return o.Result == Failed })
}

// Blocking returns the failed checks that block serving and are not waived.
func (r *Report) Blocking(waived []string) []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(o Outcome) bool {
		return o.Result != Failed || !slices.Contains(Waivable(), o.Name) || slices.Contains(waived, o.Name)
	})
}

// Of returns the outcome of a check.
func (r *Report) Of(name string) (Outcome, bool) {
	at := slices.IndexFunc(r.Checks, func(o Outcome) bool { return o.Name == name })
	if at < 0 {
		return Outcome{}, false
	}
	return r.Checks[at], true
}

// Waivable returns the names of the checks that keep a node from being served.
func Waivable() []string {
	var names []string
	for i := range table {
		if table[i].matters {
			names = append(names, table[i].name)
		}
	}
	return names
}

// ValidateWaived returns an error for a name that can't be waived.
func ValidateWaived(names []string) error {
	for _, name := range names {
		if slices.Contains(Waivable(), name) {
			continue
		}
		if slices.ContainsFunc(table, func(c check) bool { return c.name == name }) {
			return fmt.Errorf("check %q does not keep a node from being served by itself; waive one of %s", name, strings.Join(Waivable(), ", "))
		}
		return fmt.Errorf("there is no check %q%s", name, cli.Suggest(name, Waivable()))
	}
	return nil
}
