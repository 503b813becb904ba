package manager

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log" //nolint:depguard // net/http takes no other logger
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// maxHeader is more than any client sends in headers.
const maxHeader = 32 << 10

// endpoint is an address at which every replica serves.
type endpoint struct {
	name    string
	address string
	// flag is the flag of the address, for messages.
	flag string
	// tls is nil for plain HTTP.
	tls *tls.Config
}

// serve opens the endpoint and adds the server to the manager, with the limits
// that all servers have.
func (m *Manager) serve(e endpoint, server *http.Server) error {
	listener, err := net.Listen("tcp", e.address) //nolint:noctx // opening a port does not wait
	if err != nil {
		return fmt.Errorf("%w; name another address with --%s, or %s for none", err, e.flag, Off)
	}
	if e.tls != nil {
		listener = tls.NewListener(listener, e.tls)
		server.TLSConfig = e.tls
	}
	server.Handler = m.closing(server.Handler)
	server.ReadHeaderTimeout = 10 * time.Second
	server.ReadTimeout = 30 * time.Second
	server.IdleTimeout = 2 * time.Minute
	server.MaxHeaderBytes = maxHeader
	server.ErrorLog = log.New(quiet{m.cfg.Logger.WithValues("server", e.name)}, "", 0)
	return m.ctrl.Add(&ctrlmanager.Server{Name: e.name, Server: server, Listener: listener, ShutdownTimeout: new(5 * time.Second)})
}

// closing makes clients give up their connections while the manager drains: with
// the next answer, since a connection that is closed between two calls fails a
// call that is on its way. HTTP/2 clients get a GOAWAY for the header.
func (m *Manager) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if m.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// quiet logs what a server reports of single connections, such as a failed TLS
// handshake, for debugging only.
type quiet struct{ klog.Logger }

func (q quiet) Write(line []byte) (int, error) {
	q.V(2).Info("Connection failed", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}

func newTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate, NextProtos: []string{"h2", "http/1.1"}}
}

// watchedTLS serves the certificate in the files, and reads them again when they
// change.
func (m *Manager) watchedTLS(certFile, keyFile string) (*tls.Config, error) {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %q and its key %q: %w", certFile, keyFile, err)
	}
	return newTLS(watcher.GetCertificate), m.ctrl.Add(watcher)
}
