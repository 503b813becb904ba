package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/test/fake"
)

// server is a machine with cards: its kubelet, its driver and its agent.
type server struct {
	*kubelet
	agent *part
	cards int
	// config is the file by which the fake driver knows its cards.
	config string
	taints []corev1.Taint
}

func (s *server) sysfs() string  { return s.config + ".sys" }
func (s *server) procfs() string { return filepath.Join(s.dir, "proc") }
func (s *server) state() string  { return filepath.Join(s.dir, "state") }
func (s *server) cdi() string    { return filepath.Join(s.dir, "cdi") }

// build writes what the driver and the kernel are to show.
func (s *server) build(number int) error {
	m := fake.NewMachine(s.cards, min(4, s.cards))
	for i := range m.Cards {
		// A card is in one server only.
		m.Cards[i].UUID = fmt.Sprintf("GPU-%04x%s", number, m.Cards[i].UUID[8:])
	}
	devices := filepath.Join(s.procfs(), "devices")
	return errors.Join(
		os.MkdirAll(s.procfs(), 0o755), os.WriteFile(devices, []byte("Character devices:\n240 sgpu\n"), 0o644), m.WriteSysfs(s.sysfs()), m.Write(s.config),
	)
}

// agentArgs are the flags of "daybreak agent" on this machine.
func (s *server) agentArgs(kubeconfig, library, address string) []string {
	return []string{
		"agent", "--kubeconfig=" + kubeconfig, "--node-name=" + s.node, "--namespace=daybreak-system",
		"--metrics-bind-address=" + address, "--health-probe-bind-address=" + address,
		"--source=mxsml", "--mxsml=" + library, "--sysfs=" + s.sysfs(), "--mode=sgpu", "--poll=2s", "--v=2",
		"--serve=on", "--device-plugin-dir=" + s.plugins(), "--pod-resources-socket=" + s.podResources(),
		"--runtime-endpoint=unix://" + s.runtime(), "--state-dir=" + s.state(), "--cdi-dir=" + s.cdi(),
		"--procfs=" + s.procfs(), "--control-device=" + os.DevNull, "--cdi-settle=0s",
	}
}

// register creates the Node object, as kubelet does when it starts, and says
// that it is ready.
func (s *server) register(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.node, Labels: map[string]string{
			corev1.LabelHostname: s.node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Spec: corev1.NodeSpec{Taints: s.taints},
	}
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", s.node, err)
	}
	if err := s.report(ctx); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": s.taints}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// report writes the node's status.
func (s *server) report(ctx context.Context) error {
	now := metav1.Now()
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("256"),
	}
	for _, name := range resources {
		list[name] = *resource.NewQuantity(s.healthy(name), resource.DecimalSI)
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: list, Allocatable: list,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "played by the test",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
	}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

const (
	leaseRenewal = 5 * time.Second
	// statusRenewal is how often a kubelet says that its node is ready.
	statusRenewal = 10 * time.Second
	leaseSeconds  = 40
)

// heartbeat renews the node's lease and reports when its devices have changed.
func (s *server) heartbeat() {
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
				sleep(s.ctx, 200*time.Millisecond)
				notify(s.changed)
			}
		case <-time.After(time.Second):
		}
	}
}

func (s *server) renew() error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(s.ctx, s.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(s.ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: s.node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &s.node, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	return err
}

// watch follows the pods of the node until the machine ends.
func (s *server) watch() {
	list := cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", s.node))
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: list, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.see(podIn(obj)) },
			UpdateFunc: func(_, obj any) { s.see(podIn(obj)) },
			DeleteFunc: func(obj any) { s.forget(podIn(obj).UID) },
		},
	})
	controller.Run(s.ctx.Done())
}

// running is the status of a pod whose containers run.
func running(pod *corev1.Pod) corev1.PodStatus {
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

// say writes the pod's status, until it is written or the pod is to end.
func (k *kubelet) say(r *podRun, status corev1.PodStatus) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.pod.UID}, "status": status})
	if err != nil {
		return
	}
	for {
		_, err := k.client.CoreV1().Pods(r.pod.Namespace).Patch(k.ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		select {
		case <-r.stop:
			return
		case <-k.ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// remove takes the pod out of the API server, once its containers have ended.
func (k *kubelet) remove(r *podRun) {
	for {
		err := k.client.CoreV1().Pods(r.pod.Namespace).Delete(k.ctx, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(r.pod.UID)),
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		select {
		case <-r.gone:
			return
		case <-k.ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
