package scheduler

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }

// modelInformer is an informer whose watch is the model's log. As with client-go
// the store is brought up to date first, and each handler hears of the change
// some time later, on its own.
type modelInformer struct {
	cache.SharedIndexInformer
	indexer  cache.Indexer
	next     int // in the log
	version  atomic.Uint64
	handlers []*listener
	// bookmarked is when the version last moved without a change.
	bookmarked time.Time
}

// listener is a handler with the changes that it has not heard of.
type listener struct {
	handler cache.ResourceEventHandler
	behind  []change
}

func newModelInformer() *modelInformer {
	i := &modelInformer{bookmarked: time.Now()}
	i.indexer = modelIndexer{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), informer: i,
	}
	return i
}

// modelIndexer is an informer's store, which knows its version.
type modelIndexer struct {
	cache.Indexer
	informer *modelInformer
}

// LastStoreSyncResourceVersion returns the version of the store's content.
func (i modelIndexer) LastStoreSyncResourceVersion() string {
	return formatVersion(i.informer.version.Load())
}

func (i *modelInformer) GetStore() cache.Store { return i.indexer }

func (i *modelInformer) GetIndexer() cache.Indexer { return i.indexer }

func (i *modelInformer) AddIndexers(x cache.Indexers) error { return i.indexer.AddIndexers(x) }

func (i *modelInformer) SetTransform(cache.TransformFunc) error { return nil }

func (i *modelInformer) LastSyncResourceVersion() string { return formatVersion(i.version.Load()) }

func (*modelInformer) HasSynced() bool { return true }

func (i *modelInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, &listener{handler: h})
	return registration{}, nil
}

func (i *modelInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (i *modelInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// registration shows that a handler has seen what was there at the beginning:
// a scheduler does nothing before that.
type registration struct{}

func (registration) HasSynced() bool { return true }

func (registration) HasSyncedChecker() cache.DoneChecker { return nil }

// receive brings the store up to the next change of the log.
func (i *modelInformer) receive(c change) {
	i.next++
	i.version.Store(c.version)
	i.apply(c)
}

// apply brings the store up to the change, of which the handlers are to hear.
func (i *modelInformer) apply(c change) {
	// The store's functions fail for objects without names alone.
	switch {
	case c.now == nil:
		_ = i.indexer.Delete(c.old)
	case c.old == nil:
		_ = i.indexer.Add(c.now)
	default:
		_ = i.indexer.Update(c.now)
	}
	for _, l := range i.handlers {
		l.behind = append(l.behind, c)
	}
}

// keyOf returns under which key a store has the object.
func keyOf(o object) string { return cache.MetaObjectToName(o).String() }

// relist replaces the store by what was listed at a version. Of what came in between
// nothing is heard, and of an object that is gone its last known state is.
func (i *modelInformer) relist(listed []object, version uint64, next int) {
	i.next = next
	i.version.Store(version)
	var changes []change
	here := map[string]bool{}
	for _, now := range listed {
		here[keyOf(now)] = true
		old, _ := i.stored(keyOf(now))
		if old == nil || old.GetResourceVersion() != now.GetResourceVersion() {
			changes = append(changes, change{version: version, old: old, now: now})
		}
	}
	var gone []change
	for _, key := range slices.Sorted(slices.Values(i.indexer.ListKeys())) {
		if old, ok := i.stored(key); ok && !here[key] {
			gone = append(gone, change{version: version, old: old, unseen: true})
		}
	}
	for _, c := range append(gone, changes...) {
		i.apply(c)
	}
}

// stored returns an object of the store.
func (i *modelInformer) stored(key string) (object, bool) {
	obj, ok, err := i.indexer.GetByKey(key)
	if err != nil || !ok {
		return nil, false
	}
	o, ok := obj.(object)
	return o, ok
}

// hear passes the handler the change that it is to hear of next.
func (l *listener) hear() {
	c := l.behind[0]
	l.behind = l.behind[1:]
	switch {
	case c.unseen:
		l.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: keyOf(c.old), Obj: c.old})
	case c.now == nil:
		l.handler.OnDelete(c.old)
	case c.old == nil:
		l.handler.OnAdd(c.now, false)
	default:
		l.handler.OnUpdate(c.old, c.now)
	}
}

// modelInformers is the factory of a scheduler's informers. Those of kinds that
// the model has not are empty for ever.
type modelInformers struct {
	informers.SharedInformerFactory
	pods, nodes, devices, quotas *modelInformer
	others                       map[reflect.Type]*modelInformer
}

func newModelInformers() *modelInformers {
	return &modelInformers{
		pods: newModelInformer(), nodes: newModelInformer(), devices: newModelInformer(), quotas: newModelInformer(), others: map[reflect.Type]*modelInformer{},
	}
}

// of returns the informer of the kind.
func (f *modelInformers) of(kind string) *modelInformer {
	switch kind {
	case kindPod:
		return f.pods
	case kindNode:
		return f.nodes
	case kindQuota:
		return f.quotas
	default:
		return f.devices
	}
}

func (f *modelInformers) InformerFor(obj runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	switch obj.(type) {
	case *corev1.Pod:
		return f.pods
	case *corev1.Node:
		return f.nodes
	case *corev1.ResourceQuota:
		return f.quotas
	}
	kind := reflect.TypeOf(obj)
	if f.others[kind] == nil {
		f.others[kind] = newModelInformer()
	}
	return f.others[kind]
}

func (*modelInformers) InformerName() *cache.InformerName { return nil }

func (*modelInformers) Start(<-chan struct{}) {}

func (*modelInformers) StartWithContext(context.Context) {}

func (f *modelInformers) Core() core.Interface { return core.New(f, corev1.NamespaceAll, nil) }

func (f *modelInformers) Apps() appsinformers.Interface {
	return appsinformers.New(f, corev1.NamespaceAll, nil)
}

func (f *modelInformers) Policy() policy.Interface { return policy.New(f, corev1.NamespaceAll, nil) }

func (f *modelInformers) Storage() storage.Interface { return storage.New(f, corev1.NamespaceAll, nil) }

func (f *modelInformers) Resource() resource.Interface {
	return resource.New(f, corev1.NamespaceAll, nil)
}

// modelDynamic is the factory of the informer of Devices.
type modelDynamic struct {
	dynamicinformer.DynamicSharedInformerFactory
	informers *modelInformers
}

func (d modelDynamic) ForResource(schema.GroupVersionResource) informers.GenericInformer {
	return modelGeneric{informer: d.informers.devices}
}

type modelGeneric struct {
	informers.GenericInformer
	informer *modelInformer
}

func (g modelGeneric) Informer() cache.SharedIndexInformer { return g.informer }
