package cluster

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// devices is the resource of Devices.
var devices = v1alpha1.GroupVersion.WithResource("devices")

// Informers are those of a cluster. Devices have no Go type: one that can't be
// decoded must not keep the others from being read. They are nil where the cluster
// has no such resource.
type Informers struct {
	Nodes, Pods, Devices cache.SharedIndexInformer
	// Quotas and Namespaces are nil where the user may not list them.
	Quotas, Namespaces cache.SharedIndexInformer
}

func (i Informers) all() []cache.SharedIndexInformer {
	return slices.DeleteFunc([]cache.SharedIndexInformer{i.Nodes, i.Pods, i.Devices, i.Quotas, i.Namespaces},
		func(informer cache.SharedIndexInformer) bool { return informer == nil })
}

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Open returns the informers of a cluster, not filled yet, with each from the given
// function. An informer of what is not there, or may not be listed, never fills:
// a first list shows that, and is an error of what nothing can be shown without.
func Open(ctx context.Context, lists dynamic.Interface, informer func(schema.GroupVersionResource, Object) (cache.SharedIndexInformer, error)) (Informers, error) {
	never := func(error) bool { return false }
	core := corev1.SchemeGroupVersion
	var out Informers
	for _, x := range []struct {
		resource schema.GroupVersionResource
		of       Object
		informer *cache.SharedIndexInformer
		optional func(error) bool
	}{
		{core.WithResource("nodes"), &corev1.Node{}, &out.Nodes, never},
		{core.WithResource("pods"), &corev1.Pod{}, &out.Pods, never},
		{devices, NewDevice(), &out.Devices, apierrors.IsNotFound},
		{core.WithResource("resourcequotas"), &corev1.ResourceQuota{}, &out.Quotas, apierrors.IsForbidden},
		{core.WithResource("namespaces"), &corev1.Namespace{}, &out.Namespaces, apierrors.IsForbidden},
	} {
		err := probe(ctx, lists, x.resource)
		switch {
		case err == nil:
			*x.informer, err = informer(x.resource, x.of)
		case x.optional(err):
			err = nil
		default:
			err = listing(x.resource.Resource, err)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// probe lists one object of the resource.
func probe(ctx context.Context, lists dynamic.Interface, resource schema.GroupVersionResource) error {
	_, err := lists.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// NewDevice returns an empty Device without a Go type.
func NewDevice() *unstructured.Unstructured {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Device"))
	return d
}
