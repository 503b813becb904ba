package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// emulatedVersion is kube-scheduler's flag for older API servers.
const emulatedVersion = "emulated-version"

// FlagsOf begins the titles of groups of flags that are kube-scheduler's own.
const FlagsOf = "kube-scheduler's "

// policyWords are the values of --policy.
var policyWords = []string{"binpack", "spread"}

// command is the scheduler subcommand.
type command struct {
	options  *options.Options
	profiles []string
	policy   string
	// inCluster returns how a pod reaches its API server, or why this is none.
	inCluster func() (*rest.Config, error)
}

func newCommand() *command {
	return &command{options: options.NewOptions(), inCluster: rest.InClusterConfig}
}

// NewCommand returns the command that runs the scheduler. It has all the flags
// of kube-scheduler.
func NewCommand() *cobra.Command {
	// Before the flags are made, which list all features.
	err := addFeatures(utilfeature.DefaultMutableFeatureGate)
	cmd := newCommand().cobra()
	if err != nil {
		cmd.RunE = func(*cobra.Command, []string) error { return err }
	}
	return cmd
}

func (c *command) cobra() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run kube-scheduler with the plugin that places pods on cards",
		Long: `Scheduler runs kube-scheduler with the Daybreak plugin, which decides the node
and the cards of pods that ask for MetaX GPUs. Other pods are scheduled as
always.

Without --config a configuration of its own is used: one profile for each
--profile, all alike. Run it beside the cluster's scheduler under a name of its
own, or in its place with --profile default-scheduler --profile daybreak.

All flags of kube-scheduler work as they do there. The API server's version is
found out, and older ones (from 1.33) are served too.`,
		Example: `  # For pods with schedulerName: daybreak, beside the cluster's scheduler
  daybreak scheduler --kubeconfig ~/.kube/config

  # In its place
  daybreak scheduler --kubeconfig ~/.kube/config --profile default-scheduler --profile daybreak

  # With a KubeSchedulerConfiguration of your own
  daybreak scheduler --config scheduler.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.profiles, "profile", []string{DefaultProfile}, "name of a scheduler to be (repeatable); not with --config")
	f.StringVar(&c.policy, "policy", "", "binpack or spread, for pods whose annotations name no policy; not with --config")
	cli.Words(cmd, "policy", policyWords...)
	for _, name := range c.options.Flags.Order {
		cli.Group(cmd, FlagsOf+name, func(f *pflag.FlagSet) { f.AddFlagSet(c.options.Flags.FlagSets[name]) })
	}
	return cmd
}

func (c *command) run(ctx context.Context, cmd *cobra.Command) error {
	remove, err := c.configure(cmd)
	if err != nil {
		return err
	}
	defer remove()
	config, err := c.restConfig()
	if err != nil {
		return err
	}
	if err := c.emulate(cmd, config); err != nil {
		return err
	}
	registry := c.options.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return err
	}
	if err := preferLists(utilfeature.DefaultMutableFeatureGate); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(c.options.Logs, registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := checkDevices(ctx, client); err != nil {
		return err
	}
	return c.serve(ctx, remove)
}

// configure writes the built-in configuration to a file, unless the user has
// one: kube-scheduler reads it from nowhere else.
func (c *command) configure(cmd *cobra.Command) (remove func(), err error) {
	if c.options.ConfigFile != "" {
		for _, flag := range []string{"profile", "policy"} {
			if cmd.Flags().Changed(flag) {
				return nil, fmt.Errorf("--%s goes without --config: write it into the configuration file", flag)
			}
		}
		return func() {}, nil
	}
	if c.policy != "" {
		if err := cli.OneOf("policy", c.policy, policyWords...); err != nil {
			return nil, err
		}
	}
	files := &tempFiles{}
	kubeconfig, err := c.kubeconfig(files)
	if err != nil {
		files.remove()
		return nil, err
	}
	text, err := defaultConfig(configOptions{kubeconfig: kubeconfig, profiles: c.profiles, policy: c.policy})
	if err == nil {
		c.options.ConfigFile, err = files.write(text)
	}
	if err != nil {
		files.remove()
		return nil, err
	}
	return files.remove, nil
}

// kubeconfig returns the file that the user named or, in a pod, one that says
// how it reaches its API server; none when there is neither.
func (c *command) kubeconfig(files *tempFiles) (string, error) {
	// Another server, named by --master, must not be sent the pod's token.
	if named := c.options.Deprecated.Kubeconfig; named != "" || c.options.Master != "" {
		return named, nil
	}
	in, err := c.inCluster()
	if err != nil {
		return "", nil //nolint:nilerr // no pod; whoever needs a server says what is missing
	}
	text, err := kubeconfigOf(in)
	if err != nil {
		return "", fmt.Errorf("write down how the pod reaches its API server: %w", err)
	}
	return files.write(text)
}

// tempFiles are files that hold for the start of a process.
type tempFiles struct{ names []string }

func (t *tempFiles) write(text []byte) (name string, err error) {
	file, err := os.CreateTemp("", "daybreak-scheduler-*.yaml")
	if err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	defer file.Close()
	t.names = append(t.names, file.Name())
	if _, err := file.Write(text); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return file.Name(), nil
}

func (t *tempFiles) remove() {
	for _, name := range t.names {
		_ = os.Remove(name)
	}
}

// restConfig returns how the API server is reached, as the configuration says.
func (c *command) restConfig() (*rest.Config, error) {
	cfg, err := options.LoadConfigFromFile(klog.Background(), c.options.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", c.options.ConfigFile, err)
	}
	config, err := clientcmd.BuildConfigFromFlags(c.options.Master, cfg.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w; name a kubeconfig with --kubeconfig, or run inside a cluster", err)
	}
	return config, nil
}

// emulate makes this scheduler behave as one of the API server's own version
// when that is older: otherwise it would wait for resources that are not there.
func (c *command) emulate(cmd *cobra.Command, config *rest.Config) error {
	if cmd.Flags().Changed(emulatedVersion) {
		return nil
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	// A newer server may itself be told to behave as an older one.
	says := cmp.Or(info.EmulationMinor, info.Minor)
	minor, err := strconv.ParseUint(strings.TrimRight(says, "+"), 10, 32)
	if err != nil {
		return fmt.Errorf("the API server says its version is %q.%q", info.Major, says)
	}
	own := c.options.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	server := version.MajorMinor(1, uint(minor))
	if !server.LessThan(version.MajorMinor(own.Major(), own.Minor())) {
		return nil
	}
	return cmd.Flags().Set(emulatedVersion, fmt.Sprintf("kube=%s", server))
}

// serve runs the scheduler until the context ends or leadership is lost. The
// configuration is not needed any more once it was read; what follows may end
// the process at any time.
func (c *command) serve(ctx context.Context, removeConfig func()) error {
	shared := NewShared(clock.RealClock{})
	if !adaptsToPlugin(c.options.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)) {
		shared.locks = nil
	}
	plugins := []app.Option{app.WithPlugin(Name, shared.Factory())}
	for name, factory := range shared.standIns() {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	cc, sched, err := app.Setup(ctx, c.options, plugins...)
	removeConfig()
	if err != nil {
		return err
	}
	if err := shared.devices.watch(cc.DynInformerFactory); err != nil {
		return err
	}
	identity := shared.lead(cc)
	f := fencer{
		client: cc.Client, schedulers: sets.New[string](), identity: identity,
		seen: cc.InformerFactory.Core().V1().Pods().Informer().LastSyncResourceVersion,
	}
	for i := range cc.ComponentConfig.Profiles {
		f.schedulers.Insert(cc.ComponentConfig.Profiles[i].SchedulerName)
	}
	go shared.fence(ctx, &f)
	shared.locks.begin(ctx, f.schedulers)
	shared.figures.register(ctx)
	shared.announcements.announce(sched)
	shared.search(sched)
	return app.Run(ctx, cc, sched)
}

// lead ties the term to the election, if there is one.
func (s *Shared) lead(cc *schedulerconfig.CompletedConfig) (identity string) {
	if cc.LeaderElection == nil {
		s.term.begin()
		name, _ := os.Hostname()
		return name
	}
	cc.LeaderElection.Lock = s.term.elect(cc.LeaderElection.Lock, cc.LeaderElection.RenewDeadline)
	return cc.LeaderElection.Lock.Identity()
}

// fence waits until this process leads and then lets decisions be made, once
// those of earlier leaders can do no more harm.
func (s *Shared) fence(ctx context.Context, f *fencer) {
	select {
	case <-ctx.Done():
		return
	case <-s.term.started:
	}
	start := s.clock.Now()
	if err := f.run(ctx); err != nil {
		return // the context ended
	}
	s.term.fence()
	klog.FromContext(ctx).Info("Earlier schedulers are fenced off", "took", s.clock.Since(start))
}
