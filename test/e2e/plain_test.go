package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestVersions: the API server, kubelet and containerd are those that the tests are
// about.
func TestVersions(t *testing.T) {
	w := newWorld(t)
	server, err := w.Client.Discovery().ServerVersion()
	w.Must(err)
	node := w.Node(nodeName)
	kubelet, runtime := node.Status.NodeInfo.KubeletVersion, node.Status.NodeInfo.ContainerRuntimeVersion
	t.Logf("API server %s, kubelet %s, %s", server.GitVersion, kubelet, runtime)
	if server.GitVersion != kubelet || older() != strings.HasPrefix(kubelet, "v1.28.") || older() != strings.HasPrefix(runtime, "containerd://1.7.") {
		t.Errorf("API server %s, kubelet %s on %s, want the same version", server.GitVersion, kubelet, runtime)
	}
}

// TestPlainPod: the node runs a pod without cards, and has no card for it.
func TestPlainPod(t *testing.T) {
	w := newWorld(t)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "ubuntu:22.04", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "infinity"},
		}}},
	}
	start := time.Now()
	_, err := w.Client.CoreV1().Pods(p.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
	w.Must(err)
	w.Kubectl("wait", "--for=condition=Ready", "pod/plain", "--timeout=60s")
	t.Logf("running after %s", time.Since(start).Round(10*time.Millisecond))
	if out := w.Kubectl("exec", "plain", "--", "ls", "/dev"); !strings.Contains(out, "null") || strings.Contains(out, "mxcd") {
		t.Errorf("a pod without cards has in /dev:\n%s", out)
	}
}
