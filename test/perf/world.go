package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// writers write to the API at once while nothing is measured.
const writers = 24

// world is a cluster of which nothing moves but what is measured.
type world struct {
	*bench
	plan    *ClusterPlan
	dir     string
	cluster *local.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// unlocking ends what takes locks off; nil without peers.
	unlocking context.CancelFunc
}

// newWorld starts a cluster with its nodes and residents. The controller manager
// is stopped as soon as it has done its part, so that no node is found to be
// gone and no pod is looked after.
func (b *bench) newWorld(ctx context.Context, plan *ClusterPlan) (_ *world, err error) {
	w := &world{bench: b, plan: plan}
	if w.dir, err = os.MkdirTemp("", "daybreak-perf-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	cfg := local.Config{Dir: w.dir, Executable: b.executable}
	if b.kubernetes != "" {
		harness.UseBinaries(&cfg, b.kubernetes)
	}
	if w.cluster, err = local.Start(ctx, cfg); err != nil {
		return nil, err
	}
	if err := w.cluster.Install(ctx); err != nil {
		return nil, err
	}
	w.cluster.ControllerManager.Stop()
	config := rest.CopyConfig(w.cluster.REST())
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := w.addNodes(ctx); err != nil {
		return nil, err
	}
	if len(b.plan.Peers) > 0 {
		if err := w.addPeers(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := w.addResidents(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *world) stop() {
	if w.unlocking != nil {
		w.unlocking()
	}
	if w.cluster != nil {
		w.cluster.Stop()
	}
	_ = os.RemoveAll(w.dir)
}

func (w *world) addNodes(ctx context.Context) error {
	start := time.Now()
	kinds, err := discover.LoadProfiles(w.bench.plan.Profile)
	if err != nil {
		return err
	}
	simulator, err := local.NewSimulator(ctx, w.cluster.RESTAs("simulator"), local.WithoutAgents())
	if err != nil {
		return err
	}
	defer simulator.Stop()
	add := simulator.AddNodes
	if len(w.bench.plan.Peers) > 0 {
		plugin, err := vendorplugin.Start(ctx, w.cluster.RESTAs("simulator"), simulator, nil)
		if err != nil {
			return err
		}
		defer plugin.Stop() // it only makes the nodes
		add = plugin.AddNodes
	}
	if err := add(ctx, "metax", w.plan.Nodes, kinds); err != nil {
		return err
	}
	w.logf("%d nodes made in %s", w.plan.Nodes, since(start))
	return nil
}

// addResidents adds the residents that are not there and returns how many.
func (w *world) addResidents(ctx context.Context) (missing int64, err error) {
	r := w.plan.Residents
	if r == nil {
		return 0, nil
	}
	start := time.Now()
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	there, err := w.countResidents(ctx)
	if err != nil {
		return 0, err
	}
	kind := w.bench.plan.Kinds[r.Kind]
	var count atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range len(nodes.Items) * r.Percent / 100 {
		node := &nodes.Items[i]
		if there[node.Name] == r.PerNode {
			continue
		}
		group.Go(func() error {
			device, err := w.device(ctx, node.Name)
			if err != nil {
				return err
			}
			pods, err := kind.residents(node, device, r.PerNode)
			if err != nil {
				return err
			}
			count.Add(int64(len(pods) - there[node.Name]))
			return w.create(ctx, 1, pods)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	w.logf("%d residents made in %s", count.Load(), since(start))
	return count.Load(), nil
}

// countResidents returns how many residents each node has.
func (w *world) countResidents(ctx context.Context) (map[string]int, error) {
	there := map[string]int{}
	options := metav1.ListOptions{LabelSelector: labelRole + "=" + roleResident, Limit: 5000}
	for {
		list, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			there[list.Items[i].Spec.NodeName]++
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return there, nil
		}
	}
}

func (w *world) device(ctx context.Context, node string) (*v1alpha1.Device, error) {
	object, err := w.dynamic.Resource(v1alpha1.GroupVersion.WithResource("devices")).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return wire.DeviceOf(object)
}

// create creates pods, as many at once as there are workers.
func (w *world) create(ctx context.Context, workers int, pods []*corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, pod := range pods {
		group.Go(func() error {
			_, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) && pod.Labels[labelRole] == roleResident {
				return nil // only some of them ended
			}
			if err != nil {
				return fmt.Errorf("create pod %s: %w", pod.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// clear deletes the pods of a run, and the events that it left.
func (w *world) clear(ctx context.Context) error {
	list, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: labelRole + "=" + roleRun})
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range list.Items {
		name := list.Items[i].Name
		group.Go(func() error { return w.delete(groupCtx, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.client.EventsV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func (w *world) delete(ctx context.Context, name string) error {
	err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// bindings reports pods as they are seen to have a node.
type bindings struct {
	world *world
	watch watch.Interface
	// seen are those that were reported, and found those that are yet to be.
	seen  map[types.UID]bool
	found []*corev1.Pod
	// names are those of the pods that were reported, in order.
	names []string
}

// watchBindings begins to watch. Only pods with a node are asked for, so that
// each is seen once, when it is bound.
func (w *world) watchBindings(ctx context.Context) (*bindings, error) {
	b := &bindings{world: w, seen: map[types.UID]bool{}}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// open lists the bound pods and watches from there on. An API server that is
// busy may end a watch at any time.
func (b *bindings) open(ctx context.Context) error {
	pods := b.world.client.CoreV1().Pods(metav1.NamespaceDefault)
	options := metav1.ListOptions{FieldSelector: "spec.nodeName!=", LabelSelector: labelRole + "=" + roleRun}
	list, err := pods.List(ctx, options)
	if err != nil {
		return fmt.Errorf("list bound pods: %w", err)
	}
	for i := range list.Items {
		b.find(&list.Items[i])
	}
	options.ResourceVersion = list.ResourceVersion
	if b.watch, err = pods.Watch(ctx, options); err != nil {
		return fmt.Errorf("watch bound pods: %w", err)
	}
	return nil
}

func (b *bindings) find(pod *corev1.Pod) {
	if !b.seen[pod.UID] {
		b.seen[pod.UID] = true
		b.found = append(b.found, pod)
	}
}

// next waits for the next pod to be bound, and returns when that was seen.
func (b *bindings) next(ctx context.Context) (at time.Time, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for len(b.found) == 0 {
		select {
		case <-ctx.Done():
			return at, context.Cause(ctx)
		case <-timer.C:
			return at, fmt.Errorf("no pod was bound for %s", patience)
		case e, ok := <-b.watch.ResultChan():
			if !ok {
				if err := b.open(ctx); err != nil {
					return at, err
				}
				continue
			}
			if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
				b.find(pod)
			}
		}
	}
	b.names, b.found = append(b.names, b.found[0].Name), b.found[1:]
	return time.Now(), nil
}

func (b *bindings) stop() { b.watch.Stop() }
