package local

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
)

// SchedulerUser is who the scheduler is to the API server.
const SchedulerUser = "daybreak-scheduler"

//go:embed rbac.yaml
var rbac string

// fieldManager names us in server-side apply.
const fieldManager = "daybreak-playground"

// Install puts the Device definition and the scheduler's rights into the
// cluster and returns when Devices can be created.
func (c *Cluster) Install(ctx context.Context) error {
	if err := c.Apply(ctx, strings.NewReader(string(crd.Device))); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(v1alpha1.GroupVersion.WithResource("devices")).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the Device definition: %w", err)
	}
	return c.Apply(ctx, strings.NewReader(rbac))
}

// Apply applies the objects of a YAML stream, as kubectl apply --server-side.
func (c *Cluster) Apply(ctx context.Context, r io.Reader) error {
	client, err := dynamic.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.REST())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	docs := utilyaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(obj.Object) == 0 {
			continue
		}
		if err := applyOne(ctx, client, mapper, obj); err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

func applyOne(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := obj.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		target = client.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = target.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
