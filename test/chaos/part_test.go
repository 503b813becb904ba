package chaos

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// part is a process that someone keeps running: what a kubelet does for the
// pods of Daybreak, and systemd or a kubelet for those of the control plane.
type part struct {
	name    string
	process *local.Process
	// proxy is what the part reaches the API server through, if it does.
	proxy *proxy
	// address is where the part serves its metrics.
	address string
	// away, if set, is called when the process ends, and back when it was started
	// again.
	away func()
	back func(context.Context)

	// turn is held by a fault for as long as it has the part in its hands.
	turn sync.Mutex
	// exits counts how often the process ended by itself.
	exits atomic.Int64
}

// restartDelay is how long a supervisor takes to notice.
const restartDelay = 300 * time.Millisecond

// keep starts the process again whenever it ends, unless a fault wants it so.
func (p *part) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.process.Exited():
		}
		if !machine.Sleep(ctx, restartDelay) {
			return
		}
		if !p.turn.TryLock() {
			continue
		}
		if ended(p.process) {
			p.exits.Add(1)
			p.restart(ctx)
		}
		p.turn.Unlock()
	}
}

func ended(process *local.Process) bool {
	select {
	case <-process.Exited():
		return true
	default:
		return false
	}
}

// restart starts the process, which has ended. The turn must be held. It can
// only fail for want of memory or files, and is then tried again by keep.
func (p *part) restart(ctx context.Context) {
	p.leave()
	if err := p.process.Start(); err == nil && p.back != nil {
		p.back(ctx)
	}
}

// leave notes that the process ends, or has ended.
func (p *part) leave() {
	if p.away != nil {
		p.away()
	}
}

// kill ends the process as kill -9 does, and starts it again after a while.
func (p *part) kill(ctx context.Context, down time.Duration, struck func()) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.leave()
	p.process.Kill()
	struck()
	machine.Sleep(ctx, down)
	p.restart(ctx)
}

// pause stops the process in the middle of whatever it does, and lets it go on
// after a while.
func (p *part) pause(ctx context.Context, d time.Duration, struck func()) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		p.restart(ctx) // it has just ended by itself
		_ = p.process.Signal(syscall.SIGSTOP)
	}
	struck()
	machine.Sleep(ctx, d)
	_ = p.process.Signal(syscall.SIGCONT)
}

// leader returns which of the parts has written its lease last.
func leader(parts []*part) *part {
	best := parts[0]
	for _, p := range parts[1:] {
		if p.proxy.leaseWritten().After(best.proxy.leaseWritten()) {
			best = p
		}
	}
	return best
}

// standby returns one that does not lead.
func standby(parts []*part) *part {
	l := leader(parts)
	for _, p := range parts {
		if p != l {
			return p
		}
	}
	return l
}
