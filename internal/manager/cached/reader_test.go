package cached

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/internal/gputest"
)

// caches are a cache and, for all kinds, its one informer.
type caches struct {
	client.Reader
	cache.Informer
	pods    []corev1.Pod
	devices []unstructured.Unstructured
	err     error
	filled  bool
	handler toolscache.ResourceEventHandler
}

func (c *caches) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = c.pods
	case *unstructured.UnstructuredList:
		list.Items = c.devices
	}
	return c.err
}

func (c *caches) HasSynced() bool { return c.filled }

func (c *caches) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	c.handler = handler
	return nil, nil
}

func (c *caches) reader() *Reader { return &Reader{reader: c, informers: []cache.Informer{c}} }

func device(name, version string) unstructured.Unstructured {
	d := NewDevice()
	d.SetName(name)
	d.SetResourceVersion(version)
	return *d
}

// TestObjects: pods that ask for cards come first and in order, then those that
// take CPU; pods that do neither are left out.
func TestObjects(t *testing.T) {
	c := &caches{pods: []corev1.Pod{
		*gputest.MakePod("cpu").App("cpu: 1").On("n1").Obj(), *gputest.MakePod("b").App("sgpu: 1").Obj(),
		*gputest.MakePod("a").App("sgpu: 1").On("n1").Obj(), *gputest.MakePod("waits").App("cpu: 1").Obj(),
	}}
	r := c.reader()
	if _, err := r.Objects(t.Context()); !errors.Is(err, ErrStarting) {
		t.Errorf("before the caches are filled: %v", err)
	}
	c.filled = true
	o, err := r.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range o.Pods {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "cpu"}, names); diff != "" || !o.Live {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	c.err = errors.New("the cache is gone")
	if _, err := r.Objects(t.Context()); !errors.Is(err, c.err) {
		t.Errorf("got %v", err)
	}
}

// TestDevicesAreDecodedOnce: one that did not change is not decoded again.
func TestDevicesAreDecodedOnce(t *testing.T) {
	r, items := &Reader{}, []unstructured.Unstructured{device("n1", "1"), device("n2", "1")}
	first := r.decode(items)
	items[1].SetResourceVersion("2")
	second := r.decode(items)
	if first["n1"].Device != second["n1"].Device || first["n2"].Device == second["n2"].Device {
		t.Error("want n1 kept and n2 decoded again")
	}
	if got := r.decode(items[:1]); len(got) != 1 || len(r.devices) != 1 {
		t.Errorf("%d Devices after one is gone", len(got))
	}
	items[0].Object["spec"] = map[string]any{"devices": "none"}
	items[0].SetResourceVersion("3")
	if got := r.decode(items); got["n1"].Err == nil || got["n2"].Err != nil {
		t.Error("a Device that can't be decoded has no error, or the other one has")
	}
}

func TestOnChange(t *testing.T) {
	c, changes := &caches{}, 0
	if err := c.reader().OnChange(func() { changes++ }); err != nil {
		t.Fatal(err)
	}
	with, without := gputest.MakePod("p").App("sgpu: 1").Obj(), gputest.MakePod("p").App("cpu: 1").Obj()
	cases := []struct {
		name string
		do   func()
		want int
	}{
		{"a node", func() { c.handler.OnAdd(&corev1.Node{}, false) }, 1},
		{"a pod with cards", func() { c.handler.OnAdd(with, false) }, 1},
		{"a pod without", func() { c.handler.OnAdd(without, false) }, 0},
		{"a pod that had cards", func() { c.handler.OnUpdate(with, without) }, 1},
		{"a pod that never had", func() { c.handler.OnUpdate(without, without) }, 0},
		{"a missed deletion", func() { c.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: with}) }, 1},
		{"a missed deletion without cards", func() { c.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: without}) }, 0},
	}
	for _, tc := range cases {
		changes = 0
		tc.do()
		if changes != tc.want {
			t.Errorf("%s: %d changes, want %d", tc.name, changes, tc.want)
		}
	}
}
