// Package harness is what tests of a whole cluster share: it starts a real control
// plane, or takes one from the test before, and has what all of them do with it: nodes
// and users, pods and what becomes of them, processes with their logs, waiting, and the
// audit at the end.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// World is a cluster under test.
type World struct {
	testing.TB
	*local.Cluster
	// Ctx lasts as long as the test, or longer where a suite says so.
	Ctx context.Context //nolint:containedctx // see above
	// Client is the administrator.
	Client kubernetes.Interface
	// Simulator has the nodes, once there are any.
	Simulator *local.Simulator
	// Bin is the folder of the binaries.
	Bin string

	// Folder, of a world that lasts, has a short path: sockets are in it.
	Folder string
	// Running is what ends after Ctx, in a world that lasts.
	Running sync.WaitGroup

	// why is what the test failed for.
	why string
}

// New starts a control plane with the Device definition and the rights of
// Daybreak's parts, and without policies, which ends with the test.
func New(t testing.TB, bin string, cfg local.Config) *World {
	t.Helper()
	cfg.Dir, cfg.Executable = cmp.Or(cfg.Dir, t.TempDir()), filepath.Join(bin, "playground")
	c, err := local.Start(t.Context(), cfg)
	gputest.Must(t, err)
	t.Cleanup(c.Stop)
	w := Of(t, bin, c)
	w.Must(c.Install(w.Ctx))
	return w
}

// Of returns a cluster that runs as a test sees it.
func Of(t testing.TB, bin string, c *local.Cluster) *World {
	t.Helper()
	w := &World{TB: t, Cluster: c, Ctx: t.Context(), Bin: bin}
	w.Client = w.ClientOf(c.REST())
	t.Cleanup(w.repeat)
	return w
}

// Lasting returns a world without a cluster, whose Ctx outlives the test's: what is in
// Running, such as [World.AtEnd], sees the end of the test and ends then. The logs of
// the cluster are copied to a folder, if one is given.
func Lasting(t testing.TB, bin, logs string) *World {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &World{TB: t, Ctx: ctx, Bin: bin}
	t.Cleanup(w.repeat)
	var err error
	w.Folder, err = os.MkdirTemp("", "world-") //nolint:usetesting // that of a test with a long name is too long for sockets in it
	w.Must(err)
	t.Cleanup(func() {
		stop()
		w.Running.Wait()
		if logs != "" && w.Cluster != nil {
			to := filepath.Join(logs, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()))
			err := os.CopyFS(to, os.DirFS(filepath.Join(w.Dir, "logs")))
			if _, missing := os.Stat(w.AuditLog()); missing == nil {
				err = errors.Join(err, os.Link(w.AuditLog(), filepath.Join(to, "audit.log")))
			}
			t.Logf("logs in %s: %v", to, err)
		}
		_ = os.RemoveAll(w.Folder)
	})
	return w
}

// AtEnd does something when a world that lasts ends.
func (w *World) AtEnd(do func()) {
	w.Running.Go(func() {
		<-w.Ctx.Done()
		do()
	})
}

// Main runs the tests of a package if what make sets is set, and otherwise reports what
// to run. It returns the exit code.
func Main(m *testing.M, otherwise string, variables ...string) int {
	for _, name := range variables {
		if os.Getenv(name) == "" {
			fmt.Fprintln(os.Stderr, "nothing was tested:", otherwise)
			return 0
		}
	}
	return m.Run()
}

// Problems makes one error of what is wrong.
func Problems(list []string) error {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	list = slices.Compact(list)
	const most = 20
	return fmt.Errorf("%d things are wrong:\n  %s", len(list), strings.Join(list[:min(most, len(list))], "\n  "))
}

// Part returns the world for a part of the test.
func (w *World) Part(t testing.TB) *World {
	return &World{TB: t, Cluster: w.Cluster, Ctx: t.Context(), Client: w.Client, Simulator: w.Simulator, Bin: w.Bin}
}

// Must ends the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.GiveUp(err.Error())
	}
}

// GiveUp ends the test, and repeats its reason after the logs: who sees only the end of a
// long output shall see it.
func (w *World) GiveUp(why string) {
	w.Helper()
	w.why = why
	w.Fatal(why)
}

func (w *World) repeat() {
	if w.Failed() && w.why != "" {
		w.Logf("it failed for this: %s", w.why)
	}
}

// Eventually waits until the check passes.
func (w *World) Eventually(what string, limit time.Duration, check func() error) {
	w.Helper()
	if err := machine.Until(w.Ctx, limit, check); err != nil {
		w.GiveUp(fmt.Sprintf("%s: %v", what, err))
	}
}

// Run starts a process, which ends with the test.
func (w *World) Run(p *local.Process) *local.Process {
	w.Helper()
	w.Must(p.Start())
	w.Cleanup(func() {
		p.Kill()
		w.LogEnd(p.Log())
	})
	return p
}

// LogEnd shows the end of a log when the test has failed.
func (w *World) LogEnd(path string) {
	if w.Failed() {
		text, _ := os.ReadFile(path)
		w.Logf("the end of %s:\n%s", filepath.Base(path), text[max(0, len(text)-6000):])
	}
}

// Scheduler starts a scheduler as default-scheduler, which ends with the test. The
// arguments may override that.
func (w *World) Scheduler(name string, args ...string) *local.Process {
	w.Helper()
	return w.Run(w.NewScheduler(name, append([]string{"--profile=default-scheduler", "-v=2"}, args...)...))
}

// Manager starts a manager, which ends with the test. It answers for pods at the
// address of its admission, if there is one.
func (w *World) Manager(name string, cfg manager.Config) *Manager {
	w.Helper()
	if cfg.Admission.Address != "" {
		cfg.Admission.Hosts = []string{"127.0.0.1"}
	}
	m, err := StartManager(w.Ctx, w.Cluster, name, cfg)
	w.Must(err)
	w.Cleanup(func() {
		m.Stop()
		w.LogEnd(m.Log())
	})
	return m
}

// FreeAddress returns an address of this machine to listen on.
func (w *World) FreeAddress() string {
	w.Helper()
	list, err := local.FreeAddresses(w.Ctx, 1)
	w.Must(err)
	return list[0]
}

// Simulate starts a simulator without nodes, which ends with the test.
func (w *World) Simulate(options ...local.SimulatorOption) {
	w.Helper()
	var err error
	w.Simulator, err = local.NewSimulator(context.WithoutCancel(w.Ctx), w.RESTAs("simulator"), options...)
	w.Must(err)
	w.Cleanup(w.Simulator.Stop)
}

// Profile is a server with eight cards in two zones.
func (w *World) Profile() []discover.Profile {
	w.Helper()
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.Must(err)
	return kinds
}

// AddNodes adds n servers with eight cards in two zones, metax-1 and so on.
func (w *World) AddNodes(n int) {
	w.Helper()
	w.Must(w.Simulator.AddNodes(w.Ctx, "metax", n, w.Profile()))
}

// Kubectl runs kubectl as administrator, which has to succeed, and returns what it prints.
func (w *World) Kubectl(args ...string) string {
	w.Helper()
	return w.KubectlAs("admin", args...)
}

// KubectlAs runs kubectl as one of the users of the cluster.
func (w *World) KubectlAs(user string, args ...string) string {
	w.Helper()
	out, err := w.TryKubectlAs(user, args...)
	w.Must(err)
	return out
}

// TryKubectlAs runs kubectl, which may fail, in the repository.
func (w *World) TryKubectlAs(user string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.Ctx, filepath.Join(w.Bin, "kubectl"), append([]string{"--kubeconfig", w.Kubeconfig(user)}, args...)...)
	cmd.Dir = filepath.Join("..", "..") // of the suite
	return machine.Output(cmd)
}

// ClientOf returns a client.
func (w *World) ClientOf(config *rest.Config) kubernetes.Interface {
	w.Helper()
	client, err := kubernetes.NewForConfig(config)
	w.Must(err)
	return client
}

// Devices returns a client of the Devices.
func (w *World) Devices(config *rest.Config) dynamic.ResourceInterface {
	w.Helper()
	client, err := dynamic.NewForConfig(config)
	w.Must(err)
	return client.Resource(v1alpha1.GroupVersion.WithResource("devices"))
}

// Device returns the Device of a node.
func (w *World) Device(node string) (*v1alpha1.Device, error) {
	w.Helper()
	object, err := w.Devices(w.REST()).Get(w.Ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return wire.DeviceOf(object)
}

// PatchDevice applies a JSON patch to the Device of a node.
func (w *World) PatchDevice(node, patch string) {
	w.Helper()
	_, err := w.Devices(w.REST()).Patch(w.Ctx, node, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	w.Must(err)
}

// ServedBy waits until a Node names who serves it; empty if no part of Daybreak does.
func (w *World) ServedBy(node, who string) {
	w.Helper()
	w.Eventually("the node is served by "+who, 2*time.Minute, func() error {
		if by := w.Node(node).Annotations[wire.AnnotationServedBy]; by != who {
			return fmt.Errorf("it is served by %q", by)
		}
		return nil
	})
}

// DryRun is for writes that only admission sees.
var DryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
