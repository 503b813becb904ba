package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const chart = "charts/daybreak"

// plainScheduler is the cluster's own scheduler, which knows nothing of cards.
const plainScheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s}
leaderElection: {leaderElect: false}
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: %s}
hostnameOverride: %s
clusterCIDR: 10.97.0.0/16
# What belongs to the whole machine is not ours to change.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// auditEverything has every request noted, with who made it and what became of
// it.
const auditEverything = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// TestInstall: the chart, on a cluster that has never heard of Daybreak, with
// every part in a pod of its own.
func TestInstall(t *testing.T) {
	if started {
		t.Skip("the node is taken by the cluster of the other tests: make e2e runs this one by itself")
	}
	w := newBareWorld(t)
	m := fake.NewMachine(8, 4)
	m.Cards[5].UUID = exampleCard
	w.cluster.cards = w.makeCards(m)
	w.Must(ctr(w.Ctx, "images", "import", bin("image.tar")))

	before := w.previousChart()
	start := time.Now()
	w.helm(append([]string{"install", "daybreak", before, "--create-namespace"}, w.values()...)...)
	w.rolledOut()
	t.Logf("installed and ready after %s", time.Since(start).Round(100*time.Millisecond))
	w.serving("sgpu")

	// The walk through the two guides: the cards, what the node has, and pods of
	// both dialects.
	if out := w.Kubectl("get", "device", nodeName, "-o", "jsonpath={.spec.devices[*].id}"); len(strings.Fields(out)) != len(m.Cards) {
		t.Errorf("the Device has cards %s, want %d", out, len(m.Cards))
	}
	for resource, want := range map[string]string{`koordinator\.sh/gpu-core`: "800", `metax-tech\.com/sgpu`: "128", `metax-tech\.com/gpu`: "8"} {
		w.Eventually("the node advertises "+resource, time.Minute, func() error {
			if got := w.Kubectl("get", "node", nodeName, "-o", "jsonpath={.status.allocatable."+resource+"}"); got != want {
				return fmt.Errorf("%q, want %s", got, want)
			}
			return nil
		})
	}
	names := w.applyExamples("koordinator/sgpu-fixed-share", "hami/sgpu-default", "hami/sgpu-several-containers", "hami/gpu-binpack")
	pods := w.running(2*time.Minute, names...)
	w.inspect(w.cards, pods...)
	for _, p := range pods {
		gputest.Equal(t, p.Name+": scheduler", "daybreak", p.Spec.SchedulerName)
	}
	w.noWarnings(names...)

	// An upgrade replaces every part and touches no pod.
	w.helm(append([]string{"upgrade", "daybreak", filepath.Join(root, chart), "--set", "scheduler.verbosity=1,manager.verbosity=1,agent.verbosity=1"}, w.values()...)...)
	w.rolledOut()
	w.serving("sgpu")
	w.helm("test", "daybreak") // with the rights of this chart
	w.untouched(pods)
	w.inspect(w.cards, pods...)
	more := w.applyExamples("hami/sgpu-specific-qos", "koordinator/two-whole-cards")
	w.inspect(w.cards, w.running(2*time.Minute, more...)...)
	w.noWarnings(more...)
	if out, err := w.TryKubectlAs("admin", "-n", "daybreak-system", "exec", "ds/daybreak-agent", "--", "daybreak", "agent", "check"); err != nil || !strings.Contains(out, "runtime-of-kubelet") {
		t.Errorf("the checks of the node, in the agent's pod: %v\n%s", err, out)
	}

	// Nodes are cleaned up before the chart goes, and not while cards are in use.
	w.helm(append([]string{"upgrade", "daybreak", filepath.Join(root, chart), "--set", "agent.cleanup=true"}, w.values()...)...)
	w.Eventually("the cleanup reports what keeps it", 2*time.Minute, func() error {
		out, err := w.TryKubectlAs("admin", "logs", "-n", manager.DefaultNamespace, "daemonset/daybreak-agent")
		if want := fmt.Sprintf("pods that use cards or slices of this node: %d;", len(names)+len(more)); err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("%q lacks %q: %w", out, want, err)
		}
		return nil
	})
	w.untouched(pods)
	w.deletePods()
	w.rolledOut()
	w.slicesAre(w.cards, 0)
	w.onlyWhatIsNeeded()
	w.helm("uninstall", "daybreak", "--wait")
	w.left()
}

// newBareWorld starts a cluster with a node, its own scheduler and nothing of
// Daybreak's.
func newBareWorld(t *testing.T) *world {
	t.Helper()
	dir := os.Getenv(envDir)
	policy := filepath.Join(dir, "audit.yaml")
	gputest.Must(t, os.WriteFile(policy, []byte(auditEverything), 0o600))
	cfg := harness.Audited(filepath.Join(dir, "cluster"), policy)
	cfg.Executable = bin("playground")
	letKubeletsJoin(&cfg)
	// Pods reach it through the Service kubernetes.
	cfg.APIServerArgs = append(cfg.APIServerArgs, "--bind-address=0.0.0.0", "--advertise-address="+nodeAddress, "--endpoint-reconciler-type=lease",
		"--requestheader-client-ca-file="+pki(&cfg, "ca.crt"), "--requestheader-allowed-names=front-proxy-client") // as clusters have them
	control, err := local.Start(t.Context(), cfg)
	gputest.Must(t, err)
	w := &world{World: harness.Of(t, bin(""), control), cluster: &cluster{control: control, dir: dir}}
	w.client = w.Client
	t.Cleanup(func() {
		w.Ctx = context.WithoutCancel(w.Ctx)
		if t.Failed() {
			w.tellOfInstallation()
		}
	})
	w.realNode, err = newNode(dir, control)
	w.Must(err)
	w.Must(w.containerd.Start())
	w.Eventually("containerd answers", 30*time.Second, func() error { return ctr(w.Ctx, "version") })
	w.Must(importImages(w.Ctx, dir))
	w.Must(w.kubelet.Start())
	w.startWithConfig("kube-proxy", fmt.Sprintf(proxyConfig, control.Kubeconfig("admin"), nodeName), bin("proxy"))
	w.startWithConfig("kube-scheduler", fmt.Sprintf(plainScheduler, control.Kubeconfig("admin")), bin("kube-scheduler"))
	w.Eventually("the node is ready", time.Minute, func() error { return w.nodeReady(w.Ctx) })
	w.Kubectl("label", "node", nodeName, "metax-tech.com/gpu.installed=true")
	return w
}

// startWithConfig starts a part of the cluster with a configuration file.
func (w *world) startWithConfig(name, config string, command ...string) {
	w.Helper()
	path := filepath.Join(w.dir, name+".yaml")
	w.Must(os.WriteFile(path, []byte(config), 0o600))
	w.Must(w.NewProcess(name, command[0], append(command[1:], "--config="+path)...).Start())
}

// tag returns the tag of the image that `make images` wrote.
func (w *world) tag() string {
	w.Helper()
	text, err := os.ReadFile(bin("image/index.json"))
	w.Must(err)
	var index struct {
		Manifests []struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	w.Must(json.Unmarshal(text, &index))
	if len(index.Manifests) != 1 {
		w.Fatalf("%d images, want one", len(index.Manifests))
	}
	return index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
}

// values are what differs on this node: where its driver is, and that there is
// no registry.
func (w *world) values() []string {
	w.Helper()
	library := fake.Library(w, fake.V231)
	dir := filepath.Dir(w.cards.config)
	// In a pod the agent would read the kernel's own list of drivers, which has no
	// driver of cards here.
	procfs := filepath.Join(dir, "proc")
	drivers, err := os.ReadFile("/proc/devices")
	w.Must(err)
	w.Must(os.MkdirAll(procfs, 0o755))
	w.Must(os.WriteFile(filepath.Join(procfs, "devices"), drivers, 0o600))
	values, err := json.Marshal(map[string]any{
		"image": map[string]any{"repository": "localhost/daybreak", "tag": w.tag(), "pullPolicy": "Never"},
		"agent": map[string]any{
			"mode":      "sgpu",
			"extraArgs": []string{"--mxsml=" + library, "--sysfs=" + w.cards.sysfs(), "--procfs=" + procfs, "--source=mxsml"},
			"extraEnv":  []any{map[string]any{"name": fake.EnvConfig, "value": w.cards.config}},
			"extraVolumes": []any{
				map[string]any{"name": "cards", "hostPath": map[string]any{"path": dir}},
				map[string]any{"name": "library", "hostPath": map[string]any{"path": filepath.Dir(library)}},
			},
			"extraVolumeMounts": []any{
				map[string]any{"name": "cards", "mountPath": dir},
				map[string]any{"name": "library", "mountPath": filepath.Dir(library), "readOnly": true},
			},
		},
	})
	w.Must(err)
	path := filepath.Join(w.dir, "values.yaml")
	w.Must(os.WriteFile(path, values, 0o600))
	return []string{"--values", path}
}

// helm runs Helm as administrator, which has to succeed.
func (w *world) helm(args ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("helm"), append(args, "--kubeconfig", w.Kubeconfig("admin"), "--namespace", manager.DefaultNamespace)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+w.dir, "HELM_CONFIG_HOME="+w.dir, "HELM_DATA_HOME="+w.dir)
	_, err := machine.Output(cmd)
	w.Must(err)
}

// previousChart returns the chart of the commit before this one, or this one's
// where there is none to upgrade from.
func (w *world) previousChart() string {
	w.Helper()
	dir := filepath.Join(w.dir, "previous")
	w.Must(os.MkdirAll(dir, 0o755))
	archive := filepath.Join(dir, "chart.tar")
	git := exec.CommandContext(w.Ctx, "git", "-c", "safe.directory=*", "-C", root, "archive", "--output", archive, "HEAD^", chart)
	if out, err := git.CombinedOutput(); err != nil {
		w.Logf("the chart is upgraded from itself, there is none before it: %s", out)
		return filepath.Join(root, chart)
	}
	w.Must(exec.CommandContext(w.Ctx, "tar", "-C", dir, "-xf", archive).Run())
	return filepath.Join(dir, chart)
}

// rolledOut waits until every part runs as the chart has it now.
func (w *world) rolledOut() {
	w.Helper()
	for _, part := range []string{"deployment/daybreak-scheduler", "deployment/daybreak-manager", "daemonset/daybreak-agent"} {
		w.Kubectl("rollout", "status", "-n", manager.DefaultNamespace, part, "--timeout=3m")
	}
}

// applyExamples applies pods of the examples and returns their names.
func (w *world) applyExamples(files ...string) []string {
	w.Helper()
	args, names := []string{"apply"}, make([]string, len(files))
	for i, file := range files {
		path := filepath.Join("examples", file+".yaml")
		args, names[i] = append(args, "-f", path), nameIn(w, path)
	}
	// The manager's readiness reaches the API server by kube-proxy, a moment
	// later than kubectl.
	w.Eventually("the pods are admitted", 30*time.Second, func() error {
		_, err := w.TryKubectlAs("admin", args...)
		return err
	})
	return names
}

// untouched checks that pods run on as they did.
func (w *world) untouched(pods []*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		now, err := w.Client.CoreV1().Pods(p.Namespace).Get(w.Ctx, p.Name, metav1.GetOptions{})
		w.Must(err)
		if now.UID != p.UID || now.Status.Phase != corev1.PodRunning {
			w.Errorf("%s is another pod now, or does not run: %s", p.Name, now.Status.Phase)
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.RestartCount > 0 || c.State.Running == nil {
				w.Errorf("container %s of %s was restarted %d times, is %+v", c.Name, p.Name, c.RestartCount, c.State)
			}
		}
	}
}

// left checks that after a cleanup and the end of the chart nothing remains but
// the definition of Device, and what kubectl delete removes as docs/uninstall.md
// says.
func (w *world) left() {
	w.Helper()
	w.Eventually("the parts are gone", 2*time.Minute, func() error {
		if out := w.Kubectl("get", "pods", "-n", manager.DefaultNamespace, "-o", "name"); out != "" {
			return errors.New(out)
		}
		return nil
	})
	expected := []string{
		"Namespace/" + manager.DefaultNamespace,              // kubectl delete namespace
		"Lease/daybreak-scheduler", "Lease/daybreak-manager", // of the elections
	}
	kinds := strings.Join(strings.Fields(w.Kubectl("api-resources", "--verbs=list", "-o", "name")), ",")
	w.Eventually("nothing else is left", time.Minute, func() error {
		var rest []string
		for line := range strings.Lines(w.Kubectl("get", kinds, "-A", "-o", "custom-columns=K:.kind,N:.metadata.name", "--no-headers", "--ignore-not-found")) {
			kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			object := kind + "/" + strings.TrimSpace(name)
			if kind != "Event" && strings.Contains(object, "daybreak") && !slices.Contains(expected, object) {
				rest = append(rest, object)
			}
		}
		if len(rest) > 0 {
			return fmt.Errorf("%v", rest)
		}
		return nil
	})
	w.Logf("left after uninstalling: at most %v, and the definition of Device", expected)
	gputest.Equal(w, "left", "", w.Kubectl("get", "devices", "-o", "name"))
	w.leftOnNode()
}

// leftOnNode checks that nothing of Daybreak's is on the Node and the machine.
func (w *world) leftOnNode() {
	w.Helper()
	node := w.Node(nodeName)
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), "koordinator.sh/") {
			w.Errorf("the node still advertises %s", name)
		}
	}
	for key := range node.Annotations {
		if strings.HasPrefix(key, "daybreak-gpu.io/") || strings.HasPrefix(key, "metax-tech.com/") {
			w.Errorf("left on the node: annotation %s", key)
		}
	}
	for key := range node.Labels {
		if strings.HasPrefix(key, "node.koordinator.sh/") {
			w.Errorf("left on the node: label %s", key)
		}
	}
	for _, pattern := range []string{"/var/lib/daybreak", "/var/run/cdi/daybreak*", "/var/lib/kubelet/device-plugins/daybreak*"} {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			w.Errorf("left on the machine: %v", files)
		}
	}
}

// tellOfInstallation shows how the parts are after a failure.
func (w *world) tellOfInstallation() {
	for _, args := range []string{
		"get pods -A -o wide", "get events -A --sort-by=.lastTimestamp",
		"logs -n daybreak-system -l app.kubernetes.io/name=daybreak --all-containers --prefix --tail=40",
	} {
		out, err := w.TryKubectlAs("admin", strings.Fields(args)...)
		w.Logf("kubectl %s: %v\n%s", args, err, out[max(0, len(out)-8000):])
	}
	logs, _ := filepath.Glob(filepath.Join(w.Dir, "logs", "*.log"))
	for _, path := range logs {
		keep(path)
	}
}
