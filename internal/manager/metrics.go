package manager

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// serveMetrics serves this manager's own metrics together with those that
// controller-runtime keeps for the process: queues, clients, the Go runtime.
// controller-runtime's own server has only the latter, and two managers in one
// process must not share counters.
func (m *Manager) serveMetrics() error {
	if m.cfg.MetricsAddress == Off {
		return nil
	}
	e := endpoint{name: "metrics", address: m.cfg.MetricsAddress, flag: "metrics-bind-address"}
	if m.cfg.MetricsCertFile != "" || m.cfg.MetricsKeyFile != "" {
		var err error
		if e.tls, err = m.watchedTLS(m.cfg.MetricsCertFile, m.cfg.MetricsKeyFile); err != nil {
			return fmt.Errorf("serve metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{m.metrics, ctrlmetrics.Registry}, promhttp.HandlerOpts{}))
	if err := m.serve(e, &http.Server{Handler: mux, WriteTimeout: time.Minute}); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
