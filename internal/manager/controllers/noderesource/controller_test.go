package noderesource

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// bench is a reconciler on a workbench.
type bench struct {
	*testing.T
	*reconciler
	clock    *testingclock.FakePassiveClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	// patches are those sent to the API server, as "metadata" and "status".
	patches []string
	// refuse, if set, is what the API server answers to the next patch.
	refuse error
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	gputest.Must(t, clientgoscheme.AddToScheme(scheme))
	b := &bench{T: t, clock: testingclock.NewFakePassiveClock(time.Unix(1, 0)), recorder: events.NewFakeRecorder(100), registry: prometheus.NewRegistry()}
	patched := func(what string, send func() error) error {
		b.patches = append(b.patches, what)
		if err := b.refuse; err != nil {
			b.refuse = nil
			return err
		}
		return send()
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, podsByNode, indexPod).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return patched("metadata", func() error { return c.Patch(ctx, obj, patch, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return patched(sub, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
			},
		}).Build()
	b.reconciler = &reconciler{client: c, events: b.recorder, metrics: newMetrics(b.registry), clock: b.clock, nodes: map[string]*memory{}}
	return b
}

func (b *bench) reconcile() reconcile.Result {
	b.Helper()
	result, err := b.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
	gputest.Must(b, err)
	return result
}

func (b *bench) node() *corev1.Node {
	b.Helper()
	node := &corev1.Node{}
	gputest.Must(b, b.client.Get(b.Context(), types.NamespacedName{Name: "n1"}, node))
	return node
}

// device puts the Device into the cluster, over the one that was there.
func (b *bench) device(d *v1alpha1.Device) {
	b.Helper()
	u := wireForm(b.T, d)
	err := b.client.Create(b.Context(), u)
	if apierrors.IsAlreadyExists(err) {
		old := cluster.NewDevice()
		if err = b.client.Get(b.Context(), types.NamespacedName{Name: d.Name}, old); err == nil {
			u.SetResourceVersion(old.GetResourceVersion())
			err = b.client.Update(b.Context(), u)
		}
	}
	gputest.Must(b, err)
}

func wireForm(t *testing.T, d *v1alpha1.Device) *unstructured.Unstructured {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	gputest.Must(t, err)
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Device"))
	return u
}

// reported returns the reasons and texts of the Events since the last call.
func (b *bench) reported() []string {
	var out []string
	for {
		select {
		case e := <-b.recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (b *bench) wantReported(want ...string) {
	b.Helper()
	got := b.reported()
	if len(got) != len(want) {
		b.Fatalf("events %q, want %d: %q", got, len(want), want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			b.Errorf("event %q, want %q in it", got[i], want[i])
		}
	}
}

func (b *bench) wantPatches(want ...string) {
	b.Helper()
	gputest.Equal(b, "patches", want, b.patches)
	b.patches = nil
}

// TestReconcile follows a node from its first Device to the last, and counts
// what is written at each step.
func TestReconcile(t *testing.T) {
	b := newBench(t, nodeOf("cpu: 4"))
	b.reconcile()
	b.wantPatches()
	b.wantReported()

	b.device(deviceOf(c500(2), ofMetaX...))
	b.reconcile()
	b.wantPatches("metadata", "status")
	b.wantReported("Normal CardsAdvertised 2 of 2 cards healthy: the node advertises koordinator.sh/gpu-core 200, koordinator.sh/gpu-memory 128Gi")
	b.reconcile()
	b.wantPatches()

	b.device(deviceOf(sicken(c500(2), 1), ofMetaX...))
	b.reconcile()
	b.wantPatches("status")
	b.wantReported("Warning CardsUnhealthy 1 of 2 cards healthy: the node advertises koordinator.sh/gpu-core 100, koordinator.sh/gpu-memory 64Gi")

	// All cards go, and come back: no kubelet had a hand in that.
	b.device(deviceOf(sicken(c500(2), 0, 1), ofMetaX...))
	b.reconcile()
	b.wantReported("Warning CardsUnhealthy 0 of 2 cards healthy")
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	b.device(deviceOf(c500(2), ofMetaX...))
	b.reconcile()
	b.wantReported("Normal CardsAdvertised 2 of 2 cards healthy")

	node := b.node()
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for _, name := range resources {
			list[name] = resource.MustParse("0")
		}
	}
	gputest.Must(t, b.client.Status().Update(t.Context(), node))
	b.patches = nil
	b.reconcile()
	b.wantPatches("status")
	b.wantReported("Normal CardsRestored kubelet had reset what the node advertises to zero: 2 of 2 cards healthy")

	gputest.Must(t, b.client.Delete(t.Context(), wireForm(t, deviceOf(nil))))
	b.reconcile()
	b.wantPatches("status", "metadata")
	b.wantReported("Normal CardsWithdrawn")
	gputest.Equal(t, "left", "", text(b.node().Status.Capacity))
	b.reconcile()
	b.wantPatches()

	gputest.Must(t, b.client.Delete(t.Context(), b.node()))
	b.reconcile()
	if n := len(b.nodes) + len(b.metrics.nodes); n != 0 {
		t.Errorf("%d things are remembered of a node that is gone", n)
	}
}

// TestReconcileWithKoordinator: where Koordinator's manager runs, a node whose
// Device went keeps the amounts, which are that manager's as well, and loses the
// rest.
func TestReconcileWithKoordinator(t *testing.T) {
	for name, tt := range map[string]struct {
		labels map[string]string
		phase  corev1.PodPhase
		keeps  bool
	}{
		"it runs":            {map[string]string{"koord-app": "koord-manager"}, corev1.PodRunning, true},
		"it does not yet":    {map[string]string{"koord-app": "koord-manager"}, corev1.PodPending, false},
		"its scheduler runs": {map[string]string{"koord-app": "koord-scheduler"}, corev1.PodRunning, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: tt.phase}}
			pod.Namespace, pod.Name, pod.Labels = "koordinator-system", "koord-0", tt.labels
			b := newBench(t, nodeOf("cpu: 4"), pod)
			b.device(deviceOf(c500(2), ofMetaX...))
			b.reconcile()
			before := text(b.node().Status.Capacity)
			gputest.Must(t, b.client.Delete(t.Context(), wireForm(t, deviceOf(nil))))
			b.patches = nil
			b.reconcile()
			want := ""
			if tt.keeps {
				want = before
				b.wantPatches("metadata")
			} else {
				b.wantPatches("status", "metadata")
			}
			node := b.node()
			if got := text(node.Status.Capacity); got != want || before == "" {
				t.Errorf("the node advertises %q, want %q", got, want)
			}
			if _, marked := node.Annotations[wire.AnnotationAdvertised]; marked || len(node.Labels) > 0 {
				t.Errorf("left: labels %v, annotations %v", node.Labels, node.Annotations)
			}
		})
	}
}

func TestReconcileBadInventory(t *testing.T) {
	b := newBench(t, marked(nodeOf(eight)))
	bad := deviceOf(c500(2), ofMetaX...)
	bad.Spec.Devices[1].Minor = new(int32(0))
	b.device(bad)
	b.reconcile()
	b.reconcile()
	b.wantPatches()
	b.wantReported("Warning BadInventory the Device can't be read, so the node goes on advertising what it did before: cards GPU-a and GPU-b have the same minor number 0")
	bad.Spec.Devices[1].UUID = "two words"
	b.device(bad)
	b.reconcile()
	b.wantReported(`Warning BadInventory the Device can't be read, so the node goes on advertising what it did before: spec.devices[1]: id "two words"`)

	// A field of the wrong type is no different.
	u := wireForm(t, bad)
	gputest.Must(t, unstructured.SetNestedField(u.Object, "all", "spec", "devices"))
	old := cluster.NewDevice()
	gputest.Must(t, b.client.Get(t.Context(), types.NamespacedName{Name: "n1"}, old))
	u.SetResourceVersion(old.GetResourceVersion())
	gputest.Must(t, b.client.Update(t.Context(), u))
	b.reconcile()
	b.wantReported("the Device can't be decoded")
	b.wantPatches()
	want := `
# HELP daybreak_manager_nodes_with_bad_inventory Nodes with an unreadable Device; their resources stay unchanged.
# TYPE daybreak_manager_nodes_with_bad_inventory gauge
daybreak_manager_nodes_with_bad_inventory 1
`
	gputest.Check(t, testutil.GatherAndCompare(b.registry, strings.NewReader(want), "daybreak_manager_nodes_with_bad_inventory"))
}

// TestReconcileFlapping: a node whose card comes and goes is written to a few
// times, and then again when its time has come.
func TestReconcileFlapping(t *testing.T) {
	b := newBench(t, marked(nodeOf(eight)))
	for range 10 {
		b.device(deviceOf(sicken(c500(8), 3), ofMetaX...))
		b.reconcile()
		b.device(deviceOf(c500(8), ofMetaX...))
		b.reconcile()
	}
	b.device(deviceOf(sicken(c500(8), 3), ofMetaX...))
	last := b.reconcile()
	if n := len(b.patches); n != writeBurst {
		t.Errorf("%d patches at once, want %d", n, writeBurst)
	}
	if last.RequeueAfter <= 0 || last.RequeueAfter > writeInterval {
		t.Errorf("the node is looked at again after %s, want within %s", last.RequeueAfter, writeInterval)
	}
	b.patches = nil
	b.clock.SetTime(b.clock.Now().Add(last.RequeueAfter))
	b.reconcile()
	b.wantPatches("status")
	gputest.Equal(t, "in the end the node advertises", seven, text(b.node().Status.Capacity))
}

// TestReconcileFailures: while a node starts, kubelet and the agent write to it too.
// What failed has changed nothing, and does not count as a change.
func TestReconcileFailures(t *testing.T) {
	resource := schema.GroupResource{Resource: "nodes"}
	cases := map[string]struct {
		refuse      error
		wantErr     bool
		wantRequeue time.Duration
		wantResult  string
	}{
		"the node had changed":   {refuse: apierrors.NewConflict(resource, "n1", errors.New("changed")), wantRequeue: retryConflict, wantResult: resultConflict},
		"the node is gone":       {refuse: apierrors.NewNotFound(resource, "n1"), wantResult: resultFailed},
		"the API server refuses": {refuse: apierrors.NewForbidden(resource, "n1", errors.New("no")), wantErr: true, wantResult: resultFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nodeOf("cpu: 4"))
			b.device(deviceOf(c500(1), ofMetaX...))
			for n := range 3 * writeBurst {
				b.refuse = tc.refuse
				result, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
				if (err != nil) != tc.wantErr || result.RequeueAfter != tc.wantRequeue {
					t.Errorf("got %v, %v; want an error: %v, again after %s", result, err, tc.wantErr, tc.wantRequeue)
				}
				b.wantPatches("metadata")
				b.wantReported()
				if got := testutil.ToFloat64(b.metrics.patches.WithLabelValues(tc.wantResult)); got != float64(n+1) {
					t.Errorf("%v patches counted as %s, want %d", got, tc.wantResult, n+1)
				}
			}
			b.reconcile()
			b.wantPatches("metadata", "status")
		})
	}
}

// TestReconcilePrecondition: a node that changed since it was read is not
// written to.
func TestReconcilePrecondition(t *testing.T) {
	b := newBench(t, nodeOf("cpu: 4"))
	b.device(deviceOf(c500(1), ofMetaX...))
	stale := b.node()
	changed := b.node()
	changed.Labels = map[string]string{"other": "value"}
	gputest.Must(t, b.client.Update(t.Context(), changed))
	f, err := b.facts(t.Context(), stale)
	gputest.Must(t, err)
	if err := b.write(t.Context(), stale, decide(f)); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestReconcileStaleCache: a node as it was before our own write is not decided
// about again.
func TestReconcileStaleCache(t *testing.T) {
	b := newBench(t, nodeOf("cpu: 4"))
	b.device(deviceOf(c500(1), ofMetaX...))
	stale := b.node()
	b.reconcile()
	b.wantPatches("metadata", "status")
	if b.remembered("n1").isStale(b.node().ResourceVersion) {
		t.Error("the node is older than itself")
	}
	if !b.remembered("n1").isStale(stale.ResourceVersion) {
		t.Errorf("version %s is not older than %s", stale.ResourceVersion, b.node().ResourceVersion)
	}
	b.remembered("n1").wrote(b.clock.Now(), "99999") // a write that the cache has not seen
	b.device(deviceOf(sicken(c500(1), 0), ofMetaX...))
	gputest.Equal(t, "looked at again after", retryConflict, b.reconcile().RequeueAfter)
	b.wantPatches()
}

func TestReconcileOtherVendor(t *testing.T) {
	for name, labels := range map[string][]string{"another vendor's": {wire.LabelVendor, "nvidia"}, "no vendor's": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nodeOf(eight))
			b.device(deviceOf(c500(1), labels...))
			b.reconcile()
			b.wantPatches()
			b.wantReported()
		})
	}
}

func TestReconcileCountsPods(t *testing.T) {
	objects := []client.Object{nodeOf("cpu: 4")}
	for i, requests := range []string{"gpu-core: 100", "gpu-core: 60", "cpu: 1"} {
		pod := holding(requests)
		pod.Name = fmt.Sprintf("p%d", i)
		objects = append(objects, &pod)
	}
	elsewhere := holding("gpu-core: 100")
	elsewhere.Name, elsewhere.Spec.NodeName = "elsewhere", "n2"
	pending := holding("gpu-core: 100")
	pending.Name, pending.Spec.NodeName = "pending", ""
	b := newBench(t, append(objects, &elsewhere, &pending)...)
	b.device(deviceOf(c500(1), ofMetaX...))
	b.reconcile()
	gputest.Equal(t, "the node advertises", "gpu.shared: 100, gpu-core: 160, gpu-memory: 64Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100", text(b.node().Status.Allocatable))
}

func TestMetrics(t *testing.T) {
	b := newBench(t, nodeOf("cpu: 4"))
	b.device(deviceOf(sicken(c500(8), 3), ofMetaX...))
	b.reconcile()
	want := `
# HELP daybreak_manager_cards MetaX cards that the Devices list, by health: healthy or unhealthy.
# TYPE daybreak_manager_cards gauge
daybreak_manager_cards{health="healthy"} 7
daybreak_manager_cards{health="unhealthy"} 1
# HELP daybreak_manager_node_compute_percent Compute that a node advertises, in percent of one card.
# TYPE daybreak_manager_node_compute_percent gauge
daybreak_manager_node_compute_percent{node="n1"} 700
# HELP daybreak_manager_node_memory_bytes Card memory that a node advertises.
# TYPE daybreak_manager_node_memory_bytes gauge
daybreak_manager_node_memory_bytes{node="n1"} 4.81036337152e+11
# HELP daybreak_manager_node_patches_total Patches of nodes by result: applied, conflict (the node had changed; retried) or failed.
# TYPE daybreak_manager_node_patches_total counter
daybreak_manager_node_patches_total{result="applied"} 2
daybreak_manager_node_patches_total{result="conflict"} 0
daybreak_manager_node_patches_total{result="failed"} 0
# HELP daybreak_manager_nodes_with_bad_inventory Nodes with an unreadable Device; their resources stay unchanged.
# TYPE daybreak_manager_nodes_with_bad_inventory gauge
daybreak_manager_nodes_with_bad_inventory 0
`
	gputest.Check(t, testutil.GatherAndCompare(b.registry, strings.NewReader(want)))
	if problems, err := testutil.GatherAndLint(b.registry); err != nil || len(problems) > 0 {
		t.Errorf("names and help texts: %v %v", problems, err)
	}
	// A node without cards has no series.
	gputest.Must(t, b.client.Delete(t.Context(), wireForm(t, deviceOf(nil))))
	b.reconcile()
	if n := testutil.CollectAndCount(b.metrics); n != 3 {
		t.Errorf("%d series are left, want 3: two of cards, one of bad inventory", n)
	}
}

func TestNodeChanged(t *testing.T) {
	base := func() *corev1.Node { return marked(nodeOf(eight)) }
	cases := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {change: func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}},
		"another's label":           {change: func(n *corev1.Node) { n.Labels["other"] = "x" }},
		"kubelet's resources":       {change: func(n *corev1.Node) { n.Status.Capacity["cpu"] = resource.MustParse("1") }},
		"capacity of ours":          {change: func(n *corev1.Node) { n.Status.Capacity[wire.KoordGPU] = resource.MustParse("1") }, want: true},
		"allocatable of ours":       {change: func(n *corev1.Node) { delete(n.Status.Allocatable, wire.KoordMemory) }, want: true},
		"a label of ours":           {change: func(n *corev1.Node) { delete(n.Labels, wire.LabelDriver) }, want: true},
		"the mark":                  {change: func(n *corev1.Node) { n.Annotations[wire.AnnotationAdvertised] = "" }, want: true},
		"the vendor's own list":     {change: func(n *corev1.Node) { n.Annotations[wire.AnnotationNodeCards] = "[]" }, want: true},
		"another node of that name": {change: func(n *corev1.Node) { n.UID = "2" }, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := base()
			tc.change(after)
			gputest.Equal(t, "nodeChanged", tc.want, nodeChanged(event.UpdateEvent{ObjectOld: base(), ObjectNew: after}))
		})
	}
}

func TestPodPredicate(t *testing.T) {
	asks := holding("gpu-core: 10")
	sidecar := gputest.MakePod("p").Sidecar("").App("").On("n1").Obj()
	sidecar.Spec.InitContainers[0].Resources.Requests = gputest.MakeResources("gpu-memory: 1Gi")
	unbound := *asks.DeepCopy()
	unbound.Spec.NodeName = ""
	ended := withPhase(asks, corev1.PodSucceeded)
	other := holding("cpu: 1")
	cases := map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"comes bound":              {after: &asks, want: true},
		"comes with a sidecar":     {after: sidecar, want: true},
		"comes unbound":            {after: &unbound},
		"asks for nothing of ours": {after: &other},
		"is bound":                 {before: &unbound, after: &asks, want: true},
		"ends":                     {before: &asks, after: &ended, want: true},
		"goes":                     {before: &asks, want: true},
		"goes after it ended":      {before: &ended},
		"goes on":                  {before: &asks, after: &asks},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, got := podPredicate(), false
			switch {
			case tc.before == nil:
				got = p.Create(event.CreateEvent{Object: tc.after})
			case tc.after == nil:
				got = p.Delete(event.DeleteEvent{Object: tc.before})
			default:
				got = p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after})
			}
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if pod := tc.after; got && pod != nil {
				want := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "n1"}}}
				gputest.Equal(t, "nodes to look at", want, nodeOfPod(t.Context(), pod))
			}
		})
	}
}

func TestEventTextIsCapped(t *testing.T) {
	b := newBench(t)
	b.event(nodeOf(""), corev1.EventTypeWarning, reasonBad, strings.Repeat("ü", 2000))
	got := b.reported()
	if len(got) != 1 || len(got[0]) > 1024 {
		t.Errorf("%d events, the first of %d bytes: the API server takes 1024", len(got), len(got[0]))
	}
}
