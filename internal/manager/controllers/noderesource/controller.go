package noderesource

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// fieldOwner names the manager in the managed fields of what it writes.
	fieldOwner = client.FieldOwner(wire.ManagerComponent)
	// podsByNode is an index of the pods that hold some of our resources.
	podsByNode = "daybreak/holds-on-node"

	workers = 8
	// What fails is tried again after so long, doubled each time.
	retryFirst, retryMost = 100 * time.Millisecond, 30 * time.Second
	// A conflict means that the cache is behind.
	retryConflict = 200 * time.Millisecond
)

// reconciler makes one node at a time advertise what it should.
type reconciler struct {
	client  client.Client
	events  events.EventRecorder
	metrics *metrics
	clock   clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]*memory
}

// Add adds the controller to the manager. Its metrics are registered with the registry,
// and the clock spaces its writes.
func Add(ctx context.Context, m ctrlmanager.Manager, registry prometheus.Registerer, clk clock.PassiveClock) error {
	if err := m.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podsByNode, indexPod); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	r := &reconciler{
		client: m.GetClient(), events: m.GetEventRecorder(wire.ManagerComponent),
		metrics: newMetrics(registry), clock: clk, nodes: map[string]*memory{},
	}
	return builder.ControllerManagedBy(m).
		Named("noderesource").
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(cluster.NewDevice(), &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod), builder.WithPredicates(podPredicate())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
		}).
		Complete(r)
}

// indexPod is the index of pods by the node on which they hold something.
func indexPod(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !wire.Holds(pod) || !asks(pod) {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// asks reports whether the pod asks for any of our resources.
func asks(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(resources, func(name corev1.ResourceName) bool {
			_, ok := c.Resources.Requests[name]
			return ok
		})
	})
}

func nodeOfPod(_ context.Context, obj client.Object) []reconcile.Request {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
}

// podPredicate lets the events through that change what a node's pods hold.
func podPredicate() predicate.Predicate {
	holder := func(obj client.Object) bool { return indexPod(obj) != nil }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return holder(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return holder(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return holder(e.ObjectOld) != holder(e.ObjectNew) || holder(e.ObjectNew) && isAdmitted(e.ObjectOld) != isAdmitted(e.ObjectNew)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func isAdmitted(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && admitted(pod)
}

// nodeChanged reports whether anything changed that a decision depends on: nodes
// are written every few minutes for other reasons.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	if !ok || !ok2 || before.UID != after.UID {
		return true
	}
	return !equality.Semantic.DeepEqual(inputs(before), inputs(after))
}

// inputs is what a decision takes from a node.
func inputs(node *corev1.Node) []any {
	annotations := []string{wire.AnnotationAdvertised, wire.AnnotationNodeCards, wire.AnnotationServedBy}
	return []any{
		pick(node.Labels, labels), pick(node.Annotations, annotations),
		pick(node.Status.Capacity, resources), pick(node.Status.Allocatable, resources),
		failsInitContainers(node.Status.NodeInfo.KubeletVersion),
	}
}

func pick[M ~map[K]V, K comparable, V any](from M, keys []K) M {
	out := M{}
	for _, key := range keys {
		if value, ok := from[key]; ok {
			out[key] = value
		}
	}
	return out
}

// Reconcile makes the node advertise what it should.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("get node: %w", err)
	}
	m := r.remembered(node.Name)
	if m.isStale(node.ResourceVersion) {
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	f, err := r.facts(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := decide(f)
	r.metrics.decided(node.Name, d)
	r.reportProblem(ctx, node, m, d)
	return r.advertise(ctx, node, m, d)
}

// advertise makes the node as decided.
func (r *reconciler) advertise(ctx context.Context, node *corev1.Node, m *memory, d decision) (reconcile.Result, error) {
	wanted := node.DeepCopy()
	metadata, status := d.setMetadata(wanted), d.setStatus(wanted)
	if !metadata && !status {
		m.advertised = d.amounts
		return reconcile.Result{}, nil
	}
	now := r.clock.Now()
	if delay := m.delay(now); delay > 0 {
		klog.FromContext(ctx).V(2).Info("Node changes too often, the next write waits", "wait", delay)
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	written := node.DeepCopy()
	err := r.write(ctx, written, d)
	if written.ResourceVersion != node.ResourceVersion {
		m.wrote(now, written.ResourceVersion)
	}
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	if status { // labels alone are not worth an Event
		r.reportChange(ctx, node, m, d)
	}
	m.advertised = d.amounts
	return reconcile.Result{}, nil
}

// facts collects what a decision about the node rests on.
func (r *reconciler) facts(ctx context.Context, node *corev1.Node) (facts, error) {
	f := facts{node: node}
	device := cluster.NewDevice()
	err := r.client.Get(ctx, client.ObjectKeyFromObject(node), device)
	switch {
	case apierrors.IsNotFound(err):
		return r.withoutDevice(ctx, node)
	case err != nil:
		return facts{}, fmt.Errorf("get device: %w", err)
	}
	f.deviceLabels = device.GetLabels()
	// Without the label it may be Koordinator's, which writes none for the
	// vendor it knew first.
	if f.deviceLabels[wire.LabelVendor] != wire.VendorMetaX {
		return r.withoutDevice(ctx, node)
	}
	decoded := cluster.DecodeDevice(device)
	f.inventory = (&inventory.NodeObjects{Name: node.Name, Node: node, Device: decoded.Device, Err: decoded.Err}).Inventory()
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{podsByNode: node.Name}); err != nil {
		return facts{}, fmt.Errorf("list the pods of the node: %w", err)
	}
	f.pods = pods.Items
	return f, nil
}

// withoutDevice are the facts about a node that has no Device with MetaX cards.
// Koordinator's manager keeps the same amounts from Devices of any vendor: where
// it runs it takes off itself what is too much.
func (r *reconciler) withoutDevice(ctx context.Context, node *corev1.Node) (facts, error) {
	f := facts{node: node}
	if _, marked := node.Annotations[wire.AnnotationAdvertised]; !marked {
		return f, nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingLabels(wire.KoordinatorManagerLabels())); err != nil {
		return facts{}, fmt.Errorf("list the pods of Koordinator's manager: %w", err)
	}
	f.koordinator = slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	return f, nil
}
