package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// How an attempt to place a pod with cards ended: the values of the label
// result.
const (
	resultPlaced       = "placed"
	resultRefused      = "refused"
	resultInadmissible = "inadmissible"
	resultFailed       = "failed"
)

// otherRefusal is the label refusal of attempts that ended for what others than
// this plugin said: CPU, volumes, affinity between pods.
const otherRefusal = "Other"

// metrics are the metrics of one scheduler process. Every series is there from
// the beginning and kept at hand, so that counting is adding to a number.
type metrics struct {
	placed, inadmissible, failed prometheus.Counter
	refused                      map[place.Code]prometheus.Counter
	decided, undecided           prometheus.Observer
	lockWait                     prometheus.Histogram
	reserved, heldBack           prometheus.GaugeFunc
	inDoubt                      prometheus.Gauge
	incomplete                   prometheus.Counter

	attempts  *prometheus.CounterVec
	decisions *prometheus.HistogramVec
}

func newMetrics(p *pods, t *term) *metrics {
	f := &metrics{
		reserved: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "daybreak_scheduler_reservations",
			Help: "Pods with chosen cards whose allocation is not yet in the scheduler's cache of their node.",
		}, func() float64 { return float64(len(p.claimsOf(reservedClaim))) }),
		heldBack: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "daybreak_scheduler_held_back_pods",
			Help: "Pending pods that are held back because their status cannot be updated: a former leader may still bind them.",
		}, func() float64 { return float64(t.holding()) }),
		inDoubt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "daybreak_scheduler_bindings_in_doubt",
			Help: "Bindings with an unknown result. Their cards stay reserved until the result is known.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_scheduler_attempts_total",
			Help: "Attempts to place a pod that requests cards, by result: placed, refused (it fits on no node), inadmissible (an invalid request) " +
				"or failed (an error after the choice of cards); and by the refusal code of most nodes, or Other for reasons such as CPU.",
		}, []string{"result", "refusal"}),
		decisions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "daybreak_scheduler_decision_duration_seconds",
			Help:    "Time to choose the node and the cards of a pod, by result: placed or refused. The time of other plugins in between is included.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2.5, 14),
		}, []string{"result"}),
		lockWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "daybreak_scheduler_lock_wait_seconds",
			Help:    "Time that pods waited for the lock of a node that the vendor's plugin serves, including failed attempts.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16),
		}),
		incomplete: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "daybreak_scheduler_incomplete_searches_total",
			Help: "Attempts to place a pod in which the search for cards reached its limit: the cards may not be the best, or a node with room for the pod may have been left out.",
		}),
		refused: map[place.Code]prometheus.Counter{},
	}
	f.placed = f.attempts.WithLabelValues(resultPlaced, "")
	f.inadmissible = f.attempts.WithLabelValues(resultInadmissible, "")
	f.failed = f.attempts.WithLabelValues(resultFailed, "")
	f.refused[place.Fits] = f.attempts.WithLabelValues(resultRefused, otherRefusal)
	for _, code := range place.Codes() {
		f.refused[code] = f.attempts.WithLabelValues(resultRefused, code.String())
	}
	f.decided = f.decisions.WithLabelValues(resultPlaced)
	f.undecided = f.decisions.WithLabelValues(resultRefused)
	return f
}

// register adds the metrics to those that kube-scheduler serves. Of several
// schedulers in one process the first is served.
func (f *metrics) register(ctx context.Context) {
	for _, c := range f.collectors() {
		var already prometheus.AlreadyRegisteredError
		if err := legacyregistry.Registerer().Register(c); err != nil && !errors.As(err, &already) {
			klog.FromContext(ctx).Error(err, "Metrics are not served")
		}
	}
}

func (f *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.attempts, f.decisions, f.lockWait, f.reserved, f.heldBack, f.inDoubt, f.incomplete}
}

// DescribeMetrics registers the scheduler's own metrics with nothing counted, for
// who wants to list them.
func DescribeMetrics(registry prometheus.Registerer) error {
	for _, c := range newMetrics(newPods(), newTerm(sinceBoot)).collectors() {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// refuse counts an attempt that failed on every node, by the foremost code.
func (f *metrics) refuse(refusals []place.Refusal, took time.Duration) {
	f.undecided.Observe(took.Seconds())
	f.refused[place.Foremost(slices.Values(refusals))].Inc()
	if slices.ContainsFunc(refusals, func(r place.Refusal) bool { return r.Incomplete }) {
		f.incomplete.Inc()
	}
}
