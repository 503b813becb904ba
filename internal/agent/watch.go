package agent

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

var (
	deviceResource = v1alpha1.GroupVersion.WithResource("devices")
	nodeResource   = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// view is what the agent sees of the cluster. Objects are shared: read only.
type view struct {
	// node is nil while it is not known or does not exist.
	node *metav1.PartialObjectMetadata
	// device is nil when there is none; deviceVersion is the version up to which the watch
	// of Devices has shown what there is.
	device        *v1alpha1.Device
	deviceVersion string
	devicesKnown  bool
	// pods are those of the node that ask for cards; vendorPod is the namespace and
	// name of the pod of the vendor's plugin. strayPods counts those in other namespaces
	// that resemble it, which any user may create.
	pods      []*corev1.Pod
	vendorPod string
	strayPods int
	podsKnown bool
	// modes is Daybreak's own ConfigMap, nil when there is none; vendorModes are those
	// of the vendor's operator.
	modes       *corev1.ConfigMap
	vendorModes []*corev1.ConfigMap
	modesKnown  bool
}

// watcher reports what happens in the cluster.
type watcher interface {
	run(ctx context.Context)
	// changed has something to receive after a change.
	changed() <-chan struct{}
	view() view
}

// liveWatcher watches the four kinds of objects that an agent needs, each narrowed to
// the node's own or by name: there are as many agents as nodes.
type liveWatcher struct {
	signal                     chan struct{}
	cfg                        *Config
	nodes, devices, pods, maps cache.SharedIndexInformer
	labelled                   cache.SharedIndexInformer // the vendor's ConfigMaps by label; nil if they go by name
}

func newWatcher(cfg *Config, c *Clients) *liveWatcher {
	w := &liveWatcher{signal: make(chan struct{}, 1), cfg: cfg}
	only := func(field, value string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() }
	}
	core := func(resource, namespace string, narrow func(*metav1.ListOptions)) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(c.Core.RESTClient(), resource, namespace, narrow)
	}
	informer := func(source *cache.ListWatch, kind runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(source, kind, 0, nil)
	}
	own := only(metav1.ObjectNameField, cfg.Node)
	w.nodes = w.add(metadatainformer.NewFilteredMetadataInformer(c.Metadata, nodeResource, metav1.NamespaceAll, 0, nil, own).Informer(), nil)
	w.devices = w.add(dynamicinformer.NewFilteredDynamicInformer(c.Devices, deviceResource, metav1.NamespaceAll, 0, nil, own).Informer(), toDevice)
	pods := &podSource{client: c.Core.RESTClient(), node: cfg.Node, vendor: &cfg.VendorPlugin}
	w.pods = w.add(informer(&cache.ListWatch{ListWithContextFunc: pods.list, WatchFuncWithContext: pods.watch}, &corev1.Pod{}), nil)
	// One watch for both ConfigMaps: there are as many of it as nodes.
	byName := only(metav1.ObjectNameField, wire.ModesConfigMap)
	w.maps = w.add(informer(core("configmaps", metav1.NamespaceAll, byName), &corev1.ConfigMap{}), w.trimModes)
	if cfg.VendorSelector != "" {
		w.labelled = w.add(informer(core("configmaps", cfg.VendorNamespace, func(o *metav1.ListOptions) { o.LabelSelector = cfg.VendorSelector }), &corev1.ConfigMap{}), nil)
	}
	return w
}

// add has changes that an informer sees wake the agent.
func (w *liveWatcher) add(i cache.SharedIndexInformer, transform cache.TransformFunc) cache.SharedIndexInformer {
	_ = i.SetTransform(transform) // fails only once it runs, as does the next
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.notify() }, UpdateFunc: func(_, _ any) { w.notify() }, DeleteFunc: func(any) { w.notify() },
	})
	return i
}

func (w *liveWatcher) notify() {
	select {
	case w.signal <- struct{}{}:
	default: // a notification is pending
	}
}

func (w *liveWatcher) changed() <-chan struct{} { return w.signal }

func (w *liveWatcher) run(ctx context.Context) {
	var group sync.WaitGroup
	all := []cache.SharedIndexInformer{w.nodes, w.devices, w.pods, w.maps}
	if w.labelled != nil {
		all = append(all, w.labelled)
	}
	for _, i := range all {
		group.Go(func() { i.RunWithContext(ctx) })
		// An empty list brings no event, but is worth knowing too.
		group.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
				w.notify()
			}
		})
	}
	group.Wait()
}

func (w *liveWatcher) view() view {
	v := view{
		deviceVersion: w.devices.GetStore().LastStoreSyncResourceVersion(), // before the Device, which may come in between
		node:          first[*metav1.PartialObjectMetadata](w.nodes), device: first[*v1alpha1.Device](w.devices),
		devicesKnown: w.devices.HasSynced(), podsKnown: w.pods.HasSynced(), modesKnown: w.maps.HasSynced() && (w.labelled == nil || w.labelled.HasSynced()),
	}
	for _, obj := range w.pods.GetStore().List() {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !wire.Holds(pod) {
			continue
		}
		if wire.Asks(pod) {
			v.pods = append(v.pods, pod)
		}
		switch p := &w.cfg.VendorPlugin; {
		case p.Owns(pod):
			v.vendorPod = pod.Namespace + "/" + pod.Name
		case p.Resembles(pod):
			v.strayPods++
		}
	}
	slices.SortFunc(v.pods, func(a, b *corev1.Pod) int {
		return strings.Compare(string(allocation.HolderOf(a)), string(allocation.HolderOf(b)))
	})
	w.addModes(&v)
	return v
}

// trimModes drops what is in the ConfigMaps of other namespaces, which any user may write.
func (w *liveWatcher) trimModes(obj any) (any, error) {
	m, ok := obj.(*corev1.ConfigMap)
	if !ok || m.Namespace == w.cfg.Namespace || m.Namespace == w.cfg.VendorNamespace {
		return obj, nil
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}}, nil
}

// addModes adds the ConfigMaps with modes. Those of other namespaces don't count:
// any user may write one.
func (w *liveWatcher) addModes(v *view) {
	byName := w.maps.GetStore()
	v.modes = mapAt(byName, w.cfg.Namespace)
	switch {
	case w.labelled != nil:
		for _, obj := range w.labelled.GetStore().List() {
			if m, ok := obj.(*corev1.ConfigMap); ok {
				v.vendorModes = append(v.vendorModes, m)
			}
		}
		slices.SortFunc(v.vendorModes, func(a, b *corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	case w.cfg.VendorNamespace != "":
		if m := mapAt(byName, w.cfg.VendorNamespace); m != nil {
			v.vendorModes = []*corev1.ConfigMap{m}
		}
	}
}

// mapAt returns the ConfigMap of a namespace, or nil.
func mapAt(store cache.Store, namespace string) *corev1.ConfigMap {
	obj, _, _ := store.GetByKey(namespace + "/" + wire.ModesConfigMap) // no error: the store is in memory
	m, _ := obj.(*corev1.ConfigMap)
	return m
}

// first returns the only object of a watch that is narrowed to one.
func first[T any](i cache.SharedIndexInformer) T {
	for _, obj := range i.GetStore().List() {
		if t, ok := obj.(T); ok {
			return t
		}
	}
	var none T
	return none
}

// toDevice decodes a Device. One that can't be read is kept with its metadata alone.
func toDevice(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // seen before, or a tombstone
	}
	return decodeDevice(u), nil
}

func decodeDevice(u *unstructured.Unstructured) *v1alpha1.Device {
	d, err := wire.DeviceOf(u)
	if err != nil {
		d = &v1alpha1.Device{}
		d.Name, d.ResourceVersion, d.UID, d.ManagedFields = u.GetName(), u.GetResourceVersion(), u.GetUID(), u.GetManagedFields()
	}
	return d
}

// older reports whether a is an older version of an object than b.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
