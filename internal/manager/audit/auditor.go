package audit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// DefaultInterval is the time between two audits.
	DefaultInterval = time.Minute
	// settle is how long a finding is given to go away by itself.
	settle = 5 * time.Second
	// quiet is how many intervals may pass without an audit while nothing
	// changes.
	quiet = 5
)

// Options is what the audit is given beside the manager.
type Options struct {
	// Metrics is where its figures are registered.
	Metrics prometheus.Registerer
	Clock   clock.WithTicker
	// Interval is the least time between two audits, unless one is to be
	// confirmed; zero means [DefaultInterval].
	Interval time.Duration
	// VendorPlugin tells who serves a node without a Device.
	VendorPlugin wire.VendorPlugin
}

// auditor runs the audits.
type auditor struct {
	cache    client.Reader
	clock    clock.WithTicker
	interval time.Duration
	plugin   wire.VendorPlugin
	devices  *devices
	metrics  *metrics
	teller   *teller
	// changed says that something happened since the last audit began.
	changed atomic.Bool

	// last is the latest audit, confirmed or not.
	last *audit.Report
	// lastAt is when it was made.
	lastAt time.Time
}

// Add adds the audit to the manager.
func Add(ctx context.Context, m ctrlmanager.Manager, o Options) error {
	a, err := newAuditor(m.GetCache(), m.GetEventRecorder(wire.ManagerComponent), o)
	if err != nil {
		return err
	}
	for _, obj := range []client.Object{&corev1.Node{}, &corev1.Pod{}, newDevice()} {
		if err := a.watch(ctx, m.GetCache(), obj); err != nil {
			return err
		}
	}
	return m.Add(a)
}

func newAuditor(reader client.Reader, recorder events.EventRecorder, o Options) (*auditor, error) {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	figures, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return &auditor{
		cache: reader, clock: o.Clock, interval: o.Interval, plugin: o.VendorPlugin, metrics: figures,
		devices: &devices{}, teller: &teller{events: recorder, told: map[string]bool{}},
	}, nil
}

// watch makes changes of such objects count.
func (a *auditor) watch(ctx context.Context, c cache.Cache, obj client.Object) error {
	informer, err := c.GetInformer(ctx, obj)
	if err != nil {
		return fmt.Errorf("watch %T: %w", obj, err)
	}
	_, err = informer.AddEventHandler(a)
	return err
}

// OnAdd is called when an object is there.
func (a *auditor) OnAdd(any, bool) { a.changed.Store(true) }

// OnUpdate is called when an object changes.
func (a *auditor) OnUpdate(_, _ any) { a.changed.Store(true) }

// OnDelete is called when an object is gone.
func (a *auditor) OnDelete(any) { a.changed.Store(true) }

// NeedLeaderElection says that only the leader audits: two would tell the same.
func (*auditor) NeedLeaderElection() bool { return true }

// Start audits until the context ends.
func (a *auditor) Start(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("audit")
	for {
		confirm := a.once(klog.NewContext(ctx, logger))
		wait := a.interval
		if confirm {
			wait = min(wait, settle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.clock.After(wait):
		}
	}
}

// once audits, if there may be something new, and says whether what it found is
// yet to be confirmed.
func (a *auditor) once(ctx context.Context) (confirm bool) {
	now := a.clock.Now()
	changed := a.changed.Swap(false)
	if !changed && a.last != nil && len(a.last.Violations) == 0 && now.Sub(a.lastAt) < quiet*a.interval {
		return false
	}
	objects, err := a.read(ctx)
	if err != nil {
		a.metrics.audits.WithLabelValues(resultFailed).Inc()
		klog.FromContext(ctx).Error(err, "Audit failed, it is tried again")
		a.changed.Store(true)
		return false
	}
	snapshot := objects.Snapshot()
	report := audit.Check(snapshot, now)
	confirmed := &audit.Report{}
	if a.last != nil {
		confirmed = report.Confirmed(a.last)
	}
	fresh := a.teller.tell(ctx, confirmed, objects)
	a.metrics.observe(confirmed, report.Notes, fresh, usageOf(snapshot), a.clock.Since(now), now)
	a.last, a.lastAt = report, now
	return len(confirmed.Violations) < len(report.Violations)
}

// read returns what the caches hold. Objects are shared with them and must not
// be changed.
func (a *auditor) read(ctx context.Context) (*cluster.Objects, error) {
	shared := client.UnsafeDisableDeepCopy
	var nodes corev1.NodeList
	if err := a.cache.List(ctx, &nodes, shared); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var pods corev1.PodList
	if err := a.cache.List(ctx, &pods, shared); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DeviceList"))
	if err := a.cache.List(ctx, list, shared); err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	o := &cluster.Objects{Devices: a.devices.read(list.Items), VendorPlugin: a.plugin}
	for i := range nodes.Items {
		o.Nodes = append(o.Nodes, &nodes.Items[i])
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; wire.Asks(pod) || a.plugin.Tells(pod) {
			o.Pods = append(o.Pods, &pods.Items[i])
		}
	}
	return o, nil
}

func newDevice() *unstructured.Unstructured {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Device"))
	return d
}

// devices keeps what was decoded: of thousands of Devices few change.
type devices struct{ decoded map[string]decoded }

type decoded struct {
	uid, version string
	device       cluster.Device
}

// read decodes the Devices, as far as that was not done before.
func (d *devices) read(items []unstructured.Unstructured) map[string]cluster.Device {
	now, out := make(map[string]decoded, len(items)), make(map[string]cluster.Device, len(items))
	for i := range items {
		u := &items[i]
		name := u.GetName()
		entry, ok := d.decoded[name]
		if !ok || entry.version != u.GetResourceVersion() || entry.uid != string(u.GetUID()) {
			entry = decoded{string(u.GetUID()), u.GetResourceVersion(), decode(u)}
		}
		now[name], out[name] = entry, entry.device
	}
	d.decoded = now
	return out
}

func decode(u *unstructured.Unstructured) cluster.Device {
	text, err := u.MarshalJSON()
	if err != nil {
		return cluster.Device{Err: err}
	}
	return cluster.DecodeDevice(text)
}
