package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	source
	namespace string
	node      string
	output    string
	color     string
	watch     bool

	now    func() time.Time
	getenv func(string) string
}

// NewStatusCommand returns the command that shows a cluster's cards.
func NewStatusCommand() *cobra.Command {
	o := statusOptions{now: time.Now, getenv: os.Getenv}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every card: what is free, who holds what, what is wrong, who waits",
		Long: `Status shows the cluster's cards at a glance: a line for each node with a
character for each card, what is free, which cards are unhealthy and why, and for
each pod that waits for cards one sentence that says why.

It reads Nodes, Devices and Pods, changes nothing, and needs no other part of
Daybreak to run: the right to list them is enough.

  FREE: CARDS  whole cards that nobody uses
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
	o.register(f)
	f.StringVarP(&o.namespace, "namespace", "n", "", "tell only of pending pods of this `NAMESPACE`; without it of all")
	f.StringVar(&o.node, "node", "", "show one node only, by `NAME`")
	f.StringVarP(&o.output, "output", "o", "table", "`FORMAT` of the answer: table, wide or json")
	f.StringVar(&o.color, "color", "auto", "`WHEN` to use colours: auto (on a terminal), always or never")
	f.BoolVarP(&o.watch, "watch", "w", false, "show it again whenever something changes, until Ctrl-C")
	o.complete(cmd)
	cli.Complete(cmd, "node", o.completeNodes)
	cli.Words(cmd, "output", "table", "wide", "json")
	cli.Words(cmd, "color", colorWords...)
	return cmd
}

func (o *statusOptions) validate() error {
	if err := cli.OneOf("output", o.output, "table", "wide", "json"); err != nil {
		return err
	}
	switch {
	case o.watch && !o.live():
		return errors.New("--watch follows a cluster, and files don't change: leave out --watch or -f")
	case o.watch && o.output == "json":
		return errors.New("--watch shows tables: leave it out, or -o json")
	}
	return nil
}

func (o *statusOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	colors, err := colorsWanted(o.color, stdout, o.getenv)
	if err != nil {
		return err
	}
	if o.watch {
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
	if o.output == "json" {
		return writeJSON(stdout, status)
	}
	for _, note := range status.Notes {
		if !status.shows(note) {
			fmt.Fprintln(stderr, "note:", note)
		}
	}
	_, err = io.WriteString(stdout, status.table(o.view(colors)))
	return err
}

func (o *statusOptions) status(objects *cluster.Objects) (*Status, error) {
	status := NewStatus(objects.Snapshot(), o.namespace)
	if o.node == "" {
		return status, nil
	}
	err := status.Only(o.node)
	return status, err
}

// shows tells of notes that the table has in its own words.
func (st *Status) shows(note string) bool {
	return slices.ContainsFunc(st.Nodes, func(n NodeStatus) bool {
		return n.Problem != "" && strings.HasPrefix(note, "node "+n.Name+" takes no pods:")
	})
}

func (o *statusOptions) view(colors bool) view {
	return view{wide: o.output == "wide", colors: colors, now: o.now(), oneNode: o.node != ""}
}

// follow shows the status whenever it changes, until the context ends.
func (o *statusOptions) follow(ctx context.Context, stdout io.Writer, colors bool) error {
	config, err := o.access.Config()
	if err != nil {
		return err
	}
	watcher, err := cluster.NewWatcher(ctx, config)
	if err != nil {
		return err
	}
	screen := newScreen(stdout)
	defer screen.close()
	err = watcher.Run(ctx, func(objects *cluster.Objects) error {
		objects.VendorPlugin = o.plugin
		status, err := o.status(objects)
		if err != nil {
			return err
		}
		return screen.show(status.table(o.view(colors)), o.now())
	})
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}
