package deployed

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// serveGateway is the network of pods, as the API server sees it: it takes its
// calls of the webhook to a manager that is ready, as the Service does. The only
// Service that the API server calls is the managers'.
func (p *Parts) serveGateway(ctx context.Context, l net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // its one client is ours
		conn, err := p.dialManager(ctx)
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "no manager is ready", http.StatusBadGateway)
			return
		}
		defer conn.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			machine.Pipe(ctx, from, conn)
		}
	})}
	go func() { _ = server.Serve(l) }()
	<-ctx.Done()
	_ = server.Close()
}

// dialManager connects to one of the managers that are ready, in turns.
func (p *Parts) dialManager(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	last := ErrNotReady
	for _, x := range p.Ready("manager") {
		conn, err := dialer.DialContext(ctx, "tcp", x.addresses["admission"])
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}
