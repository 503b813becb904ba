package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/daybreak-gpu/daybreak/internal/manager/audit"
	"github.com/daybreak-gpu/daybreak/internal/manager/controllers/noderesource"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/tlsfile"
)

// serveMetrics serves this manager's own figures together with those that
// controller-runtime keeps for the process: queues, clients, the Go runtime.
// Its own server would know only the latter, and two managers in one process
// must not count in one place.
func (m *Manager) serveMetrics() error {
	if m.cfg.MetricsAddress == Off {
		return nil
	}
	listener, err := net.Listen("tcp", m.cfg.MetricsAddress) //nolint:noctx // New has no context; opening a port does not wait
	if err != nil {
		return fmt.Errorf("serve metrics: %w; name another address with --metrics-bind-address, or %s for none", err, Off)
	}
	config, err := tlsfile.Config(m.cfg.MetricsCertFile, m.cfg.MetricsKeyFile)
	if err != nil {
		return fmt.Errorf("serve metrics: --metrics-tls-cert-file, --metrics-tls-key-file: %w", err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{m.metrics, ctrlmetrics.Registry}, promhttp.HandlerOpts{}))
	return m.ctrl.Add(&ctrlmanager.Server{
		Name: "metrics",
		Server: &http.Server{
			Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: maxHeader,
		},
		Listener:        listener,
		ShutdownTimeout: new(5 * time.Second),
	})
}

// DescribeMetrics registers the manager's own metrics with nothing counted, for
// who wants to list them.
func DescribeMetrics(registry prometheus.Registerer) error {
	webhook.DescribeMetrics(registry)
	return errors.Join(noderesource.DescribeMetrics(registry), audit.DescribeMetrics(registry))
}
