package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// cards has an index with the informers' sources.
type cards struct {
	*cardIndex
	nodes, devices *fcache.FakeControllerSource
}

// newCards returns an index of the nodes and Devices, filled.
func newCards(t testing.TB, objects ...runtime.Object) *cards {
	t.Helper()
	c := &cards{nodes: fcache.NewFakeControllerSource(), devices: fcache.NewFakeControllerSource()}
	for _, obj := range objects {
		c.source(obj).Add(obj)
	}
	nodes := cache.NewSharedIndexInformer(c.nodes, &corev1.Node{}, 0, nil)
	devices := cache.NewSharedIndexInformer(c.devices, cluster.NewDevice(), 0, nil)
	var err error
	c.cardIndex, err = newCardIndex(nodes, devices)
	gputest.Must(t, err)
	if _, ok := c.largest(gputest.MakePod("p").App("gpu: 1").Obj(), gputest.AskWhole(1)); ok || c.ready() == nil {
		t.Error("the index says that it is filled before the informers run")
	}
	for _, informer := range []cache.SharedIndexInformer{nodes, devices} {
		go informer.RunWithContext(t.Context())
	}
	eventually(t, func() bool { return c.ready() == nil })
	return c
}

func (c *cards) source(obj runtime.Object) *fcache.FakeControllerSource {
	if _, ok := obj.(*corev1.Node); ok {
		return c.nodes
	}
	return c.devices
}

func eventually(t testing.TB, done func() bool) {
	t.Helper()
	for range 5000 {
		if done() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("not within 5 s")
}

// node returns a node of Daybreak's with labels as key, value.
func node(name string, labels ...string) *corev1.Node {
	n := gputest.ServedNode(name, 8, 8)
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

// deviceOf returns the Device of a node with cards of these memories, called
// NAME-0, NAME-1 and so on.
func deviceOf(t testing.TB, name, mode string, memories ...string) *unstructured.Unstructured {
	t.Helper()
	var infos []v1alpha1.DeviceInfo
	for i, memory := range memories {
		infos = append(infos, gputest.CardInfo(fmt.Sprintf("%s-%d", name, i), int32(i), gputest.WithMemory(memory)))
	}
	d := gputest.MakeDevice(infos...)
	d.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"}
	d.Name = name
	if mode != "" {
		d.Annotations = map[string]string{wire.AnnotationMode: mode}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	gputest.Must(t, err)
	return &unstructured.Unstructured{Object: object}
}

// find returns the memory of the largest card for the pod, in GiB, or 0.
func (c *cards) find(t testing.TB, b *gputest.PodBuilder) gpu.MiB {
	t.Helper()
	ask, problems := request.Read(b.Obj())
	if ask == nil {
		t.Fatal(problems)
	}
	memory, ok := c.largest(b.Obj(), &ask.Request)
	if !ok && memory != 0 {
		t.Errorf("none known, and %s", memory)
	}
	return memory >> 10
}

func TestLargest(t *testing.T) {
	broken := deviceOf(t, "n6", "", "80Gi")
	broken.Object["spec"] = map[string]any{"devices": "none"}
	cordoned := node("n2", "pool", "a")
	cordoned.Spec.Unschedulable = true
	cordoned.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	counted := gputest.MakeNode("gpu: 8", wire.AnnotationServedBy, wire.ServedByVendor)
	counted.Name, counted.Labels = "n7", map[string]string{"pool": "v"}
	c := newCards(t,
		node("n1", "pool", "a"), deviceOf(t, "n1", "", "16Gi", "48Gi", "32Gi"),
		cordoned, deviceOf(t, "n2", "", "40Gi", "40Gi"),
		node("n3", "pool", "b"), deviceOf(t, "n3", "native", "72Gi"),
		node("n4", "pool", "c"), // its Device is missing
		deviceOf(t, "n5", "", "96Gi"),
		node("n6", "pool", "c"), broken, counted)
	affine := func(operator corev1.NodeSelectorOperator, values ...string) *gputest.PodBuilder {
		b := gputest.MakePod("p").App("gpu: 1")
		b.Obj().Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: operator, Values: values}}}},
		}}}
		return b
	}
	in := func(limits, pool string) *gputest.PodBuilder {
		b := gputest.MakePod("p").App(limits)
		b.Obj().Spec.NodeSelector = map[string]string{"pool": pool}
		return b
	}
	listed := func(key string, ids ...string) *gputest.PodBuilder {
		return gputest.MakePod("p").App("gpu: 1").Annotate(key, strings.Join(ids, ","))
	}
	for name, tc := range map[string]struct {
		pod  *gputest.PodBuilder
		want gpu.MiB
	}{
		"any node":                       {pod: gputest.MakePod("p").App("gpu: 1"), want: 72},
		"a slice, on no native node":     {pod: gputest.MakePod("p").App("sgpu: 1"), want: 48},
		"by nodeSelector":                {pod: in("gpu: 1", "a"), want: 48},
		"a node with counted cards":      {pod: in("gpu: 1", "v"), want: 64},
		"no slices of counted cards":     {pod: in("sgpu: 1", "v")},
		"nodes without readable cards":   {pod: in("gpu: 1", "c")},
		"no such node":                   {pod: in("gpu: 1", "of-no-node")},
		"by affinity":                    {pod: affine(corev1.NodeSelectorOpNotIn, "b", "v"), want: 48},
		"an affinity that can't be read": {pod: affine(corev1.NodeSelectorOpGt, "x")},
		"these cards only":               {pod: listed(wire.AnnotationUseCards, "n1-0", "n1-2", "GPU-of-no-node"), want: 32},
		"cards of a cordoned node":       {pod: listed(wire.AnnotationUseCards, "n1-0", "n2-0"), want: 40},
		"none of its cards":              {pod: listed(wire.AnnotationUseCards, "GPU-of-no-node")},
		"not these cards":                {pod: listed(wire.AnnotationNoUseCards, "n3-0", "n1-1"), want: 40},
		"both lists":                     {pod: listed(wire.AnnotationNoUseCards, "n1-1").Annotate(wire.AnnotationUseCards, "n1-1,n1-2"), want: 32},
	} {
		if got := c.find(t, tc.pod); got != tc.want {
			t.Errorf("%s: %d GiB, want %d", name, got, tc.want)
		}
	}
}

// TestLargestChanges: the index follows nodes and Devices as they come, change and
// go, in any order.
func TestLargestChanges(t *testing.T) {
	c := newCards(t)
	pod := gputest.MakePod("p").App("gpu: 1")
	pod.Obj().Spec.NodeSelector = map[string]string{"pool": "a"}
	for _, step := range []struct {
		name string
		do   func()
		want gpu.MiB
	}{
		{"a Device without a node", func() { c.devices.Add(deviceOf(t, "n1", "", "40Gi")) }, 0},
		{"its node", func() { c.nodes.Add(node("n1", "pool", "a")) }, 40},
		{"a second node", func() { c.nodes.Add(node("n2", "pool", "a")) }, 40},
		{"its Device", func() { c.devices.Add(deviceOf(t, "n2", "", "64Gi")) }, 64},
		{"larger cards", func() { c.devices.Modify(deviceOf(t, "n2", "", "32Gi", "80Gi")) }, 80},
		{"smaller cards", func() { c.devices.Modify(deviceOf(t, "n2", "", "32Gi")) }, 40},
		{"another label", func() { c.nodes.Modify(node("n1", "pool", "b")) }, 32},
		{"that node goes", func() { c.nodes.Delete(node("n2", "pool", "a")) }, 0},
		{"the label is back", func() { c.nodes.Modify(node("n1", "pool", "a")) }, 40},
		{"its Device goes", func() { c.devices.Delete(deviceOf(t, "n1", "", "40Gi")) }, 0},
	} {
		step.do()
		eventually(t, func() bool { return c.find(t, pod) == step.want || t.Failed() })
		if t.Failed() {
			t.Fatal(step.name)
		}
	}
	c.nodes.Delete(node("n1", "pool", "b"))
	eventually(t, func() bool { c.mu.RLock(); defer c.mu.RUnlock(); return len(c.byNode) == 0 })
}
