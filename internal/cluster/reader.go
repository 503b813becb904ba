package cluster

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ErrStarting is returned until the caches are filled.
var ErrStarting = errors.New("the cluster has not been read yet: try again in a moment")

// Source is a cluster to read.
type Source interface {
	// Objects returns the cluster as it was last seen. The caller must not change
	// the objects.
	Objects() (*Objects, error)
	// OnChange registers a function that is called after each change of what
	// Objects returns. The function must not block.
	OnChange(changed func()) error
}

// Reader is the [Source] of informers. Only [Reader.Run] asks the API server.
type Reader struct {
	informers Informers
	plugin    inventory.VendorPlugin
	changed   []func()

	mu       sync.Mutex
	devices  map[string]decoded // by node
	settings map[string]Settings
}

// decoded is a Device with the version it was decoded from. Of thousands of
// Devices few change.
type decoded struct {
	version string
	device  Device
}

// NewReader returns a reader of the informers. The plugin decides who serves a node
// without a Device.
func NewReader(informers Informers, plugin inventory.VendorPlugin) *Reader {
	return &Reader{informers: informers, plugin: plugin}
}

// Run reads the Leases now and then until the context ends: a watch would report each
// renewal.
func (r *Reader) Run(ctx context.Context, client kubernetes.Interface) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		settings := readSettings(ctx, client, r.plugin.Daybreak)
		r.mu.Lock()
		same := reflect.DeepEqual(settings, r.settings)
		r.settings = settings
		r.mu.Unlock()
		for _, changed := range r.changed {
			if !same {
				changed()
			}
		}
	}, leasesPeriod)
}

// OnChange implements [Source]. Pods that ask for no cards don't count: they are
// most pods of a cluster. Quotas about other things change with them.
func (r *Reader) OnChange(changed func()) error {
	r.changed = append(r.changed, changed)
	notify := func(objects ...any) {
		for _, obj := range objects {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if r.matters(obj) {
				changed()
				return
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { notify(obj) },
		UpdateFunc: func(before, obj any) { notify(before, obj) },
		DeleteFunc: func(obj any) { notify(obj) },
	}
	for _, informer := range r.informers.all() {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) matters(obj any) bool {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return wire.Asks(obj) || r.plugin.ServesNode(obj)
	case *corev1.ResourceQuota:
		return quota.Read(obj) != nil
	}
	return true
}

// Objects implements [Source].
func (r *Reader) Objects() (*Objects, error) {
	for _, informer := range r.informers.all() {
		if !informer.HasSynced() {
			return nil, ErrStarting
		}
	}
	devices, settings := r.decode()
	if settings == nil {
		return nil, ErrStarting
	}
	o := &Objects{Nodes: cached[*corev1.Node](r.informers.Nodes), Devices: devices, Settings: settings, Live: true, Undefined: r.informers.Devices == nil, VendorPlugin: r.plugin}
	o.Quotas, o.Namespaces = cached[*corev1.ResourceQuota](r.informers.Quotas), cached[*corev1.Namespace](r.informers.Namespaces)
	if r.informers.Quotas == nil {
		o.Notes = append(o.Notes, quotasForbidden)
	}
	if r.informers.Namespaces == nil {
		o.Notes = append(o.Notes, namespacesForbidden)
	}
	var others []*corev1.Pod // which take CPU of their nodes
	for _, pod := range cached[*corev1.Pod](r.informers.Pods) {
		switch {
		case wire.Asks(pod):
			o.Pods = append(o.Pods, pod)
		case wire.Holds(pod):
			others = append(others, pod)
		}
	}
	slices.SortFunc(o.Pods, byName)
	o.Pods = append(o.Pods, others...)
	return o, nil
}

// decode returns the Devices by name, and the settings. A Device that did not change
// since the last call is not decoded again.
func (r *Reader) decode() (map[string]Device, map[string]Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := cached[*unstructured.Unstructured](r.informers.Devices)
	devices, kept := make(map[string]Device, len(items)), make(map[string]decoded, len(items))
	for _, item := range items {
		name, version := item.GetName(), item.GetResourceVersion()
		d := r.devices[name]
		if d.version != version || version == "" {
			d = decoded{version: version, device: DecodeDevice(item)}
		}
		kept[name], devices[name] = d, d.device
	}
	r.devices = kept
	return devices, r.settings
}

// cached returns what the informer has, if there is one.
func cached[T any](informer cache.SharedIndexInformer) []T {
	if informer == nil {
		return nil
	}
	var objects []T
	for _, obj := range informer.GetStore().List() {
		if object, ok := obj.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}
