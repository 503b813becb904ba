package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxSilence is how long the loop may take, a few times writeTimeout.
const maxSilence = 2 * time.Minute

// Off means no server, in place of its address.
const Off = "0"

// Serve serves metrics, over TLS if there is a certificate, and health checks until
// the context ends; both may have one address.
func (a *Agent) Serve(ctx context.Context, metrics, health string) error {
	handlers := handlers{}
	handlers.add(metrics, "GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	handlers.add(health, "GET /healthz", probe(http.StatusInternalServerError, a.alive))
	handlers.add(health, "GET /readyz", probe(http.StatusServiceUnavailable, a.Ready))
	secured := map[string]*tls.Config{}
	if a.cfg.MetricsTLS != nil {
		secured[metrics] = a.cfg.MetricsTLS
	}
	return handlers.serve(ctx, secured)
}

// handlers are what is served, by address.
type handlers map[string]*http.ServeMux

// add serves a path on an address, unless that is [Off].
func (h handlers) add(address, path string, handler http.Handler) {
	if address == Off || address == "" {
		return
	}
	if h[address] == nil {
		h[address] = http.NewServeMux()
	}
	h[address].Handle(path, handler)
}

// serve serves until the context ends, on secured addresses over TLS.
func (h handlers) serve(ctx context.Context, secured map[string]*tls.Config) error {
	ended := make(chan error, len(h))
	for address, mux := range h {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("serve on %s: %w", address, err)
		}
		server := &http.Server{
			Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		}
		if secured[address] != nil {
			listener = tls.NewListener(listener, secured[address])
		}
		context.AfterFunc(ctx, func() { _ = server.Close() })
		go func() { ended <- server.Serve(listener) }()
	}
	for range h {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
	}
	return nil
}

func probe(status int, check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}

// alive returns an error if the agent's loop does not run.
func (a *Agent) alive() error {
	if silent := a.clock.Since(time.Unix(0, a.beat.Load())); silent > maxSilence {
		return fmt.Errorf("the loop has not run for %s", silent.Round(time.Second))
	}
	return nil
}

// Ready returns what is still to be published; nil if nothing is.
func (a *Agent) Ready() error {
	if st := a.status.Load(); !st.ready {
		return errors.New("the agent waits for " + st.waits)
	}
	return nil
}
