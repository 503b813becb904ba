// Package vendorplugin stands in for the vendor's closed device plugin, and for
// the kubelets that call it, on simulated nodes: for tests and for
// `playground --served-by vendor`.
package vendorplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Plugin serves pods with cards. For slices it uses what the real one can know:
// the node's lock, which names the pod to serve, and the pod's
// [wire.AnnotationAllocated]. It removes the lock after it served the pod and
// publishes what is left of the node's cards. For whole cards it picks them
// itself and publishes the worth of the remaining ones.
//
// It records what it served and everything that should not have happened.
type Plugin struct {
	client    kubernetes.Interface
	simulator *local.Simulator
	delay     func() time.Duration

	mu      sync.Mutex
	nodes   map[string]*node
	alive   chan struct{} // closed while the plugin is alive
	deaths  int
	unlocks int // how many locks it takes off before it dies; below zero for ever
	served  []Served
	refused []string
	faults  []string

	ctx  context.Context //nolint:containedctx // of its nodes, which come one by one
	stop context.CancelFunc
	done chan struct{}
}

// workers create nodes at once.
const workers = 16

// Served is a pod that got its cards.
type Served struct {
	Node string
	Pod  types.NamespacedName
	UID  types.UID
	// Allocated is the annotation that it was served by; empty for whole cards.
	Allocated string
}

// Start starts the plugin without nodes. From then on the simulator leaves pods
// with cards on its nodes to it. The plugin takes delay for each pod; nil takes
// no time.
func Start(ctx context.Context, config *rest.Config, s *local.Simulator, delay func() time.Duration) (*Plugin, error) {
	client, err := local.NewClient(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	v := &Plugin{
		client: client, simulator: s, delay: delay, unlocks: -1,
		nodes: map[string]*node{}, alive: make(chan struct{}), ctx: ctx, stop: stop, done: make(chan struct{}),
	}
	close(v.alive)
	if v.delay == nil {
		v.delay = func() time.Duration { return 0 }
	}
	s.LeaveTo(v)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName!="
	}))
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: v.note, UpdateFunc: func(_, obj any) { v.note(obj) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				v.send(pod, true)
			}
		},
	}); err != nil {
		stop()
		return nil, err
	}
	factory.Start(ctx.Done())
	go func() {
		<-ctx.Done()
		factory.Shutdown()
		v.mu.Lock()
		nodes := v.nodes
		v.nodes = map[string]*node{}
		v.mu.Unlock()
		for _, n := range nodes {
			<-n.done
		}
		close(v.done)
	}()
	return v, nil
}

// Stop ends the plugin for good.
func (v *Plugin) Stop() {
	v.stop()
	<-v.done
}

// AddNodes creates n nodes of the given kinds in turn, as [local.Simulator.AddNodes]
// does, but served by this plugin.
func (v *Plugin) AddNodes(ctx context.Context, prefix string, n int, kinds []discover.Profile) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return v.AddNode(ctx, fmt.Sprintf("%s-%d", prefix, i+1), &kinds[i%len(kinds)]) })
	}
	return group.Wait()
}

// AddNode creates one node as the vendor's plugin leaves it: without a Device,
// with one kind of resource, and its cards or their worth in annotations.
func (v *Plugin) AddNode(ctx context.Context, name string, p *discover.Profile) error {
	if p.Mode != gpu.ModeSGPU && p.Mode != gpu.ModeNative {
		return fmt.Errorf("node %s: mode %s is not played by the stand-in for the vendor's plugin: write sgpu or native", name, p.Mode)
	}
	t, err := p.Topology(name)
	if err != nil {
		return err
	}
	node := local.AdvertisedNode(p, name, t) // as Koordinator's manager would: there is no Device for ours
	node.Annotations[wire.AnnotationServedBy] = wire.ServedByVendor
	if p.Mode == gpu.ModeSGPU {
		delete(node.Status.Capacity, wire.ResourceGPU)
		delete(node.Status.Allocatable, wire.ResourceGPU)
	}
	n := newNode(v, name, p.Mode, t)
	annotations, err := n.books.annotations()
	if err != nil {
		return err
	}
	maps.Copy(node.Annotations, annotations)
	v.mu.Lock()
	v.nodes[name] = n
	v.mu.Unlock()
	go n.run(v.ctx) // until the plugin stops, not until the node is there
	return v.simulator.AdoptNode(ctx, node)
}

// AddForeign puts a slice that belongs to no pod on a card of a node, such as
// one that was made by hand.
func (v *Plugin) AddForeign(ctx context.Context, node string, card int, compute int, memory gpu.MiB, qos gpu.QoS) error {
	v.mu.Lock()
	n := v.nodes[node]
	v.mu.Unlock()
	if n == nil {
		return fmt.Errorf("node %s is not served by this plugin", node)
	}
	done := make(chan error, 1)
	n.events.Add(&event{do: func() {
		n.books.addForeign(card, compute, memory, qos)
		done <- n.publish(ctx, nil, false)
	}})
	return <-done
}

// Die makes the plugin stop in the middle of what it does; kubelet's calls hang.
func (v *Plugin) Die() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.die()
}

func (v *Plugin) die() {
	select {
	case <-v.alive:
		v.alive = make(chan struct{})
		v.deaths++
	default:
	}
}

// DieInsteadOfUnlocking makes the plugin die when it has served another n pods
// and one more, whose lock it leaves behind.
func (v *Plugin) DieInsteadOfUnlocking(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unlocks = n
}

// Return makes the plugin work again.
func (v *Plugin) Return() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unlocks = -1
	select {
	case <-v.alive:
	default:
		close(v.alive)
	}
}

// life returns what is closed while the plugin is alive, and how often it died.
func (v *Plugin) life() (alive chan struct{}, deaths int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alive, v.deaths
}

// Served returns what was served, in order.
func (v *Plugin) Served() []Served {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Served(nil), v.served...)
}

// Refused returns which pods were rejected, and why.
func (v *Plugin) Refused() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.refused...)
}

// Faults returns what should never happen: cards allocated twice, or other than
// what a pod asked for.
func (v *Plugin) Faults() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.faults...)
}

func (v *Plugin) fault(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// Serves reports whether the plugin starts the pod.
func (v *Plugin) Serves(pod *corev1.Pod) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nodes[pod.Spec.NodeName] != nil && wire.Asks(pod)
}

// note passes a pod's change on to its node.
func (v *Plugin) note(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		v.send(pod, wire.HasEnded(pod))
	}
}

func (v *Plugin) send(pod *corev1.Pod, gone bool) {
	v.mu.Lock()
	n := v.nodes[pod.Spec.NodeName]
	v.mu.Unlock()
	if n != nil && wire.Asks(pod) {
		n.events.Add(&event{pod: pod, gone: gone})
	}
}

// reject fails the pod as kubelet does.
func (v *Plugin) reject(ctx context.Context, pod *corev1.Pod, why string) error {
	v.mu.Lock()
	v.refused = append(v.refused, fmt.Sprintf("%s/%s on %s: %s", pod.Namespace, pod.Name, pod.Spec.NodeName, why))
	v.mu.Unlock()
	klog.FromContext(ctx).Info("Simulated plugin refused", "pod", klog.KObj(pod), "why", why)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: why,
	}})
	if err != nil {
		return err
	}
	_, err = v.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// over reports errors after which there is nothing left to do for a pod.
func over(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
