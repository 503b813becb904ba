package cluster

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Watcher follows a cluster. It keeps what the API server sends and makes
// Objects of it on demand, so that watching costs the server no lists.
type Watcher struct {
	informers Informers
	reader    *Reader
	changed   chan struct{}
}

// debounce is how long a Watcher waits after a change for more of them: one redraw
// shows them all.
const debounce = 300 * time.Millisecond

// NewWatcher prepares to follow the cluster. The plugin decides who serves a node
// without a Device.
func NewWatcher(ctx context.Context, config *rest.Config, plugin inventory.VendorPlugin) (*Watcher, error) {
	client, devices, err := clients(config)
	if err != nil {
		return nil, err
	}
	return newWatcher(ctx, client, devices, plugin)
}

func newWatcher(ctx context.Context, client kubernetes.Interface, devices dynamic.Interface, plugin inventory.VendorPlugin) (*Watcher, error) {
	// An informer for what is not there, or may not be seen, never syncs.
	one := metav1.ListOptions{Limit: 1}
	if _, err := client.CoreV1().Nodes().List(ctx, one); err != nil {
		return nil, listing("nodes", err)
	}
	if _, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, one); err != nil {
		return nil, listing("pods", err)
	}
	typed := informers.NewSharedInformerFactory(client, 0).Core().V1()
	w := &Watcher{informers: Informers{Nodes: typed.Nodes().Informer(), Pods: typed.Pods().Informer()}, changed: make(chan struct{}, 1)}
	resource := v1alpha1.GroupVersion.WithResource("devices")
	_, err := devices.Resource(resource).List(ctx, one)
	switch {
	case err == nil:
		w.informers.Devices = dynamicinformer.NewDynamicSharedInformerFactory(devices, 0).ForResource(resource).Informer()
	case !apierrors.IsNotFound(err):
		return nil, listing("devices", err)
	}
	for _, informer := range w.informers.all() {
		if err := informer.SetTransform(request.Trim); err != nil {
			return nil, err
		}
		// Errors are retried; logs would spoil the screen.
		if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			return nil, err
		}
	}
	w.reader = NewReader(w.informers, plugin)
	return w, w.reader.OnChange(func() {
		select {
		case w.changed <- struct{}{}:
		default: // one is waiting already
		}
	})
}

// Run calls show with the cluster as it is, and again after changes, until the
// context ends. Changes that come together are shown together.
func (w *Watcher) Run(ctx context.Context, show func(*Objects) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, informer := range w.informers.all() {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, informer := range w.informers.all() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return ctx.Err()
		}
	}
	for {
		objects, err := w.reader.Objects()
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
		case <-time.After(debounce):
		}
	}
}
