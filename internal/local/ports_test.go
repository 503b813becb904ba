package local

import (
	"context"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Many look for ports at once: none gets one that another got, or one that is in
// use.
func TestFreePorts(t *testing.T) {
	t.Parallel()
	const askers, each = 16, 20
	found := make(chan []int, askers)
	for range askers {
		go func() {
			ports, err := FreePorts(t.Context(), each)
			gputest.Check(t, err)
			found <- ports
		}()
	}
	var all []int
	for range askers {
		all = append(all, <-found...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != askers*each {
		t.Errorf("%d different ports of %d", n, askers*each)
	}
	var config net.ListenConfig
	for _, p := range all {
		l, err := config.Listen(t.Context(), "tcp", loopback(p))
		if err != nil {
			t.Fatalf("port %d is not free: %v", p, err)
		}
		gputest.Must(t, l.Close())
		if claim(t.Context(), p) == nil {
			t.Errorf("port %d is found again", p)
		}
	}
	addresses, err := FreeAddresses(t.Context(), 1)
	gputest.Must(t, err)
	if _, err := config.Listen(t.Context(), "tcp", addresses[0]); err != nil {
		t.Error(err)
	}
}

// A port is in use and not marked.
func TestClaimTaken(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	gputest.Must(t, err)
	defer l.Close()
	_, text, err := net.SplitHostPort(l.Addr().String())
	gputest.Must(t, err)
	taken, err := strconv.Atoi(text)
	gputest.Must(t, err)
	if claim(t.Context(), taken) == nil {
		t.Errorf("port %d is found free", taken)
	}
	mark, err := config.ListenPacket(t.Context(), "udp", loopback(taken))
	if err != nil {
		t.Fatalf("the mark of a port that is taken stays: %v", err)
	}
	gputest.Check(t, mark.Close())
}

func TestFreePortsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := FreePorts(ctx, 1); err == nil {
		t.Errorf("found %v after the context ended", got)
	}
}
