package audit

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/view"
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
	cluster        atomic.Pointer[[]prometheus.Metric]
}

var (
	violationsDesc = prometheus.NewDesc("daybreak_manager_audit_violations",
		"Violations that the last two audits found, by rule; daybreak audit --help lists the rules.", []string{"rule"}, nil)
	notesDesc = prometheus.NewDesc("daybreak_manager_audit_notes",
		"Findings of the last audit that are no violations, by rule: UnhealthyInUse, ForeignSlices, RequestUnclear, NoAllocation, CardLeftOut, DeviceMissing.", []string{"rule"}, nil)
	atDesc = prometheus.NewDesc("daybreak_manager_last_audit_timestamp_seconds",
		"Time of the last audit, in seconds since 1970.", nil, nil)
	computeDesc = prometheus.NewDesc("daybreak_manager_node_compute_allocated_percent",
		"Compute of the node's cards that pods hold, in percent of one card.", []string{"node"}, nil)
	memoryDesc = prometheus.NewDesc("daybreak_manager_node_memory_allocated_bytes",
		"Memory of the node's cards that pods hold.", []string{"node"}, nil)
	namespaceComputeDesc = prometheus.NewDesc("daybreak_manager_namespace_compute",
		"Compute of cards in a namespace, in percent of one card, by type: used is what pods hold, or what the ResourceQuota counts if that is more; budget is the smallest ResourceQuota on requests.daybreak-gpu.io/compute, absent without one.", []string{"namespace", "type"}, nil)
	namespaceMemoryDesc = prometheus.NewDesc("daybreak_manager_namespace_memory",
		"Memory of cards in a namespace, in bytes, by type: used is what pods hold, or what the ResourceQuota counts if that is more; budget is the smallest ResourceQuota on requests.daybreak-gpu.io/memory, absent without one.", []string{"namespace", "type"}, nil)
	namespaceCardsDesc = prometheus.NewDesc("daybreak_manager_namespace_cards",
		"Exclusive cards of a namespace and cards of its online pods, by type: used is what pods hold, or what the ResourceQuota counts if that is more; budget is the smallest ResourceQuota on requests.daybreak-gpu.io/cards, absent without one.", []string{"namespace", "type"}, nil)
	pendingDesc = prometheus.NewDesc("daybreak_manager_pending_pods",
		"Pods that request cards and have no node.", nil, nil)
	freeDesc = prometheus.NewDesc("daybreak_manager_free_capacity_cards",
		"Free capacity of healthy cards, in cards: compute and memory count one half each.", nil, nil)
	fragmentationDesc = prometheus.NewDesc("daybreak_manager_fragmentation_ratio",
		"Part of the free capacity, from 0 to 1, that a pod like those in the cluster could not use, on average over those pods; absent while there are fewer than 32 pods, or nothing is free.", nil, nil)
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
			Name: "daybreak_manager_audit_duration_seconds", Help: "Duration of audits.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 10),
		}),
		findings: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_audit_findings_total", Help: "Violations reported, by rule. A persistent violation counts once.",
		}, []string{"rule"}),
		doubleBookings: factory.NewCounter(prometheus.CounterOpts{
			Name: "daybreak_manager_double_bookings_total",
			Help: "Double bookings: cards with more memory, compute or slices booked than they have, or exclusive cards that are shared. Always 0 unless pods were bound without the scheduler.",
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

// observe counts an audit and what it found that is new.
func (m *metrics) observe(took time.Duration, fresh []audit.Finding) {
	m.audits.WithLabelValues(resultDone).Inc()
	m.duration.Observe(took.Seconds())
	for i := range fresh {
		m.findings.WithLabelValues(string(fresh[i].Rule)).Inc()
		if doubleBooking[fresh[i].Rule] {
			m.doubleBookings.Inc()
		}
	}
}

// describe sets the metrics of the cluster.
func (m *metrics) describe(s *cluster.Snapshot, namespaces *view.Namespaces, violations, notes []audit.Finding, at time.Time) {
	var list []prometheus.Metric
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		list = append(list, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
	}
	perRule := func(desc *prometheus.Desc, rules []audit.Rule, findings []audit.Finding) {
		count := map[audit.Rule]int{}
		for i := range findings {
			count[findings[i].Rule]++
		}
		for _, rule := range rules {
			gauge(desc, float64(count[rule]), string(rule))
		}
	}
	perRule(violationsDesc, audit.Violations(), violations)
	perRule(notesDesc, audit.Notes(), notes)
	gauge(atDesc, float64(at.UnixMilli())/1000)
	for _, n := range s.Nodes {
		if n.Topology().Len() == 0 {
			continue
		}
		compute, memory := gpu.Percent(0), gpu.MiB(0)
		for i := range n.Now().Usage {
			compute += n.Now().Usage[i].Compute
			memory += n.Now().Usage[i].Memory
		}
		gauge(computeDesc, float64(compute), n.Name)
		gauge(memoryDesc, float64(memory)*(1<<20), n.Name)
	}
	for i := range namespaces.Namespaces {
		n := &namespaces.Namespaces[i]
		if n.Pods == 0 && n.Budget == (view.Budget{}) {
			continue
		}
		amount := func(desc *prometheus.Desc, unit float64, held int64, counted, budget *int64) {
			if budget != nil {
				held = max(held, *counted)
				gauge(desc, float64(*budget)*unit, n.Name, "budget")
			}
			gauge(desc, float64(held)*unit, n.Name, "used")
		}
		amount(namespaceComputeDesc, 1, n.ComputePercent, n.Counted.ComputePercent, n.Budget.ComputePercent)
		amount(namespaceMemoryDesc, 1<<20, n.MemoryMiB, n.Counted.MemoryMiB, n.Budget.MemoryMiB)
		amount(namespaceCardsDesc, 1, n.Cards, n.Counted.Cards, n.Budget.Cards)
	}
	gauge(pendingDesc, float64(len(s.Pending)))
	free, useless, known := s.Waste()
	gauge(freeDesc, free)
	if known && free > 0 {
		gauge(fragmentationDesc, useless/free)
	}
	m.cluster.Store(&list)
}

// Describe implements prometheus.Collector.
func (*metrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{violationsDesc, notesDesc, atDesc, computeDesc, memoryDesc, namespaceComputeDesc, namespaceMemoryDesc, namespaceCardsDesc, pendingDesc, freeDesc, fragmentationDesc} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	if list := m.cluster.Load(); list != nil {
		for _, metric := range *list {
			out <- metric
		}
	}
}
