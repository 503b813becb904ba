package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// upstream is an API server that can be frozen: it takes requests and does not
// answer them.
type upstream struct {
	mu     sync.Mutex
	frozen chan struct{} // nil while it answers
	status int
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	frozen, status := u.frozen, u.status
	u.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-r.Context().Done():
			return
		}
	}
	w.WriteHeader(status)
}

func (u *upstream) set(frozen chan struct{}, status int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.frozen, u.status = frozen, status
}

// serveUpstream returns a dashboard, and the API server that it pings.
func serveUpstream(t *testing.T, clk *testclock.FakeClock) (http.Handler, *upstream) {
	t.Helper()
	api := &upstream{status: http.StatusOK}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	gputest.Must(t, err)
	h, err := New(Options{Source: &changing{objects: read(t)}, API: client, Logger: klog.Background(), Clock: clk})
	gputest.Must(t, err)
	return h, api
}

// beatAfter returns the next beat that is as wanted, while time goes on.
func beatAfter(t *testing.T, clk *testclock.FakeClock, beats <-chan Beat, want func(Beat) bool) Beat {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		select {
		case b := <-beats:
			if want(b) {
				return b
			}
		case <-time.After(20 * time.Millisecond):
			clk.Step(time.Second)
		}
	}
	t.Fatal("no such beat")
	return Beat{}
}

// TestFrozenAPIServer: every stream learns that the API server does not answer,
// and since when, although nothing else changes. When it answers again, informers
// have as long as the outage was to notice.
func TestFrozenAPIServer(t *testing.T) {
	clk := testclock.NewFakeClock(noon())
	h, api := serveUpstream(t, clk)
	beats, _ := listenFor[Beat](t, h, "", "beat")
	first := beatAfter(t, clk, beats, func(b Beat) bool { return !b.Lost })
	if first.Heard == nil || !first.Heard.Equal(first.Now) {
		t.Errorf("the first beat is %+v", first)
	}
	thaw := make(chan struct{})
	api.set(thaw, http.StatusOK)
	lost := beatAfter(t, clk, beats, func(b Beat) bool { return b.Lost })
	if lost.Heard == nil || lost.Now.Sub(*lost.Heard) < pingTimeout {
		t.Errorf("the beat of a frozen API server is %+v", lost)
	}
	other, _ := listenFor[Beat](t, h, "", "beat")
	if b := beatAfter(t, clk, other, func(Beat) bool { return true }); !b.Lost || b.Heard == nil || !b.Heard.Equal(*lost.Heard) {
		t.Errorf("the first beat of a second page is %+v, want it lost since %s", b, lost.Heard)
	}
	api.set(nil, http.StatusOK)
	close(thaw)
	back := beatAfter(t, clk, beats, func(b Beat) bool { return !b.Lost })
	if !back.CatchingUp || !back.Heard.Equal(*lost.Heard) {
		t.Errorf("the first beat after that is %+v", back)
	}
	live := beatAfter(t, clk, beats, func(b Beat) bool { return !b.Lost && !b.CatchingUp })
	if outage := back.Now.Sub(*lost.Heard); !live.Heard.Equal(live.Now) || live.Now.Sub(back.Now) < min(outage, catchUp) {
		t.Errorf("after an outage of %s and an answer at %s the beat is %+v", outage, back.Now, live)
	}
}

// TestPing: which answers count, and that a page opened while there are none does
// not claim to know an age.
func TestPing(t *testing.T) {
	for status, lost := range map[int]bool{http.StatusOK: false, http.StatusForbidden: false, http.StatusUnauthorized: false, http.StatusInternalServerError: true} {
		clk := testclock.NewFakeClock(noon())
		h, api := serveUpstream(t, clk)
		api.set(nil, status)
		beats, _ := listenFor[Beat](t, h, "", "beat")
		if b := beatAfter(t, clk, beats, func(Beat) bool { return true }); b.Lost != lost || (b.Heard == nil) != lost {
			t.Errorf("status %d: the beat is %+v, want lost %v", status, b, lost)
		}
	}
}

// TestNoPings: the API server is asked by one page or by many alike, and not at all
// when none is open.
func TestNoPings(t *testing.T) {
	clk := testclock.NewFakeClock(noon())
	p := newPulse(nil, clk)
	pings := make(chan struct{}, 100)
	p.ping = func(context.Context) error { pings <- struct{}{}; return nil }
	_, closeFirst := p.open()
	beats, closeSecond := p.open()
	next := func(Beat) bool { return true }
	before := beatAfter(t, clk, beats, next)
	closeFirst()
	beatAfter(t, clk, beats, next)
	if n, most := len(pings), 1+int(clk.Since(before.Now)/heartbeat)+1; n < 2 || n > most {
		t.Errorf("%d pings for two pages, want 2 to %d", n, most)
	}
	closeSecond()
	time.Sleep(50 * time.Millisecond) // until the last has ended
	n := len(pings)
	clk.Step(time.Hour)
	time.Sleep(50 * time.Millisecond)
	if len(pings) > n {
		t.Errorf("%d pings without a page", len(pings)-n)
	}
}
