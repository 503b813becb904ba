package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// from makes a request one of this address, with this token.
func from(address, token string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = address
		bearer(token)(r)
	}
}

// TestFloodOfTokens: one client that sends random tokens without end keeps no other
// user out: a user who is logged in stays so, from the same address too, and others
// log in from theirs.
func TestFloodOfTokens(t *testing.T) {
	rights := []string{"nodes", "devices", "pods"}
	server := newAPIServer(map[string][]string{"alice": rights, "bob": rights})
	clk := testclock.NewFakeClock(noon())
	h := serveBy(t, &changing{objects: read(t)}, server, clk)
	const mallory, alice, bob = "10.0.0.1:1000", "10.0.0.2:1000", "10.0.0.3:1000"
	status := func(address, token string) int {
		return get(t, h, "/api/v1/state", from(address, token)).StatusCode
	}
	if got := status(alice, "alice"); got != http.StatusOK {
		t.Fatalf("alice gets %d", got)
	}
	offered := 0
	flood := func() {
		turned := 0
		for range 500 {
			offered++
			if status(mallory, fmt.Sprint("random-", offered)) == http.StatusTooManyRequests {
				turned++
			}
		}
		if turned < 400 {
			t.Errorf("%d of 500 random tokens were turned away", turned)
		}
	}
	for range 5 { // longer than a review is remembered, again and again
		flood()
		for address, token := range map[string]string{alice: "alice", mallory: "alice"} {
			if got := status(address, token); got != http.StatusOK {
				t.Errorf("alice, who is logged in, gets %d from %s", got, address)
			}
		}
		clk.Step(reviewed + time.Second)
	}
	flood()
	gputest.Equal(t, "bob, who logs in, gets", http.StatusOK, status(bob, "bob"))
	if asked := server.asked("tokenreviews"); asked > 6*(sourceBurst+int(sourceRate*reviewed.Seconds()))+20 {
		t.Errorf("the API server was asked %d times", asked)
	}

	// A token that was revoked is unknown from then on.
	server.withdraw("alice")
	clk.Step(reviewed + time.Second)
	gputest.Equal(t, "after her token was withdrawn alice gets", http.StatusUnauthorized, status(alice, "alice"))
	clk.Step(lately)
	flood()
	if got := status(mallory, "bob"); got != http.StatusTooManyRequests {
		t.Errorf("bob, long gone, gets %d from the flood's address", got)
	}
}

// TestTokenBudget: the budget of a source, and that of all.
func TestTokenBudget(t *testing.T) {
	clk := testclock.NewFakeClock(noon())
	s := newTokenBudget(clk)
	admitted := func(source string, n int) int {
		count := 0
		for range n {
			if s.admit(source) {
				count++
			}
		}
		return count
	}
	if got := admitted("a", 1000); got != sourceBurst {
		t.Errorf("%d of one source at once, want %d", got, sourceBurst)
	}
	if got := admitted("b", 1); got != 1 {
		t.Error("another source pays for the first")
	}
	clk.Step(time.Second)
	if got := admitted("a", 1000); got != sourceRate {
		t.Errorf("%d a second later, want %d", got, sourceRate)
	}
	clk.Step(time.Hour)
	total := 0
	for i := range 100 {
		total += admitted(fmt.Sprint("bot-", i), 1000)
	}
	if total != totalBurst {
		t.Errorf("%d of all sources at once, want %d", total, totalBurst)
	}
}

// TestOneReview: many requests with one token at once are one review.
func TestOneReview(t *testing.T) {
	server := newAPIServer(map[string][]string{"alice": {"nodes", "devices"}})
	g := newReviews(server.client, testclock.NewFakeClock(noon()))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, err := g.who(with(t, "alice")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := server.asked("tokenreviews"); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

func TestSourceOf(t *testing.T) {
	for remote, want := range map[string]string{
		"10.1.2.3:4567":               "10.1.2.3",
		"[::ffff:10.1.2.3]:4567":      "10.1.2.3",
		"[2001:db8:1:2:3:4:5:6]:4567": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:1":    "2001:db8:1:2::/64",
		"[fe80::1%eth0]:4567":         "fe80::/64",
		"@":                           "@",
		"":                            "",
	} {
		gputest.Equal(t, fmt.Sprintf("%q is of", remote), want, sourceOf(remote))
	}
}

// opened opens a stream and returns its status; it stays open until the test ends
// or close is called.
func opened(t *testing.T, server *httptest.Server, token string) (status int, closed func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/stream", http.NoBody)
	gputest.Must(t, err)
	bearer(token)(r)
	response, err := server.Client().Do(r)
	gputest.Must(t, err)
	closed = func() { cancel(); _ = response.Body.Close() }
	t.Cleanup(closed)
	return response.StatusCode, closed
}

// TestStreamsOfOne: users without a login take up no stream, and one user not all of them.
func TestStreamsOfOne(t *testing.T) {
	rights := []string{"nodes", "devices", "pods"}
	all := map[string][]string{"alice": rights, "last": rights}
	for i := range mostStreams / userStreams {
		all[fmt.Sprint("user-", i)] = rights
	}
	h := serve(t, &changing{objects: read(t)}, newAPIServer(all))
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	var stop []func()
	for range userStreams {
		status, closed := opened(t, server, "alice")
		if status != http.StatusOK {
			t.Fatalf("alice gets %d", status)
		}
		stop = append(stop, closed)
	}
	if status, _ := opened(t, server, "alice"); status != http.StatusTooManyRequests {
		t.Errorf("alice gets one more than %d: %d", userStreams, status)
	}
	if status, _ := opened(t, server, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	for i := range mostStreams/userStreams - 1 {
		for range userStreams {
			if status, _ := opened(t, server, fmt.Sprint("user-", i)); status != http.StatusOK {
				t.Fatalf("user %d gets %d", i, status)
			}
		}
	}
	if status, _ := opened(t, server, "last"); status != http.StatusServiceUnavailable {
		t.Errorf("beyond all there are: %d", status)
	}
	stop[0]()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if status, _ := opened(t, server, "last"); status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a stream that was closed stays taken")
		}
	}
}

// TestStreamsOpen: on loopback, where users have no names, the limit is that of all.
func TestStreamsOpen(t *testing.T) {
	var s streams
	for i := range mostStreams {
		if _, err := s.open("", mostStreams); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if _, err := s.open("", mostStreams); !errors.Is(err, errMostStreams) {
		t.Errorf("one more: %v", err)
	}
}
