// Package integration tests Daybreak on a real control plane: etcd,
// kube-apiserver, kube-controller-manager and the scheduler run as processes,
// nodes are simulated.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// root is the repository.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

func TestMain(m *testing.M) {
	build := exec.CommandContext(context.Background(), "make", "-s", "build")
	build.Dir = root
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binaries:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func bin(name string) string { return filepath.Join(root, "bin", name) }

// world is a cluster under test.
type world struct {
	testing.TB
	ctx       context.Context
	cluster   *local.Cluster
	simulator *local.Simulator
	client    kubernetes.Interface
}

// newWorld starts a control plane with the Device definition, the policies of
// admission and no nodes. It is stopped when the test ends.
func newWorld(t testing.TB, cfg local.Config) *world {
	t.Helper()
	w := newOpenWorld(t, cfg)
	w.must(w.cluster.Guard(w.ctx, w.cluster.Policies()))
	return w
}

// newOpenWorld is a world without the policies, for tests that play the agent or
// another scheduler: there the administrator may write allocations and Devices.
func newOpenWorld(t testing.TB, cfg local.Config, options ...local.SimulatorOption) *world {
	t.Helper()
	cfg.Dir, cfg.Executable = t.TempDir(), bin("playground")
	c, err := local.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := &world{TB: t, ctx: t.Context(), cluster: c}
	w.must(c.Install(t.Context()))
	w.client, err = kubernetes.NewForConfig(c.REST())
	w.must(err)
	w.simulator, err = local.NewSimulator(context.WithoutCancel(t.Context()), c.RESTAs("simulator"), options...)
	w.must(err)
	t.Cleanup(w.simulator.Stop)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// nodes adds n servers with eight cards in two zones.
func (w *world) nodes(n int) {
	w.Helper()
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.must(err)
	w.must(w.simulator.AddNodes(w.ctx, "metax", n, kinds))
}

// scheduler starts a scheduler as default-scheduler and stops it when the test
// ends.
func (w *world) scheduler(name string, args ...string) *local.Process {
	w.Helper()
	p := w.cluster.NewScheduler(name, append([]string{"--profile=default-scheduler", "--leader-elect=false", "-v=2"}, args...)...)
	w.must(p.Start())
	w.Cleanup(func() {
		p.Kill()
		w.logEnd(p, name)
	})
	return p
}

// logEnd shows the end of a process's log when the test has failed.
func (w *world) logEnd(p *local.Process, name string) {
	if w.Failed() {
		text, _ := os.ReadFile(p.Log())
		w.Logf("the end of %s:\n%s", name, text[max(0, len(text)-4000):])
	}
}

// kubectl runs kubectl as administrator.
func (w *world) kubectl(args ...string) {
	w.Helper()
	w.kubectlAs("admin", args...)
}

// kubectlAs runs kubectl as one of the users of the cluster.
func (w *world) kubectlAs(user string, args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, bin("kubectl"), append([]string{"--kubeconfig", w.cluster.Kubeconfig(user)}, args...)...)
	cmd.Dir = root
	_, err := machine.Output(cmd)
	w.must(err)
}

// eventually waits until the check passes.
func (w *world) eventually(what string, limit time.Duration, check func() error) {
	w.Helper()
	if err := machine.Until(w.ctx, limit, check); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// pod returns a pod with one container and the given limits, "resource=amount".
func pod(name string, limits ...string) *corev1.Pod {
	list := corev1.ResourceList{}
	for _, l := range limits {
		key, value, _ := strings.Cut(l, "=")
		list[corev1.ResourceName("metax-tech.com/"+key)] = resource.MustParse(value)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: list}}},
		},
	}
}

func (w *world) create(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		_, err := w.client.CoreV1().Pods(p.Namespace).Create(w.ctx, p, metav1.CreateOptions{})
		w.must(err)
	}
}

func (w *world) delete(names ...string) {
	w.Helper()
	for _, name := range names {
		w.must(w.client.CoreV1().Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
}

// bound waits until the pod has a node and returns it.
func (w *world) bound(name string) *corev1.Pod {
	w.Helper()
	var p *corev1.Pod
	w.eventually("pod "+name+" bound", time.Minute, func() error {
		var err error
		if p, err = w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{}); err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("pending: %v", p.Status.Conditions)
		}
		return err
	})
	return p
}

// allBound waits until every pod has a node.
func (w *world) allBound(patience time.Duration) []corev1.Pod {
	w.Helper()
	var list *corev1.PodList
	w.eventually("all pods bound", patience, func() error {
		var err error
		if list, err = w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		pending, last := 0, (*corev1.Pod)(nil)
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				pending, last = pending+1, &list.Items[i]
			}
		}
		if pending > 0 {
			return fmt.Errorf("%d of %d pods are pending, such as %s: %+v", pending, len(list.Items), last.Name, last.Status)
		}
		return nil
	})
	return list.Items
}

// audit reads the cluster as "daybreak audit" would and fails when a card is booked
// beyond what it has, or a pod's cards are unknown.
func (w *world) audit() {
	w.Helper()
	objects, err := cluster.ReadLive(w.ctx, w.cluster.REST())
	w.must(err)
	snapshot := objects.Snapshot()
	for _, note := range snapshot.Notes {
		w.Errorf("audit: %s", note)
	}
	for _, v := range audit.Check(snapshot, time.Now()).Violations {
		w.Errorf("audit: %s: %s (pods %v)", v.Rule, v.Message, v.Pods)
	}
}

// cardsOf returns the indices of the cards that a bound pod holds.
func (w *world) cardsOf(p *corev1.Pod) []int {
	w.Helper()
	objects, err := cluster.ReadLive(w.ctx, w.cluster.REST())
	w.must(err)
	for _, n := range objects.Snapshot().Nodes {
		for i := range n.Holdings() {
			if h := &n.Holdings()[i]; n.Name == p.Spec.NodeName && h.Holder == allocation.HolderOf(p) {
				return h.Cards().Indices()
			}
		}
	}
	w.Fatalf("pod %s holds nothing", p.Name)
	return nil
}

// refusals returns what the pod's events say of why it is pending.
func (w *world) refusals(podName string) []string {
	w.Helper()
	list, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + podName})
	w.must(err)
	var out []string
	for i := range list.Items {
		if list.Items[i].Reason == "FailedScheduling" {
			out = append(out, list.Items[i].Message)
		}
	}
	return out
}

// readJSON reads a golden file.
func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// writeYAML writes an object to a file of the test and returns its path.
func writeYAML(t testing.TB, name string, obj any) string {
	t.Helper()
	text, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pods returns the pods of the test.
func (w *world) pods() []corev1.Pod {
	w.Helper()
	list, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	w.must(err)
	return list.Items
}
