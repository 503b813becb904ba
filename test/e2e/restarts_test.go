package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// endContainer kills the first process of a pod's first container.
func (w *world) endContainer(p *corev1.Pod) error {
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return ctr(w.Ctx, "tasks", "kill", "--signal", "SIGKILL", id)
}

// restarted waits until the container of a pod runs again.
func (w *world) restarted(name string) {
	w.Helper()
	w.Eventually("the container is started again", time.Minute, func() error {
		if s := w.running(time.Minute, name)[0].Status.ContainerStatuses[0]; s.RestartCount == 0 {
			return fmt.Errorf("not restarted: %+v", s)
		}
		return nil
	})
}

// residents creates pods that are to survive whatever a test does: a slice, a
// whole card, and a foreign slice next to them.
func (w *world) residents(c *cards) []*corev1.Pod {
	w.Helper()
	w.Must(c.addForeign())
	w.Cleanup(func() { w.Must(c.removeForeign()) })
	w.create(pod("resident-slice", "sgpu=1", "vcore=20", "vmemory=4"), pod("resident-whole", "gpu=1"))
	return w.running(time.Minute, "resident-slice", "resident-whole")
}

// unharmed fails unless the pods run on as they did, with what they had.
func (w *world) unharmed(c *cards, pods []*corev1.Pod) {
	w.Helper()
	for _, before := range pods {
		after := w.Pod(before.Name)
		if after.UID != before.UID || after.Status.Phase != corev1.PodRunning || !ready(after) {
			w.Errorf("pod %s: %s %s %v", before.Name, after.Status.Phase, after.Status.Reason, states(after))
			continue
		}
		if was, is := before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID; was != is {
			w.Errorf("pod %s: its container was replaced", before.Name)
		}
	}
	w.inspect(c, pods...)
}

// TestKubeletRestarts: pods run on, and the agent serves the new kubelet.
func TestKubeletRestarts(t *testing.T) {
	restarts(t, func(w *world) *local.Process { return w.kubelet })
}

// TestContainerdRestarts: pods run on, and new ones start.
func TestContainerdRestarts(t *testing.T) {
	restarts(t, func(w *world) *local.Process { return w.containerd })
}

func restarts(t *testing.T, part func(*world) *local.Process) {
	t.Helper()
	w := newWorld(t)
	c := w.serve()
	residents := w.residents(c)
	part(w).Kill()
	time.Sleep(time.Second)
	w.Must(part(w).Start())
	start := time.Now()
	w.create(pod("after", "sgpu=1", "vcore=10", "vmemory=2"))
	after := w.running(2*time.Minute, "after")
	t.Logf("a new pod runs %s after the restart", time.Since(start).Round(10*time.Millisecond))
	w.unharmed(c, residents)
	w.inspect(c, after...)
	w.slicesAre(c, 1, append(after, residents...)...)
}

// TestAgentKilled: the agent is killed at every step of a slice's life. When it
// is back, slices are those of the pods, and pods run.
func TestAgentKilled(t *testing.T) {
	cases := []struct {
		name string
		// arm prepares the kill; it returns when it may happen.
		arm     func(w *world, c *cards)
		removal bool
	}{
		{name: "before a slice is made", arm: at("before", "mxSmlCreateSgpu")},
		{name: "after a slice is made", arm: at("after", "mxSmlCreateSgpu")},
		{name: "before the spec is written", arm: at("after", "mxSmlSetSgpuAlias")},
		{name: "after the spec is written", arm: whenSpecified},
		{name: "before a slice is removed", arm: at("before", "mxSmlRemoveSgpu"), removal: true},
		{name: "after a slice is removed", arm: at("after", "mxSmlRemoveSgpu"), removal: true},
	}
	for i, step := range cases {
		t.Run(step.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.serve()
			residents := w.residents(c)
			name := fmt.Sprintf("killed-%d", i)
			p := pod(name, "sgpu=1", "vcore=15", "vmemory=3")
			living := residents
			if step.removal {
				w.create(p)
				w.running(time.Minute, name)
				step.arm(w, c)
				w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, name, metav1.DeleteOptions{}))
			} else {
				step.arm(w, c)
				w.create(p)
			}
			select {
			case <-c.Exited():
			case <-time.After(time.Minute):
				t.Fatal("the agent was not killed")
			}
			time.Sleep(time.Second)
			start := time.Now()
			w.Must(c.Start())
			w.serving("sgpu")
			if !step.removal {
				after := w.running(2*time.Minute, name)
				t.Logf("the pod runs %s after the agent is back", time.Since(start).Round(10*time.Millisecond))
				w.inspect(c, after...)
				living = append(after, living...)
			}
			w.slicesAre(c, 1, living...)
			w.unharmed(c, residents)
		})
	}
}

// at kills the agent when the library comes to a function.
func at(moment, function string) func(*world, *cards) {
	return func(w *world, c *cards) { w.Must(fake.Trigger(c.config, "kill", moment, function)) }
}

// whenSpecified kills the agent as soon as a container's devices are written down.
func whenSpecified(w *world, c *cards) {
	before, err := specs()
	w.Must(err)
	go func() {
		for range 60_000 {
			if now, err := specs(); err == nil && now > before {
				_ = c.Signal(syscall.SIGKILL)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
}

// specs counts the specs of the container device interface that name a slice.
func specs() (n int, err error) {
	files, err := filepath.Glob("/run/cdi/*")
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "/dev/sgpu") {
			n++
		}
	}
	return n, err
}

// TestAgentUpgraded: the agent is away for ten seconds while pods are created.
// They wait; none fails for good.
func TestAgentUpgraded(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	residents := w.residents(c)
	w.Kubectl("create", "deployment", "upgraded", "--image=ubuntu:22.04", "--replicas=0", "--", "sleep", "infinity")
	w.Cleanup(func() { _, _ = w.TryKubectlAs("admin", "delete", "deployment", "upgraded") })
	w.Kubectl("set", "resources", "deployment/upgraded", "--limits=metax-tech.com/sgpu=1,metax-tech.com/vcore=5,metax-tech.com/vmemory=1")
	ctx, stop := context.WithCancel(w.Ctx)
	upgraded := make(chan struct{})
	go func() {
		defer close(upgraded)
		time.Sleep(2 * time.Second)
		c.Stop()
		time.Sleep(10 * time.Second)
		gputest.Check(w, c.Start())
		time.Sleep(2 * time.Second)
		stop()
	}()
	var names []string
	for i := 0; ctx.Err() == nil; i++ {
		p := pod(fmt.Sprintf("bare-%d", i), "sgpu=1", "vcore=5", "vmemory=1")
		w.create(p)
		names = append(names, p.Name)
		w.Kubectl("scale", "deployment/upgraded", fmt.Sprintf("--replicas=%d", 1+i))
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	<-upgraded
	pods := w.running(3*time.Minute, names...)
	w.Kubectl("rollout", "status", "deployment/upgraded", "--timeout=120s")
	list, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodFailed {
			t.Errorf("pod %s failed: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
		}
		if !slices.ContainsFunc(append(pods, residents...), func(other *corev1.Pod) bool { return other.Name == p.Name }) {
			pods = append(pods, p)
		}
	}
	t.Logf("%d pods were created around the upgrade", len(pods))
	w.inspect(c, pods...)
	w.unharmed(c, residents)
	w.slicesAre(c, 1, append(pods, residents...)...)
}
