package skew

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const namespace = manager.DefaultNamespace

// plainScheduler is the cluster's own scheduler, which places Daybreak's pods.
const plainScheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s}
leaderElection: {leaderElect: false}
`

// auditParts has every request of Daybreak's parts noted.
const auditParts = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:` + namespace + `"]}
  - {level: None}
`

// egress has the API server reach webhooks through the gateway.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}}
`

// world is a cluster that is upgraded.
type world struct {
	*testing.T
	// ctx lasts until the world is taken down, and running is what ends with it.
	ctx     context.Context
	running sync.WaitGroup
	dir     string
	*local.Cluster
	client   kubernetes.Interface
	config   *rest.Config
	machines []*machine.Machine
	parts    *parts
	load     *load
	requests requests
	vendor   *vendorplugin.Plugin
	// slices are the residents', by machine.
	slices map[string][]fake.Slice

	mu sync.Mutex
	// faults are what went wrong since the last check.
	faults []string
}

// machines and cards is how large the cluster is.
const (
	machineCount = 6
	cardCount    = 8
)

// newWorld starts a cluster that has never heard of Daybreak.
func newWorld(t *testing.T) *world {
	t.Helper()
	library := fake.Library(t, fake.V231)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &world{T: t, ctx: ctx, slices: map[string][]fake.Slice{}}
	var err error
	w.dir, err = os.MkdirTemp("", "skew-") //nolint:usetesting // that of a test with a long name is too long for sockets in it
	w.must(err)
	t.Cleanup(func() {
		stop()
		w.running.Wait()
		w.keepLogs()
		_ = os.RemoveAll(w.dir)
	})
	w.parts = newParts(w, library)
	w.must(w.startControlPlane())
	w.must(w.startMachines())
	w.must(w.startVendor())
	w.running.Go(w.parts.watch)
	w.load = newLoad(w)
	w.running.Go(w.load.watch)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// fault notes that something went wrong, for the next check to report.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// takeFaults returns what went wrong since it was last called.
func (w *world) takeFaults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.faults
	w.faults = nil
	return list
}

// keepLogs copies the logs to the folder in SKEW_KEEP_LOGS.
func (w *world) keepLogs() {
	if keep := os.Getenv("SKEW_KEEP_LOGS"); keep != "" {
		to := filepath.Join(keep, fmt.Sprintf("skew-%d", os.Getpid()))
		err := errors.Join(os.CopyFS(to, os.DirFS(filepath.Join(w.Dir, "logs"))), os.Link(w.AuditLog(), filepath.Join(to, "audit.log")))
		w.Logf("logs in %s: %v", to, err)
	}
}

// write writes a configuration file and returns its path.
func (w *world) write(name, text string) string {
	w.Helper()
	path := filepath.Join(w.dir, name)
	w.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (w *world) startControlPlane() error {
	socket := filepath.Join(w.dir, "gateway.sock")
	var listening net.ListenConfig
	listener, err := listening.Listen(w.ctx, "unix", socket)
	if err != nil {
		return err
	}
	w.running.Go(func() { w.parts.serveGateway(w.ctx, listener) })
	w.Cluster, err = local.Start(w.ctx, local.Config{
		Dir: filepath.Join(w.dir, "cluster"), Executable: bin("playground"),
		AuditPolicy: w.write("audit.yaml", auditParts), Egress: w.write("egress.yaml", fmt.Sprintf(egress, socket)),
	})
	if err != nil {
		return err
	}
	w.config = w.REST()
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		return err
	}
	path := w.write("kube-scheduler.yaml", fmt.Sprintf(plainScheduler, w.Kubeconfig("admin")))
	scheduler := w.NewPlainScheduler("kube-scheduler", "--config="+path)
	w.running.Go(func() {
		<-w.ctx.Done()
		w.parts.wait()
		scheduler.Kill()
		w.Stop()
	})
	return scheduler.Start()
}

// startMachines starts the machines without their agents, which the chart brings.
func (w *world) startMachines() error {
	for i := range machineCount {
		name := fmt.Sprintf("metax-%d", i+1)
		m, err := machine.New(w.ctx, machine.Config{
			Node: name, Dir: filepath.Join(w.dir, name), Number: i, Cards: cardCount,
			Labels:  map[string]string{"metax-tech.com/gpu.installed": "true"},
			Foreign: func(pod *corev1.Pod) bool { return pod.Namespace == namespace },
		}, w.client)
		if err != nil {
			return fmt.Errorf("machine %s: %w", name, err)
		}
		if w.parts.devices[name], err = m.MakeDevices(); err != nil {
			return err
		}
		w.machines = append(w.machines, m)
		w.running.Go(m.Run)
		w.running.Go(func() {
			<-w.ctx.Done()
			m.Stop()
		})
	}
	return nil
}

// vendorNode is served by the vendor's plugin, played by the test: schedulers lock it.
// Its taint keeps it for the pods that name it.
const (
	vendorNode  = "vendor-1"
	vendorTaint = "skew/vendor"
)

func (w *world) startVendor() error {
	simulator, err := local.NewSimulator(w.ctx, w.config)
	if err != nil {
		return err
	}
	if w.vendor, err = vendorplugin.Start(w.ctx, w.config, simulator, nil); err != nil {
		return err
	}
	w.running.Go(func() {
		<-w.ctx.Done()
		w.vendor.Stop()
		simulator.Stop()
	})
	profiles, err := discover.LoadProfiles("c500-2x4")
	if err != nil {
		return err
	}
	if err := w.vendor.AddNode(w.ctx, vendorNode, &profiles[0]); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, vendorTaint)
	_, err = w.client.CoreV1().Nodes().Patch(w.ctx, vendorNode, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// election makes leaders quick to follow one another.
const election = "--leader-elect-lease-duration=4s,--leader-elect-renew-deadline=3s,--leader-elect-retry-period=500ms"

// values are what an administrator wrote for the first installation.
func (*world) values() []string {
	return []string{
		"--set", "image.repository=registry.example/daybreak,agent.mode=sgpu,agent.poll=2s,agent.maxUnavailable=50%,agent.extraArgs={--drain=1s}",
		"--set", "manager.extraArgs={" + election + ",--audit-interval=1s,--certificate-validity=1m,--certificate-overlap=10s},scheduler.extraArgs={" + election + "}",
		"--set", "admission.publishers={admin}", // the vendor's plugin here
		"--set", "manager.verbosity=2,scheduler.verbosity=2,agent.verbosity=2",
	}
}

// helm runs Helm as administrator, which has to succeed.
func (w *world) helm(args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, bin("helm"), append(args, "--kubeconfig", w.Kubeconfig("admin"), "--namespace", namespace)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+w.dir, "HELM_CONFIG_HOME="+w.dir, "HELM_DATA_HOME="+w.dir)
	_, err := machine.Output(cmd)
	w.must(err)
}
