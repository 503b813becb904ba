// Package deployed runs Daybreak as the chart deploys it, on one machine without a
// container runtime: a real control plane, a real Helm, and the pods of the chart's
// workloads as processes. The package is the kubelet of those pods (see [Parts]): it
// starts the rendered version's binary with the rendered flags and the token of the
// pod. The API server reaches the webhooks through a gateway. Nodes with cards are
// those of test/machine.
package deployed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Namespace is where the chart is installed.
const Namespace = manager.DefaultNamespace

// auditParts has every request of Daybreak's parts noted.
const auditParts = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:` + Namespace + `"]}
  - {level: None}
`

// Config is what a World is made of.
type Config struct {
	// Bin is the folder with playground and helm.
	Bin string
	// Kubernetes, if set, is a folder with kube-apiserver, kube-controller-manager
	// and kube-scheduler of another version.
	Kubernetes string
	// Binaries are Daybreak's, by the tag of their image.
	Binaries map[string]string
	// Nodes is how many machines there are, with Cards cards each.
	Nodes, Cards int
	// Logs, if set, is a folder to which the logs are copied at the end.
	Logs string
}

// World is a cluster in which Daybreak is installed.
type World struct {
	*harness.World
	Config
	Machines []*machine.Machine
	Parts    *Parts
	Requests Requests

	mu sync.Mutex
	// faults are what went wrong since they were last taken.
	faults []string
}

// New starts a cluster without Daybreak, which ends with the test.
func New(t *testing.T, cfg Config) *World {
	t.Helper()
	library := fake.Library(t, fake.V231)
	w := &World{Config: cfg, World: harness.Lasting(t, cfg.Bin, cfg.Logs)}
	w.Parts = newParts(w, library)
	w.Must(w.startControlPlane())
	w.Must(w.startMachines())
	w.Running.Go(w.Parts.watch)
	return w
}

// Fault notes that something went wrong, for [World.TakeFaults].
func (w *World) Fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// TakeFaults returns what went wrong since it was last called.
func (w *World) TakeFaults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.faults
	w.faults = nil
	return list
}

// write writes a configuration file and returns its path.
func (w *World) write(name, text string) string {
	w.Helper()
	path := filepath.Join(w.Folder, name)
	w.Must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (w *World) startControlPlane() error {
	gateway, egress, err := machine.NewGateway(w.Ctx, w.Folder)
	if err != nil {
		return err
	}
	w.Running.Go(func() { gateway.Serve(w.Ctx, w.Parts.dialManager) })
	cfg := harness.Audited(filepath.Join(w.Folder, "cluster"), w.write("audit.yaml", auditParts))
	cfg.Executable = filepath.Join(w.Config.Bin, "playground")
	cfg.APIServerArgs = append(cfg.APIServerArgs, "--egress-selector-config-file="+egress)
	if w.Kubernetes != "" {
		harness.UseBinaries(&cfg, w.Kubernetes)
	}
	if w.Cluster, err = local.Start(w.Ctx, cfg); err != nil {
		return err
	}
	if w.Client, err = kubernetes.NewForConfig(w.REST()); err != nil {
		return err
	}
	// The cluster's own scheduler places Daybreak's pods.
	scheduler := harness.NewPlainScheduler(w.Cluster, w.Kubernetes, "kube-scheduler", "--kubeconfig="+w.Kubeconfig("admin"), "--leader-elect=false")
	w.AtEnd(func() {
		w.Parts.wait()
		scheduler.Kill()
		w.Stop()
	})
	return scheduler.Start()
}

// startMachines starts the machines without their agents, which the chart brings.
func (w *World) startMachines() error {
	server, err := w.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	for i := range w.Nodes {
		name := fmt.Sprintf("metax-%d", i+1)
		m, err := machine.New(w.Ctx, machine.Config{
			Node: name, Dir: filepath.Join(w.Folder, name), Number: i, Cards: w.Cards,
			Labels:  map[string]string{"metax-tech.com/gpu.installed": "true"},
			Kubelet: server.GitVersion,
			Foreign: func(pod *corev1.Pod) bool { return pod.Namespace == Namespace },
		}, w.Client)
		if err != nil {
			return fmt.Errorf("machine %s: %w", name, err)
		}
		if w.Parts.devices[name], err = m.MakeDevices(); err != nil {
			return err
		}
		w.Machines = append(w.Machines, m)
		w.Running.Go(m.Run)
		w.AtEnd(m.Stop)
	}
	return nil
}

// MachineOf returns the machine of a node.
func (w *World) MachineOf(node string) *machine.Machine {
	for _, m := range w.Machines {
		if m.Node == node {
			return m
		}
	}
	panic("no machine is called " + node)
}

// Helm runs Helm as administrator, which has to succeed.
func (w *World) Helm(args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.Ctx, filepath.Join(w.Config.Bin, "helm"), append(args, "--kubeconfig", w.Kubeconfig("admin"), "--namespace", Namespace)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+w.Folder, "HELM_CONFIG_HOME="+w.Folder, "HELM_DATA_HOME="+w.Folder)
	_, err := machine.Output(cmd)
	w.Must(err)
}

// Audit runs `daybreak audit` of each binary and returns what it found.
func (w *World) Audit() []string {
	var list []string
	for tag, binary := range w.Binaries {
		out, err := exec.CommandContext(w.Ctx, binary, "audit", "--kubeconfig", w.Kubeconfig("admin")).CombinedOutput()
		if err != nil {
			list = append(list, fmt.Sprintf("daybreak audit of version %s: %v\n%s", tag, err, out))
		}
	}
	return list
}
