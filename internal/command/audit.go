package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// auditOptions are the flags of the audit command.
type auditOptions struct {
	source
	format
	now func() time.Time
}

// NewAuditCommand returns the command that audits the allocations of a cluster.
func NewAuditCommand() *cobra.Command {
	o := auditOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check that no card is allocated twice and that all records agree",
		Long: `Audit checks Nodes, Devices and Pods against these rules and reports each violation
with the pods and the amounts:

` + ruleList() + `
Conditions that break no rule but that an administrator should know, such as a pod on
an unhealthy card, are reported as notes.

If a live cluster has violations, it is read a second time, and only violations that
persist are reported.

Exit codes: 0 no violation; 1 violations; 2 invalid flags or unreadable input.`,
		Example: `  # The cluster of the current context
  daybreak audit

  # Violations, for scripts
  daybreak audit -o json | jq -r '.violations[] | .rule + " " + .message'

  # From a dump
  kubectl get nodes,devices,pods -A -o json | daybreak audit -f -`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(cmd)
	o.registerOutput(cmd, "table", "json")
	o.registerColor(cmd)
	return cmd
}

// ruleList shows the rules in the help, a few a line.
func ruleList() string {
	names := make([]string, 0, len(audit.Violations()))
	for _, r := range audit.Violations() {
		names = append(names, string(r))
	}
	return strings.Join(wrap("  ", strings.Join(names, ", "), lineWidth), "\n") + "\n"
}

// settle is how long a live cluster is given to finish what it was doing.
const settle = 2 * time.Second

func (o *auditOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	colors, err := o.check(stdout, "table", "json")
	if err != nil {
		return err
	}
	objects, _, report, err := o.audited(ctx, stdin, o.now)
	if err != nil {
		return err
	}
	for _, note := range objects.Notes {
		fmt.Fprintln(stderr, "note:", note)
	}
	return o.answer(stdout, len(report.Violations) == 0, "Audit", report, func() string { return auditText(report, colors, columns(stdout)) })
}

// audited reads the cluster and audits it. A live one is read again when something
// is found: what was only seen halfway through a change is left out.
func (s *source) audited(ctx context.Context, stdin io.Reader, now func() time.Time) (*cluster.Objects, *cluster.Snapshot, *audit.Report, error) {
	objects, err := s.read(ctx, stdin)
	if err != nil {
		return nil, nil, nil, err
	}
	snapshot := objects.Snapshot()
	report := audit.Check(snapshot, now())
	if len(report.Violations) == 0 || !s.live() {
		return objects, snapshot, report, nil
	}
	select {
	case <-ctx.Done():
		return nil, nil, nil, ctx.Err()
	case <-time.After(settle):
	}
	if objects, err = s.read(ctx, stdin); err != nil {
		return nil, nil, nil, err
	}
	snapshot = objects.Snapshot()
	return objects, snapshot, audit.Check(snapshot, now()).Confirmed(report), nil
}

// auditText renders an audit for people.
func auditText(r *audit.Report, p palette, columns int) string {
	var b strings.Builder
	verdict := p.paint(green, "no rule is broken")
	if len(r.Violations) > 0 {
		verdict = p.paint(red, view.Count(len(r.Violations), "violation"))
	}
	fmt.Fprintf(&b, "%s, %s, %s: %s\n", view.Count(r.Nodes, "node"), view.Count(r.Cards, "card"), view.Count(r.Pods, "pod"), verdict)
	writeFindings(&b, r.Violations, columns, p, red)
	if len(r.Notes) > 0 {
		b.WriteString("\n" + view.Count(len(r.Notes), "note") + "\n")
	}
	writeFindings(&b, r.Notes, columns, p, yellow)
	return b.String()
}

func writeFindings(b *strings.Builder, findings []audit.Finding, columns int, p palette, color string) {
	var rule audit.Rule
	for i := range findings {
		f := &findings[i]
		if f.Rule != rule {
			rule = f.Rule
			b.WriteString("\n" + p.paint(color, string(rule)) + "\n")
		}
		b.WriteString(strings.Join(wrap("  ", f.Message, columns), "\n") + "\n")
	}
}
