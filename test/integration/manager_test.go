package integration

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// seedDevice is the Device of Koordinator's documentation, for a node of any
// name.
const seedDevice = `apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata:
  labels:
    node.koordinator.sh/gpu-model: C500
    node.koordinator.sh/gpu-vendor: metax
  name: NODE
spec:
  devices:
  - health: true
    id: 89033010-2354-0000-0000-000000000000
    minor: 0
    resources:
      koordinator.sh/gpu-core: "100"
      koordinator.sh/gpu-memory: "64Gi"
      koordinator.sh/gpu-memory-ratio: "100"
    topology: {busID: "0000:38:00.0", nodeID: 3, pcieID: "pci0000:3a", socketID: -1}
    type: gpu
    conditions:
    - {lastTransitionTime: "2025-03-15T10:00:00Z", message: device is healthy, reason: DeviceHealthy, status: "True", type: Healthy}
`

// seedResources is what the same page says the node then has, in capacity and
// in allocatable; the last is kubelet's.
var seedResources = map[string]string{
	"koordinator.sh/gpu.shared":       "100",
	"koordinator.sh/gpu-core":         "100",
	"koordinator.sh/gpu-memory":       "64Gi",
	"koordinator.sh/gpu-memory-ratio": "100",
	"metax-tech.com/sgpu":             "16",
}

// TestManager runs managers on one cluster, one scenario after the other, each
// with nodes of its own.
func TestManager(t *testing.T) {
	t.Parallel()
	policy := writeYAML(t, "audit.yaml", map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []any{
			map[string]any{"level": "Metadata", "users": []string{local.ManagerUser}, "verbs": []string{"create", "update", "patch", "delete"}},
			map[string]any{"level": "None"},
		},
	})
	w := &world{harness.New(t, bin(""), harness.Audited(t.TempDir(), policy))}
	w.Simulate()
	scenario := func(name string, run func(managed)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			run(managed{&world{w.Part(t)}})
		})
	}
	scenario("seed", managed.seed)
	scenario("what runs", managed.whatRuns)
	scenario("kubelet resets", managed.kubeletResets)
	scenario("bad inventory", managed.badInventory)
	scenario("device deleted", managed.deviceDeleted)
	scenario("other vendor", managed.otherVendor)
	scenario("flapping", managed.flapping)
	scenario("restart", managed.restart)
	scenario("election", managed.election)
	scenario("command", managed.command)
	scenario("interrupted", managed.interrupted)
	scenario("refuses to start", managed.refusesToStart) // removes the Device definition
}

func (w managed) seed() {
	w.manager("manager", manager.Config{})
	w.node("sample-node1", seedDevice)
	want := maps.Clone(seedResources)
	want["koordinator.sh/gpu"] = "100" // the one that is not on that page
	w.wantKoord("sample-node1", want)
	w.wantLabels("sample-node1", map[string]string{"node.koordinator.sh/gpu-vendor": "metax", "node.koordinator.sh/gpu-model": "C500"})
	w.wantEvent("sample-node1", "CardsAdvertised", "1 of 1 cards healthy", "koordinator.sh/gpu-core 100", "koordinator.sh/gpu-memory 64Gi")

	w.Kubectl("label", "device", "sample-node1", "node.koordinator.sh/gpu-driver-version=3.8.30")
	w.wantLabels("sample-node1", map[string]string{
		"node.koordinator.sh/gpu-vendor": "metax", "node.koordinator.sh/gpu-model": "C500", "node.koordinator.sh/gpu-driver-version": "3.8.30",
	})
	w.Kubectl("label", "device", "sample-node1", "node.koordinator.sh/gpu-driver-version-")
	w.wantLabels("sample-node1", map[string]string{"node.koordinator.sh/gpu-vendor": "metax", "node.koordinator.sh/gpu-model": "C500"})
}

// whatRuns: cards become unhealthy under pods that hold them.
func (w managed) whatRuns() {
	m := w.manager("manager", manager.Config{})
	w.node("idle", twoCards)
	w.wantKoord("idle", cards(2))
	w.PatchDevice("idle", `[{"op":"replace","path":"/spec/devices/1/health","value":false}]`)
	w.wantKoord("idle", cards(1))
	w.wantEvent("idle", "CardsUnhealthy", "1 of 2 cards healthy", "koordinator.sh/gpu-core 100")
	w.PatchDevice("idle", `[{"op":"replace","path":"/spec/devices/1/health","value":true}]`)
	w.wantKoord("idle", cards(2))
	w.node("busy", twoCards)
	w.wantKoord("busy", cards(2))

	// A pod that takes all of it, and one that has ended and holds nothing.
	holder := pod("holder")
	holder.Spec.NodeName = "busy"
	holder.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		wire.KoordCore: resource.MustParse("200"), wire.KoordMemoryRatio: resource.MustParse("200"), wire.KoordShared: resource.MustParse("2"),
	}
	ended := holder.DeepCopy()
	ended.Name = "ended"
	ended.Spec.Containers[0].Resources.Limits = corev1.ResourceList{wire.KoordMemory: resource.MustParse("128Gi")}
	w.Create(holder, ended)
	w.Eventually("pods run", 30*time.Second, func() error {
		for _, p := range w.Pods() {
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		return nil
	})
	_, err := w.Client.CoreV1().Pods("default").Patch(w.Ctx, "ended", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	w.Must(err)

	w.PatchDevice("busy", `[{"op":"replace","path":"/spec/devices/1/health","value":false}]`)
	w.wantKoord("busy", cards(1, "koordinator.sh/gpu-core", "200", "koordinator.sh/gpu-memory-ratio", "200"))
	w.wantEvent("busy", "CardsUnhealthy", "as much of koordinator.sh/gpu-core, koordinator.sh/gpu-memory-ratio as the pods on it ask for")
	w.Eventually("metrics", 10*time.Second, func() error {
		for series, want := range map[string]float64{
			`daybreak_manager_node_compute_percent{node="busy"}`: 200,
			`daybreak_manager_node_memory_bytes{node="busy"}`:    64 << 30,
			`daybreak_manager_cards{health="unhealthy"}`:         1,
		} {
			if got, err := m.metric(series); err != nil || got != want {
				return fmt.Errorf("%s is %v, want %v: %w", series, got, want, err)
			}
		}
		return nil
	})
	w.Delete("holder", "ended")
	w.wantKoord("busy", cards(1))
}

// reset is what a kubelet that lost its state does to all such resources.
const reset = `{"status":{"capacity":%[1]s,"allocatable":%[1]s}}`

const zeros = `{"koordinator.sh/gpu.shared":"0","koordinator.sh/gpu-core":"0","koordinator.sh/gpu-memory":"0","koordinator.sh/gpu-memory-ratio":"0","koordinator.sh/gpu":"0"}`

func (w managed) kubeletResets() {
	w.manager("manager", manager.Config{})
	w.node("restarted", twoCards)
	w.wantKoord("restarted", cards(2))
	w.kubelet("restarted", fmt.Sprintf(reset, zeros))
	w.wantKoord("restarted", cards(2))
	w.wantEvent("restarted", "CardsRestored", "kubelet had reset what the node advertises to zero", "koordinator.sh/gpu-core 200")
	// A change of one of the two is reverted.
	w.kubelet("restarted", `{"status":{"allocatable":{"koordinator.sh/gpu-core":"150"}}}`)
	w.wantKoord("restarted", cards(2))
}

// badInventory: what a Device said while it could be read stays.
func (w managed) badInventory() {
	m := w.manager("manager", manager.Config{})
	w.node("unread", twoCards)
	w.wantKoord("unread", cards(2))
	w.PatchDevice("unread", `[{"op":"replace","path":"/spec/devices/1/minor","value":0}]`)
	w.wantEvent("unread", "BadInventory", "the node goes on advertising what it did before", "same minor number 0")
	w.Eventually("metrics", 10*time.Second, func() error {
		if got, err := m.metric("daybreak_manager_nodes_with_bad_inventory"); err != nil || got != 1 {
			return fmt.Errorf("%v, want 1: %w", got, err)
		}
		return nil
	})
	w.wantKoord("unread", cards(2))
	w.PatchDevice("unread", `[{"op":"replace","path":"/spec/devices/1/minor","value":1},{"op":"replace","path":"/spec/devices/0/health","value":false}]`)
	w.wantKoord("unread", cards(1))
}

func (w managed) deviceDeleted() {
	w.manager("manager", manager.Config{})
	w.node("gone", twoCards)
	// This label was there before; it is its owner's.
	w.node("labelled", "")
	w.Kubectl("label", "node", "labelled", "node.koordinator.sh/gpu-model=C500")
	w.Must(w.Apply(w.Ctx, strings.NewReader(strings.ReplaceAll(seedDevice, "NODE", "labelled"))))
	w.wantKoord("gone", cards(2))
	w.wantKoord("labelled", cards(1))
	w.Kubectl("delete", "device", "gone", "labelled")
	kubelets := map[string]string{"metax-tech.com/sgpu": "16"}
	w.wantKoord("gone", kubelets)
	w.wantKoord("labelled", kubelets)
	w.wantLabels("gone", map[string]string{})
	w.wantLabels("labelled", map[string]string{"node.koordinator.sh/gpu-model": "C500"})
	w.wantEvent("gone", "CardsWithdrawn")
	w.Eventually("mark of node gone", 10*time.Second, func() error {
		node, err := w.Client.CoreV1().Nodes().Get(w.Ctx, "gone", metav1.GetOptions{})
		if mark, ok := node.Annotations[wire.AnnotationAdvertised]; err == nil && ok {
			err = fmt.Errorf("still there: %q", mark)
		}
		return err
	})
}

// otherVendor: Koordinator's own manager looks after this node.
func (w managed) otherVendor() {
	w.node("nvidia", strings.ReplaceAll(strings.ReplaceAll(seedDevice, "gpu-vendor: metax", "gpu-vendor: nvidia"), "C500", "H100"))
	w.node("unlabelled", strings.ReplaceAll(seedDevice, "    node.koordinator.sh/gpu-vendor: metax\n", ""))
	theirs := map[string]string{"koordinator.sh/gpu-core": "700", "koordinator.sh/gpu": "700", "metax-tech.com/sgpu": "16"}
	for _, name := range []string{"nvidia", "unlabelled"} {
		w.kubelet(name, `{"status":{"capacity":{"koordinator.sh/gpu-core":"700","koordinator.sh/gpu":"700"},"allocatable":{"koordinator.sh/gpu-core":"700","koordinator.sh/gpu":"700"}}}`)
	}
	w.Kubectl("label", "node", "nvidia", "node.koordinator.sh/gpu-vendor=nvidia")
	w.manager("manager", manager.Config{})
	w.node("sentinel", seedDevice)
	w.wantKoord("sentinel", cards(1))
	w.Kubectl("delete", "device", "nvidia")
	w.Kubectl("delete", "device", "sentinel")
	w.wantKoord("sentinel", map[string]string{"metax-tech.com/sgpu": "16"})
	w.wantKoord("nvidia", theirs)
	w.wantKoord("unlabelled", theirs)
	w.wantLabels("nvidia", map[string]string{"node.koordinator.sh/gpu-vendor": "nvidia"})
	for _, e := range w.auditLog() {
		if e.ObjectRef.Resource == "nodes" && (e.ObjectRef.Name == "nvidia" || e.ObjectRef.Name == "unlabelled") {
			w.Errorf("the manager wrote to another vendor's node: %+v", e)
		}
	}
}

// flapping: a card's health goes back and forth, and the node is written to
// only so often.
func (w managed) flapping() {
	m := w.manager("manager", manager.Config{})
	w.node("flapping", twoCards)
	w.wantKoord("flapping", cards(2))
	for i := range 40 {
		w.PatchDevice("flapping", fmt.Sprintf(`[{"op":"replace","path":"/spec/devices/1/health","value":%v}]`, i%2 == 1))
		time.Sleep(25 * time.Millisecond)
	}
	w.PatchDevice("flapping", `[{"op":"replace","path":"/spec/devices/1/health","value":false}]`)
	w.wantKoord("flapping", cards(1))
	applied, err := m.metric(`daybreak_manager_node_patches_total{result="applied"}`)
	w.Must(err)
	w.Logf("41 changes of health, %v patches", applied)
	// Two for the first time (metadata and status), three more at once, and one
	// in ten seconds after that.
	if applied > 9 {
		w.Errorf("%v patches for 41 changes of health within a second", applied)
	}
}

// writes counts the manager's writes to each node but the mark, a node that is
// added for this: the API server's audit log lags, and has caught up once it
// has the last write to that one.
func (w managed) writes(mark string) map[string]int {
	w.Helper()
	w.node(mark, seedDevice)
	w.wantKoord(mark, cards(1))
	var count map[string]int
	w.Eventually("audit log", time.Minute, func() error {
		count = map[string]int{}
		seen := false
		for _, e := range w.auditLog() {
			switch ref := e.ObjectRef; {
			case ref.Resource == "nodes" && ref.Name != mark:
				count[ref.Name]++
			case ref.Resource == "nodes":
				seen = seen || ref.Subresource == "status"
			}
		}
		if !seen {
			return errors.New("it lags")
		}
		return nil
	})
	return count
}

// restart: a manager that starts again finds everything as it should be.
func (w managed) restart() {
	m := w.manager("manager", manager.Config{})
	for i := range 10 {
		w.node(fmt.Sprintf("steady-%d", i), twoCards)
	}
	for i := range 10 {
		w.wantKoord(fmt.Sprintf("steady-%d", i), cards(2))
	}
	before := w.writes("mark")
	healthy, err := m.metric(`daybreak_manager_cards{health="healthy"}`)
	w.Must(err)
	m.Stop()
	start := time.Now()
	m = w.manager("manager-again", manager.Config{})
	w.Eventually("all nodes looked at", 30*time.Second, func() error {
		if got, err := m.metric(`daybreak_manager_cards{health="healthy"}`); err != nil || got != healthy {
			return fmt.Errorf("%v healthy cards, want %v: %w", got, healthy, err)
		}
		return nil
	})
	w.Logf("all looked at %s after the start", time.Since(start).Round(time.Millisecond))
	after := w.writes("mark-after")
	if after["steady-0"] < 2 {
		w.Errorf("%d writes to steady-0 were counted, want 2 or more: the count is wrong", after["steady-0"])
	}
	delete(after, "mark")
	gputest.Equal(w, "writes to nodes before and after the restart", before, after)
}

// election: of two managers one writes, and when it goes the other does.
func (w managed) election() {
	lease := manager.Lease{Duration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond}
	const applied = `daybreak_manager_node_patches_total{result="applied"}`
	first := w.manager("first", manager.Config{LeaderElect: true, Lease: lease})
	w.node("led-1", seedDevice)
	w.wantKoord("led-1", cards(1))
	health := w.FreeAddress()
	second := w.manager("second", manager.Config{LeaderElect: true, Lease: lease, HealthAddress: health})
	w.Eventually("the second is ready", 30*time.Second, func() error {
		_, err := get("http://" + health + "/readyz")
		return err
	})
	time.Sleep(3 * lease.RetryPeriod) // it tries to lead, in vain
	w.node("led-2", seedDevice)
	w.wantKoord("led-2", cards(1))
	one, err := first.metric(applied)
	w.Must(err)
	two, err := second.metric(applied)
	w.Must(err)
	if one < 4 || two != 0 {
		w.Errorf("the leader patched %v times, the other %v: want 4 or more, and 0", one, two)
	}
	start := time.Now()
	first.Stop()
	w.kubelet("led-1", fmt.Sprintf(reset, zeros))
	w.wantKoord("led-1", cards(1))
	w.Logf("the second has taken over %s after the first was stopped", time.Since(start).Round(time.Millisecond))
	if two, err = second.metric(applied); err != nil || two != 1 {
		w.Errorf("the new leader patched %v times (%v), want once", two, err)
	}
}

// daybreakManager runs the command as a user does.
func (w managed) daybreakManager(kubeconfig string, args ...string) *exec.Cmd {
	all := append([]string{"manager", "--kubeconfig=" + w.Kubeconfig(kubeconfig), "--metrics-bind-address=0", "--health-probe-bind-address=0", "--admission-bind-address=0"}, args...)
	return exec.CommandContext(w.Ctx, bin("daybreak"), all...)
}

func (w managed) command() {
	metrics, health := w.FreeAddress(), w.FreeAddress()
	cmd := w.daybreakManager("manager", "--metrics-bind-address="+metrics, "--health-probe-bind-address="+health)
	var log strings.Builder
	cmd.Stderr = &log
	w.Must(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, url := range []string{"http://" + health + "/healthz", "http://" + health + "/readyz", "http://" + metrics + "/metrics"} {
		w.Eventually(url, 30*time.Second, func() error {
			_, err := get(url)
			return err
		})
	}
	w.node("by-command", seedDevice)
	w.wantKoord("by-command", cards(1))
	text, err := get("http://" + metrics + "/metrics")
	w.Must(err)
	for _, want := range []string{"daybreak_manager_cards{", "daybreak_manager_node_patches_total{", "workqueue_depth{", "go_goroutines "} {
		if !strings.Contains(text, want) {
			w.Errorf("no %s in the metrics", want)
		}
	}
	w.Must(cmd.Process.Signal(syscall.SIGTERM))
	w.Eventually("it is not ready", 3*time.Second, func() error {
		if _, err := get("http://" + health + "/readyz"); err == nil {
			return errors.New("it is")
		}
		return nil
	})
	if _, err := get("http://" + metrics + "/metrics"); err != nil {
		w.Errorf("it does not answer while it drains: %v", err)
	}
	select {
	case err := <-ended:
		w.Must(err)
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		w.Fatalf("it does not end:\n%s", <-ended)
	}
	if !strings.Contains(log.String(), "Manager has ended") {
		w.Errorf("no last word in its log:\n%s", log.String())
	}
}

// interrupted: a second Ctrl-C ends a manager that drains.
func (w managed) interrupted() {
	health := w.FreeAddress()
	cmd := w.daybreakManager("manager", "--health-probe-bind-address="+health, "--leader-elect=false", "--drain=5m")
	w.Must(cmd.Start())
	ready := func() error { _, err := get("http://" + health + "/readyz"); return err }
	w.Eventually("it is ready", 30*time.Second, ready)
	w.Must(cmd.Process.Signal(os.Interrupt))
	w.Eventually("it drains", 10*time.Second, func() error {
		if ready() == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	w.Must(cmd.Process.Signal(os.Interrupt))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		w.Fatalf("it goes on: %v", <-ended)
	}
}

// refusesToStart: what the cluster lacks is said in one sentence, at once.
func (w managed) refusesToStart() {
	refuse := func(want string, cmd *exec.Cmd) {
		w.Helper()
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			w.Errorf("it ended with %v, want exit code 2:\n%s", err, out)
		}
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); !strings.Contains(lines[len(lines)-1], want) {
			w.Errorf("it ends with\n%s\nwant %q in the last line", out, want)
		}
	}
	refuse("this manager may not patch nodes/status: give its account a role with these verbs", w.daybreakManager("scheduler", "--leader-elect=false"))
	refuse("there is no namespace nowhere for the lease daybreak-manager: create it", w.daybreakManager("admin", "--leader-elect-namespace=nowhere"))
	refuse("this manager may not create leases.coordination.k8s.io in namespace default; get, update leases.coordination.k8s.io daybreak-manager in namespace default: give its account a role with these verbs", w.daybreakManager("manager", "--leader-elect-namespace=default"))
	w.Kubectl("delete", "crd", "devices.scheduling.koordinator.sh")
	refuse("apply the CustomResourceDefinition devices.scheduling.koordinator.sh first", w.daybreakManager("manager", "--leader-elect=false"))
}
