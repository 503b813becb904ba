package audit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
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

// Options is what the audit needs in addition to the manager.
type Options struct {
	Source cluster.Source
	// Metrics is where the metrics are registered.
	Metrics prometheus.Registerer
	Clock   clock.WithTicker
	// Interval is the least time between two audits, unless one is to be
	// confirmed.
	Interval time.Duration
}

// auditor runs the audits.
type auditor struct {
	Options
	metrics *metrics
	events  events.EventRecorder
	// reported are the violations that have Events, by key, and warned the warnings
	// about quotas.
	reported, warned map[string]bool
	// changed is set when something changed since the last audit began.
	changed atomic.Bool

	// last is the latest audit, confirmed or not, and lastAt its time.
	last   *audit.Report
	lastAt time.Time
}

// Add adds the audit to the manager.
func Add(m ctrlmanager.Manager, o Options) error {
	a, err := newAuditor(m.GetEventRecorder(wire.ManagerComponent), o)
	if err != nil {
		return err
	}
	return m.Add(a)
}

func newAuditor(recorder events.EventRecorder, o Options) (*auditor, error) {
	a := &auditor{Options: o, metrics: newMetrics(o.Metrics), events: recorder}
	return a, o.Source.OnChange(func() { a.changed.Store(true) })
}

// NeedLeaderElection reports that only the leader audits: two would write the
// same Events.
func (*auditor) NeedLeaderElection() bool { return true }

// Start audits until the context ends.
func (a *auditor) Start(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("audit")
	for {
		wait := a.Interval
		if a.once(klog.NewContext(ctx, logger)) {
			wait = min(wait, settle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.Clock.After(wait):
		}
	}
}

// once audits, if something may be new, and reports whether a finding is yet to
// be confirmed.
func (a *auditor) once(ctx context.Context) (confirm bool) {
	now := a.Clock.Now()
	changed := a.changed.Swap(false)
	if !changed && a.last != nil && len(a.last.Violations) == 0 && now.Sub(a.lastAt) < quiet*a.Interval {
		return false
	}
	objects, err := a.Source.Objects()
	if err != nil {
		a.metrics.audits.WithLabelValues(resultFailed).Inc()
		klog.FromContext(ctx).Error(err, "Audit failed, trying again")
		a.changed.Store(true)
		return false
	}
	snapshot := objects.Snapshot()
	report := audit.Check(snapshot, now)
	confirmed := report.Confirmed(a.last)
	fresh := a.notify(ctx, confirmed, objects)
	namespaces := view.NewNamespaces(snapshot, "")
	a.warn(namespaces, objects)
	a.metrics.describe(snapshot, namespaces, confirmed.Violations, report.Notes, now)
	a.metrics.observe(a.Clock.Since(now), fresh)
	a.last, a.lastAt = report, now
	return len(confirmed.Violations) < len(report.Violations)
}
