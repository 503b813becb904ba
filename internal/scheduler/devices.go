package scheduler

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// deviceResource is the name under which Devices are watched.
var deviceResource = v1alpha1.GroupVersion.WithResource("devices")

// device is a Device as the scheduler keeps it: decoded once when it arrives,
// without what is not read here.
type device struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// spec is nil when err says why it can't be decoded.
	spec *v1alpha1.Device
	err  error
}

// DeepCopyObject returns the device itself: it is never changed.
func (d *device) DeepCopyObject() runtime.Object { return d }

// decides reports whether the Device lists the cards of its node, or can't be read,
// whichever plugin serves the node.
func (d *device) decides() bool {
	return d != nil && (d.err != nil || inventory.DescribesCards(d.spec))
}

// trim is the informer's transform.
func trim(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	d := &device{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		DeletionTimestamp: u.GetDeletionTimestamp(),
	}}
	var err error
	if d.spec, err = wire.DeviceOf(u); err != nil {
		d.err = fmt.Errorf("the Device can't be decoded: %w", err)
		return d, nil
	}
	d.spec.ManagedFields = nil
	return d, nil
}

// devices is the store of the Device informer. It is set before the scheduler
// runs, after the plugin was made.
type devices struct {
	store cache.Store
	pods  *pods
}

// touch notes that the node's Device has changed. Listeners of one informer run
// concurrently, so every one that hears of a change calls it.
func (d *devices) touch(node string) {
	d.pods.mu.Lock()
	defer d.pods.mu.Unlock()
	d.pods.changed[node] = struct{}{}
}

// watch makes the factory's informer for Devices keep them in trim form. It
// is the same informer that kube-scheduler takes its Device events from.
func (d *devices) watch(factory dynamicinformer.DynamicSharedInformerFactory) error {
	informer := factory.ForResource(deviceResource).Informer()
	if err := informer.SetTransform(trim); err != nil {
		return fmt.Errorf("watch devices: %w", err)
	}
	d.store = informer.GetStore()
	return watch(informer, "devices", func(_, dev *device) { d.touch(dev.Name) }, func(dev *device) { d.touch(dev.Name) })
}

// get returns the Device of the node, or nil.
func (d *devices) get(node string) *device {
	if d.store == nil {
		return nil
	}
	obj, ok, err := d.store.GetByKey(node)
	if err != nil || !ok {
		return nil
	}
	dev, ok := obj.(*device)
	if !ok {
		return nil
	}
	return dev
}

// checkDevices finds out early what would otherwise be an informer that never
// syncs.
func checkDevices(ctx context.Context, client dynamic.Interface) error {
	_, err := client.Resource(deviceResource).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server knows no %s: apply the CustomResourceDefinition devices.%s first", deviceResource.Resource, deviceResource.Group)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this scheduler may not list devices.%s: give its account the verbs get, list and watch on them", deviceResource.Group)
	case err != nil:
		return fmt.Errorf("list devices: %w", err)
	}
	return nil
}
