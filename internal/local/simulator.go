package local

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
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
	// Managed reports that a manager runs: simulated nodes then come without what
	// it makes nodes advertise, and [Simulator.AddNode] waits until it has.
	// Otherwise they come with it.
	Managed bool

	client kubernetes.Interface

	mu     sync.Mutex
	nodes  []string
	plugin Plugin // serves pods with cards on nodes of its own; or nil
	still  bool   // nodes are made and then left alone

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

// NewSimulator starts a simulation without nodes. Each node that is added has an
// agent of its own, in this process.
func NewSimulator(ctx context.Context, config *rest.Config, options ...SimulatorOption) (*Simulator, error) {
	client, err := NewClient(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Simulator{client: client, ctx: ctx, stop: stop, done: make(chan struct{})}
	for _, option := range options {
		option(s)
	}
	if err := s.agents.open(ctx, config); err != nil {
		stop()
		return nil, err
	}
	var running sync.WaitGroup
	if !s.still {
		if err := s.attend(ctx, &running); err != nil {
			stop()
			return nil, err
		}
	}
	go func() {
		<-ctx.Done()
		running.Wait()
		s.agents.close()
		close(s.done)
	}()
	return s, nil
}

// attend runs the pods that are bound to simulated nodes and renews the nodes'
// leases, until the context ends.
func (s *Simulator) attend(ctx context.Context, running *sync.WaitGroup) error {
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName!="
	}))
	informer := factory.Core().V1().Pods()
	queue := workqueue.NewTyped[types.NamespacedName]()
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && needsKubelet(pod) {
			queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	}); err != nil {
		return err
	}
	lister := informer.Lister()
	factory.Start(ctx.Done())
	for range simulatorWorkers {
		running.Go(func() {
			for key, ended := queue.Get(); !ended; key, ended = queue.Get() {
				pod, err := lister.Pods(key.Namespace).Get(key.Name)
				if err == nil && s.has(pod.Spec.NodeName) && (pod.DeletionTimestamp != nil || !s.leaves(pod)) {
					s.Run(ctx, pod)
				}
				queue.Done(key)
			}
		})
	}
	running.Go(func() { wait.UntilWithContext(ctx, s.heartbeat, leaseRenewal) })
	running.Go(func() {
		<-ctx.Done()
		queue.ShutDown()
		factory.Shutdown()
	})
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

// Plugin serves pods with cards on nodes of its own, in place of Daybreak's agents.
type Plugin interface {
	// AddNodes creates n nodes of the given kinds in turn, named prefix-1 and so on.
	AddNodes(ctx context.Context, prefix string, n int, kinds []discover.Profile) error
	// Serves reports whether the plugin starts the pod, by [Simulator.Run].
	Serves(pod *corev1.Pod) bool
	Stop()
}

// LeaveTo leaves the pods that the plugin serves to it.
func (s *Simulator) LeaveTo(p Plugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugin = p
}

func (s *Simulator) leaves(pod *corev1.Pod) bool {
	s.mu.Lock()
	p := s.plugin
	s.mu.Unlock()
	return p != nil && p.Serves(pod)
}

// NewClient returns a client that costs the API server little, as kubelet's does.
func NewClient(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// Run starts or ends a pod that has its cards, if it asks for any. What fails is
// tried again after a second.
func (s *Simulator) Run(ctx context.Context, pod *corev1.Pod) {
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
				s.Run(ctx, pod)
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
