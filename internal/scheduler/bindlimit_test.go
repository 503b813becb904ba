package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestBindLimitFollows: the limit settles where the API server answers in time,
// whatever it can take, and stays where no Binding waits.
func TestBindLimitFollows(t *testing.T) {
	tests := map[string]struct {
		// takes is how long a Binding takes of n at a time.
		takes       func(n int) time.Duration
		backlog     int
		rejects     int // more than so many at a time
		least, most int
	}{
		"a server that is far away":         {takes: func(int) time.Duration { return 100 * time.Millisecond }, backlog: 20_000, least: mostBinds, most: mostBinds},
		"a server of 400 writes a second":   {takes: func(n int) time.Duration { return time.Duration(n) * time.Second / 400 }, backlog: 20_000, least: 2 * fewestBinds, most: mostBinds / 2},
		"a slow server":                     {takes: func(n int) time.Duration { return time.Duration(n) * time.Second / 20 }, backlog: 2_000, least: fewestBinds, most: fewestBinds},
		"a server that rejects":             {takes: func(int) time.Duration { return time.Millisecond }, backlog: 20_000, rejects: 100, least: 2 * fewestBinds, most: mostBinds / 2},
		"few Bindings, which need no limit": {takes: func(int) time.Duration { return time.Millisecond }, backlog: 50, least: firstBinds, most: firstBinds},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newBindLimit(firstBinds)
				var sent atomic.Int64
				for range tt.backlog {
					go func() {
						if err := l.acquire(t.Context()); err != nil {
							t.Error(err)
						}
						n := int(sent.Add(1))
						if n > mostBinds {
							t.Errorf("%d Bindings at a time", n)
						}
						took, tries := tt.takes(n), 1
						if tt.rejects > 0 && n > tt.rejects {
							tries = 2
						}
						time.Sleep(took)
						sent.Add(-1)
						l.release(took, tries)
					}()
				}
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if !l.slots.TryAcquire(int64(l.size)) || l.slots.TryAcquire(1) {
					t.Error("at the end not all of the limit is free, or more is")
				}
				if l.size < tt.least || l.size > tt.most {
					t.Errorf("the limit is %d, want %d to %d", l.size, tt.least, tt.most)
				}
			})
		})
	}
}

// TestBindLimitInTurn: who waits first is sent first, and who gives up takes no
// turn.
func TestBindLimitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBindLimit(1)
		gputest.Must(t, l.acquire(t.Context()))
		quit := errors.New("quit")
		given, give := context.WithCancelCause(t.Context())
		var order []int
		for i := range 4 {
			go func() {
				ctx := t.Context()
				if i == 1 {
					ctx = given
				}
				switch err := l.acquire(ctx); {
				case err == nil:
					order = append(order, i)
				case i != 1 || !errors.Is(err, quit):
					t.Errorf("acquire() of %d = %v", i, err)
				}
			}()
			synctest.Wait()
		}
		give(quit)
		synctest.Wait()
		for range 3 {
			l.release(time.Millisecond, 1)
			synctest.Wait()
		}
		if len(order) != 3 || order[0] != 0 || order[1] != 2 || order[2] != 3 {
			t.Errorf("sent in the order %v, want 0, 2, 3", order)
		}
	})
}
