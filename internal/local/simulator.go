package local

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

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
	// it makes nodes advertise, and [Simulator.AddNodes] waits until it has.
	// Otherwise they come with it.
	Managed bool

	client kubernetes.Interface

	pods corelisters.PodLister // those that are bound

	mu     sync.Mutex
	nodes  map[string]*simulated
	plugin Plugin // serves pods with cards on nodes of its own; or nil

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
	s := &Simulator{client: client, nodes: map[string]*simulated{}, ctx: ctx, stop: stop, done: make(chan struct{})}
	for _, option := range options {
		option(s)
	}
	if err := s.agents.open(ctx, config); err != nil {
		stop()
		return nil, err
	}
	var running sync.WaitGroup
	if err := s.attend(ctx, &running); err != nil {
		stop()
		return nil, err
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
	queue := workqueue.NewTypedDelayingQueue[types.NamespacedName]()
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
	s.pods = informer.Lister()
	factory.Start(ctx.Done())
	for range simulatorWorkers {
		running.Go(func() {
			for key, ended := queue.Get(); !ended; key, ended = queue.Get() {
				pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
				if err == nil && s.has(pod.Spec.NodeName) {
					again, err := s.sync(ctx, pod)
					if failed(ctx, pod, err) {
						again = time.Second
					}
					if again > 0 {
						queue.AddAfter(key, again)
					}
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

func (s *Simulator) has(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node] != nil
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
