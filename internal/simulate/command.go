package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/simulate/chart"
	"github.com/daybreak-gpu/daybreak/internal/simulate/churn"
)

// command is the simulate subcommand.
type command struct {
	nodes, pods string
	policies    []string
	seed        int64
	seeds       int
	inflate     float64
	ties        string
	oneQoS      bool
	output      string

	topology bool
	churn    churn.Options
}

// NewCommand returns the command that replays traces.
func NewCommand() *cobra.Command {
	c := &command{churn: churn.Defaults()}
	cmd := &cobra.Command{
		Use:   "simulate --nodes NODES.csv --pods PODS.csv",
		Short: "Replay a trace and compare placement policies",
		Long: `Simulate replays the pods of a trace over a cluster and tells how much of it
each policy allocates. It needs no cluster and changes nothing anywhere.

The pods arrive one by one in an order that the seed shuffles, and go on, drawn
from the trace, until they ask for --inflate times all cards. Nothing departs.
Compared is what is allocated when the pods that arrived ask for 80, 90, 100, ...
percent of the cards. Allocation alone rewards a policy that refuses large pods,
so the refused ones are told by size, too.

The policies:

  daybreak     what the scheduler does by default; it learns of pods as they
               arrive. Pods without cards, which a cluster leaves to other
               plugins, go where most CPU is left for each free card.
  fgd          Fragmentation Gradient Descent as published; it is told the
               trace's mix of pods ahead
  first-fit    the first node with room
  best-fit     the node with the least CPU and cards left
  dot-product  the node that is least in line with the request
  packing      cards in use first, then nodes in use
  clustering   pods of one size together
  hami         the fullest node, there the emptiest card
  random       any node

Nodes are rows of sn,cpu_milli,memory_mib,gpu,model, and optionally zones: the
sizes of groups of linked cards, as in 4|4. Pods are rows of name,cpu_milli,
memory_mib,num_gpu,gpu_milli, and optionally gpu_spec (models, as in T4|P100) and
qos. A thousandth of a card is 1 gpu_milli; Daybreak rounds it up to whole
percent. The public trace in this form is cluster-trace-gpu-v2023 of
github.com/alibaba/clusterdata.

With --topology no trace is needed: jobs of one to eight cards come and go on
servers with link zones, and it is told how many of them get linked cards and how
long the large ones wait. --policy then names one of ` + strings.Join(churn.Rules(), ", ") + `.

Exit codes: 0 done; 2 a file or a flag can't be read.`,
		Example: `  # All policies, ten seeds
  daybreak simulate --nodes nodes.csv --pods pods.csv --seeds 10

  # Two policies with the curves drawn
  daybreak simulate --nodes nodes.csv --pods pods.csv --policy daybreak --policy fgd -o html > report.html

  # As kube-scheduler would break ties
  daybreak simulate --nodes nodes.csv --pods pods.csv --ties random -o json

  # Jobs that come and go on servers of two rings of four cards
  daybreak simulate --topology --zones 2x4-ring --mix training`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.flags(cmd)
	return cmd
}

func (c *command) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.nodes, "nodes", "", "`FILE` with the servers")
	f.StringVar(&c.pods, "pods", "", "`FILE` with the pods")
	f.StringArrayVar(&c.policies, "policy", nil, "`POLICY` to compare (repeatable; all by default)")
	f.Int64Var(&c.seed, "seed", 42, "first seed")
	f.IntVar(&c.seeds, "seeds", 1, "number of seeds")
	f.Float64Var(&c.inflate, "inflate", 1.3, "how many times all cards the pods ask for in the end")
	f.StringVar(&c.ties, "ties", string(TiesIndex), "which of equally good nodes is taken: index (the first) or random")
	f.BoolVar(&c.oneQoS, "one-qos-per-card", false, "let a card in use take shares of one QoS class only, as MetaX cards do")
	f.StringVarP(&c.output, "output", "o", "table", "`FORMAT` of the answer: table, json or html")
	f.BoolVar(&c.topology, "topology", false, "study link zones while jobs come and go, in place of a trace")
	cli.Group(cmd, "Topology", c.topologyFlags)
	cli.Words(cmd, "policy", PolicyNames()...)
	cli.Words(cmd, "ties", string(TiesIndex), string(TiesRandom))
	cli.Words(cmd, "output", "table", "json", "html")
}

func (c *command) topologyFlags(f *pflag.FlagSet) {
	o := &c.churn
	f.StringSliceVar(&o.Shapes, "zones", o.Shapes, "with --topology: kinds of servers, of "+strings.Join(names(churn.Shapes(), func(s churn.Shape) string { return s.Name }), ", "))
	f.StringSliceVar(&o.Mixes, "mix", o.Mixes, "with --topology: mixes of jobs, of "+strings.Join(names(churn.Mixes(), func(m churn.Mix) string { return m.Name }), ", "))
	f.Float64SliceVar(&o.Loads, "load", o.Loads, "with --topology: cards asked for at a time, as parts of all")
	f.IntVar(&o.Servers, "servers", o.Servers, "with --topology: number of servers")
	f.IntVar(&o.Jobs, "jobs", o.Jobs, "with --topology: number of jobs in a run")
}

func names[T any](list []T, name func(T) string) []string {
	var out []string
	for _, v := range list {
		out = append(out, name(v))
	}
	return out
}

// topologyFlags are those that mean something with --topology only, and
// traceFlags those without it only.
var (
	topologyFlags = []string{"zones", "mix", "load", "servers", "jobs"}
	traceFlags    = []string{"nodes", "pods", "inflate", "one-qos-per-card"}
)

// maxSeeds and maxInflate bound a run to what ends the same day.
const (
	maxSeeds   = 1000
	maxInflate = 10
)

func (c *command) validate(cmd *cobra.Command) error {
	if err := cli.OneOf("output", c.output, "table", "json", "html"); err != nil {
		return err
	}
	if err := cli.OneOf("ties", c.ties, string(TiesIndex), string(TiesRandom)); err != nil {
		return err
	}
	wrong, word := topologyFlags, "goes with --topology only: leave it out, or add --topology"
	if c.topology {
		wrong, word = traceFlags, "is about a trace: leave it out, or leave out --topology"
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s %s", name, word)
		}
	}
	if c.seeds < 1 || c.seeds > maxSeeds {
		return fmt.Errorf("--seeds %d: write 1 to %d", c.seeds, maxSeeds)
	}
	if c.topology {
		return nil // package churn checks the rest
	}
	return c.validateTrace()
}

func (c *command) validateTrace() error {
	for i, p := range c.policies {
		if err := cli.OneOf("policy", p, PolicyNames()...); err != nil {
			return err
		}
		if slices.Contains(c.policies[:i], p) {
			return fmt.Errorf("--policy %q is given twice: leave one out", p)
		}
	}
	switch {
	case c.nodes == "":
		return errors.New("no servers: name the file that lists them with --nodes")
	case c.pods == "":
		return errors.New("no pods: name the file that lists them with --pods")
	case !(c.inflate > 0 && c.inflate <= maxInflate):
		return fmt.Errorf("--inflate %g: write a number above 0, up to %d", c.inflate, maxInflate)
	}
	return nil
}

func (c *command) run(ctx context.Context, cmd *cobra.Command, stdout, stderr io.Writer) error {
	if err := c.validate(cmd); err != nil {
		return err
	}
	if c.topology {
		return c.runChurn(ctx, stdout, stderr)
	}
	nodes, err := ReadNodes(c.nodes)
	if err != nil {
		return err
	}
	pods, err := ReadPods(c.pods)
	if err != nil {
		return err
	}
	o := Options{Policies: c.policies, Seed: c.seed, Seeds: c.seeds, Inflate: c.inflate, Ties: Ties(c.ties), OneQoS: c.oneQoS}
	if len(o.Policies) == 0 {
		o.Policies = PolicyNames()
	}
	p := newProgress(stderr, time.Now)
	results, err := Run(ctx, &Trace{Nodes: nodes, Pods: pods}, o, p.tell)
	p.end()
	if err != nil {
		return err
	}
	r := report{Runs: results}
	switch c.output {
	case "json":
		return writeJSON(stdout, &r)
	case "html":
		return chart.Page(stdout, "Daybreak: placement policies compared", r.figures(), r.tables())
	default:
		return r.writeText(stdout)
	}
}

func (c *command) runChurn(ctx context.Context, stdout, stderr io.Writer) error {
	o := c.churn
	if c.seed < 0 {
		return fmt.Errorf("--seed %d: write 0 or more", c.seed)
	}
	o.Seed, o.Seeds, o.RandomTies = uint64(c.seed), c.seeds, c.ties == string(TiesRandom)
	if len(c.policies) > 0 {
		o.Rules = c.policies
	}
	if err := o.Validate(); err != nil {
		return err
	}
	p := newProgress(stderr, time.Now)
	result, err := churn.Run(ctx, o, func(done, total int) { p.tell(int64(done), int64(total)) })
	p.end()
	if err != nil {
		return err
	}
	switch c.output {
	case "json":
		return writeJSON(stdout, &result)
	case "html":
		return chart.Page(stdout, "Daybreak: link zones while jobs come and go", result.Figures(), result.Tables())
	default:
		return result.WriteText(stdout)
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
