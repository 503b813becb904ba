package deployed

import (
	"context"
	"net"
)

// dialManager connects to one of the managers that are ready, in turns. The only
// Service that the API server calls is the managers'.
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
