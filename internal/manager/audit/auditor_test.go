package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// store is the cluster that is audited.
type store struct {
	objects cluster.Objects
	err     error
	changed func()
}

func (s *store) Objects() (*cluster.Objects, error) {
	return &s.objects, s.err
}

func (s *store) OnChange(changed func()) error {
	s.changed = changed
	return nil
}

// node adds a node with two cards of 64 GiB, called GPU-<node>-0 and so on.
func (s *store) node(name string) {
	s.objects.Nodes = append(s.objects.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}}})
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range 2 {
		d.Spec.Devices = append(d.Spec.Devices, gputest.CardInfo(fmt.Sprintf("GPU-%s-%d", name, i), int32(i)))
	}
	s.objects.Devices[name] = cluster.Device{Device: d}
}

// slice adds a running pod with a slice of the node's first card.
func (s *store) slice(node, name string, compute, gib int) {
	s.add(gputest.MakePod(name).App(fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %dGi", compute, gib)).On(node).
		Annotate(wire.AnnotationAllocated, fmt.Sprintf(`[[{"uuid":"GPU-%s-0","compute":%d,"vRam":%d}]]`, node, compute, gib<<10)).Obj())
}

func (s *store) add(pods ...*corev1.Pod) { s.objects.Pods = append(s.objects.Pods, pods...) }

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
		store: &store{objects: cluster.Objects{Devices: map[string]cluster.Device{}, Live: true}}, clock: testingclock.NewFakeClock(time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)),
		recorder: events.NewFakeRecorder(1000), registry: prometheus.NewPedanticRegistry(),
	}
	var err error
	b.auditor, err = newAuditor(b.recorder, Options{Source: b.store, Metrics: b.registry, Clock: b.clock, Interval: DefaultInterval})
	gputest.Must(t, err)
	return b
}

// look changes something, audits, and returns the Events.
func (b *bench) look(t *testing.T) (events []string, confirm bool) {
	t.Helper()
	b.store.changed()
	confirm = b.once(t.Context())
	for {
		select {
		case e := <-b.recorder.Events:
			events = append(events, e)
		default:
			return events, confirm
		}
	}
}

// wants checks the metrics: lines of "name{labels} value".
func (b *bench) wants(t *testing.T, want ...string) {
	t.Helper()
	families, err := b.registry.Gather()
	gputest.Must(t, err)
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
			t.Errorf("no metric %s among %v", line, got)
		}
	}
}

func TestNothingIsWrong(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
	b.store.slice("n1", "a", 60, 16)
	b.store.slice("n1", "b", 40, 16)
	b.store.add(gputest.MakePod("waits").App("gpu: 8").Obj(), gputest.MakePod("other").App("cpu: 1").On("n1").Obj())
	if events, confirm := b.look(t); len(events) > 0 || confirm {
		t.Errorf("events %v, to be confirmed: %t", events, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "audit_findings_total{LockStuck} 0", "double_bookings_total{} 0", "audits_total{done} 1",
		"node_compute_allocated_percent{n1} 100", "node_memory_allocated_bytes{n1} 3.4359738368e+10", "pending_pods{} 1",
		"free_capacity_cards{} 1.25", "audit_notes{UnhealthyInUse} 0")
	if problems, err := testutil.GatherAndLint(b.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestFragmentation: there is no such metric while there are too few pods, nor
// where nothing is free.
func TestFragmentation(t *testing.T) {
	const name = "daybreak_manager_fragmentation_ratio"
	b := newBench(t)
	for i := range 32 {
		if n := testutil.CollectAndCount(b.metrics, name); n != 0 {
			t.Fatalf("%d metrics with %d pods", n, i)
		}
		b.store.node(fmt.Sprintf("n%d", i))
		b.store.slice(fmt.Sprintf("n%d", i), fmt.Sprintf("p%d", i), 60, 40)
		b.look(t)
	}
	if n := testutil.CollectAndCount(b.metrics, name); n != 1 {
		t.Errorf("%d metrics with 32 pods", n)
	}
	for _, device := range b.store.objects.Devices {
		for i := range device.Spec.Devices {
			device.Spec.Devices[i].Health = false
		}
	}
	b.look(t)
	if n := testutil.CollectAndCount(b.metrics, name); n != 0 {
		t.Errorf("%d metrics with nothing free", n)
	}
}

// TestQuotas: what namespaces use and may use, and Events on quotas that something is
// wrong with, once for as long as it lasts.
func TestQuotas(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
	b.store.slice("n1", "counted", 30, 8)
	quota := func(namespace, name, key, hard, used string) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		q.Spec.Hard = corev1.ResourceList{corev1.ResourceName(key): resource.MustParse(hard)}
		if used != "" {
			q.Status.Used = corev1.ResourceList{corev1.ResourceName(key): resource.MustParse(used)}
		}
		return q
	}
	b.store.objects.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	b.store.objects.Quotas = []*corev1.ResourceQuota{
		quota("default", "gpus", "requests.daybreak-gpu.io/compute", "200", "60"), quota("default", "hami", "limits.metax-tech.com/vcore", "20", ""),
		quota("idle", "memory", "requests.daybreak-gpu.io/memory", "64Gi", ""), quota("other", "hami", "limits.metax-tech.com/gpu", "1", ""),
		quota("cpu", "cpu", "requests.cpu", "1", ""),
	}
	found, _ := b.look(t)
	want := []string{
		"Warning QuotaNotEnforced ResourceQuota gpus does not count pods that are created while no manager answers: label the namespace daybreak-gpu.io/quota=enforced, or set the chart's quota.enforce to all",
		"Warning QuotaOverrun pods hold 30%, ResourceQuota hami allows 20% (limits.metax-tech.com/vcore): they stay, and more pods wait",
	}
	gputest.Equal(t, "Events", want, found)
	b.wants(t,
		`namespace_compute{default,used} 60`, `namespace_compute{default,budget} 200`,
		`namespace_memory{default,used} 8.589934592e+09`, `namespace_cards{default,used} 0`,
		`namespace_memory{idle,used} 0`, `namespace_memory{idle,budget} 6.8719476736e+10`,
	)
	if n := testutil.CollectAndCount(b.metrics, "daybreak_manager_namespace_compute"); n != 3 {
		t.Errorf("%d series of compute, want those of two namespaces, which hold cards or have a budget", n)
	}
	if again, _ := b.look(t); len(again) > 0 {
		t.Errorf("Events again: %v", again)
	}
	label := map[string]string{wire.LabelQuota: wire.QuotaEnforced}
	b.store.objects.Namespaces[0] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: label}}
	if resolved, _ := b.look(t); len(resolved) > 0 {
		t.Errorf("Events about a quota that is enforced: %v", resolved)
	}
	b.store.objects.Namespaces[0] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if again, _ := b.look(t); len(again) != 1 {
		t.Errorf("Events %v, want one about the quota that is not enforced any more", again)
	}
}

// TestDoubleBooking: a finding is reported when it is seen for the second time,
// and then not again until it has gone and come back.
func TestDoubleBooking(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
	b.store.slice("n1", "a", 60, 40)
	b.store.slice("n1", "b", 40, 40)
	if events, confirm := b.look(t); len(events) > 0 || !confirm {
		t.Fatalf("first audit: events %v, to be confirmed: %t", events, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "double_bookings_total{} 0")
	events, confirm := b.look(t)
	if len(events) != 3 || confirm || !strings.HasPrefix(events[0], "Warning MemoryOverbooked ") {
		t.Fatalf("events %q, to be confirmed: %t; want the same on two pods and a node", events, confirm)
	}
	b.wants(t, "audit_violations{MemoryOverbooked} 1", "audit_findings_total{MemoryOverbooked} 1", "double_bookings_total{} 1")
	if events, _ := b.look(t); len(events) > 0 {
		t.Errorf("reported again: %v", events)
	}
	gone := b.store.objects.Pods[1]
	b.store.objects.Pods = b.store.objects.Pods[:1]
	b.look(t)
	b.wants(t, "audit_violations{MemoryOverbooked} 0", "double_bookings_total{} 1")
	b.store.add(gone)
	b.look(t)
	if events, _ := b.look(t); len(events) != 3 {
		t.Errorf("events %q when it came back", events)
	}
	b.wants(t, "double_bookings_total{} 2")
}

// TestEventsNameNoOthers: Events are read by users of their namespace, those of
// Nodes by many: neither names pods of another namespace.
func TestEventsNameNoOthers(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
	b.store.slice("n1", "secret-a", 60, 40)
	b.store.slice("n1", "secret-b", 40, 40)
	b.store.objects.Pods[0].Namespace, b.store.objects.Pods[1].Namespace = "blue", "red"
	b.look(t)
	events, _ := b.look(t)
	if len(events) != 3 {
		t.Fatalf("events %q", events)
	}
	for i, want := range []string{"blue/secret-a 40 GiB, another pod 40 GiB", "another pod 40 GiB, red/secret-b 40 GiB", "another pod 40 GiB, another pod 40 GiB"} {
		if !strings.HasSuffix(events[i], ": "+want) {
			t.Errorf("event %d is %q, want %q at its end", i, events[i], want)
		}
	}
}

// TestStorm: thousands of findings are reported a few at a time.
func TestStorm(t *testing.T) {
	b := newBench(t)
	const nodes = 2*maxReported + 5
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		b.store.node(name)
		b.store.slice(name, "a"+name, 60, 1)
		b.store.slice(name, "b"+name, 60, 1)
	}
	b.look(t)
	var counts []int
	for range 4 {
		events, _ := b.look(t)
		counts = append(counts, len(events)/3)
	}
	gputest.Equal(t, "findings reported", []int{maxReported, maxReported, 5, 0}, counts)
	b.wants(t, fmt.Sprintf("audit_violations{ComputeOverbooked} %d", nodes))
}

// TestQuiet: while nothing changes there is an audit now and then.
func TestQuiet(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
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

// TestStart: what is found is looked at again soon, else after the interval.
func TestStart(t *testing.T) {
	b := newBench(t)
	b.store.node("n1")
	b.store.slice("n1", "a", 60, 40)
	b.store.slice("n1", "b", 60, 16)
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
	if event := <-b.recorder.Events; !strings.Contains(event, "ComputeOverbooked") {
		t.Errorf("event %q", event)
	}
	stop()
	gputest.Check(t, <-ended)
}
