package local

import (
	"context"
	"encoding/json"
	"fmt"
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
		names[i] = fmt.Sprintf("%s-%d", prefix, i+1)
		group.Go(func() error { return s.addNode(groupCtx, names[i], &kinds[i%len(kinds)]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.advertised(ctx, names...)
}

// AddNode creates one node of the given kind, with its Device, and returns when
// it advertises its cards.
func (s *Simulator) AddNode(ctx context.Context, name string, p *discover.Profile) error {
	if err := s.addNode(ctx, name, p); err != nil {
		return err
	}
	return s.advertised(ctx, name)
}

func (s *Simulator) addNode(ctx context.Context, name string, p *discover.Profile) error {
	t, err := p.Topology(name)
	if err != nil {
		return err
	}
	wanted := nodeOf(p, name, t)
	if !s.Managed {
		wanted = AdvertisedNode(p, name, t)
	}
	if err := s.AdoptNode(ctx, wanted); err != nil {
		return err
	}
	if !s.agents.off {
		return s.agents.add(s.ctx, ctx, name, p)
	}
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	device, err := s.agents.describe(ctx, node, p)
	if err != nil {
		return err
	}
	return s.CreateDevice(ctx, device)
}

// advertised waits until the manager, if there is one, has made the nodes
// advertise their cards.
func (s *Simulator) advertised(ctx context.Context, names ...string) error {
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

// AdoptNode creates the node, or takes it over when it is there already, makes
// it Ready with the resources of its status, and keeps it Ready from then on.
func (s *Simulator) AdoptNode(ctx context.Context, node *corev1.Node) error {
	_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	if !s.still {
		if err := s.renew(ctx, node.Name); err != nil {
			return err
		}
	}
	if err := s.ready(ctx, node); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, node.Name)
	return nil
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

// revive makes a node Ready again whose lease was not renewed for a while: this
// machine slept, or the API server was away.
func (s *Simulator) revive(ctx context.Context, name string) error {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	if nodeutil.IsNodeReady(node) {
		return nil
	}
	if err := s.patchStatus(ctx, name, map[string]any{"conditions": isReady()}); err != nil {
		return fmt.Errorf("make node %s ready again: %w", name, err)
	}
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

// heartbeat renews the leases of all nodes.
func (s *Simulator) heartbeat(ctx context.Context) {
	s.mu.Lock()
	nodes := slices.Clone(s.nodes)
	s.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(simulatorWorkers)
	for _, name := range nodes {
		group.Go(func() error {
			err := s.renew(ctx, name)
			if err == nil {
				err = s.revive(ctx, name)
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
