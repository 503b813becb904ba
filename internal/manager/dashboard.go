package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
)

// DefaultDashboard is the command's default address of the page.
const DefaultDashboard = "127.0.0.1:8082"

// Dashboard configures the page of cards.
type Dashboard struct {
	// Address is where every replica serves it; empty or [Off] means nowhere. On a
	// loopback address the page is open to every client, over plain HTTP. On any
	// other it is served over TLS to users that the API server knows.
	Address string
	// CertFile and KeyFile are the certificate of the page; they are read again
	// when they change. Without them it is that of the webhook, which browsers
	// don't trust.
	CertFile, KeyFile string
}

func (m *Manager) addDashboard(ctx context.Context) error {
	d := m.cfg.Dashboard
	options := dashboard.Options{Source: m.source, API: m.client, Clock: m.cfg.Clock, Logger: klog.FromContext(ctx).WithName("dashboard")}
	var config *tls.Config
	var err error
	if !dashboard.IsLoopback(d.Address) {
		if config, err = m.dashboardTLS(); err != nil {
			return err
		}
		if options.Reviewer, err = kubernetes.NewForConfig(m.rest); err != nil { // with a rate limit of its own
			return err
		}
	}
	handler, err := dashboard.New(options)
	if err != nil {
		return err
	}
	return m.serve(
		endpoint{name: "dashboard", address: d.Address, flag: "dashboard-bind-address", tls: config},
		&http.Server{ // no WriteTimeout: streams last
			Handler:     handler,
			BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with the manager
		})
}

// dashboardTLS returns how the page is served where others can reach it.
func (m *Manager) dashboardTLS() (*tls.Config, error) {
	d := m.cfg.Dashboard
	switch {
	case d.CertFile != "" || d.KeyFile != "":
		return m.watchedTLS(d.CertFile, d.KeyFile)
	case m.keeper != nil:
		return newTLS(m.keeper.GetCertificate), nil
	}
	return nil, errors.New("outside of loopback the dashboard needs a certificate: name one with --dashboard-tls-cert-file and --dashboard-tls-key-file, " +
		"serve admission too and use its own, or bind the dashboard to 127.0.0.1")
}
