package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// fakes are the two clients of a cluster with a node, two pods and two Devices,
// one of which has a field of the wrong type.
type fakes struct {
	typed   *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
}

func newFakes() fakes {
	device := func(name string, minor any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Device", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"devices": []any{map[string]any{"type": "gpu", "id": "GPU-" + name, "minor": minor, "health": true,
				"resources": map[string]any{"koordinator.sh/gpu-memory": "64Gi"}}}},
		}}
	}
	kinds := map[schema.GroupVersionResource]string{devices: "DeviceList"}
	for resource, kind := range map[string]string{"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota", "namespaces": "Namespace"} {
		kinds[corev1.SchemeGroupVersion.WithResource(resource)] = kind + "List"
	}
	return fakes{
		typed: fake.NewClientset(
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p1"}, Spec: corev1.PodSpec{NodeName: "n1"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "p2"}}),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, device("n1", int64(0)), device("n2", "zero")),
	}
}

// client returns a client of the cluster, which is always there.
func (f fakes) client() *Client {
	return &Client{typed: f.typed, untyped: f.dynamic, ping: func(context.Context) error { return nil }}
}

// refuse makes both clients answer lists of a resource with an error.
func (f fakes) refuse(resource string, err error) {
	refusal := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	f.typed.PrependReactor("list", resource, refusal)
	f.dynamic.PrependReactor("list", resource, refusal)
}

func TestReadClients(t *testing.T) {
	f := newFakes()
	objects, err := f.client().Read(t.Context(), "")
	gputest.Must(t, err)
	want := names{Nodes: []string{"n1"}, Devices: []string{"n1", "n2"}, Pods: []string{"a/p1", "b/p2"}}
	gputest.Equal(t, "read", want, namesOf(objects))
	s := objects.Snapshot()
	sound, broken := s.Nodes[0], s.Nodes[1]
	if sound.Problem != nil || sound.Topology().Len() != 1 {
		t.Errorf("n1 has %d cards and the problem %v, want 1 card and none", sound.Topology().Len(), sound.Problem)
	}
	if want := "the Device can't be decoded: spec.devices.minor is a string, want a whole number in range"; broken.Problem == nil || broken.Problem.Error() != want {
		t.Errorf("n2 has the problem %v, want %q", broken.Problem, want)
	}
}

// TestReadClientsWithoutRights: who may not list quotas and namespaces gets an answer
// without them, and a note.
func TestReadClientsWithoutRights(t *testing.T) {
	f := newFakes()
	for _, resource := range []string{"resourcequotas", "namespaces"} {
		f.refuse(resource, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil))
	}
	want := names{Nodes: []string{"n1"}, Devices: []string{"n1", "n2"}, Pods: []string{"a/p1", "b/p2"}, Notes: []string{quotasForbidden, namespacesForbidden}}
	objects, err := f.client().Read(t.Context(), "")
	gputest.Must(t, err)
	gputest.Equal(t, "read", want, namesOf(objects))
	w, err := NewWatcher(t.Context(), f.client(), inventory.VendorPlugin{})
	gputest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want.Pods = []string{"a/p1"}
	err = w.Run(ctx, func(s Sight) error {
		gputest.Equal(t, "watched", want, namesOf(s.Objects))
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the end of the context", err)
	}
}

// TestReadClientsErrors: what is missing is one sentence, for those who watch too, whose
// informers would wait without end.
func TestReadClientsErrors(t *testing.T) {
	const rights = "; the rights to list nodes, pods and devices.scheduling.koordinator.sh are required: bind the chart's ClusterRole daybreak-viewer to the user"
	forbidden := func(group, resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, "",
			fmt.Errorf("User %q cannot list resource %q", "jane", resource))
	}
	for name, tc := range map[string]struct {
		resource string
		err      error
		want     string
	}{
		"nodes are forbidden": {"nodes", forbidden("", "nodes"), `list nodes: nodes is forbidden: User "jane" cannot list resource "nodes"` + rights},
		"pods are forbidden":  {"pods", forbidden("", "pods"), `list pods: pods is forbidden: User "jane" cannot list resource "pods"` + rights},
		"devices are forbidden": {
			"devices", forbidden(v1alpha1.GroupVersion.Group, "devices"),
			`list devices: devices.scheduling.koordinator.sh is forbidden: User "jane" cannot list resource "devices"` + rights,
		},
		"the credentials have expired": {
			"nodes", apierrors.NewUnauthorized("expired"), "list nodes: expired; renew the credentials of the kubeconfig, or name another with --kubeconfig or --context",
		},
		"the server does not answer": {
			"nodes", &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")},
			`list nodes: Get "https://x": connection refused; check that the API server runs and is reachable, or name another cluster with --kubeconfig or --context`,
		},
		"quotas can't be listed": {"resourcequotas", apierrors.NewServiceUnavailable("try later"), "list resourcequotas: try later"},
		"the server is busy":     {"devices", apierrors.NewServiceUnavailable("try later"), "list devices: try later"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			f.refuse(tc.resource, tc.err)
			if _, err := f.client().Read(t.Context(), ""); err == nil || err.Error() != tc.want {
				t.Errorf("read: error %v, want %q", err, tc.want)
			}
			if _, err := NewWatcher(t.Context(), f.client(), inventory.VendorPlugin{}); err == nil || err.Error() != tc.want {
				t.Errorf("watched: error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestReadHTTP talks HTTP: lists come in pages and their items have no kind, and
// a resource that the server does not know is a plain 404.
func TestReadHTTP(t *testing.T) {
	pages := map[string]string{
		"/api/v1/nodes":          `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"}}]}`,
		"/api/v1/pods":           `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{"metadata":{"namespace":"a","name":"p1"}}]}`,
		"/api/v1/pods from more": `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"b","name":"p2"}}]}`,
		"/api/v1/resourcequotas": `{"kind":"ResourceQuotaList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"budget"}}]}`,
		"/api/v1/namespaces":     `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if from := r.URL.Query().Get("continue"); from != "" {
			key += " from " + from
		}
		body, ok := pages[key]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()

	client, err := NewClient(&rest.Config{Host: server.URL})
	gputest.Must(t, err)
	objects, err := client.Read(t.Context(), "")
	gputest.Must(t, err)
	want := names{Nodes: []string{"n1"}, Pods: []string{"a/p1", "b/p2"}, Quotas: []string{"a/budget"}, Namespaces: []string{"a"}}
	gputest.Equal(t, "read", want, namesOf(objects))

	server.Close()
	if _, err := client.Read(t.Context(), ""); err == nil || !strings.HasPrefix(err.Error(), "list nodes: ") {
		t.Errorf("error %v, want one that says what was listed", err)
	}
}
