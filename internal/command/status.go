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
	f.BoolVarP(&o.watch, "watch", "w", false, "show it again whenever something changes, until Ctrl-C")
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
	objects, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	status, err := o.status(objects)
	if err != nil {
		return err
	}
	for _, note := range status.Notes {
		if o.output != "json" && !shows(status, note) {
			fmt.Fprintln(stderr, "note:", note)
		}
	}
	return o.answer(stdout, true, status, func() string { return o.text(status, colors) })
}

func (o *statusOptions) status(objects *cluster.Objects) (*view.Status, error) {
	status := view.NewStatus(objects.Snapshot(), o.space)
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
		return n.Problem != "" && strings.HasPrefix(note, "node "+n.Name+" takes no pods:")
	})
}

func (o *statusOptions) text(status *view.Status, colors palette) string {
	t := statusText{Status: status, palette: colors, wide: o.output == "wide", now: o.now(), oneNode: o.node != ""}
	return t.text()
}

// follow shows the status whenever it changes, until the context ends.
func (o *statusOptions) follow(ctx context.Context, stdout io.Writer, colors palette) error {
	config, err := o.access.Config()
	if err != nil {
		return err
	}
	watcher, err := cluster.NewWatcher(ctx, config, o.plugin)
	if err != nil {
		return err
	}
	screen := newScreen(stdout)
	defer screen.close()
	err = watcher.Run(ctx, func(objects *cluster.Objects) error {
		status, err := o.status(objects)
		if err != nil {
			return err
		}
		return screen.show(o.text(status, colors), o.now())
	})
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}
