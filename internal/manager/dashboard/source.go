package dashboard

import (
	"cmp"
	"context"
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

// cached is the cluster as the manager's caches have it.
type cached struct {
	reader    client.Reader
	informers []cache.Informer
	plugin    wire.VendorPlugin

	mu      sync.Mutex
	devices map[string]decoded // by node
}

// decoded is a Device and which version of it was decoded.
type decoded struct {
	version string
	device  cluster.Device
}

// NewSource returns the cluster that the cache holds. It must be called before
// the cache starts. The plugin tells who serves a node without a Device.
func NewSource(ctx context.Context, c cache.Cache, plugin wire.VendorPlugin) (Source, error) {
	s := &cached{reader: c, plugin: plugin, devices: map[string]decoded{}}
	for _, kind := range []client.Object{&corev1.Node{}, &corev1.Pod{}, newDevice()} {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		s.informers = append(s.informers, informer)
	}
	return s, nil
}

func newDevice() *unstructured.Unstructured {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Device"))
	return d
}

// matters reports whether the page depends on the pod. Most pods of a cluster
// ask for no cards.
func (s *cached) matters(pod *corev1.Pod) bool { return wire.Asks(pod) || s.plugin.Tells(pod) }

// OnChange implements [Source].
func (s *cached) OnChange(changed func()) error {
	tell := func(objects ...any) {
		for _, obj := range objects {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); !ok || s.matters(pod) {
				changed()
				return
			}
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj) },
		UpdateFunc: func(before, obj any) { tell(before, obj) },
		DeleteFunc: func(obj any) { tell(obj) },
	}
	for _, informer := range s.informers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// Objects implements [Source].
func (s *cached) Objects(ctx context.Context) (*cluster.Objects, error) {
	for _, informer := range s.informers {
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
		// What is in the cache is read and not changed: a copy of a hundred
		// thousand pods would take longer than all that follows.
		if err := s.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	o := &cluster.Objects{Devices: make(map[string]cluster.Device, len(devices.Items)), Live: true, VendorPlugin: s.plugin}
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
	s.decode(devices.Items, o.Devices)
	return o, nil
}

// decode decodes the Devices that are not the ones of last time.
func (s *cached) decode(items []unstructured.Unstructured, into map[string]cluster.Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make(map[string]decoded, len(items))
	for i := range items {
		item := &items[i]
		d := s.devices[item.GetName()]
		if version := item.GetResourceVersion(); d.version != version || version == "" {
			d = decoded{version: version, device: decode(item)}
		}
		kept[item.GetName()], into[item.GetName()] = d, d.device
	}
	s.devices = kept
}

func decode(item *unstructured.Unstructured) cluster.Device {
	text, err := item.MarshalJSON()
	if err != nil {
		return cluster.Device{Err: err}
	}
	return cluster.DecodeDevice(text)
}
