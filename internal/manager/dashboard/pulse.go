package dashboard

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

const (
	// heartbeat is how often streams get a [Beat]. It also keeps proxies from
	// closing an idle stream.
	heartbeat = 5 * time.Second
	// pingTimeout is how long the API server may take to answer a ping. The page
	// waits for a beat longer than both together.
	pingTimeout = 5 * time.Second
	// catchUp is how long informers wait at most, after an outage, before they try
	// again. They wait the longer, the longer the outage was, but not longer than it.
	catchUp = time.Minute
)

// Beat is sent on every stream at regular intervals. A page that gets none is not
// connected.
type Beat struct {
	// Now is the manager's clock.
	Now time.Time `json:"now"`
	// Heard is when all that is shown was surely up to date. It is absent if the API
	// server has not answered since the first page was opened.
	Heard *time.Time `json:"heard,omitempty"`
	// Lost means that the API server does not answer, and CatchingUp that it answers
	// again and informers may not have noticed yet.
	Lost       bool `json:"lost,omitempty"`
	CatchingUp bool `json:"catchingUp,omitempty"`
}

// pulse pings the API server for all streams together, while there are any.
// Informers do not notice a server that hangs: without pings the last state would
// be shown as live for minutes.
type pulse struct {
	ping  func(context.Context) error
	clock clock.Clock

	mu      sync.Mutex
	streams map[chan Beat]bool
	latest  *Beat  // nil until the first answer or timeout
	stop    func() // ends the pings
	// lost is when an outage began, and back when the first answer came after it;
	// both are zero without one.
	lost, back time.Time
}

// newPulse returns a pulse of the API server; nil is one that always answers.
func newPulse(api kubernetes.Interface, clk clock.Clock) *pulse {
	p := &pulse{clock: clk, streams: map[chan Beat]bool{}, ping: func(context.Context) error { return nil }}
	if api != nil {
		p.ping = func(ctx context.Context) error { return cluster.Ping(ctx, api.Discovery().RESTClient()) }
	}
	return p
}

// answers reports whether the API server answers in time.
func (p *pulse) answers(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- p.ping(ctx) }()
	select {
	case err := <-answer:
		return err == nil
	case <-p.clock.After(pingTimeout):
		return false
	}
}

// open returns the beats of one more stream, the latest that is not taken yet. The
// caller closes it once.
func (p *pulse) open() (beats <-chan Beat, closed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := make(chan Beat, 1)
	if p.latest != nil {
		own <- *p.latest
	}
	if len(p.streams) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		p.stop = cancel
		go p.run(ctx)
	}
	p.streams[own] = true
	return own, func() { p.close(own) }
}

func (p *pulse) close(own chan Beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, own)
	if len(p.streams) == 0 {
		p.stop()
		p.latest, p.lost, p.back = nil, time.Time{}, time.Time{}
	}
}

// run pings until the context ends.
func (p *pulse) run(ctx context.Context) {
	for {
		if !p.send(ctx, p.answers(ctx)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.clock.After(heartbeat):
		}
	}
}

// send gives all streams a beat. It reports false when the pings have ended.
func (p *pulse) send(ctx context.Context, answered bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false // there may be others by now
	}
	beat := p.next(answered)
	p.latest = &beat
	for own := range p.streams {
		select {
		case <-own: // which the stream did not take
		default:
		}
		own <- beat
	}
	return true
}

// next returns the beat after a ping.
func (p *pulse) next(answered bool) Beat {
	beat := Beat{Now: p.clock.Now()}
	if p.latest != nil {
		beat.Heard = p.latest.Heard
	}
	switch {
	case !answered:
		if p.lost.IsZero() {
			p.lost = beat.Now
			if beat.Heard != nil {
				p.lost = *beat.Heard
			}
		}
		beat.Lost, p.back = true, time.Time{}
		return beat
	case !p.lost.IsZero() && p.back.IsZero():
		p.back = beat.Now
	}
	if !p.lost.IsZero() && beat.Now.Sub(p.back) < min(catchUp, p.back.Sub(p.lost)) {
		beat.CatchingUp = true
		return beat
	}
	p.lost, p.back = time.Time{}, time.Time{}
	beat.Heard = new(beat.Now)
	return beat
}
