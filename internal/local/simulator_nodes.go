package local

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// AddNodes creates n nodes of the given kinds in turn, named prefix-1 and so
// on, with their Devices, and returns when they advertise their cards. Nodes
// that are there already are taken over.
func (s *Simulator) AddNodes(ctx context.Context, prefix string, n int, kinds []discover.Profile) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(simulatorWorkers)
	names := make([]string, n)
	for i := range names {
		names[i] = nodeName(prefix, i)
		group.Go(func() error { return s.AddNode(groupCtx, names[i], &kinds[i%len(kinds)]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.advertised(ctx, names)
}

func nodeName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i+1) }

// AddNode creates one node of the given kind, with its Device. It does not wait for
// the manager.
func (s *Simulator) AddNode(ctx context.Context, name string, p *discover.Profile) error {
	t, err := p.Topology(name)
	if err != nil {
		return err
	}
	wanted := NodeOf(p, name, t)
	if !s.Managed {
		wanted = AdvertisedNode(p, name, t)
	}
	n := &simulated{want: wanted}
	if s.agents.off {
		n.kind = p
	}
	if err := s.adopt(ctx, n); err != nil || s.agents.off {
		return err
	}
	return s.agents.add(s.ctx, ctx, name, p)
}

// advertised waits until the manager, if there is one, has made the nodes
// advertise their cards.
func (s *Simulator) advertised(ctx context.Context, names []string) error {
	if !s.Managed {
		return nil
	}
	for _, name := range names {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			_, ok := node.Status.Allocatable[wire.KoordShared]
			return ok, nil
		})
		if err != nil {
			return fmt.Errorf("wait for the manager to make node %s advertise its cards: %w", name, err)
		}
	}
	return nil
}

// simulated is a node that the simulator keeps.
type simulated struct {
	want *corev1.Node
	// kind is what its Device is made of; nil where an agent or a caller of
	// [Simulator.AdoptNode] publishes it.
	kind *discover.Profile
	// uid is that of the Node object that was registered.
	uid types.UID
}

// AdoptNode creates the node, or takes it over when it is there already, makes
// it Ready with the resources of its status, and keeps it so from then on.
func (s *Simulator) AdoptNode(ctx context.Context, node *corev1.Node) error {
	return s.adopt(ctx, &simulated{want: node})
}

func (s *Simulator) adopt(ctx context.Context, n *simulated) error {
	nodes, name := s.client.CoreV1().Nodes(), n.want.Name
	node, err := nodes.Create(ctx, n.want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	n.uid = node.UID
	if err := s.renew(ctx, name); err != nil {
		return err
	}
	if err := s.ready(ctx, n.want); err != nil {
		return err
	}
	if err := s.publish(ctx, n, node); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = n
	return nil
}

// publish creates the Device of a node that has no agent. One that belongs to an
// earlier Node of this name is replaced: it would be deleted for that.
func (s *Simulator) publish(ctx context.Context, n *simulated, node *corev1.Node) error {
	if n.kind == nil {
		return nil
	}
	device, err := s.agents.describe(ctx, node, n.kind)
	if err != nil {
		return err
	}
	devices := s.agents.clients.Devices.Resource(v1alpha1.GroupVersion.WithResource("devices"))
	old, err := devices.Get(ctx, device.Name, metav1.GetOptions{})
	if err == nil && slices.ContainsFunc(old.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID != node.UID }) {
		err = devices.Delete(ctx, device.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(old.GetUID())}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("device of an earlier node %s: %w", node.Name, err)
	}
	return s.CreateDevice(ctx, device)
}

// ready makes the node Ready and takes the taint off with which every node is
// created.
func (s *Simulator) ready(ctx context.Context, want *corev1.Node) error {
	status := want.Status.DeepCopy()
	status.Conditions = isReady()
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: want.Name}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	if err := s.patchStatus(ctx, want.Name, status); err != nil {
		return fmt.Errorf("make node %s ready: %w", want.Name, err)
	}
	_, err := s.client.CoreV1().Nodes().Patch(ctx, want.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("take the taint off node %s: %w", want.Name, err)
	}
	return nil
}

// isReady returns the conditions that a kubelet reports when all is well.
func isReady() []corev1.NodeCondition {
	now := metav1.Now()
	return []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
}

func (s *Simulator) patchStatus(ctx context.Context, node string, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// keep makes a node what it was registered as. A kubelet sets the node Ready
// again after its lease was not renewed for a while (this machine slept, or the
// API server was away) and restores the amounts that it reports. A Node that was
// deleted and created again is registered again. One that was deleted stays away.
func (s *Simulator) keep(ctx context.Context, n *simulated) error {
	name := n.want.Name
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	if node.UID != n.uid {
		return s.register(ctx, n, node)
	}
	want := &n.want.Status
	if nodeutil.IsNodeReady(node) && includes(node.Status.Capacity, want.Capacity) && includes(node.Status.Allocatable, want.Allocatable) {
		return nil
	}
	status := map[string]any{"conditions": isReady(), "capacity": want.Capacity, "allocatable": want.Allocatable}
	if err := s.patchStatus(ctx, name, status); err != nil {
		return fmt.Errorf("restore the status of node %s: %w", name, err)
	}
	return nil
}

// includes reports whether all of the amounts are in the list.
func includes(list, amounts corev1.ResourceList) bool {
	for name, want := range amounts {
		if got, ok := list[name]; !ok || got.Cmp(want) != 0 {
			return false
		}
	}
	return true
}

// register makes a Node that was created again what the one before it was.
func (s *Simulator) register(ctx context.Context, n *simulated, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "labels": n.want.Labels, "annotations": n.want.Annotations,
	}})
	if err != nil {
		return err
	}
	if _, err := s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("register node %s again: %w", node.Name, err)
	}
	if err := s.ready(ctx, n.want); err != nil {
		return err
	}
	if err := s.publish(ctx, n, node); err != nil {
		return err
	}
	n.uid = node.UID // only the heartbeat reads it
	return nil
}

// CreateDevice creates a Device, unless it is there already.
func (s *Simulator) CreateDevice(ctx context.Context, d *v1alpha1.Device) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return err
	}
	_, err = s.agents.clients.Devices.Resource(v1alpha1.GroupVersion.WithResource("devices")).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create device %s: %w", d.Name, err)
	}
	return nil
}

// heartbeat renews the leases of all nodes and keeps them as they were registered.
func (s *Simulator) heartbeat(ctx context.Context) {
	s.mu.Lock()
	nodes := slices.Collect(maps.Values(s.nodes))
	s.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(simulatorWorkers)
	for _, n := range nodes {
		group.Go(func() error {
			err := s.renew(ctx, n.want.Name)
			if err == nil {
				err = s.keep(ctx, n)
			}
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Simulated kubelet")
			}
			return nil
		})
	}
	_ = group.Wait()
}

func (s *Simulator) renew(ctx context.Context, name string) error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("renew the lease of %s: %w", name, err)
	}
	return nil
}
