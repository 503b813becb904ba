package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// Options say what to study: every policy with every seed and, in the topology
// study, with all of Zones, Mixes and Loads.
type Options struct {
	Policies []string
	// Seed is the first of Seeds seeds.
	Seed  int64
	Seeds int
	Ties  Ties

	// Inflate is how many times all cards the pods of a trace ask for in the end.
	Inflate float64
	// OneQoS makes a card in use take shares of one QoS class only.
	OneQoS bool

	Zones, Mixes []string
	// Loads are the mean cards asked for at a time, as parts of all cards.
	Loads []float64
	// Servers is the number of servers, and Jobs that of arrivals in a run, of
	// which the first tenth is not measured.
	Servers, Jobs int
}

// command is the simulate subcommand.
type command struct {
	Options
	nodes, pods string
	output      string
	topology    bool
}

// NewCommand returns the command that replays traces.
func NewCommand() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "simulate --nodes NODES.csv --pods PODS.csv",
		Short: "Compare placement policies on a trace or on generated jobs",
		Long: `Simulate replays the pods of a trace on a simulated cluster and reports how much of it
each policy allocates. No cluster is required.

The pods arrive in an order that depends on the seed, and more are drawn from the
trace until they request --inflate times all cards. No pod ends. The result is the
allocation when the pods that have arrived request 80, 90, 100, ... percent of the
cards. Allocation alone favors policies that reject large pods, so rejected pods are
listed by size.

Policies:

  daybreak     the scheduler's default; it expects more pods like those that run. Pods
               without cards, which other plugins place in a cluster, go to the node
               with the most CPU left for each free card.
  fgd          Fragmentation Gradient Descent as published; it gets the trace's mix
               of pods in advance
  first-fit    the first node with room
  best-fit     the node with the least CPU and cards left
  dot-product  the node with the smallest dot product with the request
  packing      cards in use first, then nodes in use
  clustering   pods of one size together
  hami         the fullest node, then its emptiest card
  random       any node

Nodes are rows of sn,cpu_milli,memory_mib,gpu,model and optionally zones: the sizes of
groups of linked cards, such as 4|4. Pods are rows of name,cpu_milli,memory_mib,
num_gpu,gpu_milli and optionally gpu_spec (models, such as T4|P100) and qos. 1000
gpu_milli are one card; shares are rounded up to whole percent. The public trace
cluster-trace-gpu-v2023 of github.com/alibaba/clusterdata has this format.

With --topology no trace is required: jobs of one to eight cards start and end on
servers with link zones. The result is how many jobs get linked cards and how long
large jobs wait. Values of --policy are then ` + strings.Join(names(topologyPolicies), ", ") + `.

When interrupted, it prints the completed runs.

Exit codes: 0 success; 2 invalid flags or unreadable files; 130 interrupted.`,
		Example: `  # Training jobs on servers with two rings of four cards
  daybreak simulate --topology --zones 2x4-ring --mix training

  # All policies on a trace, ten seeds
  daybreak simulate --nodes nodes.csv --pods pods.csv --seeds 10

  # Two policies, with charts
  daybreak simulate --nodes nodes.csv --pods pods.csv --policy daybreak --policy fgd -o html > report.html

  # Ties are broken at random, as in kube-scheduler
  daybreak simulate --nodes nodes.csv --pods pods.csv --ties random -o json`,
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
	f.StringArrayVar(&c.Policies, "policy", nil, "`POLICY` to compare (repeatable; all by default)")
	f.Int64Var(&c.Seed, "seed", 42, "first seed, a whole `NUMBER`")
	f.IntVar(&c.Seeds, "seeds", 1, "`NUMBER` of seeds")
	f.Float64Var(&c.Inflate, "inflate", 1.3, "total request of the pods as a `NUMBER` of times all cards")
	f.StringVar((*string)(&c.Ties), "ties", string(TiesIndex), "`WHICH` of equally good nodes is taken: index (the first) or random")
	f.BoolVar(&c.OneQoS, "one-qos-per-card", false, "allow shares of one QoS class only on a card, as on MetaX cards")
	f.StringVarP(&c.output, "output", "o", "table", "output `FORMAT`: table, json or html")
	f.BoolVar(&c.topology, "topology", false, "simulate jobs on servers with link zones instead of a trace")
	cli.Group(cmd, "Topology", c.topologyFlags)
	cli.Complete(cmd, "policy", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return names(c.policies()), cobra.ShellCompDirectiveNoFileComp
	})
	cli.Words(cmd, "ties", string(TiesIndex), string(TiesRandom))
	cli.Words(cmd, "output", "table", "json", "html")
	cli.Words(cmd, "zones", names(shapes)...)
	cli.Words(cmd, "mix", names(mixes)...)
}

// policies returns those that the study knows.
func (c *command) policies() []namedPolicy {
	if c.topology {
		return topologyPolicies
	}
	return tracePolicies
}

// topologyFlags has the defaults of the study in the documentation.
func (c *command) topologyFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Zones, "zones", []string{"2x4"}, "with --topology: `KINDS` of servers, of "+strings.Join(names(shapes), ", "))
	f.StringSliceVar(&c.Mixes, "mix", []string{"mixed", "training", "inference"}, "with --topology: `MIXES` of jobs, of "+strings.Join(names(mixes), ", "))
	f.Float64SliceVar(&c.Loads, "load", []float64{0.7, 0.85, 0.95}, "with --topology: cards asked for at a time, as `PARTS` of all")
	f.Lookup("load").DefValue = "[0.7,0.85,0.95]" // without pflag's zeros
	f.IntVar(&c.Servers, "servers", 32, "with --topology: `NUMBER` of servers")
	f.IntVar(&c.Jobs, "jobs", 20_000, "with --topology: `NUMBER` of jobs in a run")
}

// topologyFlags are those that mean something with --topology only, and
// traceFlags those without it only.
var (
	topologyFlags = []string{"zones", "mix", "load", "servers", "jobs"}
	traceFlags    = []string{"nodes", "pods", "inflate", "one-qos-per-card"}
)

// Bounds of the flags: beyond them a study takes days or has no result.
const (
	maxSeeds   = 1000
	maxInflate = 10
	maxServers = 10_000
	minJobs    = 100
	maxJobs    = 10_000_000
)

func (c *command) validate(cmd *cobra.Command) error {
	if err := cli.OneOf("output", c.output, "table", "json", "html"); err != nil {
		return err
	}
	if err := cli.OneOf("ties", string(c.Ties), string(TiesIndex), string(TiesRandom)); err != nil {
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
	if c.Seeds < 1 || c.Seeds > maxSeeds {
		return fmt.Errorf("--seeds %d: write 1 to %d", c.Seeds, maxSeeds)
	}
	if len(c.Policies) == 0 {
		c.Policies = names(c.policies())
	}
	if err := eachOf("policy", c.Policies, c.policies()); err != nil {
		return err
	}
	if c.topology {
		return c.validateTopology()
	}
	return c.validateTrace()
}

func (c *command) validateTrace() error {
	switch {
	case c.nodes == "":
		return errors.New("no servers: name the file that lists them with --nodes")
	case c.pods == "":
		return errors.New("no pods: name the file that lists them with --pods")
	case !(c.Inflate > 0 && c.Inflate <= maxInflate):
		return fmt.Errorf("--inflate %g: write a number above 0, up to %d", c.Inflate, maxInflate)
	}
	return nil
}

func (c *command) validateTopology() error {
	if err := cmp.Or(eachOf("zones", c.Zones, shapes), eachOf("mix", c.Mixes, mixes)); err != nil {
		return err
	}
	for i, load := range c.Loads {
		switch {
		case !(load > 0 && load < 1):
			return fmt.Errorf("--load %g: write a number above 0 and below 1; at 1 the queue grows indefinitely", load)
		case slices.Contains(c.Loads[:i], load):
			return fmt.Errorf("--load %g is given twice: leave one out", load)
		}
	}
	switch {
	case c.Seed < 0:
		return fmt.Errorf("--seed %d: write 0 or more", c.Seed)
	case c.Servers < 1 || c.Servers > maxServers:
		return fmt.Errorf("--servers %d: write 1 to %d", c.Servers, maxServers)
	case c.Jobs < minJobs || c.Jobs > maxJobs:
		return fmt.Errorf("--jobs %d: write %d to %d", c.Jobs, minJobs, maxJobs)
	}
	return nil
}

// eachOf checks that the values of a flag are names in the list, each once.
func eachOf[T fmt.Stringer](flag string, values []string, list []T) error {
	if len(values) == 0 {
		return cli.OneOf(flag, "", names(list)...)
	}
	for i, v := range values {
		if err := cli.OneOf(flag, v, names(list)...); err != nil {
			return err
		}
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("--%s %q is given twice: leave one out", flag, v)
		}
	}
	return nil
}

// names returns the names of a list's entries.
func names[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// find returns the entry with the name, which must be in the list.
func find[T fmt.Stringer](list []T, name string) T {
	return list[slices.Index(names(list), name)]
}

func (c *command) run(ctx context.Context, cmd *cobra.Command, stdout, stderr io.Writer) error {
	if err := c.validate(cmd); err != nil {
		return err
	}
	p := newProgress(stderr, time.Now)
	study := c.runTrace
	if c.topology {
		study = c.runTopology
	}
	result, report, err := study(ctx, p.report)
	p.end()
	return c.printAnswer(stdout, stderr, result, report, err)
}

// printAnswer writes what there is of a study, and returns the error that ended it.
func (c *command) printAnswer(stdout, stderr io.Writer, result any, report *report, err error) error {
	if interrupted := (*interruptedError)(nil); errors.As(err, &interrupted) {
		_, _ = fmt.Fprintln(stderr, interrupted)
	}
	if report == nil {
		return err
	}
	return cmp.Or(report.write(stdout, c.output, result), err)
}

// runTrace returns the result for scripts and the report for people, also of the
// runs that were completed before it was interrupted, if there are any.
func (c *command) runTrace(ctx context.Context, progress func(done, total int64)) (any, *report, error) {
	nodes, err := readFile(c.nodes, parseNodes)
	if err != nil {
		return nil, nil, err
	}
	pods, err := readFile(c.pods, parsePods)
	if err != nil {
		return nil, nil, err
	}
	runs, err := replayAll(ctx, &Trace{Nodes: nodes, Pods: pods}, &c.Options, progress)
	if len(runs) == 0 {
		return nil, nil, err
	}
	result := map[string]any{"runs": runs}
	if err != nil {
		result["interrupted"] = true
	}
	return result, traceReport(runs, err != nil), err
}

// runTopology is runTrace for the topology study.
func (c *command) runTopology(ctx context.Context, progress func(done, total int64)) (any, *report, error) {
	s, err := runStudy(ctx, &c.Options, progress)
	if len(s.Runs) == 0 {
		return nil, nil, err
	}
	return &s, churnReport(&s), err
}
