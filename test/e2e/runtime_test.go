package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/test/fake"
)

// restartContainerd restarts containerd with its configuration changed.
func (w *world) restartContainerd(change func(config string) string) {
	w.Helper()
	path := filepath.Join(w.dir, "containerd.toml")
	text, err := os.ReadFile(path)
	w.Must(err)
	w.containerd.Kill()
	w.Must(os.WriteFile(path, []byte(change(string(text))), 0o600))
	w.Must(w.containerd.Start())
}

// notServing waits until the Device and an event say that the node is not served,
// for the reason and with the text, and returns the message.
func (w *world) notServing(reason, text string) string {
	w.Helper()
	message := w.saysNotServing(reason, text)
	w.Eventually("an event "+reason, time.Minute, func() error {
		events, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	return message
}

// saysNotServing waits until the Device says so, and returns the message.
func (w *world) saysNotServing(reason, text string) (message string) {
	w.Helper()
	w.Eventually("not served, "+reason, time.Minute, func() error {
		d, err := w.Device(nodeName)
		if err != nil {
			return err
		}
		for _, c := range d.Spec.Devices[0].Conditions {
			if c.Type == "Serving" && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, text) {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", d.Spec.Devices[0].Conditions)
	})
	return message
}

// waits returns once the scheduler has found no node for the pod.
func (w *world) waits(name string) {
	w.Helper()
	w.Eventually(name+" waits", time.Minute, func() error {
		p := w.Pod(name)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && p.Spec.NodeName == "" {
				return nil
			}
		}
		return fmt.Errorf("node %q, conditions %v", p.Spec.NodeName, p.Status.Conditions)
	})
}

// TestCDIOff: containerd comes back with CDI off, as containerd 1.7 has it by
// default. The agent reports it with the lines to write, new pods wait, and a
// container that is to start again does not start without its cards. Once the
// lines are there all of them run.
func TestCDIOff(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	residents := w.residents(c)
	w.create(pod("restarted", "sgpu=1", "vcore=10", "vmemory=2"))
	restarted := w.running(time.Minute, "restarted")[0]
	var before string
	w.restartContainerd(func(config string) string {
		before = config
		return withoutCDI(config)
	})
	right := false
	w.Cleanup(func() {
		if !right {
			w.restartContainerd(func(string) string { return before })
		}
	})
	advice := w.notServing("NoCDI", "in its config.toml write ")
	t.Log(advice)

	w.create(pod("new", "sgpu=1", "vcore=10", "vmemory=2"))
	w.waits("new")
	w.Eventually("the container ends", time.Minute, func() error { return w.endContainer(restarted) })
	w.Eventually("the container does not start", 2*time.Minute, func() error {
		p := w.Pod(restarted.Name)
		if s := p.Status.ContainerStatuses[0]; s.RestartCount > 0 || s.State.Running != nil && s.ContainerID != restarted.Status.ContainerStatuses[0].ContainerID {
			w.Fatalf("a container started without its cards: %+v", s)
		}
		events, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=restarted,reason=CardsNotReady"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("the pod has no event with the reason")
		}
		return err
	})

	w.restartContainerd(func(config string) string { return w.withLines(config, advice) })
	right = true
	w.serving("sgpu")
	pods := w.running(2*time.Minute, "restarted", "new")
	w.unharmed(c, residents)
	w.inspect(c, pods...)
	w.slicesAre(c, 1, append(pods, residents...)...)
}

// cdiSwitch turns CDI off where it is on by default.
const cdiSwitch = "\n  enable_cdi = false"

// withoutCDI returns a configuration of containerd with CDI off.
func withoutCDI(config string) string {
	if older() {
		return strings.Replace(config, cdiLines, "", 1)
	}
	const after = "restrict_oom_score_adj = true"
	return strings.Replace(config, after, after+cdiSwitch, 1)
}

// withLines returns the configuration with exactly what the agent's message has.
func (w *world) withLines(config, message string) string {
	w.Helper()
	found := regexp.MustCompile(`write (enable_cdi = true) and (cdi_spec_dirs = \[.*?\]) under (\[plugins\..*?\])`).FindStringSubmatch(message)
	if found == nil {
		w.Fatalf("no lines in %q", message)
	}
	config = strings.ReplaceAll(strings.Replace(config, cdiSwitch, "", 1), "'io.containerd.cri.v1.runtime'", `"io.containerd.cri.v1.runtime"`)
	changed := strings.Replace(config, found[3]+"\n", strings.Join([]string{found[3], found[1], found[2], ""}, "\n"), 1)
	if changed == config {
		w.Fatalf("the configuration has no %s", found[3])
	}
	return changed
}

// TestWrongSocket: the agent is given a socket that does not exist. It runs and
// reports the one that is, and no pod is placed; with the right one it serves.
func TestWrongSocket(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	c.Stop()
	const health = "127.0.0.1:9461"
	wrong := w.agentOf(c, "--runtime-endpoint=unix:///run/k3s/containerd/containerd.sock", "--health-probe-bind-address="+health)
	w.Must(wrong.Start())
	stopped := false
	w.Cleanup(func() {
		if !stopped {
			wrong.Stop()
		}
	})
	found := "a socket was found at " + containerdSocket
	w.notServing("RuntimeUnreachable", found)
	w.Eventually("the agent is not ready", time.Minute, func() error {
		answer, err := http.Get("http://" + health + "/readyz") //nolint:noctx // it is the test's own agent
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), found)) {
			err = fmt.Errorf("%d %s", answer.StatusCode, text)
		}
		return err
	})
	if _, err := os.Stat("/run/k3s"); err == nil {
		t.Error("the folder of the wrong socket was made")
	}
	w.create(pod("waits", "sgpu=1", "vcore=10", "vmemory=2"))
	w.waits("waits")
	wrong.Stop()
	stopped = true
	w.Must(c.Start())
	w.serving("sgpu")
	w.inspect(c, w.running(time.Minute, "waits")...)
}

// TestCheck: on a node that is served with pods on it no check fails, and the
// bundle names none of the pods. A stale device of a card keeps the node from
// being served until it is removed, or the check is waived.
func TestCheck(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.create(pod("tenant-slice", "sgpu=1", "vcore=10", "vmemory=2"), pod("tenant-whole", "gpu=1"))
	w.running(time.Minute, "tenant-slice", "tenant-whole")
	bundle := filepath.Join(w.dir, "check.tar.gz")
	cmd := exec.CommandContext(w.Ctx, bin("daybreak"), "agent", "check", "-o", "json", "--bundle="+bundle, "--source=mxsml", "--mxsml="+fake.Library(w, fake.V231),
		"--sysfs="+c.sysfs(), "--state-dir="+filepath.Join(w.dir, "agent"))
	cmd.Env = append(os.Environ(), fake.EnvConfig+"="+c.config)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("check: %v", err)
	}
	var report struct {
		Checks []struct{ Name, Result, Detail string }
	}
	w.Must(json.Unmarshal(out, &report))
	sure := map[string]bool{}
	for _, o := range report.Checks {
		sure[o.Name] = o.Result == "ok"
		t.Logf("%-22s %-7s %s", o.Name, o.Result, o.Detail)
	}
	for _, name := range []string{
		"pci-cards", "library", "library-steady", "card-identity", "card-memory", "control-device", "card-devices", "slice-driver", "slice-devices", "slice-sizes",
		"slice-support", "runtime", "runtime-cdi", "runtime-of-kubelet", "kubelet-plugins", "kubelet-pod-resources", "kubelet-checkpoint", "other-plugin", "cdi-folder", "folders",
	} {
		if !sure[name] {
			t.Errorf("%s is not ok", name)
		}
	}
	content, err := exec.CommandContext(w.Ctx, "tar", "-xzOf", bundle).Output()
	w.Must(err)
	if !strings.Contains(string(content), exampleCard) || strings.Contains(string(content), "tenant-") {
		t.Errorf("the bundle has no cards, or names a pod:\n%s", content)
	}
	w.deletePods()
	w.slicesAre(c, 0)

	c.Stop()
	stale := fmt.Sprintf("/dev/dri/card%d", c.machine.Cards[0].DRMCard)
	w.Must(os.Remove(stale))
	w.Must(mknod(stale, majorDRM, c.machine.Cards[1].DRMCard))
	right := func() {
		w.Must(os.Remove(stale))
		w.Must(mknod(stale, majorDRM, c.machine.Cards[0].DRMCard))
	}
	w.Cleanup(func() {
		if t.Failed() {
			right()
		}
	})
	w.Must(c.Start())
	w.notServing("CheckFailed", "check card-devices failed: GPU at "+c.machine.Cards[0].BDF)
	c.Stop()
	waived := w.agentOf(c, "--waive=card-devices")
	w.Must(waived.Start())
	w.serving("sgpu")
	d, err := w.Device(nodeName)
	w.Must(err)
	if text := fmt.Sprint(d.Spec.Devices[0].Conditions); !strings.Contains(text, "ChecksWaived") || !strings.Contains(text, "card-devices (failed") {
		t.Errorf("the waived check is not shown: %s", text)
	}
	waived.Stop()
	right()
	w.Must(c.Start())
	w.serving("sgpu")
}
