package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Watcher follows a cluster. It keeps what the API server sends and makes
// Objects of it on demand, so that watching costs the server no lists.
type Watcher struct {
	nodes, pods cache.SharedIndexInformer
	devices     cache.SharedIndexInformer // nil where the cluster has no such resource
	changed     chan struct{}
}

// debounce is how long a Watcher waits after a change for more of them: one redraw
// shows them all.
const debounce = 300 * time.Millisecond

// NewWatcher prepares to follow the cluster.
func NewWatcher(ctx context.Context, config *rest.Config) (*Watcher, error) {
	client, devices, err := clients(config)
	if err != nil {
		return nil, err
	}
	return newWatcher(ctx, client, devices)
}

func newWatcher(ctx context.Context, client kubernetes.Interface, devices dynamic.Interface) (*Watcher, error) {
	// An informer for what is not there, or may not be seen, never syncs.
	one := metav1.ListOptions{Limit: 1}
	if _, err := client.CoreV1().Nodes().List(ctx, one); err != nil {
		return nil, listing("nodes", err)
	}
	if _, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, one); err != nil {
		return nil, listing("pods", err)
	}
	typed := informers.NewSharedInformerFactory(client, 0).Core().V1()
	w := &Watcher{nodes: typed.Nodes().Informer(), pods: typed.Pods().Informer(), changed: make(chan struct{}, 1)}
	resource := v1alpha1.GroupVersion.WithResource("devices")
	_, err := devices.Resource(resource).List(ctx, one)
	switch {
	case err == nil:
		w.devices = dynamicinformer.NewDynamicSharedInformerFactory(devices, 0).ForResource(resource).Informer()
	case !apierrors.IsNotFound(err):
		return nil, listing("devices", err)
	}
	for _, informer := range w.informers() {
		if err := w.prepare(informer); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Watcher) informers() []cache.SharedIndexInformer {
	if w.devices == nil {
		return []cache.SharedIndexInformer{w.nodes, w.pods}
	}
	return []cache.SharedIndexInformer{w.nodes, w.pods, w.devices}
}

func (w *Watcher) prepare(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(wire.Trim); err != nil {
		return err
	}
	// Errors are retried; logs would spoil the screen.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	signal := func(any) {
		select {
		case w.changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: signal, UpdateFunc: func(_, obj any) { signal(obj) }, DeleteFunc: signal,
	})
	return err
}

// Run calls show with the cluster as it is, and again after changes, until the
// context ends. Changes that come together are shown together.
func (w *Watcher) Run(ctx context.Context, show func(*Objects) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, informer := range w.informers() {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, informer := range w.informers() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return ctx.Err()
		}
	}
	for {
		if err := show(w.objects()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(debounce):
		}
	}
}

// objects returns what was last seen of the cluster, in the order of a list.
func (w *Watcher) objects() *Objects {
	o := &Objects{Devices: map[string]Device{}, Live: true, Nodes: cached[*corev1.Node](w.nodes), Pods: cached[*corev1.Pod](w.pods)}
	slices.SortFunc(o.Pods, byName)
	if w.devices != nil {
		for _, u := range cached[*unstructured.Unstructured](w.devices) {
			o.Devices[u.GetName()] = DecodeDevice(u)
		}
	}
	return o
}

func cached[T any](informer cache.SharedIndexInformer) []T {
	var objects []T
	for _, obj := range informer.GetStore().List() {
		if object, ok := obj.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}
