package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gputest"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// store is what the caches hold.
type store struct {
	nodes   []corev1.Node
	pods    []corev1.Pod
	devices []unstructured.Unstructured
	err     error
}

func (s *store) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("nothing is looked up")
}

func (s *store) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		list.Items = append(list.Items, s.nodes...)
	case *corev1.PodList:
		list.Items = append(list.Items, s.pods...)
	case *unstructured.UnstructuredList:
		list.Items = append(list.Items, s.devices...)
	default:
		return fmt.Errorf("a list of %T", list)
	}
	return s.err
}

// node adds a node with two cards of 64 GiB, called GPU-<node>-0 and so on.
func (s *store) node(t testing.TB, name string) {
	t.Helper()
	s.nodes = append(s.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}}})
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("device-" + name), ResourceVersion: "1"}}
	for i := range 2 {
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: fmt.Sprintf("GPU-%s-%d", name, i), Minor: new(int32(i)), Health: true,
			Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
		})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		t.Fatal(err)
	}
	s.devices = append(s.devices, unstructured.Unstructured{Object: object})
}

// slice adds a running pod with a slice of a card.
func (s *store) slice(node, name string, card, compute, gib int) {
	s.pods = append(s.pods, *gputest.MakePod(name).App(fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %dGi", compute, gib)).On(node).
		Annotate(wire.AnnotationAllocated, fmt.Sprintf(`[[{"uuid":"GPU-%s-%d","compute":%d,"vRam":%d}]]`, node, card, compute, gib<<10)).Obj())
}

// bench is an auditor among fakes.
type bench struct {
	*auditor
	store    *store
	clock    *testingclock.FakeClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		store: &store{}, clock: testingclock.NewFakeClock(time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)),
		recorder: events.NewFakeRecorder(1000), registry: prometheus.NewPedanticRegistry(),
	}
	var err error
	if b.auditor, err = newAuditor(b.store, b.recorder, Options{Metrics: b.registry, Clock: b.clock}); err != nil {
		t.Fatal(err)
	}
	return b
}

// look changes something, audits, and returns the Events.
func (b *bench) look(t *testing.T) (told []string, confirm bool) {
	t.Helper()
	b.OnUpdate(nil, nil)
	confirm = b.once(t.Context())
	for {
		select {
		case e := <-b.recorder.Events:
			told = append(told, e)
		default:
			return told, confirm
		}
	}
}

// wants checks the figures: lines of "name{labels} value".
func (b *bench) wants(t *testing.T, want ...string) {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			got[fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(family.GetName(), "daybreak_manager_"), strings.Join(labels, ","), value)] = true
		}
	}
	for _, line := range want {
		if !got[line] {
			t.Errorf("no figure %s among %v", line, got)
		}
	}
}

func TestNothingIsWrong(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.store.slice("n1", "a", 0, 60, 16)
	b.store.slice("n1", "b", 0, 40, 16)
	b.store.pods = append(b.store.pods, *gputest.MakePod("waits").App("gpu: 8").Obj(), *gputest.MakePod("other").App("cpu: 1").Obj())
	if told, confirm := b.look(t); len(told) > 0 || confirm {
		t.Errorf("told %v, to be confirmed: %t", told, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "audit_findings_total{LockStuck} 0", "double_bookings_total{} 0", "audits_total{done} 1",
		"node_compute_allocated_percent{n1} 100", "node_memory_allocated_bytes{n1} 3.4359738368e+10", "pending_pods{} 1",
		"free_capacity_cards{} 1.25", "fragmentation_ratio{} 0", "audit_notes{UnhealthyInUse} 0")
	if problems, err := testutil.GatherAndLint(b.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestDoubleBooking: a finding is told when it is seen for the second time, and
// then no more until it has gone and come again.
func TestDoubleBooking(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.store.slice("n1", "a", 0, 60, 40)
	b.store.slice("n1", "b", 0, 40, 40)
	if told, confirm := b.look(t); len(told) > 0 || !confirm {
		t.Fatalf("at first sight told %v, to be confirmed: %t", told, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "double_bookings_total{} 0")
	told, confirm := b.look(t)
	if len(told) != 3 || confirm || !strings.HasPrefix(told[0], "Warning MemoryOverbooked ") {
		t.Fatalf("told %q, to be confirmed: %t; want the same of two pods and a node", told, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 1", "audit_findings_total{MemoryOverbooked} 1", "double_bookings_total{} 1")
	if told, _ := b.look(t); len(told) > 0 {
		t.Errorf("told again: %v", told)
	}
	gone := b.store.pods[1]
	b.store.pods = b.store.pods[:1]
	b.look(t)
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "double_bookings_total{} 1")
	b.store.pods = append(b.store.pods, gone)
	b.look(t)
	if told, _ := b.look(t); len(told) != 3 {
		t.Errorf("told %q of the same thing a second time", told)
	}
	b.wants(t, "double_bookings_total{} 2")
}

// TestEventsNameNoOthers: Events are read by users of their namespace, those of
// Nodes by many: neither names pods of another namespace.
func TestEventsNameNoOthers(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.store.slice("n1", "secret-a", 0, 60, 40)
	b.store.slice("n1", "secret-b", 0, 40, 40)
	b.store.pods[0].Namespace, b.store.pods[1].Namespace = "blue", "red"
	b.look(t)
	told, _ := b.look(t)
	if len(told) != 3 {
		t.Fatalf("told %q", told)
	}
	for i, want := range []string{"blue/secret-a 40 GiB, another pod 40 GiB", "another pod 40 GiB, red/secret-b 40 GiB", "another pod 40 GiB, another pod 40 GiB"} {
		if !strings.HasSuffix(told[i], ": "+want) {
			t.Errorf("event %d is %q, want %q at its end", i, told[i], want)
		}
	}
}

// TestStorm: thousands of findings are told a few at a time.
func TestStorm(t *testing.T) {
	b := newBench(t)
	const nodes = 2*maxTold + 5
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		b.store.node(t, name)
		b.store.slice(name, "a"+name, 0, 60, 1)
		b.store.slice(name, "b"+name, 0, 60, 1)
	}
	b.look(t)
	var counts []int
	for range 4 {
		told, _ := b.look(t)
		counts = append(counts, len(told)/3)
	}
	if diff := cmp.Diff([]int{maxTold, maxTold, 5, 0}, counts); diff != "" {
		t.Errorf("findings told (-want +got):\n%s", diff)
	}
	b.wants(t, fmt.Sprintf("audit_violations{ComputeOverbooked} %d", nodes))
}

// TestQuiet: while nothing changes there is an audit now and then.
func TestQuiet(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.look(t)
	for range 10 {
		b.clock.Step(DefaultInterval)
		b.once(t.Context())
	}
	b.wants(t, "audits_total{done} 3")
}

func TestFailure(t *testing.T) {
	b := newBench(t)
	b.store.err = errors.New("the cache is gone")
	b.look(t)
	b.wants(t, "audits_total{failed} 1")
	b.store.err = nil
	b.once(t.Context()) // tried again although nothing changed
	b.wants(t, "audits_total{done} 1")
}

// TestDevicesAreDecodedOnce: one that did not change is not decoded again.
func TestDevicesAreDecodedOnce(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.store.node(t, "n2")
	first := b.devices.read(b.store.devices)
	b.store.devices[1].SetResourceVersion("2")
	second := b.devices.read(b.store.devices)
	if first["n1"].Device != second["n1"].Device || first["n2"].Device == second["n2"].Device {
		t.Error("want n1 kept and n2 decoded anew")
	}
	b.store.devices = b.store.devices[:1]
	if got := b.devices.read(b.store.devices); len(got) != 1 || len(b.devices.decoded) != 1 {
		t.Errorf("%d Devices after one is gone", len(got))
	}
	b.store.devices[0].Object["spec"] = map[string]any{"devices": "none"}
	b.store.devices[0].SetResourceVersion("3")
	if got := b.devices.read(b.store.devices); got["n1"].Err == nil {
		t.Error("a Device that can't be decoded has no error")
	}
}

// TestStart: what is found is looked at again soon, else after the interval.
func TestStart(t *testing.T) {
	b := newBench(t)
	b.store.node(t, "n1")
	b.store.slice("n1", "a", 0, 60, 40)
	b.store.slice("n1", "b", 0, 60, 16)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	for _, wait := range []time.Duration{settle, DefaultInterval} {
		for !b.clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		b.clock.Step(wait - time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		if !b.clock.HasWaiters() {
			t.Errorf("it did not wait for %s", wait)
		}
		b.clock.Step(time.Millisecond)
	}
	if told := <-b.recorder.Events; !strings.Contains(told, "ComputeOverbooked") {
		t.Errorf("told %q", told)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// BenchmarkOnce is an audit of 5 000 nodes and 40 000 pods, with nothing new
// about any Device.
func BenchmarkOnce(b *testing.B) {
	f := newBench(b)
	for i := range 5000 {
		name := fmt.Sprintf("n%04d", i)
		f.store.node(b, name)
		for k := range 8 {
			f.store.slice(name, fmt.Sprintf("p%04d-%d", i, k), k%2, 25, 16)
		}
	}
	f.once(b.Context())
	for b.Loop() {
		f.OnUpdate(nil, nil)
		f.once(b.Context())
	}
}
