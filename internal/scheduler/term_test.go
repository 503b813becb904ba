package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLock is a lease in memory.
type fakeLock struct {
	resourcelock.Interface
	write  func() error
	holder string
}

func (l *fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (*fakeLock) Identity() string { return "me" }

// leads makes the process of the term lead for good, as "me".
func leads(t *term) {
	t.elect(&fakeLock{}, math.MaxInt64)
	t.renew(0)
}

func (l *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return l.write() }

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return l.write() }

// TestFresh: a Binding is sent only while the lease is fresh, by a clock that
// counts the time during which the machine was suspended.
func TestFresh(t *testing.T) {
	const stale = "the lease was not renewed in time: another scheduler may be leading"
	tests := map[string]struct {
		renewed, lapsed bool
		after           time.Duration
		ended           error
		wantErr         string
	}{
		"never renewed":                 {wantErr: stale},
		"renewed, then ended":           {renewed: true, ended: errBroken, wantErr: stale + ": " + errBroken.Error()},
		"just renewed":                  {renewed: true},
		"renewed, then held by another": {renewed: true, lapsed: true, wantErr: stale},
		"before the deadline":           {renewed: true, after: 10*time.Second - 1},
		"at the deadline":               {renewed: true, after: 10 * time.Second, wantErr: stale + " (last renewed 10s ago)"},
		"long after it":                 {renewed: true, after: time.Minute, wantErr: stale + " (last renewed 1m0s ago)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var now time.Duration
			term := newTerm(func() time.Duration { return now })
			term.elect(&fakeLock{}, 10*time.Second)
			if tt.renewed {
				term.renew(0)
			}
			if tt.lapsed {
				term.lapse()
			}
			if tt.ended != nil {
				term.end(tt.ended)
			}
			now += tt.after
			err := term.fresh()
			if said := message(err); said != tt.wantErr || err != nil && !errors.Is(err, errStale) {
				t.Errorf("fresh() says %q, want %q", said, tt.wantErr)
			}
		})
	}
}

// TestSinceBoot: the clock is the one that counts suspension, as the kernel
// shows it elsewhere.
func TestSinceBoot(t *testing.T) {
	before := sinceBoot()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skipf("no uptime to compare with: %v", err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		t.Fatal(err)
	}
	// A container may have an uptime of its own, but not a longer one.
	if up := time.Duration(seconds * float64(time.Second)); up > sinceBoot()+time.Second {
		t.Errorf("sinceBoot() = %v, the machine is up for %v", before, up)
	}
	if after := sinceBoot(); after < before {
		t.Errorf("sinceBoot() goes back from %v to %v", before, after)
	}
}

// TestWatchedLock: what counts is the time before the write was sent, since
// the API server may have put it down any time after.
func TestWatchedLock(t *testing.T) {
	const never = time.Duration(-1)
	tests := map[string]struct {
		holder      string
		err         error
		wantRenewed time.Duration
	}{
		"our own write":             {holder: "me", wantRenewed: time.Hour},
		"a write that failed":       {holder: "me", err: errBroken, wantRenewed: never},
		"someone else's name in it": {holder: "other", wantRenewed: never},
		"the lease is given back":   {holder: "", wantRenewed: never},
	}
	for name, tt := range tests {
		for verb, write := range map[string]func(resourcelock.Interface, context.Context, resourcelock.LeaderElectionRecord) error{
			"create": resourcelock.Interface.Create, "update": resourcelock.Interface.Update,
		} {
			t.Run(name+", "+verb, func(t *testing.T) {
				now := time.Hour
				term := newTerm(func() time.Duration { return now })
				lock := term.elect(&fakeLock{write: func() error { now += 5 * time.Second; return tt.err }}, 10*time.Second)
				if err := write(lock, t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tt.holder}); !errors.Is(err, tt.err) {
					t.Errorf("write = %v, want %v", err, tt.err)
				}
				if term.renewed != tt.wantRenewed {
					t.Errorf("renewed at %v, want %v", term.renewed, tt.wantRenewed)
				}
				if got := closed(term.started); got != (tt.wantRenewed != never) {
					t.Errorf("leading: %v", got)
				}
			})
		}
	}
}

// TestAnotherHolderIsSeen: a lease that another process holds ends this one's
// freshness, also where the clock stood still and says otherwise.
func TestAnotherHolderIsSeen(t *testing.T) {
	for holder, wantErr := range map[string]error{"me": nil, "other": errStale, "": errStale} {
		term := newTerm(func() time.Duration { return 0 })
		lock := term.elect(&fakeLock{holder: holder, write: func() error { return nil }}, 10*time.Second)
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := term.fresh(); !errors.Is(err, wantErr) {
			t.Errorf("fresh() = %v with a lease held by %q, want %v", err, holder, wantErr)
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
	term := newTerm(sinceBoot)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := term.ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ready() before the fence is open = %v, want that it waits", err)
	}
	waiting := make(chan error)
	go func() { waiting <- term.ready(t.Context()) }()
	term.open()
	term.open() // twice is fine
	if err := <-waiting; err != nil {
		t.Errorf("ready() = %v", err)
	}
	if err := term.ready(ctx); err != nil {
		t.Errorf("ready() after the fence is open = %v, want no error even of a context that ended", err)
	}
}
