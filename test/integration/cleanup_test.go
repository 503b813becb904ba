package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestCleanup: with an agent's own rights, under the policies, `daybreak agent
// cleanup` removes from the cluster what the agent wrote, the manager withdraws
// the rest, and nothing happens while a pod uses the node's cards. What others
// wrote stays.
func TestCleanup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.adopt("n1", 8)
	running := w.agent("n1", nil, "--source=simulated", "--profile=c500-2x4", "--mode=sgpu")
	w.advertises("n1", 8)
	w.Scheduler("scheduler")
	w.Create(pod("p", "sgpu=1"))
	w.Bound("p")
	running.Stop()
	w.served("n1")

	out, err := w.cleanup("n1")
	if want := "clean up node n1: pods that use cards or slices of this node: 1; delete them, or wait until they end"; err == nil || !strings.Contains(out, want) {
		t.Errorf("while a pod holds a card: %v: %s; want %q", err, out, want)
	}
	if node := w.Node("n1"); w.device("n1") == nil || node.Annotations[wire.AnnotationServedBy] == "" || node.Annotations[wire.AnnotationNodeCards] == "" {
		t.Errorf("something went although a pod holds a card: %v", node.Annotations)
	}

	w.Delete("p")
	w.Eventually("the node is clean", time.Minute, func() error {
		out, err := w.cleanup("n1")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if d := w.device("n1"); d != nil {
		t.Errorf("Device %s is left", d.Name)
	}
	after := w.Node("n1")
	for key := range after.Annotations {
		if strings.HasPrefix(key, "daybreak-gpu.io/") || strings.HasPrefix(key, "metax-tech.com/") {
			t.Errorf("annotation %s is left", key)
		}
	}
	for key := range after.Labels {
		if strings.HasPrefix(key, "node.koordinator.sh/") {
			t.Errorf("label %s is left", key)
		}
	}
	for _, list := range []corev1.ResourceList{after.Status.Capacity, after.Status.Allocatable} {
		for name := range list {
			if strings.HasPrefix(string(name), "koordinator.sh/") {
				t.Errorf("%s is left", name)
			}
		}
	}

	// A node of others: koordlet's Device.
	w.adopt("n2", 8)
	file := filepath.Join(t.TempDir(), "device.yaml")
	w.Must(os.WriteFile(file, []byte(`{"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": "n2"}, "spec": {"devices": [{"type": "rdma", "health": true}]}}`), 0o600))
	w.Kubectl("apply", "--server-side", "--field-manager=koordlet", "-f", file)
	if out, err := w.cleanup("n2"); err != nil || !strings.Contains(out, "node n2 is clean") {
		t.Errorf("a node of others: %v: %s", err, out)
	}
	if w.device("n2") == nil {
		t.Error("the Device of koordlet is gone")
	}
}

// served marks the node as an agent does that serves it.
func (w *world) served(name string) {
	w.Helper()
	cards := w.Node(name).Annotations[wire.AnnotationNodeCards]
	if cards == "" {
		w.Fatalf("the agent wrote no %s", wire.AnnotationNodeCards)
	}
	patch := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q, "annotations": {%q: %q, %q: %q}}}`,
		name, wire.AnnotationNodeCards, cards, wire.AnnotationServedBy, wire.ServedByDaybreak)
	_, err := w.ClientOf(w.AgentOf(name)).CoreV1().Nodes().Patch(w.Ctx, name, types.ApplyPatchType, []byte(patch), metav1.PatchOptions{FieldManager: agent.FieldManager})
	w.Must(err)
}

// cleanup runs `daybreak agent cleanup` for the node, under the rights that an
// agent has, and returns what it printed.
func (w *world) cleanup(node string) (string, error) {
	w.Helper()
	dir := w.TempDir()
	w.NewAgent(node) // writes the kubeconfig
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
	defer cancel()
	start := time.Now()
	cmd := exec.CommandContext(ctx, bin("daybreak"), "agent", "cleanup", "--kubeconfig="+w.Kubeconfig("agent-"+node), "--node-name="+node,
		"--source=simulated", "--profile=c500-2x4", "--runtime-endpoint=unix://"+filepath.Join(dir, "runtime.sock"), "--state-dir="+filepath.Join(dir, "state"), "--cdi-dir="+filepath.Join(dir, "cdi"),
		"--device-plugin-dir="+dir)
	out, err := cmd.CombinedOutput()
	w.Logf("cleanup of %s: %v after %s: %s", node, err, time.Since(start).Round(10*time.Millisecond), strings.TrimSpace(string(out)))
	if _, left := os.Stat(filepath.Join(dir, "state")); err == nil && !os.IsNotExist(left) {
		w.Errorf("the state folder is left: %v", left)
	}
	return string(out), err
}
