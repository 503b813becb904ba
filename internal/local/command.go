package local

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// profilesFolder, in the cluster's folder, has the profile of each node.
	profilesFolder = "nodes"
	// mostAgents is how many nodes may each have an agent: every one watches the
	// API server, which runs on this machine too.
	mostAgents = 64
	// restartDelay is how long a component that was killed stays away: long enough
	// to be seen.
	restartDelay = time.Second
)

// playground is the playground command.
type playground struct {
	nodes      int
	profile    string
	data       string
	kubeconfig string
	dashboard  int
	servedBy   string
	vendor     StartPlugin

	// chosen reports whether the user gave a flag.
	chosen func(flag string) bool
	// Addresses of the dashboard and of metrics.
	dashboardAddress, schedulerMetrics, managerMetrics string
}

// StartPlugin starts a plugin on no nodes yet.
type StartPlugin func(context.Context, *rest.Config, *Simulator) (Plugin, error)

// NewCommand returns the playground command; vendor starts the stand-in of
// --served-by vendor.
func NewCommand(vendor StartPlugin) *cobra.Command {
	p := &playground{vendor: vendor}
	cmd := &cobra.Command{
		Use:   "playground",
		Short: "Run a local cluster with simulated MetaX nodes",
		Long: `Playground runs etcd, kube-apiserver, kube-controller-manager, Daybreak's manager and
Daybreak as the default scheduler on this machine, with simulated MetaX nodes. Pods
are scheduled; no containers run. Ctrl-C stops the cluster and removes its files,
unless --data keeps them.

It prints "ready" when pods are scheduled, and then commands to try. Several
playgrounds can run at the same time, each with its own --kubeconfig. Free ports are
chosen.

The link playground.files next to the kubeconfig leads to the folder of the cluster,
with the profiles of the nodes, logs and process IDs. A component that is killed
restarts after a second.

A container ends after the time that its command sleeps ("sleep 30"), or after that of
the annotation ` + wire.AnnotationRunTime + ` of its pod. When a pod is deleted,
containers that sleep stop at the end of its grace period, others immediately.

A folder of --data also keeps --nodes, --profile and --served-by of the last run.
Other values add, remove and replace nodes, unless pods run on nodes to remove.

Profiles: ` + strings.Join(discover.ProfileNames(), ", ") + `.`,
		Example: `  # Four nodes with eight cards each, and the dashboard at http://127.0.0.1:8080
  playground

  # A hundred nodes with cards that are not linked
  playground --nodes 100 --profile c500-pcie

  # Keep the cluster for the next run
  playground --data ~/.daybreak

  # A second cluster
  playground --kubeconfig other.kubeconfig

  # With a stand-in for the vendor's device plugin
  playground --served-by vendor`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.chosen = cmd.Flags().Changed
			return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.nodes, "nodes", 4, "number of nodes")
	f.StringVar(&p.profile, "profile", "c500-2x4", "profile of the nodes: a built-in one or the path of a YAML file")
	f.StringVar(&p.data, "data", "", "folder that keeps the cluster across runs (default: a temporary folder)")
	f.StringVar(&p.kubeconfig, "kubeconfig", "playground.kubeconfig", "path of the kubeconfig to write")
	f.StringVar(&p.servedBy, "served-by", wire.ServedByDaybreak,
		"device plugin of the nodes: daybreak, or vendor for a stand-in for MetaX's, which requires a node lock for each slice")
	cli.Words(cmd, "served-by", wire.ServedByDaybreak, wire.ServedByVendor)
	cli.Complete(cmd, "profile", cobra.FixedCompletions(discover.ProfileNames(), cobra.ShellCompDirectiveDefault))
	f.IntVar(&p.dashboard, "port-dashboard", 8080, "port of the dashboard on 127.0.0.1, 0 for none; if the default is in use, another one is chosen")
	return cmd
}

func (p *playground) run(ctx context.Context, stdout, stderr io.Writer) error {
	kinds, err := p.check()
	if err != nil {
		return err
	}
	if err := p.findAddresses(ctx); err != nil {
		return err
	}
	dir, release, err := p.claimFiles()
	if err != nil {
		return err
	}
	defer release()
	want := &keptNodes{Nodes: p.nodes, Profile: p.profile, ServedBy: p.servedBy, Kinds: kinds}
	kept, err := readKept(dir)
	if err != nil {
		return err
	}
	p.resume(kept, want)
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "playground: "+format+"\n", args...) }
	cluster, err := startCluster(ctx, dir, kept, want, say)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	return p.serve(ctx, cluster, want, stdout, say)
}

// startCluster starts the control plane, with the nodes of the last run that are
// still wanted.
func startCluster(ctx context.Context, dir string, kept, want *keptNodes, say func(string, ...any)) (*Cluster, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	say("starting etcd, kube-apiserver and kube-controller-manager")
	cluster, err := Start(ctx, Config{Dir: dir, Executable: executable})
	if err != nil {
		return nil, err
	}
	err = cluster.Install(ctx)
	if err == nil {
		err = reconcile(ctx, cluster, kept, want, say)
	}
	if err != nil {
		cluster.Stop()
		return nil, err
	}
	return cluster, nil
}

// serve adds Daybreak and the nodes to the cluster, prints what to try once a pod
// would be scheduled, and returns when the user ends it or a component can't be
// kept running.
func (p *playground) serve(ctx context.Context, cluster *Cluster, want *keptNodes, stdout io.Writer, say func(string, ...any)) error {
	say("starting the manager")
	manager, err := p.startManager(ctx, cluster)
	if err != nil {
		return err
	}
	defer manager.Stop()
	say("adding %d nodes (%s)", want.Nodes, want.Profile)
	if want.Nodes > mostAgents {
		say("more than %d nodes: no agents run, and Devices do not change", mostAgents)
	}
	stop, err := p.addNodes(ctx, cluster, want)
	if err != nil {
		return err
	}
	defer stop()
	say("starting the scheduler")
	scheduler, err := p.startScheduler(cluster)
	if err != nil {
		return err
	}
	defer scheduler.Stop()
	if err := probe(ctx, cluster, scheduler); err != nil {
		return err
	}
	if err := p.publish(cluster, want, stdout); err != nil {
		return err
	}
	return supervise(ctx, say, cluster.Etcd, cluster.APIServer, cluster.ControllerManager, manager, scheduler)
}

// resume makes the wanted nodes those of the last run where the user wants no
// others.
func (p *playground) resume(kept, want *keptNodes) {
	if kept == nil {
		return
	}
	if !p.chosen("nodes") {
		want.Nodes = kept.Nodes
	}
	if !p.chosen("served-by") {
		want.ServedBy = kept.ServedBy
	}
	if !p.chosen("profile") {
		want.Profile, want.Kinds = kept.Profile, kept.Kinds
	}
}

// reconcile removes the nodes of the last run that are not wanted any more.
func reconcile(ctx context.Context, cluster *Cluster, kept, want *keptNodes, say func(string, ...any)) error {
	if kept != nil {
		removed, err := cluster.removeStaleNodes(ctx, kept, want)
		if err != nil {
			return err
		}
		if len(removed) > 0 {
			say("removed %d nodes of the last run: %s", len(removed), cutList(removed, 5))
		}
	}
	return want.write(cluster.Dir)
}

// startManager returns when the manager serves.
func (p *playground) startManager(ctx context.Context, cluster *Cluster) (*Process, error) {
	manager, err := cluster.newManager(ctx, p.managerMetrics, p.dashboardAddress)
	if err != nil {
		return nil, err
	}
	if err := manager.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it does not serve after a minute"))
	defer cancel()
	err = manager.waitFor(ctx, "its metrics", func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", p.managerMetrics)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		manager.Stop()
		return nil, err
	}
	return manager, nil
}

func (p *playground) startScheduler(cluster *Cluster) (*Process, error) {
	_, port, err := net.SplitHostPort(p.schedulerMetrics)
	if err != nil {
		return nil, err
	}
	scheduler := cluster.NewScheduler("scheduler", "--profile=default-scheduler", "--profile=daybreak",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics")
	err = scheduler.Start()
	return scheduler, err
}

// check returns the kinds of nodes, or what is wrong with the flags.
func (p *playground) check() ([]discover.Profile, error) {
	if p.nodes < 1 || p.nodes > 5000 {
		return nil, fmt.Errorf("--nodes %d: write 1 to 5000", p.nodes)
	}
	if err := cli.OneOf("served-by", p.servedBy, wire.ServedByDaybreak, wire.ServedByVendor); err != nil {
		return nil, err
	}
	return discover.LoadProfiles(p.profile)
}

// findAddresses finds ports for the dashboard and for metrics: for the dashboard
// the one that the user named, else the usual one or, when that is taken, any.
func (p *playground) findAddresses(ctx context.Context) error {
	if p.dashboard < 0 || p.dashboard > 65535 {
		return fmt.Errorf("--port-dashboard %d: write 1 to 65535, or 0 for no dashboard", p.dashboard)
	}
	free, err := FreeAddresses(ctx, 3)
	if err != nil {
		return err
	}
	p.schedulerMetrics, p.managerMetrics = free[0], free[1]
	if p.dashboard == 0 {
		return nil
	}
	p.dashboardAddress = loopback(p.dashboard)
	if err := claim(ctx, p.dashboard); err != nil {
		if p.chosen("port-dashboard") {
			return fmt.Errorf("--port-dashboard %d: %w; name another port", p.dashboard, err)
		}
		p.dashboardAddress = free[2]
	}
	return nil
}

// addNodes simulates the nodes until stop is called.
func (p *playground) addNodes(ctx context.Context, cluster *Cluster, want *keptNodes) (stop func(), err error) {
	options := []SimulatorOption{ProfilesIn(filepath.Join(cluster.Dir, profilesFolder))}
	if want.Nodes > mostAgents {
		options = append(options, WithoutAgents())
	}
	simulator, err := NewSimulator(ctx, cluster.RESTAs("simulator"), options...)
	if err != nil {
		return nil, err
	}
	simulator.Managed = true
	stop, add := simulator.Stop, simulator.AddNodes
	if want.ServedBy == wire.ServedByVendor {
		vendor, err := p.vendor(ctx, cluster.RESTAs("simulator"), simulator)
		if err != nil {
			simulator.Stop()
			return nil, err
		}
		stop, add = func() { vendor.Stop(); simulator.Stop() }, vendor.AddNodes
	}
	if err := add(ctx, nodePrefix, want.Nodes, want.Kinds); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// publish writes the kubeconfig and prints what to try.
func (p *playground) publish(cluster *Cluster, nodes *keptNodes, stdout io.Writer) error {
	text, err := os.ReadFile(cluster.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return p.writeTour(stdout, nodes)
}

// supervise keeps the processes running until the context ends, or one of them
// ends again and again.
func supervise(ctx context.Context, say func(string, ...any), processes ...*Process) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range processes {
		group.Go(func() error { return p.supervise(ctx, restartDelay, say) })
	}
	return group.Wait()
}

// probe returns when a pod with a slice of a card was scheduled.
func probe(ctx context.Context, c *Cluster, scheduler *Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no pod was scheduled within a minute"))
	defer cancel()
	pods := c.client.CoreV1().Pods(metav1.NamespaceSystem)
	limits := corev1.ResourceList{
		wire.ResourceSGPU: resource.MustParse("1"), wire.ResourceVCore: resource.MustParse("1"), wire.ResourceVMemory: resource.MustParse("1"),
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "playground-probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsInternalError(err) {
			return false, nil // the manager does not answer yet
		}
		pod = created
		return true, err
	})
	if err != nil {
		return fmt.Errorf("create a pod to try: %w", err)
	}
	err = scheduler.waitFor(ctx, "a pod to be scheduled", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			return errors.New("not bound")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return fmt.Errorf("remove the pod that was tried: %w", err)
	}
	return nil
}

//go:embed tour.txt
var tour string

// writeTour writes that the cluster is ready, and what to try; a test types each
// line that begins with "  $".
func (p *playground) writeTour(w io.Writer, nodes *keptNodes) error {
	vendor := nodes.ServedBy == wire.ServedByVendor
	t, err := template.New("tour").Parse(tour)
	if err != nil {
		return err
	}
	kubeconfig := p.kubeconfig
	if !filepath.IsAbs(kubeconfig) {
		kubeconfig = "$PWD/" + kubeconfig
	}
	return t.Execute(w, struct {
		Dashboard, SchedulerMetrics, ManagerMetrics, Kubeconfig, Files string
		Vendor, Agents                                                 bool
	}{
		Dashboard: p.dashboardAddress, SchedulerMetrics: p.schedulerMetrics, ManagerMetrics: p.managerMetrics,
		Kubeconfig: kubeconfig, Files: p.files(), Vendor: vendor, Agents: !vendor && nodes.Nodes <= mostAgents,
	})
}
