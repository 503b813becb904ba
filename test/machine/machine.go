// Package machine stands in for servers with cards in tests that run many of them:
// the Node, kubelet and the container runtime, played at their sockets, and the fake
// driver of test/fake. The agent is real, and so is everything that it talks to in
// the API server. test/e2e has a real kubelet and real containers.
package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/test/fake"
)

// Config says what a machine is like.
type Config struct {
	// Node is its name, and Dir its folder, which must be short: sockets are in it.
	Node, Dir string
	// Number distinguishes machines: a card is in one of them only.
	Number int
	Cards  int
	Labels map[string]string
	Taints []corev1.Taint
	// Kubelet is the version that kubelet reports; empty, none.
	Kubelet string
	// Foreign, if set, reports the pods that the caller runs.
	Foreign func(*corev1.Pod) bool
}

// Machine is a server with cards: its kubelet, its driver and its Node. Its agent is
// the caller's.
type Machine struct {
	*kubelet
	specs string // the folder of CDI specs
}

// New creates the Node and starts the sockets of its kubelet, which last until
// [Machine.Stop].
func New(ctx context.Context, cfg Config, client kubernetes.Interface) (*Machine, error) {
	k, err := newKubelet(ctx, cfg, client)
	if err != nil {
		return nil, err
	}
	m := &Machine{kubelet: k}
	// In memory, as it is on a node: the agent serves no other.
	if m.specs, err = os.MkdirTemp("/dev/shm", "daybreak-cdi-"); err != nil {
		return nil, err
	}
	return m, errors.Join(m.build(), m.Join(ctx))
}

// Stop ends the sockets.
func (s *Machine) Stop() {
	s.kubelet.Stop()
	_ = os.RemoveAll(s.specs)
}

// Run is the work of the kubelet, until the context of the machine ends.
func (s *Machine) Run() {
	var both sync.WaitGroup
	both.Go(s.heartbeat)
	both.Go(s.watch)
	both.Wait()
}

// Driver returns the file by which the fake driver knows its cards, for
// [fake.EnvConfig].
func (s *Machine) Driver() string { return filepath.Join(s.Dir, "machine") }

func (s *Machine) sysfs() string  { return s.Driver() + ".sys" }
func (s *Machine) procfs() string { return filepath.Join(s.Dir, "proc") }
func (s *Machine) state() string  { return filepath.Join(s.Dir, "state") }
func (s *Machine) cdi() string    { return s.specs }

// build writes what the driver and the kernel are to show.
func (s *Machine) build() error {
	m := fake.NewMachine(s.Cards, min(4, s.Cards))
	for i := range m.Cards {
		// A card is in one server only.
		m.Cards[i].UUID = fmt.Sprintf("GPU-%04x%s", s.Number, m.Cards[i].UUID[8:])
	}
	devices := filepath.Join(s.procfs(), "devices")
	return errors.Join(
		os.MkdirAll(s.procfs(), 0o755), os.WriteFile(devices, fmt.Appendf(nil, "Character devices:\n%d sgpu\n", sliceMajor), 0o644), m.WriteSysfs(s.sysfs()), m.Write(s.Driver()),
	)
}

// AgentArgs returns the flags that name for "daybreak agent" where everything of this
// machine is; the agent listens at the address.
func (s *Machine) AgentArgs(library, address string) []string {
	return []string{
		"--metrics-bind-address=" + address, "--health-probe-bind-address=" + address,
		"--source=mxsml", "--mxsml=" + library, "--sysfs=" + s.sysfs(), "--device-plugin-dir=" + s.plugins(),
		"--pod-resources-socket=" + s.podResources(), "--runtime-endpoint=unix://" + s.runtime(), "--runtime-root=/", "--state-dir=" + s.state(), "--cdi-dir=" + s.cdi(),
		"--procfs=" + s.procfs(), "--control-device=" + os.DevNull, "--cdi-settle=0s",
	}
}

// MakeDevices makes the device nodes of the cards and of all slices, as the driver
// and udev do, which takes root. It returns the flags that lead an agent to them.
// Without them an agent knows the devices by their numbers alone.
func (s *Machine) MakeDevices() ([]string, error) {
	m, _, err := fake.Read(s.Driver())
	if err != nil {
		return nil, err
	}
	type number struct{ major, minor uint32 }
	devices := map[string]number{"mxcd": {controlMajor, 0}}
	for i := range m.Cards {
		devices[fmt.Sprintf("dri/card%d", m.Cards[i].DRMCard)] = number{drmMajor, uint32(m.Cards[i].DRMCard)}
		devices[fmt.Sprintf("dri/renderD%d", m.Cards[i].Render)] = number{drmMajor, uint32(m.Cards[i].Render)}
	}
	for minor := range uint32(16*s.Cards + 64) {
		devices[fmt.Sprintf("sgpu%d", minor)] = number{sliceMajor, minor}
	}
	root := filepath.Join(s.Dir, "host")
	if err := os.MkdirAll(filepath.Join(root, "dev", "dri"), 0o755); err != nil {
		return nil, err
	}
	for name, n := range devices {
		if err := unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(n.major, n.minor))); err != nil {
			return nil, fmt.Errorf("make device %s, which takes root: %w", name, err)
		}
	}
	return []string{"--device-root=" + root, "--control-device=/dev/mxcd"}, nil
}

// The numbers of the drivers' devices.
const (
	drmMajor     = 226
	sliceMajor   = 240
	controlMajor = 241
)

// Join creates the Node object, as kubelet does when it starts, and says that it
// is ready.
func (s *Machine) Join(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Labels: map[string]string{
			corev1.LabelHostname: s.Node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Spec: corev1.NodeSpec{Taints: s.Taints},
	}
	maps.Copy(node.Labels, s.Labels)
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", s.Node, err)
	}
	if err := s.report(ctx); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": s.Taints}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.Node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// report writes the node's status.
func (s *Machine) report(ctx context.Context) error {
	now := metav1.Now()
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("256"),
	}
	for _, name := range resources {
		list[name] = *resource.NewQuantity(s.healthy(name), resource.DecimalSI)
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: list, Allocatable: list, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: s.Kubelet},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "played by the test",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
	}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

const (
	leaseRenewal = 5 * time.Second
	// statusRenewal is how often a kubelet says that its node is ready.
	statusRenewal = 10 * time.Second
	leaseSeconds  = 40
)

// heartbeat renews the node's lease and reports when its devices have changed.
func (s *Machine) heartbeat() {
	var renewed, reported time.Time
	for {
		if time.Since(reported) > statusRenewal {
			reported = time.Now()
			notify(s.changed)
		}
		if time.Since(renewed) > leaseRenewal && s.renew() == nil {
			renewed = time.Now()
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
			if err := s.report(s.ctx); err != nil && !apierrors.IsNotFound(err) {
				Sleep(s.ctx, 200*time.Millisecond)
				notify(s.changed)
			}
		case <-time.After(time.Second):
		}
	}
}

func (s *Machine) renew() error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(s.ctx, s.Node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(s.ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: s.Node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &s.Node, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	return err
}

// watch follows the pods of the node until the machine ends.
func (s *Machine) watch() {
	WatchPods(s.ctx, s.client, metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", s.Node), s.see, func(pod *corev1.Pod) { s.forget(pod.UID) })
}

// WatchPods calls see for each pod that is there or changes, and gone for each that goes,
// until the context ends.
func WatchPods(ctx context.Context, client kubernetes.Interface, namespace string, which fields.Selector, see, gone func(*corev1.Pod)) {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, which), ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { see(podIn(obj)) },
			UpdateFunc: func(_, obj any) { see(podIn(obj)) },
			DeleteFunc: func(obj any) { gone(podIn(obj)) },
		},
	})
	controller.Run(ctx.Done())
}

// Running returns the status of a pod whose containers run.
func Running(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "10.244.0.1", HostIP: "127.0.0.1"}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "none", ContainerID: "none://" + string(pod.UID) + "/" + c.Name,
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// podIn returns the pod of an event. There are no others in a watch of pods.
func podIn(obj any) *corev1.Pod {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		panic(fmt.Sprintf("a watch of pods shows a %T", obj))
	}
	return pod
}

// say writes the pod's status, until it is written or the pod is to end.
func (k *kubelet) say(r *podRun, status corev1.PodStatus) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.pod.UID}, "status": status})
	if err != nil {
		return
	}
	k.write(r.stop, func() error {
		_, err := k.client.CoreV1().Pods(r.pod.Namespace).Patch(k.ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// remove takes the pod out of the API server, once its containers have ended.
func (k *kubelet) remove(r *podRun) {
	k.write(r.gone, func() error {
		return k.client.CoreV1().Pods(r.pod.Namespace).Delete(k.ctx, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(r.pod.UID)),
		})
	})
}

// write writes something of a pod until it is written, the pod is another one, or the
// channel is closed.
func (k *kubelet) write(stop <-chan struct{}, write func() error) {
	for {
		if err := write(); err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		select {
		case <-stop:
			return
		case <-k.ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
