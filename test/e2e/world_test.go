package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// bin returns the path of a binary that `make e2e` built.
func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// root is the repository.
const root = "../.."

// cluster is the one cluster of all tests: control plane, node, scheduler,
// manager. The agent is each test's own.
type cluster struct {
	control *local.Cluster
	*realNode
	dir       string
	client    kubernetes.Interface
	scheduler *local.Process
	manager   *harness.Manager
	cards     *cards // nil before a test needs them
}

// theCluster starts the cluster when the first test asks for it.
var theCluster = sync.OnceValues(func() (*cluster, error) {
	started = true
	return startCluster(context.Background(), os.Getenv(envDir))
})

var started bool

// stopWorld stops the cluster, if there is one, and after a failure shows what
// its parts said last.
func stopWorld(failed bool) {
	if !started {
		return
	}
	c, err := theCluster()
	if err != nil {
		return
	}
	if failed {
		logs, _ := filepath.Glob(filepath.Join(c.control.Dir, "logs", "*.log"))
		for _, path := range logs {
			keep(path)
		}
	}
	// The rest ends with the namespaces.
	c.manager.Stop()
}

// keep copies a log to the binaries' folder.
func keep(path string) {
	dir := bin("e2e-logs")
	if text, err := os.ReadFile(path); err == nil && os.MkdirAll(dir, 0o755) == nil {
		_ = os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o644)
	}
}

func startCluster(ctx context.Context, dir string) (*cluster, error) {
	cfg := local.Config{Dir: filepath.Join(dir, "cluster"), Executable: bin("playground")}
	letKubeletsJoin(&cfg)
	if older() {
		harness.UseBinaries(&cfg, os.Getenv(envServers))
	}
	control, err := local.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &cluster{control: control, dir: dir}
	if c.client, err = kubernetes.NewForConfig(control.REST()); err != nil {
		return nil, err
	}
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	if c.realNode, err = newNode(dir, control); err != nil {
		return nil, err
	}
	if err := c.containerd.Start(); err != nil {
		return nil, err
	}
	if err := machine.Until(ctx, 30*time.Second, func() error { return ctr(ctx, "version") }); err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	if err := importImages(ctx, dir); err != nil {
		return nil, err
	}
	if err := c.kubelet.Start(); err != nil {
		return nil, err
	}
	c.scheduler = control.NewScheduler("scheduler", "--profile=default-scheduler", "--profile=daybreak", "-v=2")
	if err := c.scheduler.Start(); err != nil {
		return nil, err
	}
	if err := machine.Until(ctx, time.Minute, func() error { return c.nodeReady(ctx) }); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return c, nil
}

// admit installs what Daybreak needs, its policies, and a manager that answers
// for pods with cards. In an older cluster the manager evaluates the policies.
func (c *cluster) admit(ctx context.Context) error {
	if err := c.control.Install(ctx); err != nil {
		return err
	}
	addresses, err := local.FreeAddresses(ctx, 1)
	if err != nil {
		return err
	}
	admission := manager.Admission{
		Address: addresses[0], Hosts: []string{"127.0.0.1"}, Rules: webhook.Rules{Schedulers: []string{corev1.DefaultSchedulerName, "daybreak"}},
	}
	if older() {
		admission.Policies, err = harness.Validate(ctx, c.control, c.control.Policies(), addresses[0])
	} else if err = c.control.Guard(ctx, c.control.Policies()); err == nil {
		err = c.control.Webhook(ctx, addresses[0])
	}
	if err != nil {
		return err
	}
	c.manager, err = harness.StartManager(ctx, c.control, "manager", manager.Config{Admission: admission})
	return err
}

func (c *cluster) nodeReady(ctx context.Context) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("not ready: %v, taints %v", node.Status.Conditions, node.Spec.Taints)
}

// world is the cluster as one test sees it.
type world struct {
	*harness.World
	*cluster
}

// newWorld returns the cluster, with no pods left of other tests.
func newWorld(t testing.TB) *world {
	t.Helper()
	c, err := theCluster()
	gputest.Must(t, err)
	// What a test cleans up is done after its own context has ended.
	w := &world{harness.Of(t, bin(""), c.control), c}
	w.Ctx = context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}
		w.deletePods()
	})
	return w
}

// dump logs the pods and events of a test that failed.
func (w *world) dump() {
	for _, args := range []string{"get pods -A -o wide", "get events -A --sort-by=.lastTimestamp"} {
		out, err := w.TryKubectlAs("admin", strings.Fields(args)...)
		w.Logf("kubectl %s: %v\n%s", args, err, out[max(0, len(out)-6000):])
	}
}

// deletePods deletes all pods of the test, and waits until they are gone.
func (w *world) deletePods() {
	w.Helper()
	pods := w.Client.CoreV1().Pods("default")
	asked := false
	err := machine.Until(w.Ctx, 3*time.Minute, func() error {
		if !asked {
			err := pods.DeleteCollection(w.Ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{})
			if asked = err == nil; !asked {
				return err
			}
		}
		list, err := pods.List(w.Ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
	if err != nil {
		w.Errorf("delete the pods: %v", err)
	}
}
