package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// pod returns a pod with one container and the given limits, "resource=amount".
func pod(name string, limits ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{container("main", limits...)}},
	}
}

func container(name string, limits ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "ubuntu:22.04", ImagePullPolicy: corev1.PullIfNotPresent,
		Command:   []string{"sleep", "infinity"},
		Resources: corev1.ResourceRequirements{Limits: gputest.MakeResources(strings.ReplaceAll(strings.Join(limits, ", "), "=", ": "))},
	}
}

// on pins a pod to cards.
func on(p *corev1.Pod, uuids ...string) *corev1.Pod {
	p.Annotations[wire.AnnotationUseCards] = strings.Join(uuids, ",")
	return p
}

// TestThreeOnOneCard: three containers of three pods share a card, each with a
// slice of its own, beside a pod that has a whole card to itself.
func TestThreeOnOneCard(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	var pods []*corev1.Pod
	var names []string
	for i, limits := range [][]string{
		{"sgpu=1", "vcore=30", "vmemory=8"}, {"sgpu=1", "vcore=25", "vmemory=4"}, {"sgpu=1", "vcore=10", "vmemory=2000Mi"},
	} {
		p := on(pod(fmt.Sprintf("slice-%d", i), limits...), c.machine.Cards[2].UUID)
		p.Annotations[wire.AnnotationQoS] = "burst-share"
		pods, names = append(pods, p), append(names, p.Name)
	}
	w.create(append(pods, pod("whole", "gpu=1"))...)
	names = append(names, "whole")
	running := w.running(time.Minute, names...)
	views := w.inspect(c, running...)
	w.slicesAre(c, 0, running...)
	w.noWarnings(names...)
	for _, p := range running {
		for _, v := range views[p.UID] {
			t.Logf("%s sees %v, MACA_VISIBLE_DEVICES=%s", p.Name, v.nodes, v.env["MACA_VISIBLE_DEVICES"])
		}
	}
	h, err := c.hardware()
	w.Must(err)
	for _, s := range h.slices {
		if s.Card != 2 {
			t.Errorf("slice %+v is on another card", s)
		}
	}
	if h.class[2] != classes["burst-share"] {
		t.Errorf("card 2 runs class %d", h.class[2])
	}
}

// TestContainerRestarts: a container that ends and is started again keeps its
// slice.
func TestContainerRestarts(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.create(pod("restarts", "sgpu=1", "vcore=20", "vmemory=4"))
	before := w.running(time.Minute, "restarts")[0]
	h, err := c.hardware()
	w.Must(err)
	slice := h.ours()[0]
	w.Must(w.endContainer(before))
	w.restarted("restarts")
	w.inspect(c, w.running(time.Minute, "restarts")...)
	if h, err = c.hardware(); err != nil || len(h.ours()) != 1 || h.ours()[0] != slice {
		t.Errorf("the slice was %+v, slices are %+v now (%v)", slice, h.slices, err)
	}
}

// TestInitContainer: an init container works with a slice before the app does.
func TestInitContainer(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	p := pod("prepared", "sgpu=1", "vcore=20", "vmemory=4")
	first := container("prepare", "sgpu=1", "vcore=10", "vmemory=2")
	first.Command = []string{"sh", "-c", look}
	p.Spec.InitContainers = []corev1.Container{first}
	w.create(p)
	running := w.running(time.Minute, "prepared")
	w.inspect(c, running...)
	w.noWarnings("prepared")
	out := w.Kubectl("logs", "prepared", "-c", "prepare")
	if !strings.Contains(out, "/dev/mxcd 1:3") || strings.Count(out, "/dev/sgpu") != 1 {
		t.Errorf("the init container saw\n%s", out)
	}
}

// TestRestricted: a pod as the strictest Pod Security profile wants it gets its
// slice, and may use it though it is not root.
func TestRestricted(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.Must(w.Apply(w.Ctx, strings.NewReader(`
apiVersion: v1
kind: Namespace
metadata:
  name: restricted
  labels: {pod-security.kubernetes.io/enforce: restricted}
`)))
	w.Cleanup(func() { _, _ = w.TryKubectlAs("admin", "delete", "namespace", "restricted") })
	w.Eventually("the namespace's service account", time.Minute, func() error {
		_, err := w.Client.CoreV1().ServiceAccounts("restricted").Get(w.Ctx, "default", metav1.GetOptions{})
		return err
	})
	p := pod("restricted", "sgpu=1", "vcore=20", "vmemory=4")
	p.Namespace = "restricted"
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	w.create(p)
	w.Kubectl("-n", "restricted", "wait", "--for=condition=Ready", "pod/restricted", "--timeout=60s")
	got, err := w.Client.CoreV1().Pods("restricted").Get(w.Ctx, "restricted", metav1.GetOptions{})
	w.Must(err)
	w.inspect(c, got)
	// Only the device group may stand in the way: reading needs no rights.
	if out, err := w.exec(got, "main", "sh", "-c", "cat /dev/mxcd && [ -r /dev/sgpu* ] && [ -w /dev/sgpu* ] && echo yes"); err != nil || strings.TrimSpace(out) != "yes" {
		t.Errorf("the devices can't be used: %q (%v)", out, err)
	}
}
