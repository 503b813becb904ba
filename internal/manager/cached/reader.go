// Package cached reads the whole cluster from the manager's caches. It asks the
// API server for nothing.
package cached

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ErrStarting is returned until the caches are filled.
var ErrStarting = errors.New("the cluster has not been read yet: try again in a moment")

// Source is a cluster to read.
type Source interface {
	// Objects returns the cluster as it was last seen. The caller must not change
	// the objects.
	Objects(ctx context.Context) (*cluster.Objects, error)
	// OnChange registers a function that is called after each change of what
	// Objects returns. The function must not block.
	OnChange(changed func()) error
}

// Reader is the [Source] of the manager's caches.
type Reader struct {
	reader    client.Reader
	informers []cache.Informer
	plugin    wire.VendorPlugin

	mu      sync.Mutex
	devices map[string]decoded // by node
}

// decoded is a Device with the version it was decoded from. Of thousands of
// Devices few change.
type decoded struct {
	version string
	device  cluster.Device
}

// NewReader returns a reader of the cache, which must not have been started. The
// plugin decides who serves a node without a Device.
func NewReader(ctx context.Context, c cache.Cache, plugin wire.VendorPlugin) (*Reader, error) {
	r := &Reader{reader: c, plugin: plugin}
	for _, kind := range []client.Object{&corev1.Node{}, &corev1.Pod{}, NewDevice()} {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		r.informers = append(r.informers, informer)
	}
	return r, nil
}

// NewDevice returns an empty Device without a Go type: one that can't be decoded
// must not keep the others from being read.
func NewDevice() *unstructured.Unstructured {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Device"))
	return d
}

// OnChange implements [Source]. Pods that ask for no cards don't count: they are
// most pods of a cluster.
func (r *Reader) OnChange(changed func()) error {
	notify := func(objects ...any) {
		for _, obj := range objects {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); !ok || wire.Asks(pod) || r.plugin.ServesNode(pod) {
				changed()
				return
			}
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { notify(obj) },
		UpdateFunc: func(before, obj any) { notify(before, obj) },
		DeleteFunc: func(obj any) { notify(obj) },
	}
	for _, informer := range r.informers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// Objects implements [Source].
func (r *Reader) Objects(ctx context.Context) (*cluster.Objects, error) {
	for _, informer := range r.informers {
		if !informer.HasSynced() {
			return nil, ErrStarting
		}
	}
	var (
		nodes   corev1.NodeList
		pods    corev1.PodList
		devices unstructured.UnstructuredList
	)
	devices.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DeviceList"))
	for _, list := range []client.ObjectList{&nodes, &pods, &devices} {
		// A copy of a hundred thousand pods would take longer than all that follows.
		if err := r.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	o := &cluster.Objects{Devices: r.decode(devices.Items), Live: true, VendorPlugin: r.plugin}
	for i := range nodes.Items {
		o.Nodes = append(o.Nodes, &nodes.Items[i])
	}
	var others []*corev1.Pod // which take CPU of their nodes
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case wire.Asks(pod):
			o.Pods = append(o.Pods, pod)
		case wire.Holds(pod):
			others = append(others, pod)
		}
	}
	slices.SortFunc(o.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	o.Pods = append(o.Pods, others...)
	return o, nil
}

// decode returns the Devices by name. One that did not change since the last
// call is not decoded again.
func (r *Reader) decode(items []unstructured.Unstructured) map[string]cluster.Device {
	r.mu.Lock()
	defer r.mu.Unlock()
	devices, kept := make(map[string]cluster.Device, len(items)), make(map[string]decoded, len(items))
	for i := range items {
		item := &items[i]
		name, version := item.GetName(), item.GetResourceVersion()
		d := r.devices[name]
		if d.version != version || version == "" {
			d = decoded{version: version, device: cluster.DecodeDevice(item)}
		}
		kept[name], devices[name] = d, d.device
	}
	r.devices = kept
	return devices
}
