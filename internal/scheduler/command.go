package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// FlagsOf begins the titles of groups of flags that are kube-scheduler's own.
const FlagsOf = "kube-scheduler's "

// errNoElection rejects a scheduler without leader election: nothing would keep it from
// allocating GPUs while another one does.
var errNoElection = errors.New("leader election is off, and Daybreak requires it: remove --leader-elect=false, or leaderElection.leaderElect: false from the configuration file")

// policyWords are the values of --policy.
var policyWords = []string{"binpack", "spread"}

// command is the scheduler subcommand.
type command struct {
	options  *options.Options
	profiles []string
	policy   string
	// vendorPlugin selects the pods of the vendor's plugin.
	vendorPlugin inventory.VendorPlugin
	quotaKeys    string
	// dir holds the built-in configuration; empty with --config.
	dir string
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
		Short: "Run kube-scheduler with the Daybreak plugins",
		Long: `Scheduler runs kube-scheduler with the Daybreak plugins, which choose the node and
the cards of pods that request MetaX GPUs.

Without --config, the scheduler has one profile for each --profile. It runs alongside
the cluster's scheduler under its own name, or replaces it with
--profile default-scheduler --profile daybreak.

All flags of kube-scheduler are supported; leader election cannot be turned off.
Kubernetes 1.23 or newer is required. Features that the API server does not have are
turned off.`,
		Example: `  # For pods with schedulerName: daybreak, alongside the cluster's scheduler
  daybreak scheduler --kubeconfig ~/.kube/config

  # In place of the cluster's scheduler
  daybreak scheduler --kubeconfig ~/.kube/config --profile default-scheduler --profile daybreak

  # With a KubeSchedulerConfiguration
  daybreak scheduler --config scheduler.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.profiles, "profile", []string{DefaultProfile}, "schedulerName `NAME` to serve (repeatable); not with --config")
	f.StringVar(&c.policy, "policy", "", "`POLICY` for pods without one in their annotations: binpack or spread; not with --config")
	cli.Words(cmd, "policy", policyWords...)
	f.Var(&c.vendorPlugin, "vendor-plugin-selector", "labels of the pods of the vendor's device plugin (default: pods of a DaemonSet gpu-device or …-gpu-device); not with --config")
	f.StringVar(&c.vendorPlugin.Namespace, "vendor-namespace", wire.VendorNamespace, "`NAMESPACE` of the vendor's operator; pods of its device plugin in other namespaces do not count")
	f.StringVar(&c.vendorPlugin.Daybreak, "namespace", wire.Namespace, "`NAMESPACE` of Daybreak; pods with the labels of its agents in other namespaces do not count")
	f.StringVar(&c.quotaKeys, "quota-keys", quota.Enforce, "handling of HAMi's keys limits.metax-tech.com/* in ResourceQuotas: enforce (pods that would exceed one stay pending), warn (they are placed, with an event) or off; not with --config")
	cli.Words(cmd, "quota-keys", quotaWords...)
	for _, name := range c.options.Flags.Order {
		cli.Group(cmd, FlagsOf+name, func(f *pflag.FlagSet) { f.AddFlagSet(c.options.Flags.FlagSets[name]) })
	}
	cli.Words(cmd, "logging-format", "text", "json")
	cli.Words(cmd, "leader-elect-resource-lock", "leases")
	cli.Words(cmd, "tls-min-version", cliflag.TLSPossibleVersions()...)
	cli.Words(cmd, "tls-cipher-suites", cliflag.TLSCipherPossibleValues()...)
	return cmd
}

func (c *command) run(ctx context.Context, cmd *cobra.Command) error {
	remove, err := c.configure(cmd)
	if err != nil {
		return err
	}
	defer remove()
	config, profiles, err := c.load()
	if err != nil {
		return err
	}
	server, err := cluster.AskServer(ctx, config, startAnswers, resourcesInQuestion()...)
	if err != nil {
		return err
	}
	set, err := c.adapt(cmd, server, utilfeature.DefaultMutableFeatureGate)
	if err != nil {
		return err
	}
	if c.dir != "" && set.readsBeta() {
		if err := c.writeConfig(true); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	if err := preferLists(utilfeature.DefaultMutableFeatureGate); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(c.options.Logs, c.options.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Features are set for the API server", "version", server.Version.String(), "newest", server.Newest.String(),
		"emulated", set.emulated.String(), "reason", set.reason, "off", fmt.Sprint(set.off))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := checkDevices(ctx, client); err != nil {
		return err
	}
	settings, err := settingsOf(profiles)
	if err != nil {
		return err
	}
	if err := checkQuotaRights(ctx, client, settings); err != nil {
		return err
	}
	watcher := newServerWatch(set, clock.RealClock{}, func(ctx context.Context) (*cluster.Server, error) {
		return cluster.AskServer(ctx, config, 1, resourcesInQuestion()...)
	})
	return c.serve(ctx, watcher, settings, remove)
}

// configure writes the built-in configuration to a file, unless the user has
// one: kube-scheduler reads it from nowhere else.
func (c *command) configure(cmd *cobra.Command) (remove func(), err error) {
	if c.options.ConfigFile != "" {
		for _, flag := range []string{"profile", "policy", "vendor-plugin-selector", "quota-keys"} {
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
	if err := cli.OneOf("quota-keys", c.quotaKeys, quotaWords...); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "daybreak-scheduler-"); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	remove = func() { _ = os.RemoveAll(c.dir) }
	if err := c.writeConfig(false); err != nil {
		remove()
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return remove, nil
}

// writeConfig writes the built-in configuration.
func (c *command) writeConfig(betaCapacities bool) error {
	kubeconfig, err := c.kubeconfig(c.dir)
	if err != nil {
		return err
	}
	text, err := defaultConfig(configOptions{
		kubeconfig: kubeconfig, profiles: c.profiles, policy: c.policy, vendorPlugin: c.vendorPlugin.String(), quotaKeys: c.quotaKeys, betaCapacities: betaCapacities,
	})
	if err != nil {
		return err
	}
	c.options.ConfigFile = filepath.Join(c.dir, "config.yaml")
	return os.WriteFile(c.options.ConfigFile, text, 0o600)
}

// kubeconfig returns the file that the user named or, in a pod, one in the
// directory that says how it reaches its API server; none when there is neither.
func (c *command) kubeconfig(dir string) (string, error) {
	// Another server, named by --master, must not be sent the pod's token.
	if named := c.options.Deprecated.Kubeconfig; named != "" || c.options.Master != "" {
		return named, nil
	}
	in, err := c.inCluster()
	if err != nil {
		return "", nil //nolint:nilerr // not in a pod: what needs a server reports what is missing
	}
	text, err := kubeconfigOf(in)
	if err != nil {
		return "", fmt.Errorf("write down how the pod reaches its API server: %w", err)
	}
	file := filepath.Join(dir, "kubeconfig.yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// load returns how the API server is reached, as the configuration says, and its
// profiles.
func (c *command) load() (*rest.Config, []config.KubeSchedulerProfile, error) {
	cfg, err := options.LoadConfigFromFile(klog.Background(), c.options.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", c.options.ConfigFile, err)
	}
	c.options.ApplyLeaderElectionTo(cfg)
	if !cfg.LeaderElection.LeaderElect {
		return nil, nil, errNoElection
	}
	client, err := clientcmd.BuildConfigFromFlags(c.options.Master, cfg.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reach the API server: %w; name a kubeconfig with --kubeconfig, or run inside a cluster", err)
	}
	return client, cfg.Profiles, nil
}

// serve runs the scheduler until the context ends or leadership is lost. The
// configuration is not needed any more once it was read; what follows may end
// the process at any time.
func (c *command) serve(ctx context.Context, server *serverWatch, settings cluster.Settings, removeConfig func()) error {
	shared := c.newState(server.readsBeta())
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
	ctx, shared.term.stop = context.WithCancelCause(ctx)
	defer shared.term.stop(nil)
	f, err := shared.fencer(cc, sched)
	if err != nil {
		return err
	}
	lease := cc.ComponentConfig.LeaderElection
	go shared.fence(ctx, f)
	go func() {
		select {
		case <-ctx.Done():
		case <-shared.term.started:
			settings.Publish(ctx, cc.Client.CoordinationV1().Leases(lease.ResourceNamespace), lease.ResourceName, shared.term.identity)
		}
	}()
	go func() {
		if err := server.run(ctx); err != nil {
			// kube-scheduler exits without an error of ours when it gives its lease back.
			klog.FromContext(ctx).Info("Ending", "reason", err)
			shared.term.end(err)
		}
	}()
	shared.locks.begin(ctx, f.schedulers)
	shared.metrics.register(ctx)
	shared.wrapProfiles(sched)
	err = app.Run(ctx, cc, sched)
	if cause := context.Cause(ctx); errors.Is(cause, errOutdated) {
		return cause
	}
	return err
}

// newState returns the state of a scheduler with these flags.
func (c *command) newState(betaCapacities bool) *State {
	s := NewState(clock.RealClock{})
	s.betaCapacities, s.nodes.vendor = betaCapacities, c.vendorPlugin
	if !adaptsToPlugin(c.options.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)) {
		s.locks = nil
	}
	return s
}

// fencer makes the term depend on the election and returns what opens the fence.
func (s *State) fencer(cc *schedulerconfig.CompletedConfig, sched *kubescheduler.Scheduler) (*fencer, error) {
	informer := cc.InformerFactory.Core().V1().Pods()
	f := &fencer{
		client: cc.Client, term: s.term, clock: s.clock, schedulers: sets.New[string](), pods: informer.Lister(),
		cache: sched.Cache, activate: sched.SchedulingQueue.Activate,
		grace: bindTimeout + requestTimeout, workers: touchWorkers,
	}
	if clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		f.seen = informer.Informer().GetIndexer().LastStoreSyncResourceVersion
	}
	for name, profile := range sched.Profiles {
		if err := s.checkPlugins(name, profile.ListPlugins()); err != nil {
			return nil, err
		}
		f.schedulers.Insert(name)
	}
	f.report = func(pod *corev1.Pod, err error) {
		sched.Profiles[pod.Spec.SchedulerName].EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "HeldBack", "Scheduling",
			"not placed yet, since an earlier scheduler may still bind it: updating the pod's status fails: %v", err)
	}
	f.grace += cc.LeaderElection.LeaseDuration
	cc.LeaderElection.Lock = s.term.elect(cc.LeaderElection.Lock, cc.LeaderElection.RenewDeadline)
	return f, nil
}

// checkPlugins returns an error for a profile in which the plugin could decide
// before the fence is open: PreEnqueue is what holds pods back. It also returns
// one for VolumeBinding where that would wait forever.
func (s *State) checkPlugins(profile string, plugins *config.Plugins) error {
	if enables(plugins.PreFilter, Name) && !enables(plugins.PreEnqueue, Name) {
		return fmt.Errorf("profile %s: preEnqueue does not enable %s: enable the plugin under multiPoint", profile, Name)
	}
	if s.betaCapacities && enables(plugins.PreFilter, names.VolumeBinding) {
		return fmt.Errorf("profile %s: %s needs %s, which API servers have from Kubernetes 1.24 on: under multiPoint, disable it and enable %s", profile, names.VolumeBinding, nameOf(capacities), VolumesName)
	}
	return nil
}

func enables(set config.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Enabled, func(p config.Plugin) bool { return p.Name == name })
}

// fence waits until this process leads and then opens the fence.
func (s *State) fence(ctx context.Context, f *fencer) {
	select {
	case <-ctx.Done():
		return
	case <-s.term.started:
	}
	if err := f.run(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("The fence is given up", "cause", err)
	}
}
