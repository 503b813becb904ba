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
	node  string
	watch bool

	now func() time.Time
}

// NewStatusCommand returns the command that shows a cluster's cards.
func NewStatusCommand() *cobra.Command {
	o := statusOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every card: what is free, who holds what, what is wrong, who waits",
		Long: `Status shows the cluster's cards at a glance: a line for each node with a
character for each card, what is free, which cards are unhealthy and why, and for
each pod that waits for cards one sentence that says why.

It reads Nodes, Devices and Pods, changes nothing, and needs no other part of
Daybreak to run: the right to list them is enough.

  FREE: CARDS  whole cards that no pod uses
  COMPUTE      free compute; 100% is one card
  MEMORY       free card memory
  BIGGEST      the largest request that would fit: cards of one zone, or the most
               that one card has left

Nodes that are cordoned, not ready or tainted don't count as free, nor do cards
without a slice or memory left. Free memory is rounded down. The fragmentation is
the part of what is free that pods like those in the cluster could not use; it is
not known while there are fewer than 32 of them. Violations are those that daybreak
audit reports.

With -o wide every card is listed with its shares; with -o json the answer is one
document. Exit codes: 0 done; 2 something can't be read.`,
		Example: `  # The cluster of your kubeconfig
  daybreak status

  # Who is on which card of one node
  daybreak status --node metax-1 -o wide

  # Follow it
  daybreak status --watch

  # From a dump
  kubectl get nodes,devices,pods -A -o json | daybreak status -f -

  # Nodes with at least four free cards
  daybreak status -o json | jq -r '.nodes[] | select(.free.wholeCards >= 4) | .name'`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	o.register(cmd)
	o.registerNamespace(cmd, "list only pending pods of this `NAMESPACE`; without it those of all")
	f.StringVar(&o.node, "node", "", "show one node only, by `NAME`")
	o.registerOutput(cmd, "table", "wide", "json")
	o.registerColor(cmd)
	f.BoolVarP(&o.watch, "watch", "w", false, "keep showing it, until Ctrl-C")
	cli.Complete(cmd, "node", o.completeFrom("nodes"))
	return cmd
}

func (o *statusOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	colors, err := o.check(stdout, "table", "wide", "json")
	switch {
	case err != nil:
		return err
	case o.watch && !o.live():
		return errors.New("--watch follows a cluster, and files don't change: leave out --watch or -f")
	case o.watch && o.output == "json":
		return errors.New("--watch shows tables: leave it out, or -o json")
	case o.watch:
		return o.follow(ctx, stdout, colors)
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
	return o.answer(stdout, true, status, func() string { return o.text(status, colors, columns(stdout)).text() })
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
