package cluster

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// objectsInformer is an informer of objects that the test sets.
type objectsInformer struct {
	cache.SharedIndexInformer
	cache.Store
	objects []any
	filled  bool
	handler cache.ResourceEventHandler
}

func (i *objectsInformer) GetStore() cache.Store { return i }

func (i *objectsInformer) List() []any { return i.objects }

func (i *objectsInformer) HasSynced() bool { return i.filled }

func (i *objectsInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return nil, nil
}

// reader reads the informer for all kinds.
func (i *objectsInformer) reader() *Reader {
	return &Reader{informers: Informers{Nodes: i, Pods: i, Devices: i}, settings: map[string]Settings{}}
}

func device(name, version string) *unstructured.Unstructured {
	d := NewDevice()
	d.SetName(name)
	d.SetResourceVersion(version)
	return d
}

// TestObjects: pods that ask for cards come first and in order, then those that
// take CPU; pods that do neither are left out.
func TestObjects(t *testing.T) {
	c := &objectsInformer{objects: []any{
		gputest.MakePod("cpu").App("cpu: 1").On("n1").Obj(), gputest.MakePod("b").App("sgpu: 1").Obj(),
		gputest.MakePod("a").App("sgpu: 1").On("n1").Obj(), gputest.MakePod("waits").App("cpu: 1").Obj(),
	}}
	r := c.reader()
	if _, err := r.Objects(); !errors.Is(err, ErrStarting) {
		t.Errorf("before the caches are filled: %v", err)
	}
	c.filled = true
	o, err := r.Objects()
	gputest.Must(t, err)
	var names []string
	for _, pod := range o.Pods {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "cpu"}, names); diff != "" || !o.Live {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// TestDevicesAreDecodedOnce: one that did not change is not decoded again.
func TestDevicesAreDecodedOnce(t *testing.T) {
	n1, n2 := device("n1", "1"), device("n2", "1")
	c := &objectsInformer{objects: []any{n1, n2}}
	r := c.reader()
	first, _ := r.decode()
	n2.SetResourceVersion("2")
	second, _ := r.decode()
	if first["n1"].Device != second["n1"].Device || first["n2"].Device == second["n2"].Device {
		t.Error("want n1 kept and n2 decoded again")
	}
	c.objects = []any{n1}
	if got, _ := r.decode(); len(got) != 1 || len(r.devices) != 1 {
		t.Errorf("%d Devices after one is gone", len(got))
	}
	c.objects = []any{n1, n2}
	n1.Object["spec"] = map[string]any{"devices": "none"}
	n1.SetResourceVersion("3")
	if got, _ := r.decode(); got["n1"].Err == nil || got["n2"].Err != nil {
		t.Error("a Device that can't be decoded has no error, or the other one has")
	}
}

func quotaOn(name corev1.ResourceName) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse("1")}}}
}

func TestOnChange(t *testing.T) {
	c, changes := &objectsInformer{}, 0
	gputest.Must(t, c.reader().OnChange(func() { changes++ }))
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
		{"a quota about cards", func() { c.handler.OnAdd(quotaOn("limits.metax-tech.com/vcore"), false) }, 1},
		{"a quota that had a limit about cards", func() { c.handler.OnUpdate(quotaOn("requests.daybreak-gpu.io/cards"), quotaOn("cpu")) }, 1},
		{"a quota about other things", func() { c.handler.OnUpdate(quotaOn("cpu"), quotaOn("cpu")) }, 0},
		{"a missed deletion", func() { c.handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: with}) }, 1},
		{"a missed deletion without cards", func() { c.handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: without}) }, 0},
	}
	for _, tc := range cases {
		changes = 0
		tc.do()
		if changes != tc.want {
			t.Errorf("%s: %d changes, want %d", tc.name, changes, tc.want)
		}
	}
}
