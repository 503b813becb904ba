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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// profilesFolder, in the cluster's folder, has the profile of each node.
	profilesFolder = "nodes"
	// mostAgents is how many nodes may each have an agent: every one watches the
	// API server, which runs on this machine too.
	mostAgents = 64
)

// playground is the playground command.
type playground struct {
	nodes      int
	profile    string
	data       string
	kubeconfig string
	dashboard  int
	chosen     bool   // the user named the dashboard's port
	address    string // of the dashboard
	servedBy   string
	vendor     StartPlugin
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
		Long: `Playground runs etcd, kube-apiserver, kube-controller-manager, Daybreak's manager
and Daybreak as the default scheduler on this machine, with nodes that have MetaX
cards in name only. Pods are really scheduled; they run in name only too. Ctrl-C
stops all of it and leaves nothing behind, unless --data keeps the cluster for the
next run.

It prints "ready" when a pod would be scheduled, then what to try. Several may run
at a time: free ports are found, only the kubeconfig needs a name for each.

Kinds of nodes: ` + strings.Join(discover.ProfileNames(), ", ") + `.`,
		Example: `  # Four nodes of eight cards, and a page of them at http://127.0.0.1:8080
  playground

  # A hundred nodes whose cards are not linked
  playground --nodes 100 --profile c500-pcie

  # A cluster that is there again the next time
  playground --data ~/.daybreak

  # With a stand-in of the vendor's own plugin, which needs a lock for each slice
  playground --served-by vendor`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.chosen = cmd.Flags().Changed("port-dashboard")
			return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.nodes, "nodes", 4, "number of nodes")
	f.StringVar(&p.profile, "profile", "c500-2x4", "kind of nodes: a built-in profile or the path of a YAML file")
	f.StringVar(&p.data, "data", "", "folder that keeps the cluster across runs (default: temporary)")
	f.StringVar(&p.kubeconfig, "kubeconfig", "playground.kubeconfig", "where to write the kubeconfig")
	f.StringVar(&p.servedBy, "served-by", wire.ServedByDaybreak,
		"whose device plugin serves the nodes: daybreak, or vendor for a stand-in of MetaX's own, which needs a lock on the node for each slice")
	cli.Words(cmd, "served-by", wire.ServedByDaybreak, wire.ServedByVendor)
	cli.Complete(cmd, "profile", cobra.FixedCompletions(discover.ProfileNames(), cobra.ShellCompDirectiveDefault))
	f.IntVar(&p.dashboard, "port-dashboard", 8080, "port of the dashboard on 127.0.0.1, 0 for none; if none is named and this one is taken, another")
	return cmd
}

func (p *playground) run(ctx context.Context, stdout, stderr io.Writer) error {
	kinds, err := p.check()
	if err != nil {
		return err
	}
	dashboard, err := p.openDashboard(ctx)
	if err != nil {
		return err
	}
	p.address = dashboard.Address
	dir, remove, err := p.folder()
	if err != nil {
		return err
	}
	defer remove()
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "playground: "+format+"\n", args...) }

	say("starting etcd, kube-apiserver and kube-controller-manager")
	cluster, err := Start(ctx, Config{Dir: dir, Executable: executable})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := cluster.Install(ctx); err != nil {
		return err
	}
	m, err := cluster.admit(ctx, dashboard)
	if err != nil {
		return err
	}
	defer m.Stop()
	say("adding %d nodes (%s)", p.nodes, p.profile)
	if p.nodes > mostAgents {
		say("with more than %d nodes none has an agent: their Devices stay as they are", mostAgents)
	}
	stop, err := p.addNodes(ctx, cluster, kinds)
	if err != nil {
		return err
	}
	defer stop()
	say("starting the scheduler")
	scheduler := cluster.NewScheduler("scheduler", "--profile=default-scheduler", "--profile=daybreak", "--leader-elect=false")
	if err := scheduler.Start(); err != nil {
		return err
	}
	defer scheduler.Stop()
	return p.serve(ctx, cluster, m, scheduler, stdout)
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

// openDashboard opens the dashboard's port: the one that the user named, else the
// usual one or, when that is taken, any.
func (p *playground) openDashboard(ctx context.Context) (manager.Dashboard, error) {
	if p.dashboard < 0 || p.dashboard > 65535 {
		return manager.Dashboard{}, fmt.Errorf("--port-dashboard %d: write 1 to 65535, or 0 for no dashboard", p.dashboard)
	}
	if p.dashboard == 0 {
		return manager.Dashboard{}, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", p.dashboard))
	if err != nil && p.chosen {
		return manager.Dashboard{}, fmt.Errorf("--port-dashboard %d: %w; name another port", p.dashboard, err)
	}
	if err != nil {
		if l, err = config.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return manager.Dashboard{}, fmt.Errorf("find a port for the dashboard: %w", err)
		}
	}
	return manager.Dashboard{Address: l.Addr().String(), Listener: l}, nil
}

// addNodes simulates the nodes until stop is called.
func (p *playground) addNodes(ctx context.Context, cluster *Cluster, kinds []discover.Profile) (stop func(), err error) {
	options := []SimulatorOption{ProfilesIn(filepath.Join(cluster.Dir, profilesFolder))}
	if p.nodes > mostAgents {
		options = append(options, WithoutAgents())
	}
	simulator, err := NewSimulator(ctx, cluster.RESTAs("simulator"), options...)
	if err != nil {
		return nil, err
	}
	simulator.Managed = true
	stop, add := simulator.Stop, simulator.AddNodes
	if p.servedBy == wire.ServedByVendor {
		vendor, err := p.vendor(ctx, cluster.RESTAs("simulator"), simulator)
		if err != nil {
			simulator.Stop()
			return nil, err
		}
		stop, add = func() { vendor.Stop(); simulator.Stop() }, vendor.AddNodes
	}
	if err := add(ctx, "metax", p.nodes, kinds); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// folder returns where the cluster lives, and what removes it afterwards.
func (p *playground) folder() (dir string, remove func(), err error) {
	if p.data != "" {
		dir, err = filepath.Abs(p.data)
		return dir, func() {}, err
	}
	dir, err = os.MkdirTemp("", "daybreak-playground-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// serve writes the kubeconfig and prints what to try once a pod would be
// scheduled, and returns when the user or a part of the cluster ends it.
func (p *playground) serve(ctx context.Context, cluster *Cluster, m *Manager, scheduler *Process, stdout io.Writer) error {
	if err := probe(ctx, cluster, scheduler); err != nil {
		return err
	}
	text, err := os.ReadFile(cluster.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	defer func() { _ = os.Remove(p.kubeconfig) }()
	if err := p.writeTour(stdout, cluster.Dir); err != nil {
		return err
	}
	return untilEnd(ctx, cluster, m, scheduler)
}

// untilEnd returns when the context, one of the four processes or the manager
// ends.
func untilEnd(ctx context.Context, c *Cluster, m *Manager, scheduler *Process) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.Etcd.Exited():
		return c.Etcd.failure()
	case <-c.APIServer.Exited():
		return c.APIServer.failure()
	case <-c.ControllerManager.Exited():
		return c.ControllerManager.failure()
	case <-m.Ended():
		return m.failure()
	case <-scheduler.Exited():
		return scheduler.failure()
	}
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
func (p *playground) writeTour(w io.Writer, dir string) error {
	values := struct {
		Dashboard, Kubeconfig, Profile string
		Vendor                         bool
	}{Dashboard: p.address, Kubeconfig: p.kubeconfig, Vendor: p.servedBy == wire.ServedByVendor}
	if p.nodes <= mostAgents && !values.Vendor {
		values.Profile = filepath.Join(dir, profilesFolder, "metax-1.yaml")
	}
	t, err := template.New("tour").Parse(tour)
	if err != nil {
		return err
	}
	return t.Execute(w, values)
}
