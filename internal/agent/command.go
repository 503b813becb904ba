package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/agent/check"
	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// sourceAuto is every source that a machine with cards may have.
const sourceAuto = "auto"

// namespaceFile has the namespace of the pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

type command struct {
	Config
	kubeconfig      string
	source          string
	discover        discover.Config
	metrics, health string
	// certFile and keyFile are of the metrics.
	certFile, keyFile string
	look              bool
	serving           string
	node              deviceplugin.Config
	waived            []string
}

const (
	serveAuto = "auto"
	serveOn   = "on"
	serveOff  = "off"
)

var modeWords = []string{string(gpu.ModeNative), string(gpu.ModeSGPU), string(gpu.ModeShared), string(gpu.ModeVGPU)}

func sourceWords() []string {
	return slices.Concat([]string{sourceAuto}, discover.DefaultSources(), []string{discover.SourceSimulated})
}

// NewCommand returns the command that runs the agent.
func NewCommand() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Discover the cards of this node and serve them as a device plugin",
		Long: `Agent runs on every node with MetaX cards. It discovers the cards and publishes them
as the node's Device: models, memory, links and health. Faults are reported as events
on the Node and on the pods that use the card. Metrics of cards have the names of the
vendor's exporter.

As kubelet's device plugin for metax-tech.com/gpu and metax-tech.com/sgpu, the agent
gives each container the cards that the scheduler chose for its pod, and creates and
removes slices. Nodes are not locked.

Cards are read with the vendor's library (libmxsml.so), else with its command mx-smi;
NUMA nodes and PCIe paths are read from sysfs. After a failed poll the last Device
stays.

The mode of the node (native, sgpu, shared or vgpu) comes from the ConfigMap
metax-device-config in the agent's namespace, else from --mode, else from the
hardware. On nodes that the vendor's plugin serves, the ConfigMap of the vendor's
operator takes precedence.`,
		Example: `  # Print the cards of this machine; no cluster is required
  daybreak agent --look

  # On a node, as in the DaemonSet
  NODE_NAME=gpu-1 daybreak agent --namespace daybreak-system

  # Eight simulated cards for a node of the cluster
  daybreak agent --kubeconfig ~/.kube/config --node-name gpu-1 --source simulated --profile c500-2x4`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&c.look, "look", false, "print the cards of this machine as YAML, and exit")
	cmd.MarkFlagsRequiredTogether("metrics-tls-cert-file", "metrics-tls-key-file")
	cmd.AddCommand(newCheckCommand(), newCleanup())
	return cmd
}

// flags adds the flags that say where everything is and how it is served.
func (c *command) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.Node, "node-name", os.Getenv("NODE_NAME"), "name of the node that the agent runs on (default: $NODE_NAME)")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's own service account)")
	f.StringVar(&c.Namespace, "namespace", "", "namespace of the ConfigMap with the modes (default: the pod's own, else "+wire.Namespace+")")
	f.StringVar(&c.VendorNamespace, "vendor-namespace", wire.VendorNamespace, "namespace of the vendor's operator; pods of its device plugin in other namespaces do not count, and its ConfigMap metax-device-config has the modes of nodes that the plugin serves; empty to ignore the ConfigMap")
	f.StringVar(&c.VendorSelector, "vendor-config-selector", "", "labels of that ConfigMap if it has another name")
	c.discoverFlags(f)
	f.StringVar(&c.discover.Profile, "profile", "c500-2x4", "cards to simulate: a built-in profile or the path of a YAML file, with --source simulated")
	f.StringVar((*string)(&c.Mode), "mode", "", "mode if the ConfigMap has none: native, sgpu, shared or vgpu (default: from the hardware)")
	f.DurationVar(&c.Poll, "poll", DefaultPoll, "time between two polls of the cards")
	f.StringVar(&c.metrics, "metrics-bind-address", ":9460", "address that serves /metrics; 0 for none")
	f.StringVar(&c.certFile, "metrics-tls-cert-file", "", "file with the certificate of /metrics, reloaded when it changes (default: plain HTTP)")
	f.StringVar(&c.keyFile, "metrics-tls-key-file", "", "file with its key")
	f.StringVar(&c.health, "health-probe-bind-address", ":9461", "address that serves /healthz and /readyz; 0 for none")
	f.BoolVar(&c.VendorAnnotations, "vendor-annotations", true, "write metax-tech.com/node-gpu-devices to the Node, unless the vendor's plugin does")
	f.BoolVar(&c.TopologyAnnotations, "topology-annotations", false, "write metax-tech.com/gpu.topology.scores and .losses to the Node")
	logs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logs)
	verbosity := pflag.PFlagFromGoFlag(logs.Lookup("v"))
	verbosity.Usage = "log verbosity; 0 logs starts, stops and lost cards"
	f.AddFlag(verbosity)
	cli.Group(cmd, "Serving", func(f *pflag.FlagSet) {
		c.serveFlags(f)
		c.nodeFlags(f)
		f.StringSliceVar(&c.waived, "waive", nil, "names of checks to waive: "+strings.Join(check.Waivable(), ", "))
	})
	cli.Words(cmd, "source", sourceWords()...)
	cli.Words(cmd, "mode", modeWords...)
	cli.Complete(cmd, "profile", cobra.FixedCompletions(discover.ProfileNames(), cobra.ShellCompDirectiveDefault))
	cli.Words(cmd, "serve", serveAuto, serveOn, serveOff)
	cli.Words(cmd, "waive", check.Waivable()...)
}

// discoverFlags adds the flags that say how the cards are looked at.
func (c *command) discoverFlags(f *pflag.FlagSet) {
	f.StringVar(&c.source, "source", sourceAuto, "source of the cards: auto, mxsml, mx-smi, sysfs or simulated")
	f.StringVar(&c.discover.Library, "mxsml", "", "path of libmxsml.so (default: where the vendor's driver puts it)")
	f.StringVar(&c.discover.Command, "mx-smi", "", "path of mx-smi (default: where the vendor's driver puts it)")
	f.StringVar(&c.discover.Sys, "sysfs", "/sys", "where sysfs is mounted")
	f.DurationVar(&c.LookTimeout, "look-timeout", DefaultLookTimeout, "how long a poll may take before it counts as failed")
}

func (c *command) run(ctx context.Context, out io.Writer) error {
	if c.look {
		return c.print(ctx, out)
	}
	return c.start(func(s *session) error { return c.serve(ctx, s) })
}

// session is what the agent and its cleanup work with.
type session struct {
	source  discover.Source
	clients *Clients
	slicer  deviceplugin.Slicer // nil where there are no slices
}

// start opens what the flags name, runs a command with it and closes it again.
func (c *command) start(run func(*session) error) error {
	source, err := c.open()
	if err != nil {
		return err
	}
	defer source.Close()
	if err := c.complete(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("reach the API server: %w; name a kubeconfig with --kubeconfig, or run inside a cluster", err)
	}
	s := &session{source: source}
	if s.clients, err = NewClients(config); err != nil {
		return err
	}
	// Slices are made through the vendor's library, in a process that is not that of
	// the looks, so that neither waits for the other.
	if c.source == sourceAuto || slices.Contains(c.discover.Sources, discover.SourceMXSML) {
		slicer, err := discover.NewLibrary(c.discover)
		if err != nil {
			return err
		}
		defer slicer.Close()
		s.slicer = slicer
	}
	return run(s)
}

func (c *command) open() (*discover.Finder, error) {
	c.discover.Node, c.node.Layout.Sysfs = c.Node, c.discover.Sys
	switch {
	case c.source == discover.SourceSimulated:
		kinds, err := discover.LoadProfiles(c.discover.Profile)
		if err != nil {
			return nil, fmt.Errorf("--profile: %w", err)
		}
		c.Mode = cmp.Or(c.Mode, kinds[0].Mode)
		c.discover.Sources = []string{c.source}
	case c.source == sourceAuto:
	case c.source == discover.SourceSysfs:
		c.discover.Sources = []string{c.source}
	case slices.Contains(discover.DefaultSources(), c.source):
		c.discover.Sources = []string{c.source, discover.SourceSysfs} // which knows NUMA nodes and PCIe paths
	default:
		return nil, cli.OneOf("source", c.source, sourceWords()...)
	}
	return discover.New(c.discover)
}

func (c *command) print(ctx context.Context, out io.Writer) error {
	opened, err := c.open()
	if err != nil {
		return err
	}
	defer opened.Close()
	var source discover.Source = opened
	if c.source == discover.SourceSysfs {
		source = discover.NewSysfs(c.discover.Sys) // alone it reports everything but UUIDs
	}
	snapshot, err := c.lookOnce(ctx, source)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(snapshot)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// lookOnce looks at the cards within the time of a look.
func (c *command) lookOnce(ctx context.Context, source discover.Source) (*discover.Snapshot, error) {
	snapshot, err := discover.LookWithin(ctx, source, c.LookTimeout)
	if err != nil {
		return nil, fmt.Errorf("look at the cards: %w", err)
	}
	return snapshot, nil
}

// complete checks the flags and sets what depends on the cluster.
func (c *command) complete() error {
	if c.Node == "" {
		return errors.New("--node-name: write the name of the node that the agent runs on, or set NODE_NAME")
	}
	if problems := validation.IsDNS1123Subdomain(c.Node); len(problems) > 0 {
		return fmt.Errorf("--node-name %q: %s", c.Node, strings.Join(problems, "; "))
	}
	if c.Mode != "" && !c.Mode.Valid() {
		return cli.OneOf("mode", string(c.Mode), modeWords...)
	}
	if err := c.checkVendor(); err != nil {
		return err
	}
	if c.Poll < 100*time.Millisecond || c.LookTimeout < 100*time.Millisecond {
		return fmt.Errorf("--poll %s, --look-timeout %s: write at least 100ms", c.Poll, c.LookTimeout)
	}
	if err := cli.OneOf("serve", c.serving, serveAuto, serveOn, serveOff); err != nil {
		return err
	}
	if err := c.checkServing(); err != nil {
		return err
	}
	if err := check.ValidateWaived(c.waived); err != nil {
		return fmt.Errorf("--waive: %w", err)
	}
	if c.Namespace == "" {
		c.Namespace = wire.Namespace
		if text, err := os.ReadFile(namespaceFile); err == nil {
			c.Namespace = strings.TrimSpace(string(text))
		}
	}
	return nil
}

// checkVendor checks the flags about the vendor's operator.
func (c *command) checkVendor() error {
	if problems := validation.IsDNS1123Label(c.VendorNamespace); c.VendorNamespace != "" && len(problems) > 0 {
		return fmt.Errorf("--vendor-namespace %q: %s", c.VendorNamespace, strings.Join(problems, "; "))
	}
	if _, err := labels.Parse(c.VendorSelector); err != nil || c.VendorSelector != "" && c.VendorNamespace == "" {
		return fmt.Errorf("--vendor-config-selector %.80q: write labels such as app=gpu-device, and their namespace in --vendor-namespace", c.VendorSelector)
	}
	c.VendorPlugin.Namespace = c.VendorNamespace
	return nil
}

func (c *command) serve(ctx context.Context, s *session) error {
	if err := c.readCertificate(ctx); err != nil {
		return fmt.Errorf("--metrics-tls-cert-file, --metrics-tls-key-file: %w", err)
	}
	broadcaster := NewBroadcaster(ctx, s.clients.Core)
	defer broadcaster.Shutdown()
	s.clients.Events = NewRecorder(broadcaster, c.Node)
	a := New(c.Config, s.source, s.clients, clock.RealClock{})
	if c.serves() {
		if err := a.ServeNode(c.node, s.slicer); err != nil {
			return err
		}
		if c.source != discover.SourceSimulated {
			a.CheckNode(&check.Asker{Discover: c.discover, Node: c.node, Timeout: c.LookTimeout, Clock: clock.RealClock{}}, c.waived)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Serve(ctx, c.metrics, c.health) })
	group.Go(func() error { return a.Run(ctx) })
	return group.Wait()
}

// readCertificate reads the certificate of the metrics, if there is one, and
// again whenever its files change, until the context ends.
func (c *command) readCertificate(ctx context.Context) error {
	if c.certFile == "" && c.keyFile == "" {
		return nil
	}
	logger := klog.FromContext(ctx)
	ctrllog.SetLogger(logger)
	watcher, err := certwatcher.New(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.MetricsTLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			logger.Error(err, "Certificate of the metrics is not watched: restart the agent after it is renewed")
		}
	}()
	return nil
}

// NewBroadcaster returns what brings events to the API server.
func NewBroadcaster(ctx context.Context, core corev1client.CoreV1Interface) record.EventBroadcaster {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: core.Events("")})
	return b
}

// NewRecorder returns a recorder for the agent of a node.
func NewRecorder(b record.EventBroadcaster, node string) record.EventRecorder {
	return b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: FieldManager, Host: node})
}
