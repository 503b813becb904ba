package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/check"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// Forms of what the check command prints.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// stdout is standard output in place of a file.
const stdout = "-"

type checkCommand struct {
	command
	bundle, output string
}

func newCheckCommand() *cobra.Command {
	c := &checkCommand{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the driver, the cards, the container runtime and kubelet of this node",
		Long: `Check verifies what Daybreak requires of the driver, its library, the PCI bus, the
device nodes, the container runtime and kubelet of this node. It prints one line for
each check:

  ok       the requirement is met
  failed   it is not met; the next line shows what to do
  unknown  it cannot be verified, for example because no slice exists yet

It changes nothing and creates no slice. The agent runs the same checks before it
serves a node, and repeats them. A failed check with which a container could get a
wrong card or none stops the node from being served, with reason CheckFailed of the
condition Serving:

  ` + strings.Join(check.Waivable(), "\n  ") + `

Such a check can be waived with agent.waive of the chart (--waive of the agent); the
condition ChecksWaived lists it. The check whether the container runtime injects CDI
devices cannot be waived.

In the agent's container, the flags of the agent are the defaults.

Exit codes: 0 no check failed; 1 a check failed.`,
		Example: `  # On the node of an agent's pod
  kubectl -n daybreak-system exec daybreak-agent-x7k2p -- daybreak agent check

  # An archive with the raw data, for a bug report; it contains no pod names
  kubectl -n daybreak-system exec daybreak-agent-x7k2p -- daybreak agent check --bundle - > daybreak-check.tar.gz

  # The failed checks
  daybreak agent check -o json | jq -r '.checks[] | select(.result == "failed") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inherit(cmd.Flags(), agentArguments("/proc/1/cmdline"))
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // the report has the errors
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Root().Version)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.bundle, "bundle", "", "write an archive (tar.gz) with the results and the raw data to this file; - is standard output, and the results go to standard error")
	f.StringVarP(&c.output, "output", "o", outputTable, "output `FORMAT`: table or json")
	cli.Group(cmd, "Node", func(f *pflag.FlagSet) {
		c.discoverFlags(f)
		c.nodeFlags(f)
	})
	cli.Words(cmd, "output", outputTable, outputJSON)
	cli.Words(cmd, "source", slices.Concat([]string{sourceAuto}, discover.DefaultSources())...)
	return cmd
}

// agentArguments returns the arguments of the container's first process, the agent.
func agentArguments(cmdline string) []string {
	text, err := os.ReadFile(cmdline)
	if err != nil {
		return nil
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if len(args) < 2 || filepath.Base(args[0]) != "daybreak" || args[1] != "agent" {
		return nil
	}
	return args[2:]
}

// inherit sets flags that were not given to what another command has.
func inherit(f *pflag.FlagSet, args []string) {
	for _, arg := range args {
		name, value, is := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if flag := f.Lookup(name); is && flag != nil && !flag.Changed {
			_ = flag.Value.Set(value) // the agent has taken it
		}
	}
}

func (c *checkCommand) run(ctx context.Context, out, side io.Writer, version string) error {
	if err := cli.OneOf("output", c.output, outputTable, outputJSON); err != nil {
		return err
	}
	if c.source == discover.SourceSimulated {
		return errors.New("--source simulated: there is no hardware to check")
	}
	if err := c.checkNode(); err != nil {
		return err
	}
	source, err := c.open()
	if err != nil {
		return err
	}
	source.Close() // it checked the names of the sources
	asker := &check.Asker{Discover: c.discover, Node: c.node, Timeout: c.LookTimeout, Clock: clock.RealClock{}}
	facts, err := asker.Ask(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // what was not answered then shows nothing
		return context.Cause(ctx)
	}
	report := check.Run(facts)
	if c.bundle != "" {
		if err := c.writeBundle(out, cmp.Or(version, "unknown"), report, facts); err != nil {
			return fmt.Errorf("--bundle: %w", err)
		}
	}
	if c.bundle == stdout {
		out = side
	}
	if err := printReport(out, c.output, report); err != nil {
		return err
	}
	if report.Failed() {
		return cli.ErrNo
	}
	return nil
}

// writeBundle writes the archive to its file, or to standard output.
func (c *checkCommand) writeBundle(out io.Writer, version string, r *check.Report, f *check.Facts) error {
	if c.bundle == stdout {
		return check.WriteBundle(out, version, r, f, time.Now())
	}
	file, err := os.OpenFile(c.bundle, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(check.WriteBundle(file, version, r, f, time.Now()), file.Close())
}

func printReport(out io.Writer, form string, r *check.Report) error {
	if form == outputJSON {
		return cli.WriteJSON(out, r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tRESULT\tDETAIL")
	for _, o := range r.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", o.Name, o.Result, o.Detail)
		if o.Advice != "" {
			fmt.Fprintf(w, "\t\t  %s\n", o.Advice)
		}
	}
	return w.Flush()
}
