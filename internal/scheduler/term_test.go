package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeLock is a lease in memory.
type fakeLock struct {
	resourcelock.Interface
	write func() error
}

func (*fakeLock) Identity() string { return "me" }

func (l *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return l.write() }

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return l.write() }

func TestFresh(t *testing.T) {
	tests := map[string]struct {
		elected, renewed bool
		after            time.Duration
		wantErr          string
	}{
		"no election":         {after: time.Hour},
		"never renewed":       {elected: true, wantErr: "the lease was not renewed in time: another scheduler may be leading (last renewed 2562047h47m16.854775807s ago)"},
		"just renewed":        {elected: true, renewed: true},
		"before the deadline": {elected: true, renewed: true, after: 10*time.Second - 1},
		"at the deadline":     {elected: true, renewed: true, after: 10 * time.Second, wantErr: "the lease was not renewed in time: another scheduler may be leading (last renewed 10s ago)"},
		"long after it":       {elected: true, renewed: true, after: time.Minute, wantErr: "the lease was not renewed in time: another scheduler may be leading (last renewed 1m0s ago)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(start)
			term := newTerm(c)
			if tt.elected {
				term.elect(&fakeLock{}, 10*time.Second)
			}
			if tt.renewed {
				term.renew(start)
			}
			c.Step(tt.after)
			err := term.fresh()
			if said := message(err); said != tt.wantErr || err != nil && !errors.Is(err, errStale) {
				t.Errorf("fresh() says %q, want %q", said, tt.wantErr)
			}
		})
	}
}

// TestWatchedLock: what counts is the time before the write was sent, since
// the API server may have put it down any time after.
func TestWatchedLock(t *testing.T) {
	tests := map[string]struct {
		holder      string
		err         error
		wantRenewed time.Time
	}{
		"our own write":             {holder: "me", wantRenewed: start},
		"a write that failed":       {holder: "me", err: errBroken},
		"someone else's name in it": {holder: "other"},
		"the lease is given back":   {holder: ""},
	}
	for name, tt := range tests {
		for verb, write := range map[string]func(resourcelock.Interface, context.Context, resourcelock.LeaderElectionRecord) error{
			"create": resourcelock.Interface.Create, "update": resourcelock.Interface.Update,
		} {
			t.Run(name+", "+verb, func(t *testing.T) {
				c := clocktesting.NewFakeClock(start)
				term := newTerm(c)
				lock := term.elect(&fakeLock{write: func() error { c.Step(5 * time.Second); return tt.err }}, 10*time.Second)
				if err := write(lock, t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tt.holder}); !errors.Is(err, tt.err) {
					t.Errorf("write = %v, want %v", err, tt.err)
				}
				if !term.renewed.Equal(tt.wantRenewed) {
					t.Errorf("renewed at %v, want %v", term.renewed, tt.wantRenewed)
				}
				if got := closed(term.started); got != !tt.wantRenewed.IsZero() {
					t.Errorf("leading: %v", got)
				}
			})
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestReady(t *testing.T) {
	term := newTerm(clocktesting.NewFakeClock(start))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := term.ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ready() before the fence = %v, want that it waits", err)
	}
	waiting := make(chan error)
	go func() { waiting <- term.ready(t.Context()) }()
	term.fence()
	term.fence() // twice is fine
	if err := <-waiting; err != nil {
		t.Errorf("ready() = %v", err)
	}
	if err := term.ready(ctx); err != nil {
		t.Errorf("ready() after the fence = %v, want no error even of a context that ended", err)
	}
}
