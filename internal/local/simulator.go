package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	leaseSeconds = 40
	leaseRenewal = 10 * time.Second
	// simulatorWorkers write to the API at once.
	simulatorWorkers = 16
)

// Simulator stands for the kubelets of simulated nodes: it keeps the nodes
// Ready and runs the pods that are bound to them, in name only.
type Simulator struct {
	// Managed tells that a manager runs: simulated nodes then come without what
	// it makes nodes advertise, and [Simulator.AddNode] waits until it has.
	// Otherwise they come with it.
	Managed bool

	client  kubernetes.Interface
	dynamic dynamic.Interface

	mu     sync.Mutex
	nodes  []string
	vendor *Vendor // serves pods with cards on nodes of its own
	still  bool    // nodes are made and then left alone

	agents agents

	ctx  context.Context //nolint:containedctx // of the simulation, which outlives the call that adds a node
	stop context.CancelFunc
	done chan struct{}
}

// SimulatorOption changes how nodes are simulated.
type SimulatorOption func(*Simulator)

// WithoutAgents publishes the Device of each node once and then leaves it
// alone, as tests with thousands of nodes want it.
func WithoutAgents() SimulatorOption { return func(s *Simulator) { s.agents.off = true } }

// StandStill makes nodes and then leaves them alone: no lease is renewed and no
// pod is run, so that nothing but what is measured costs anything. It is for
// clusters whose controller manager is stopped, or nodes become NotReady.
func StandStill() SimulatorOption {
	return func(s *Simulator) { s.agents.off, s.still = true, true }
}

// ProfilesIn keeps the profiles of the nodes as files in a folder, NODE.yaml
// each, where a user may edit them; by default they are somewhere temporary.
func ProfilesIn(dir string) SimulatorOption { return func(s *Simulator) { s.agents.dir = dir } }

// NewSimulator starts to look after the simulated nodes of the cluster. Each
// has an agent of its own, in this process.
func NewSimulator(ctx context.Context, config *rest.Config, options ...SimulatorOption) (*Simulator, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Simulator{client: client, dynamic: dyn, ctx: ctx, stop: stop, done: make(chan struct{})}
	for _, option := range options {
		option(s)
	}
	if err := s.agents.open(ctx, config); err != nil {
		stop()
		return nil, err
	}
	if s.still {
		go func() {
			<-ctx.Done()
			s.agents.close()
			close(s.done)
		}()
		return s, nil
	}
	if err := s.attendAll(); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// attendAll runs the pods that are bound to simulated nodes and renews the
// nodes' leases, until the simulation ends.
func (s *Simulator) attendAll() error {
	ctx := s.ctx
	pods := make(chan types.NamespacedName, 100_000)
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName!="
	}))
	informer := factory.Core().V1().Pods()
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && needsKubelet(pod) {
			pods <- types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	}); err != nil {
		return err
	}
	lister := informer.Lister()
	factory.Start(ctx.Done())
	var group errgroup.Group
	for range simulatorWorkers {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case key := <-pods:
					if pod, err := lister.Pods(key.Namespace).Get(key.Name); err == nil && s.has(pod.Spec.NodeName) {
						s.attend(ctx, pod)
					}
				}
			}
		})
	}
	group.Go(func() error { s.heartbeat(ctx); return nil })
	go func() {
		_ = group.Wait()
		factory.Shutdown()
		s.agents.close()
		close(s.done)
	}()
	return nil
}

// Stop ends the simulation; the nodes become NotReady after a while.
func (s *Simulator) Stop() {
	s.stop()
	<-s.done
}

// needsKubelet reports whether a kubelet would have something to do.
func needsKubelet(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodPending
}

func (s *Simulator) has(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.nodes, node)
}

// leaveTo leaves pods to the vendor's plugin where it serves.
func (s *Simulator) leaveTo(v *Vendor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vendor = v
}

// leaves reports whether the vendor's plugin has the pod run.
func (s *Simulator) leaves(pod *corev1.Pod) bool {
	s.mu.Lock()
	v := s.vendor
	s.mu.Unlock()
	return v != nil && v.serves(pod)
}

// attend does what a kubelet would do for the pod. What fails is tried again
// after a second.
func (s *Simulator) attend(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil || !s.leaves(pod) {
		s.attendServed(ctx, pod)
	}
}

// attendServed is attend for a pod that has its cards, if it wants any.
func (s *Simulator) attendServed(ctx context.Context, pod *corev1.Pod) {
	var err error
	if pod.DeletionTimestamp != nil {
		err = s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	} else {
		err = s.runPod(ctx, pod)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Simulated kubelet", "pod", klog.KObj(pod))
		time.AfterFunc(time.Second, func() {
			if ctx.Err() == nil {
				s.attendServed(ctx, pod)
			}
		})
	}
}

func (s *Simulator) runPod(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "10.244.0.1", HostIP: "127.0.0.1"}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, ContainerID: "simulated://" + string(pod.UID) + "/" + c.Name,
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

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
		advertise(p, wanted, t)
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
			return fmt.Errorf("wait for the manager to look after node %s: %w", name, err)
		}
	}
	return nil
}

// AdoptNode creates the node, or takes it over when it is there already, makes
// it Ready with the resources it says it has, and looks after it from then on.
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
	name, now := want.Name, metav1.Now()
	status := want.Status.DeepCopy()
	status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	nodes := s.client.CoreV1().Nodes()
	if _, err := nodes.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("make node %s ready: %w", name, err)
	}
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("take the taint off node %s: %w", name, err)
	}
	return nil
}

// CreateDevice creates a Device, unless it is there already.
func (s *Simulator) CreateDevice(ctx context.Context, d *v1alpha1.Device) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return err
	}
	_, err = s.dynamic.Resource(v1alpha1.GroupVersion.WithResource("devices")).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create device %s: %w", d.Name, err)
	}
	return nil
}

// heartbeat renews the leases of all nodes.
func (s *Simulator) heartbeat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaseRenewal):
		}
		s.mu.Lock()
		nodes := append([]string(nil), s.nodes...)
		s.mu.Unlock()
		var group errgroup.Group
		group.SetLimit(simulatorWorkers)
		for _, name := range nodes {
			group.Go(func() error {
				if err := s.renew(ctx, name); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Simulated kubelet")
				}
				return nil
			})
		}
		_ = group.Wait()
	}
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
