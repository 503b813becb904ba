package noderesource

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// How a patch of a node ended: the values of the label result.
const (
	resultApplied  = "applied"
	resultConflict = "conflict"
	resultFailed   = "failed"
)

// metrics of nodes are computed when they are collected, from what was last
// decided about each node that has a Device of ours: there are never more series
// than such nodes.
type metrics struct {
	patches *prometheus.CounterVec

	mu    sync.Mutex
	nodes map[string]decision
}

var (
	cardsDesc = prometheus.NewDesc("daybreak_manager_cards",
		"MetaX cards that the Devices list, by health: healthy or unhealthy.", []string{"health"}, nil)
	computeDesc = prometheus.NewDesc("daybreak_manager_node_compute_percent",
		"Compute that a node advertises, in percent of one card.", []string{"node"}, nil)
	memoryDesc = prometheus.NewDesc("daybreak_manager_node_memory_bytes",
		"Card memory that a node advertises.", []string{"node"}, nil)
	badDesc = prometheus.NewDesc("daybreak_manager_nodes_with_bad_inventory",
		"Nodes with an unreadable Device; their resources stay unchanged.", nil, nil)
)

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		patches: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_node_patches_total",
			Help: "Patches of nodes by result: applied, conflict (the node had changed; retried) or failed.",
		}, []string{"result"}),
		nodes: map[string]decision{},
	}
	for _, result := range []string{resultApplied, resultConflict, resultFailed} {
		m.patches.WithLabelValues(result)
	}
	registry.MustRegister(m)
	return m
}

// DescribeMetrics registers the metrics with nothing counted, to list them.
func DescribeMetrics(registry prometheus.Registerer) { newMetrics(registry) }

// decided records what was decided about a node.
func (m *metrics) decided(node string, d decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.problem == nil && d.verdict != advertise {
		delete(m.nodes, node)
		return
	}
	m.nodes[node] = d
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{cardsDesc, computeDesc, memoryDesc, badDesc} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	healthy, unhealthy, bad := 0, 0, 0
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for name, d := range m.nodes {
		healthy += d.healthy
		unhealthy += d.unhealthy
		if d.problem != nil {
			bad++
		}
		for desc, resource := range map[*prometheus.Desc]corev1.ResourceName{computeDesc: wire.KoordCore, memoryDesc: wire.KoordMemory} {
			if q, ok := d.amounts[resource]; ok {
				gauge(desc, q.AsApproximateFloat64(), name)
			}
		}
	}
	gauge(cardsDesc, float64(healthy), "healthy")
	gauge(cardsDesc, float64(unhealthy), "unhealthy")
	gauge(badDesc, float64(bad))
}
