package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	source
	format
	node                  string
	watch                 bool
	namespaces, unmetered bool

	now func() time.Time
}

// NewStatusCommand returns the command that shows a cluster's cards.
func NewStatusCommand() *cobra.Command {
	o := statusOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show cards, free capacity, problems and pending pods",
		Long: `Status shows the cards of the cluster: one line for each node with a character
for each card, the free capacity, unhealthy cards with their faults, and the reason
why each pending pod waits.

It reads Nodes, Devices and Pods and changes nothing. It requires the right to list
them, and no other component of Daybreak.

  FREE: CARDS  whole cards that no pod uses
  COMPUTE      free compute; 100% is one card
  MEMORY       free card memory, rounded down
  BIGGEST      the largest request that fits: cards of one zone, or the largest
               share of one card

Nodes that are cordoned, not ready or tainted do not count as free, nor do cards
without a slice or memory left. Fragmentation is the part of the free capacity that
pods like those in the cluster cannot use. It requires 32 pods. Violations are those
that daybreak audit reports.

--namespaces shows the usage and the budget of each namespace: the smallest of its
ResourceQuotas on requests.daybreak-gpu.io/compute, memory and cards. With -o wide,
every limit on cards is listed, including HAMi's keys. Warnings report quotas that
pods can bypass, unreadable amounts, and exceeded limits. --unmetered lists pods
without amounts, which ResourceQuotas do not count: they were created before
Daybreak was installed, or while no manager was available.

-o wide lists every card with its shares. -o json prints one document.

Exit codes: 0 success; 2 invalid flags or unreadable input.`,
		Example: `  # The cluster of the current context
  daybreak status

  # The cards of one node and the pods on them
  daybreak status --node metax-1 -o wide

  # Update continuously
  daybreak status --watch

  # Usage and budgets of namespaces
  daybreak status --namespaces

  # From a dump
  kubectl get nodes,devices,pods,resourcequotas,namespaces -A -o json | daybreak status -f -

  # Nodes with at least four free cards
  daybreak status -o json | jq -r '.nodes[] | select(.free.wholeCards >= 4) | .name'`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	o.register(cmd)
	o.registerNamespace(cmd, "show only pending pods of this `NAMESPACE`, or with --namespaces only this one (default: all)")
	f.BoolVar(&o.namespaces, "namespaces", false, "show the usage and the budget of each namespace")
	f.BoolVar(&o.unmetered, "unmetered", false, "with --namespaces: list the pods that ResourceQuotas do not count")
	f.StringVar(&o.node, "node", "", "`NAME` of the only node to show")
	o.registerOutput(cmd, "table", "wide", "json")
	o.registerColor(cmd)
	f.BoolVarP(&o.watch, "watch", "w", false, "update continuously, until Ctrl-C")
	cli.Complete(cmd, "node", o.completeFrom("nodes"))
	return cmd
}

func (o *statusOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	colors, err := o.check(stdout, "table", "wide", "json")
	if err == nil {
		err = o.checkFlags()
	}
	switch {
	case err != nil:
		return err
	case o.watch:
		return o.follow(ctx, stdout, colors)
	case o.namespaces:
		return o.showNamespaces(ctx, stdin, stdout, stderr, colors)
	}
	_, snapshot, report, err := o.audited(ctx, stdin, o.now)
	if err != nil {
		return err
	}
	status, err := o.status(snapshot, report)
	if err != nil {
		return err
	}
	for _, note := range status.Notes {
		if o.output != "json" && !shows(status, note) {
			fmt.Fprintln(stderr, "note:", note)
		}
	}
	return o.answer(stdout, true, "Status", status, func() string { return o.text(status, colors, columns(stdout)).text() })
}

// checkFlags rejects flags that do not go together.
func (o *statusOptions) checkFlags() error {
	switch {
	case o.unmetered && !o.namespaces:
		return errors.New("--unmetered lists pods of namespaces: add --namespaces")
	case o.namespaces && (o.watch || o.node != ""):
		return errors.New("--namespaces shows no nodes and does not follow changes: leave out --node and --watch")
	case o.watch && !o.live():
		return errors.New("--watch follows a cluster, and files don't change: leave out --watch or -f")
	case o.watch && o.output == "json":
		return errors.New("--watch shows tables: leave it out, or -o json")
	}
	return nil
}

// status returns what there is to show: the nodes in the order of their names, or
// the one that was asked for, with what the audit found.
func (o *statusOptions) status(snapshot *cluster.Snapshot, report *audit.Report) (*view.Status, error) {
	status := view.NewStatus(snapshot, o.space)
	status.Mark(report)
	slices.SortFunc(status.Nodes, func(a, b view.NodeStatus) int { return cluster.CompareNames(a.Name, b.Name) })
	if o.node == "" {
		return status, nil
	}
	var names []string
	for i := range status.Nodes {
		if status.Nodes[i].Name == o.node {
			status.Nodes = status.Nodes[i : i+1]
			return status, nil
		}
		names = append(names, status.Nodes[i].Name)
	}
	return nil, fmt.Errorf("there is no node %s%s", o.node, cli.Suggest(o.node, names))
}

// shows reports whether the table has the note in its own words.
func shows(status *view.Status, note string) bool {
	return slices.ContainsFunc(status.Nodes, func(n view.NodeStatus) bool {
		return n.Problem != "" && strings.HasPrefix(note, "node "+n.Name+" takes no pods:") ||
			n.MissingDevice != "" && strings.Contains(note, " on "+n.Name+": ") // which cards its pods hold is not known then
	})
}

func (o *statusOptions) text(status *view.Status, colors palette, columns int) *statusText {
	return &statusText{Status: status, palette: colors, wide: o.output == "wide", now: o.now(), oneNode: o.node != "", columns: columns}
}
