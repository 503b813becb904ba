package chaos

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// balancer is the Service of the managers: it takes the API server's
// connections to one that is ready. Ready is what the manager itself says when
// it is probed, as kubelet would; connections that are open stay where they are.
type balancer struct {
	listener net.Listener
	backends []*backend
	turn     atomic.Uint64
	open     sync.WaitGroup
}

// backend is one manager: where it admits pods, and where it is probed.
type backend struct {
	admission, health string
	unready           atomic.Bool
}

const (
	probeInterval = time.Second
	probeFailures = 2
)

func newBalancer(ctx context.Context, backends ...*backend) (*balancer, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, backends: backends}
	for _, x := range backends {
		b.open.Go(func() { x.probe(ctx) })
	}
	b.open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.open.Go(func() { b.pass(ctx, conn) })
		}
	})
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

// stop ends it; its context must have ended.
func (b *balancer) stop() {
	_ = b.listener.Close()
	b.open.Wait()
}

// pass takes a connection to a manager that is ready, or to any if none is.
func (b *balancer) pass(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	first := b.turn.Add(1)
	for _, unready := range []bool{false, true} {
		for i := range b.backends {
			x := b.backends[(first+uint64(i))%uint64(len(b.backends))]
			if x.unready.Load() != unready {
				continue
			}
			var dialer net.Dialer
			to, err := dialer.DialContext(ctx, "tcp", x.admission)
			if err != nil {
				continue
			}
			machine.Pipe(ctx, conn, to)
			return
		}
	}
}

// probe asks the manager whether it is ready, again and again.
func (x *backend) probe(ctx context.Context) {
	failures := 0
	for machine.Sleep(ctx, probeInterval) {
		if _, err := machine.Get(ctx, "http://"+x.health+"/readyz"); err != nil {
			failures++
		} else {
			failures = 0
		}
		x.unready.Store(failures >= probeFailures)
	}
}
