package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var errLeft = errors.New("the pod has left the Service")

// TestDrain: while the manager ends it is not ready, and answers calls over kept
// and over new connections. Clients that keep theirs after the pod has left the
// Service are made to close them: none is cut off.
func TestDrain(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			for range 5 { // what is cut off is a matter of luck
				drain(t, protocol)
			}
		})
	}
}

func drain(t *testing.T, protocol string) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	// Lends a certificate, and stands for the API server, which is asked for its version only.
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"major":"1","minor":"36"}`) }))
	defer api.Close()
	health := freeAddress(t)
	m, err := New(Config{HealthAddress: health, Drain: time.Second, Clock: clk}, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	gputest.Must(t, err)
	answers := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &api.TLS.Certificates[0], nil }
	address := freeAddress(t)
	gputest.Must(t, errors.Join(m.serve(endpoint{name: "admission", address: address, tls: newTLS(certificate)}, &http.Server{Handler: answers}),
		m.ctrl.AddHealthzCheck("ping", healthz.Ping), m.ctrl.AddReadyzCheck("caches", m.ready)))
	ctx, signal := context.WithCancel(t.Context())
	running, stop := m.untilDrained(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.ctrl.Start(running) }()
	ready := func() bool {
		response, err := http.Get("http://" + health + "/readyz") //nolint:noctx // as a probe
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	for !ready() {
		time.Sleep(time.Millisecond)
	}

	service := make(chan struct{}) // closed when the pod has left it
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, ForceAttemptHTTP2: protocol == "h2", MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			select {
			case <-service:
				return nil, errLeft
			default:
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var calls errgroup.Group
	for range 8 {
		calls.Go(func() error {
			for {
				req, err := http.NewRequestWithContext(limited, http.MethodPost, "https://manager/admit", strings.NewReader("{}"))
				if err != nil {
					return err
				}
				response, err := client.Do(req)
				if errors.Is(err, errLeft) {
					return nil
				}
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, response.Body)
				if err := errors.Join(err, response.Body.Close()); err != nil {
					return err
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	signal()
	for !clk.HasWaiters() { // until the delay begins
		select {
		case err := <-ended:
			t.Fatalf("the manager ended at once: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if ready() {
		t.Error("the manager is ready although it ends")
	}
	time.Sleep(20 * time.Millisecond)
	close(service)
	if err := calls.Wait(); err != nil {
		t.Fatalf("a call failed: %v", err)
	}
	clk.Step(time.Second)
	if err := <-ended; err != nil {
		t.Errorf("the manager: %v", err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // opening a port does not wait
	gputest.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}
