package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Watcher follows a cluster. It keeps what the API server sends and makes
// Objects of it on demand, so that watching costs the server no lists.
type Watcher struct {
	typed   informers.SharedInformerFactory
	dynamic dynamicinformer.DynamicSharedInformerFactory
	pods    cache.SharedIndexInformer
	nodes   cache.SharedIndexInformer
	devices cache.SharedIndexInformer // nil where the cluster has no such resource

	changed chan struct{}
	clock   clock.Clock
}

// calm is how long a Watcher waits after a change for more of them: one redraw
// shows them all.
const calm = 300 * time.Millisecond

// NewWatcher prepares to follow the cluster.
func NewWatcher(ctx context.Context, config *rest.Config) (*Watcher, error) {
	client, devices, err := clients(config)
	if err != nil {
		return nil, err
	}
	return newWatcher(ctx, client, devices)
}

func newWatcher(ctx context.Context, client kubernetes.Interface, devices dynamic.Interface) (*Watcher, error) {
	w := &Watcher{
		typed:   informers.NewSharedInformerFactory(client, 0),
		dynamic: dynamicinformer.NewDynamicSharedInformerFactory(devices, 0),
		changed: make(chan struct{}, 1), clock: clock.RealClock{},
	}
	w.pods, w.nodes = w.typed.Core().V1().Pods().Informer(), w.typed.Core().V1().Nodes().Informer()
	resource := v1alpha1.GroupVersion.WithResource("devices")
	// An informer for what is not there, or may not be seen, never syncs.
	one := metav1.ListOptions{Limit: 1}
	if _, err := client.CoreV1().Nodes().List(ctx, one); err != nil {
		return nil, listing("nodes", err)
	}
	if _, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, one); err != nil {
		return nil, listing("pods", err)
	}
	_, err := devices.Resource(resource).List(ctx, one)
	switch {
	case err == nil:
		w.devices = w.dynamic.ForResource(resource).Informer()
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
	// What goes wrong is tried again; a screen full of logs helps nobody.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.signal() },
		UpdateFunc: func(_, _ any) { w.signal() },
		DeleteFunc: func(any) { w.signal() },
	})
	return err
}

func (w *Watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// Run calls show with the cluster as it is, and again after changes, until the
// context ends. Changes that come together are shown together.
func (w *Watcher) Run(ctx context.Context, show func(*Objects) error) error {
	w.typed.Start(ctx.Done())
	w.dynamic.Start(ctx.Done())
	defer w.typed.Shutdown()
	defer w.dynamic.Shutdown()
	for _, informer := range w.informers() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return ctx.Err()
		}
	}
	for {
		objects, err := w.objects()
		if err != nil {
			return err
		}
		if err := show(objects); err != nil {
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
		case <-w.clock.After(calm):
		}
	}
}

var errOfAnotherKind = errors.New("the cache holds an object of another kind")

// objects is what was last seen of the cluster, in the order of a list.
func (w *Watcher) objects() (*Objects, error) {
	o := &Objects{Devices: map[string]Device{}, Live: true}
	var err error
	if o.Nodes, err = w.typed.Core().V1().Nodes().Lister().List(labels.Everything()); err != nil {
		return nil, err
	}
	if o.Pods, err = w.typed.Core().V1().Pods().Lister().List(labels.Everything()); err != nil {
		return nil, err
	}
	slices.SortFunc(o.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Pods, byName)
	if w.devices == nil {
		return o, nil
	}
	for _, item := range w.devices.GetStore().List() {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%w: %T", errOfAnotherKind, item)
		}
		text, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o.Devices[u.GetName()] = DecodeDevice(text)
	}
	return o, nil
}
