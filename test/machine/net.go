package machine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// pages reads metrics and probes: kube-scheduler signs its own certificate.
var pages = &http.Client{Timeout: time.Second, Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // see above
}}

// Get reads a page of metrics or of a probe within a second.
func Get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := pages.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// egress makes an API server reach webhooks of Services through a gateway.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}}
`

// Gateway is the network of pods, as an API server sees it.
type Gateway struct{ listener net.Listener }

// NewGateway returns a gateway, with the file that configures the API server, in a
// folder.
func NewGateway(ctx context.Context, folder string) (g *Gateway, file string, err error) {
	socket := filepath.Join(folder, "gateway.sock")
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, "", err
	}
	file = filepath.Join(folder, "egress.yaml")
	return &Gateway{listener}, file, os.WriteFile(file, fmt.Appendf(nil, egress, socket), 0o600)
}

// Serve connects the API server's calls to what dial returns, as the one Service that
// it calls does, until the context ends.
func (g *Gateway) Serve(ctx context.Context, dial func(ctx context.Context) (net.Conn, error)) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // its one client is ours
		conn, err := dial(ctx)
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "nothing is ready", http.StatusBadGateway)
			return
		}
		defer conn.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			Pipe(ctx, from, conn)
		}
	})}
	go func() { _ = server.Serve(g.listener) }()
	<-ctx.Done()
	_ = server.Close()
}

// Pipe copies both ways until one side ends.
func Pipe(ctx context.Context, a, b net.Conn) {
	defer b.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
