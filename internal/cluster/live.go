package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// Config returns how to reach the cluster: by the kubeconfig file, or from
// inside when the path is empty.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no cluster: name a kubeconfig with --kubeconfig, or run inside a cluster (%w)", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// ReadLive reads the nodes, Devices and pods of the cluster.
func ReadLive(ctx context.Context, config *rest.Config) (*Objects, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	devices, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return readClients(ctx, client, devices)
}

func readClients(ctx context.Context, client kubernetes.Interface, devices dynamic.Interface) (*Objects, error) {
	o := &Objects{Devices: map[string]Device{}}
	err := each(ctx, listOf(client.CoreV1().Nodes().List), func(node *corev1.Node) error {
		o.Nodes = append(o.Nodes, node)
		return nil
	})
	if err != nil {
		return nil, listing("nodes", err)
	}
	err = each(ctx, listOf(client.CoreV1().Pods(metav1.NamespaceAll).List), func(pod *corev1.Pod) error {
		o.Pods = append(o.Pods, pod)
		return nil
	})
	if err != nil {
		return nil, listing("pods", err)
	}
	resource := v1alpha1.GroupVersion.WithResource("devices")
	err = each(ctx, listOf(devices.Resource(resource).List), func(item *unstructured.Unstructured) error {
		text, err := json.Marshal(item)
		if err != nil {
			return err
		}
		o.Devices[item.GetName()] = decodeDevice(text)
		return nil
	})
	// A cluster with the vendor's stack alone has no Devices.
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, listing("devices", err)
	}
	return o, nil
}

// listing tells what was being listed, and what to do where that is forbidden.
func listing(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("list %s: %w; to read a cluster takes the right to list nodes, pods and devices.%s", what, err, v1alpha1.GroupVersion.Group)
	}
	return fmt.Errorf("list %s: %w", what, err)
}

// listOf makes a typed List method one that the pager can call.
func listOf[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return list(ctx, opts) }
}

// each lists page by page and hands over the items one by one.
func each[T runtime.Object](ctx context.Context, list pager.ListPageFunc, do func(T) error) error {
	return pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		item, ok := obj.(T)
		if !ok {
			return fmt.Errorf("got a %T", obj)
		}
		return do(item)
	})
}
