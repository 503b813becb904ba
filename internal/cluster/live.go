package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// Access says which cluster to talk to.
type Access struct {
	// Kubeconfig is a file; empty means what kubectl would take: $KUBECONFIG,
	// ~/.kube/config, or inside a cluster that cluster.
	Kubeconfig string
	// Context is one of the kubeconfig's, empty for its current one.
	Context string
}

// ErrNoCluster is returned by [Access.Config] when nothing names a cluster.
var ErrNoCluster = errors.New("no cluster: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run inside a cluster")

func (a Access) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	rules.WarnIfAllMissing = false // Config returns it
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context})
}

// Config returns how to reach the cluster.
func (a Access) Config() (*rest.Config, error) {
	config, err := a.loader().ClientConfig()
	if err == nil {
		return config, nil
	}
	if err := a.missing(); err != nil {
		return nil, err
	}
	switch {
	case a.Context != "":
		advice := ""
		if there := a.Contexts(); len(there) > 0 {
			advice = "; there are " + strings.Join(there, ", ")
		}
		return nil, fmt.Errorf("context %s: %w%s", a.Context, err, advice)
	case a.Kubeconfig != "":
		return nil, fmt.Errorf("kubeconfig %s: %w", a.Kubeconfig, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, ErrNoCluster
	}
	return nil, fmt.Errorf("kubeconfig: %w", err)
}

// missing returns an error if a kubeconfig is named and does not exist. Of several
// in $KUBECONFIG one is enough, as for kubectl.
func (a Access) missing() error {
	files, named := []string{a.Kubeconfig}, ""
	if a.Kubeconfig == "" {
		files, named = filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)), " that $KUBECONFIG names"
		files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	}
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	switch len(files) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("kubeconfig %s: the file%s does not exist", files[0], named)
	}
	return fmt.Errorf("kubeconfig %s: the files%s do not exist", strings.Join(files, ", "), named)
}

// Contexts lists what Context could be; nothing when no kubeconfig can be read.
func (a Access) Contexts() []string {
	raw, err := a.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// Namespace returns the namespace that the context names, or default.
func (a Access) Namespace() string {
	namespace, _, err := a.loader().Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}

// Client reads a cluster.
type Client struct {
	typed   kubernetes.Interface
	untyped dynamic.Interface           // for Devices
	names   metadata.Interface          // for what only the names are read of
	ping    func(context.Context) error // see [Ping]
}

// NewClient returns a client of the cluster.
func NewClient(config *rest.Config) (*Client, error) {
	typed, err1 := kubernetes.NewForConfig(config)
	untyped, err2 := dynamic.NewForConfig(config)
	names, err3 := metadata.NewForConfig(config)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return nil, err
	}
	ping := func(ctx context.Context) error { return Ping(ctx, typed.Discovery().RESTClient()) }
	return &Client{typed: typed, untyped: untyped, names: names, ping: ping}, nil
}

// Client returns a client of the cluster.
func (a Access) Client() (*Client, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// ReadPods reads what a user may see who has rights in one namespace: one pod of
// it, or with an empty name all of them.
func (c *Client) ReadPods(ctx context.Context, namespace, name string) (o *Objects, err error) {
	o = &Objects{Live: true}
	if name == "" {
		o.Pods, err = list[*corev1.Pod](ctx, c.typed.CoreV1().Pods(namespace).List)
		if err != nil {
			err = fmt.Errorf("list pods of namespace %s: %w", namespace, err)
		}
		return o, err
	}
	pod, err := c.typed.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no pod %s in namespace %s", name, namespace)
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	_, err = request.Trim(pod)
	o.Pods = []*corev1.Pod{pod}
	return o, err
}

// Read reads the nodes, Devices and pods of the cluster, where Daybreak is in the given
// namespace or, if that is empty, in the usual one.
func (c *Client) Read(ctx context.Context, daybreak string) (*Objects, error) {
	o, core := &Objects{Devices: map[string]Device{}, Live: true}, c.typed.CoreV1()
	var err error
	if o.Nodes, err = list[*corev1.Node](ctx, core.Nodes().List); err != nil {
		return nil, listing("nodes", err)
	}
	if o.Pods, err = list[*corev1.Pod](ctx, core.Pods(metav1.NamespaceAll).List); err != nil {
		return nil, listing("pods", err)
	}
	items, err := list[*unstructured.Unstructured](ctx, c.untyped.Resource(devices).List)
	// A cluster with the vendor's stack alone has no Devices.
	o.Undefined = apierrors.IsNotFound(err)
	if err != nil && !o.Undefined {
		return nil, listing("devices", err)
	}
	for _, item := range items {
		o.Devices[item.GetName()] = DecodeDevice(item)
	}
	if o.Quotas, err = listIfAllowed[*corev1.ResourceQuota](ctx, o, quotasForbidden, core.ResourceQuotas(metav1.NamespaceAll).List); err != nil {
		return nil, listing("resourcequotas", err)
	}
	if o.Namespaces, err = listIfAllowed[*corev1.Namespace](ctx, o, namespacesForbidden, core.Namespaces().List); err != nil {
		return nil, listing("namespaces", err)
	}
	o.Settings = readSettings(ctx, c.typed, daybreak)
	return o, nil
}

// Notes of what answers lack where the user may not list something.
const (
	quotasForbidden     = "quotas are left out: this user may not list resourcequotas; the chart's ClusterRole daybreak-viewer has the right"
	namespacesForbidden = "which namespaces enforce quotas is not known: this user may not list namespaces; the chart's ClusterRole daybreak-viewer has the right"
)

// listIfAllowed lists what answers do not depend on: without the right to it they have
// a note.
func listIfAllowed[T, L runtime.Object](ctx context.Context, o *Objects, note string, page func(context.Context, metav1.ListOptions) (L, error)) ([]T, error) {
	items, err := list[T](ctx, page)
	if apierrors.IsForbidden(err) {
		o.Notes = append(o.Notes, note)
		return nil, nil
	}
	return items, err
}

// listing adds what was being listed, and what to do about the error.
func listing(what string, err error) error {
	var network *url.Error
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("list %s: %w; the rights to list nodes, pods and devices.%s are required: bind the chart's ClusterRole daybreak-viewer to the user", what, err, v1alpha1.GroupVersion.Group)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("list %s: %w; renew the credentials of the kubeconfig, or name another with --kubeconfig or --context", what, err)
	case errors.As(err, &network):
		return fmt.Errorf("list %s: %w; check that the API server runs and is reachable, or name another cluster with --kubeconfig or --context", what, err)
	}
	return fmt.Errorf("list %s: %w", what, err)
}

// list lists page by page, and trims the items.
func list[T, L runtime.Object](ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error)) (items []T, err error) {
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return page(ctx, opts) })
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		trimmed, err := request.Trim(obj)
		if err != nil {
			return err
		}
		item, ok := trimmed.(T)
		if !ok {
			return fmt.Errorf("got a %T", obj)
		}
		items = append(items, item)
		return nil
	})
	return items, err
}
