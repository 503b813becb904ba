package audit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/daybreak-gpu/daybreak/internal/audit"
)

// How an audit ended: the values of the label result.
const (
	resultDone   = "done"
	resultFailed = "failed"
)

// metrics are the audit's own and those of the cluster as of the last audit,
// which only the leader has.
type metrics struct {
	audits         *prometheus.CounterVec
	duration       prometheus.Histogram
	findings       *prometheus.CounterVec
	doubleBookings prometheus.Counter

	mu     sync.Mutex
	latest *results
}

// results are of one audit.
type results struct {
	violations, notes map[audit.Rule]int
	usage             usage
	at                time.Time
}

var (
	violationsDesc = prometheus.NewDesc("daybreak_manager_audit_violations",
		"Breaches of rules that the last audit found and the one before too, by rule; the rules are listed by daybreak audit --help.", []string{"rule"}, nil)
	notesDesc = prometheus.NewDesc("daybreak_manager_audit_notes",
		"Findings of the last audit that are no violations, by rule: UnhealthyInUse, ForeignSlices, RequestUnclear, NoAllocation, CardLeftOut.", []string{"rule"}, nil)
	atDesc = prometheus.NewDesc("daybreak_manager_last_audit_timestamp_seconds",
		"When the last audit was made, in seconds since 1970.", nil, nil)
	computeDesc = prometheus.NewDesc("daybreak_manager_node_compute_allocated_percent",
		"Compute of the node's cards that pods hold, in percent of one card.", []string{"node"}, nil)
	memoryDesc = prometheus.NewDesc("daybreak_manager_node_memory_allocated_bytes",
		"Memory of the node's cards that pods hold.", []string{"node"}, nil)
	pendingDesc = prometheus.NewDesc("daybreak_manager_pending_pods",
		"Pods that ask for cards and have no node.", nil, nil)
	freeDesc = prometheus.NewDesc("daybreak_manager_free_capacity_cards",
		"What is free of healthy cards, in cards: half of a card is its compute, half its memory.", nil, nil)
	fragmentationDesc = prometheus.NewDesc("daybreak_manager_fragmentation_ratio",
		"Part of the free capacity, from 0 to 1, that a pod like those in the cluster could not use, on average over those pods; 0 while there are too few pods.", nil, nil)
)

// doubleBooking are the rules whose breach means that a card was given to two
// pods.
var doubleBooking = map[audit.Rule]bool{
	audit.MemoryOverbooked: true, audit.ComputeOverbooked: true, audit.SlicesOverbooked: true, audit.ExclusiveShared: true,
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	m := &metrics{
		audits: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_audits_total", Help: "Audits by result: done, or failed.",
		}, []string{"result"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "daybreak_manager_audit_duration_seconds", Help: "How long audits took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 10),
		}),
		findings: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_audit_findings_total", Help: "Breaches of rules that were found and reported, by rule; one that lasts counts once.",
		}, []string{"rule"}),
		doubleBookings: factory.NewCounter(prometheus.CounterOpts{
			Name: "daybreak_manager_double_bookings_total",
			Help: "Double bookings found: cards with more memory, compute or slices booked than they have, or with company although someone has them alone. Always 0 unless pods were bound around the scheduler.",
		}),
	}
	for _, result := range []string{resultDone, resultFailed} {
		m.audits.WithLabelValues(result)
	}
	for _, rule := range audit.Violations() {
		m.findings.WithLabelValues(string(rule))
	}
	registry.MustRegister(m)
	return m
}

// DescribeMetrics registers the metrics with nothing counted, to list them.
func DescribeMetrics(registry prometheus.Registerer) { newMetrics(registry) }

// observe records what an audit found.
func (m *metrics) observe(confirmed *audit.Report, notes, fresh []audit.Finding, u usage, took time.Duration, at time.Time) {
	m.audits.WithLabelValues(resultDone).Inc()
	m.duration.Observe(took.Seconds())
	for i := range fresh {
		m.findings.WithLabelValues(string(fresh[i].Rule)).Inc()
		if doubleBooking[fresh[i].Rule] {
			m.doubleBookings.Inc()
		}
	}
	latest := &results{violations: map[audit.Rule]int{}, notes: map[audit.Rule]int{}, usage: u, at: at}
	for i := range confirmed.Violations {
		latest.violations[confirmed.Violations[i].Rule]++
	}
	for i := range notes {
		latest.notes[notes[i].Rule]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = latest
}

// Describe implements prometheus.Collector.
func (*metrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{violationsDesc, notesDesc, atDesc, computeDesc, memoryDesc, pendingDesc, freeDesc, fragmentationDesc} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	latest := m.latest
	m.mu.Unlock()
	if latest == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, rule := range audit.Violations() {
		gauge(violationsDesc, float64(latest.violations[rule]), string(rule))
	}
	for _, rule := range audit.Notes() {
		gauge(notesDesc, float64(latest.notes[rule]), string(rule))
	}
	gauge(atDesc, float64(latest.at.UnixMilli())/1000)
	for _, n := range latest.usage.nodes {
		gauge(computeDesc, float64(n.compute), n.name)
		gauge(memoryDesc, float64(n.memory)*(1<<20), n.name)
	}
	gauge(pendingDesc, float64(latest.usage.pending))
	gauge(freeDesc, latest.usage.free)
	gauge(fragmentationDesc, latest.usage.fragmentation())
}
