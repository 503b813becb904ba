package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// options says what a world is like.
type options struct {
	// machines is how many servers with eight cards there are, in addition to the one that
	// is kept for probes.
	machines int
	// scheduler and agent are the binaries that these run; the built one
	// unless set.
	scheduler, agent string
	// lease is how long a leader's lasts; as the flag says unless set.
	lease time.Duration
}

// world is a cluster under test.
type world struct {
	*harness.World
	options
	gate *gate
	// quick is an administrator who gives up after a few seconds, where Client waits while
	// the API server is away.
	quick   kubernetes.Interface
	devices dynamic.NamespaceableResourceInterface
	config  *rest.Config
	// colleague is another scheduler to the API server, publisher who may write
	// the Devices of all nodes: an administrator may not write what is theirs.
	colleague kubernetes.Interface
	publisher dynamic.NamespaceableResourceInterface

	etcd, apiserver      *part
	schedulers, managers []*part
	servers              []*server
	probes               *server // takes nothing but probes
	parts                []*part

	pods   *pods
	vendor *vendorplugin.Plugin

	mu sync.Mutex
	// levels is how many goroutines parts had at the beginning, by what they are.
	levels map[string]float64
}

// newWorld starts everything and returns when a pod would run.
func newWorld(t *testing.T, o options) *world {
	t.Helper()
	library := fake.Library(t, fake.V231)
	if o.lease == 0 {
		o.lease = *leaseFlag
	}
	for _, path := range []*string{&o.scheduler, &o.agent} {
		if *path == "" {
			*path = bin("daybreak")
		}
	}
	w := &world{World: harness.Lasting(t, bin(""), os.Getenv("CHAOS_KEEP_LOGS")), options: o, gate: newGate(), levels: map[string]float64{}}
	t.Cleanup(func() {
		for _, p := range w.parts {
			w.LogEnd(p.process.Log())
		}
	})
	start := time.Now()
	w.Must(w.startControlPlane())
	w.Must(w.startManagers())
	w.Must(w.startServers(library))
	w.Must(w.startVendor())
	w.Must(w.startSchedulers())
	w.pods = newPods(w)
	w.Running.Go(w.pods.watch)
	w.Eventually("a pod runs", 2*time.Minute, func() error { return w.probe(w.Ctx, 30*time.Second) })
	w.Must(w.settled(2 * time.Minute))
	w.level()
	t.Logf("up after %s", time.Since(start).Round(100*time.Millisecond))
	return w
}

// keep makes the process a part that is kept running until the world ends.
func (w *world) keep(p *part) {
	w.parts = append(w.parts, p)
	w.Running.Go(func() {
		p.keep(w.Ctx)
		p.turn.Lock() // a fault may have it in its hands
		defer p.turn.Unlock()
		p.process.Kill()
	})
}

func (w *world) startControlPlane() error {
	var err error
	w.Cluster, err = local.Start(w.Ctx, local.Config{Dir: w.Folder, Executable: bin("playground")})
	if err != nil {
		return err
	}
	w.etcd = &part{name: "etcd", process: w.Etcd}
	w.apiserver = &part{name: "kube-apiserver", process: w.APIServer, away: func() { w.gate.set(false) }, back: w.reopen}
	w.keep(&part{name: "kube-controller-manager", process: w.ControllerManager})
	w.keep(w.apiserver)
	w.keep(w.etcd)
	admin, err := newProxy(w.REST(), w.gate)
	if err != nil {
		return err
	}
	w.AtEnd(admin.stop)
	w.config = admin.config()
	if w.Client, err = kubernetes.NewForConfig(w.config); err != nil {
		return err
	}
	if w.quick, w.devices, err = quickly(admin); err != nil {
		return err
	}
	colleague, _, err := w.through("scheduler", "colleague")
	if err != nil {
		return err
	}
	if w.colleague, _, err = quickly(colleague); err != nil {
		return err
	}
	publisher, _, err := w.through("simulator", "publisher")
	if err != nil {
		return err
	}
	if _, w.publisher, err = quickly(publisher); err != nil {
		return err
	}
	return errors.Join(w.Install(w.Ctx), w.Guard(w.Ctx, w.Policies()))
}

// quickly returns clients that give up after a few seconds.
func quickly(p *proxy) (kubernetes.Interface, dynamic.NamespaceableResourceInterface, error) {
	config := p.config()
	config.Timeout = 5 * time.Second
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	return core, client.Resource(v1alpha1.GroupVersion.WithResource("devices")), nil
}

// reopen lets requests through again once the API server serves.
func (w *world) reopen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_ = w.WaitReady(ctx)
	w.gate.set(true)
}

// electionArgs make leaders as quick as the world wants them.
func (w *world) electionArgs() []string {
	return []string{
		"--leader-elect=true", "--leader-elect-lease-duration=" + w.lease.String(),
		"--leader-elect-renew-deadline=" + (w.lease * 2 / 3).String(), "--leader-elect-retry-period=" + (w.lease / 6).String(),
	}
}

// twice is how many schedulers and managers there are.
const twice = 2

func (w *world) startManagers() error {
	var backends []*backend
	for i := range twice {
		name := fmt.Sprintf("manager-%d", i+1)
		p, kubeconfig, err := w.through("manager", name)
		if err != nil {
			return err
		}
		ports, err := local.FreeAddresses(w.Ctx, 3)
		if err != nil {
			return err
		}
		backends = append(backends, &backend{admission: ports[0], health: ports[1]})
		args := append([]string{
			"manager", "--kubeconfig=" + kubeconfig, "--admission-bind-address=" + ports[0], "--health-probe-bind-address=" + ports[1],
			"--metrics-bind-address=" + ports[2], "--admission-host=127.0.0.1", "--dashboard-bind-address=0", "--audit-interval=1s",
			"--scheduler-name=" + corev1.DefaultSchedulerName, "-v=2",
		}, w.electionArgs()...)
		w.managers = append(w.managers, &part{
			name: name, process: w.NewProcess(name, bin("daybreak"), args...), proxy: p, address: "http://" + ports[2],
		})
	}
	b, err := newBalancer(w.Ctx, backends...)
	if err != nil {
		return err
	}
	w.AtEnd(b.stop)
	if err := w.Webhook(w.Ctx, b.address()); err != nil {
		return err
	}
	return w.start(w.managers...)
}

// through returns a proxy for a part that is known to the API server as the
// user, and a kubeconfig that leads to it.
func (w *world) through(user, name string) (*proxy, string, error) {
	return w.throughAs(w.RESTAs(user), name)
}

func (w *world) throughAs(config *rest.Config, name string) (*proxy, string, error) {
	p, err := newProxy(config, w.gate)
	if err != nil {
		return nil, "", err
	}
	w.AtEnd(p.stop)
	kubeconfig, err := p.kubeconfig(w.Dir, name)
	return p, kubeconfig, err
}

func (w *world) start(parts ...*part) error {
	for _, p := range parts {
		if err := p.process.Start(); err != nil {
			return err
		}
		w.keep(p)
	}
	return nil
}

func (w *world) startSchedulers() error {
	for i := range twice {
		name := fmt.Sprintf("scheduler-%d", i+1)
		p, kubeconfig, err := w.through("scheduler", name)
		if err != nil {
			return err
		}
		address, err := local.FreeAddresses(w.Ctx, 1)
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(address[0])
		if err != nil {
			return err
		}
		args := append([]string{
			"scheduler", "--kubeconfig=" + kubeconfig, "--profile=" + corev1.DefaultSchedulerName, "--bind-address=" + host, "--secure-port=" + port,
			"--cert-dir=" + filepath.Join(w.Dir, name), "--authorization-always-allow-paths=/metrics", "-v=2",
		}, w.electionArgs()...)
		w.schedulers = append(w.schedulers, &part{
			name: name, process: w.NewProcess(name, w.scheduler, args...), proxy: p, address: "https://" + address[0],
		})
	}
	return w.start(w.schedulers...)
}

// vendorNode is the one node whose pods are served under its lock.
const vendorNode = "vendor-1"

// startVendor adds a node that the vendor's plugin serves, played by the test.
func (w *world) startVendor() error {
	p, _, err := w.through("simulator", "simulator")
	if err != nil {
		return err
	}
	simulator, err := local.NewSimulator(w.Ctx, p.config())
	if err != nil {
		return err
	}
	w.AtEnd(simulator.Stop)
	w.vendor, err = vendorplugin.Start(w.Ctx, p.config(), simulator, nil)
	if err != nil {
		return err
	}
	w.AtEnd(w.vendor.Stop)
	profiles, err := discover.LoadProfiles("c500-2x4")
	if err != nil {
		return err
	}
	return w.vendor.AddNode(w.Ctx, vendorNode, &profiles[0])
}

const (
	probeServer = "probes"
	probeTaint  = "chaos/probes"
)

func (w *world) startServers(library string) error {
	w.servers = make([]*server, w.machines)
	agents := make([]*part, w.machines+1)
	var group errgroup.Group
	for i := range agents {
		group.Go(func() error {
			cfg := machine.Config{Node: fmt.Sprintf("metax-%d", i+1), Number: i, Cards: 8}
			if i == len(w.servers) {
				cfg.Node, cfg.Cards, cfg.Taints = probeServer, 4, []corev1.Taint{{Key: probeTaint, Effect: corev1.TaintEffectNoSchedule}}
			}
			s, err := w.startServer(cfg, library)
			if err != nil {
				return fmt.Errorf("server %s: %w", cfg.Node, err)
			}
			if i < len(w.servers) {
				w.servers[i] = s
			} else {
				w.probes = s
			}
			agents[i] = s.agent
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.start(agents...)
}

// server is a machine with its agent.
type server struct {
	*machine.Machine
	agent *part
}

// startServer starts all of a machine but its agent.
func (w *world) startServer(cfg machine.Config, library string) (*server, error) {
	cfg.Dir = filepath.Join(w.Dir, cfg.Node)
	m, err := machine.New(w.Ctx, cfg, w.Client)
	if err != nil {
		return nil, err
	}
	w.Running.Go(m.Run)
	w.AtEnd(m.Stop)
	config, err := harness.Agent(w.Ctx, w.Cluster, cfg.Node, "none")
	if err != nil {
		return nil, err
	}
	name := "agent-" + cfg.Node
	p, kubeconfig, err := w.throughAs(config, name)
	if err != nil {
		return nil, err
	}
	address, err := local.FreeAddresses(w.Ctx, 1)
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"agent", "--kubeconfig=" + kubeconfig, "--node-name=" + cfg.Node, "--namespace=daybreak-system", "--mode=sgpu", "--serve=on", "--poll=2s", "--v=2",
	}, m.AgentArgs(library, address[0])...)
	process := w.NewProcess(name, w.agent, args...)
	process.Env = []string{fake.EnvConfig + "=" + m.Driver()}
	return &server{Machine: m, agent: &part{name: name, process: process, proxy: p, address: "http://" + address[0]}}, nil
}

// all returns all machines.
func (w *world) all() []*server { return append(slices.Clip(w.servers), w.probes) }

// device returns the Device of a node.
func (w *world) device(ctx context.Context, node string) (*v1alpha1.Device, error) {
	object, err := w.devices.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return wire.DeviceOf(object)
}

// served says what is missing until a node takes pods: the agent is ready,
// kubelet has its plugins, the Device says so, and the node advertises the cards.
func (w *world) served(ctx context.Context, s *server) error {
	if _, err := machine.Get(ctx, s.agent.address+"/readyz"); err != nil {
		return fmt.Errorf("%s: the agent is not ready: %w", s.Node, err)
	}
	if !s.Serving() {
		return fmt.Errorf("%s: the plugins are not registered", s.Node)
	}
	node, err := w.quick.CoreV1().Nodes().Get(ctx, s.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if q := node.Status.Allocatable[wire.KoordCore]; q.Value() != int64(100*s.Cards) {
		return fmt.Errorf("%s advertises %s of %s", s.Node, q.String(), wire.KoordCore)
	}
	d, err := w.device(ctx, s.Node)
	if err != nil {
		return err
	}
	if len(d.Spec.Devices) != s.Cards || len(d.OwnerReferences) != 1 || d.OwnerReferences[0].UID != node.UID {
		return fmt.Errorf("%s: the Device has %d cards and belongs to %v", s.Node, len(d.Spec.Devices), d.OwnerReferences)
	}
	for _, c := range d.Spec.Devices[0].Conditions {
		if c.Type == wire.ConditionServing && c.Status == metav1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s: the Device does not say that it is served", s.Node)
}

// probe creates a pod on the machine that is kept for it, and returns when it is
// bound. What fails is tried again.
func (w *world) probe(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod := w.pods.newProbe()
	if err := w.pods.create(ctx, pod); err != nil {
		return err
	}
	defer w.pods.remove(w.Ctx, pod.Name, true)
	return machine.Until(ctx, limit, func() error {
		if seen := w.pods.seen(pod.Name); seen == nil || seen.Spec.NodeName == "" {
			return fmt.Errorf("probe %s is not bound", pod.Name)
		}
		return nil
	})
}

// isAway reports whether an error only says that the API server, or who admits
// pods for it, did not answer in time, so that it is worth trying again.
func isAway(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	// An API server that has just started forbids what it can't judge yet, in
	// these words; anything else that it forbids stays forbidden.
	unready := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "not yet ready to handle request")
	return unready || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
}
