package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/manager/audit"
	"github.com/daybreak-gpu/daybreak/internal/manager/controllers/noderesource"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
)

// writeMetrics writes the metrics of each part.
func writeMetrics(p *page) error {
	p.begin("Metrics", "the registries of the parts", `Metrics of Daybreak. Labels contain no pods or cards, except in the metrics of cards with the names of the vendor's exporter.
[Monitoring](../monitor.md) has the alerts and the Grafana dashboard.`)
	for _, part := range []struct {
		title, text string
		describe    func(prometheus.Registerer) error
	}{
		{"Scheduler", "Served with the metrics of kube-scheduler at `/metrics` of `--secure-port` (10259). The right to get that path is required.", scheduler.DescribeMetrics},
		{"Manager", "Served at `--metrics-bind-address` (`:8080`) with the metrics of controller-runtime. Only the leader serves the metrics of the audit.", describeManager},
		{"Agent", "Served at `--metrics-bind-address` (`:9460`). Names with the prefix `mx_` are those of the vendor's exporter, so that its dashboards keep working.", agent.DescribeMetrics},
	} {
		r := recorder{registry: prometheus.NewRegistry()}
		if err := part.describe(&r); err != nil {
			return err
		}
		metrics, err := r.metrics()
		if err != nil {
			return err
		}
		p.section(part.title, part.text)
		var rows [][]string
		for _, m := range metrics {
			rows = append(rows, []string{code(m.name), m.kind, joinCode(m.labels), m.help})
		}
		p.table([]string{"metric", "type", "labels", "meaning"}, rows)
	}
	return nil
}

// describeManager registers the manager's own metrics with nothing counted.
func describeManager(registry prometheus.Registerer) error {
	webhook.Handler(webhook.Rules{}, nil, registry)
	noderesource.DescribeMetrics(registry)
	audit.DescribeMetrics(registry)
	return nil
}

func joinCode(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = code(w)
	}
	return strings.Join(quoted, ", ")
}

// metric is what is known about one.
type metric struct {
	name, kind, help string
	labels           []string
}

// recorder takes down what is registered with it. What shows no value yet says
// only its name, help and labels; it is a gauge, since counters and histograms
// begin at nothing and show that.
type recorder struct {
	registry *prometheus.Registry
	descs    []string
}

// Register implements prometheus.Registerer.
func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		r.descs = append(r.descs, d.String())
	}
	return r.registry.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *recorder) Unregister(c prometheus.Collector) bool { return r.registry.Unregister(c) }

// desc reads the text of a prometheus.Desc, which has no other way to be read.
var desc = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// metrics lists what was registered, by name.
func (r *recorder) metrics() ([]metric, error) {
	kinds, err := r.kinds()
	if err != nil {
		return nil, err
	}
	named := map[string]metric{}
	for _, text := range r.descs {
		parts := desc.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%s is not as a description of prometheus was", text)
		}
		name, err := strconv.Unquote(parts[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		help, err := strconv.Unquote(parts[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		m := metric{name: name, kind: "gauge", help: help}
		if kind, known := kinds[name]; known {
			m.kind = kind
		}
		if parts[3] != "" {
			m.labels = strings.Split(parts[3], ",")
		}
		named[name] = m
	}
	var list []metric
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list, nil
}

// kinds returns the types of all that shows a value.
func (r *recorder) kinds() (map[string]string, error) {
	families, err := r.registry.Gather()
	if err != nil {
		return nil, err
	}
	kinds := map[string]string{}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(dto.MetricType_name[int32(f.GetType())])
	}
	return kinds, nil
}
