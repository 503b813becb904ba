package mxsml

import (
	"errors"
	"io"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// The calls that the agent makes are answered until the input ends.
func TestServe(t *testing.T) {
	config := filepath.Join(t.TempDir(), "machine")
	gputest.Must(t, fake.NewMachine(2, 2).Write(config))
	t.Setenv(fake.EnvConfig, config)
	library := fake.Library(t, fake.V228)
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	end := make(chan error, 1)
	go func() { end <- serve(t.Context(), inRead, outWrite, newSession(library)) }()
	client := jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{outRead, inWrite})
	var s discover.Snapshot
	if err := client.Call("Library.Look", true, &s); err != nil || len(s.Cards) != 2 || len(s.Links) != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
	if !slices.Contains(s.Missing, "mxSmlGetMetaXLinkInfo_v2") || slices.Contains(s.Missing, "mxSmlCreateSgpu") {
		t.Errorf("an older library misses %v", s.Missing)
	}
	if err := client.Call("Library.Remove", discover.SliceRef{BDF: s.Cards[0].BDF}, nil); err == nil || !strings.HasSuffix(err.Error(), discover.ErrNoSlice.Error()) {
		t.Errorf("a slice that is not there: %v", err)
	}
	gputest.Must(t, client.Close())
	wantEnd(t, end)
}

// wantEnd waits for the end of what serves, whose input has ended.
func wantEnd(t *testing.T, end <-chan error) {
	t.Helper()
	select {
	case err := <-end:
		gputest.Check(t, err)
	case <-time.After(20 * time.Second):
		t.Error("it goes on although its input has ended")
	}
}

// What can't be read as a call ends the process; the agent then starts another.
func TestServeRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"not json\n": "invalid character",
		`{"id": 2, "method": "Library.Reboot", "params": []}`:        "can't find method Library.Reboot",
		`{"id": 3, "method": "Library.Look", "params": ["refresh"]}`: "cannot unmarshal string",
	} {
		in, feed := io.Pipe()
		go func() { _, _ = io.WriteString(feed, line) }() // the pipe stays open
		err := serve(t.Context(), in, nopCloser{io.Discard}, newSession(""))
		gputest.ErrorHas(t, line, want, err)
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// A library that hangs gets no second call, and does not keep the process when
// the agent is gone.
func TestServeHangs(t *testing.T) {
	const call = `{"id": 0, "method": "Library.Look", "params": [false]}`
	for name, calls := range map[string]string{"one call": call, "two calls": call + call} {
		t.Run(name, func(t *testing.T) {
			l := goLibrary(1)
			entered, leave := make(chan struct{}, 2), make(chan struct{})
			defer close(leave)
			l.count = func() uint32 {
				entered <- struct{}{}
				<-leave
				return 1
			}
			in, feed := io.Pipe()
			end := make(chan error, 1)
			go func() {
				end <- serve(t.Context(), in, nopCloser{io.Discard}, sessionOf(l))
			}()
			_, err := io.WriteString(feed, calls)
			gputest.Must(t, err)
			<-entered
			select {
			case <-entered:
				t.Error("the library was called twice at a time")
			case <-time.After(50 * time.Millisecond):
			}
			gputest.Must(t, feed.Close())
			wantEnd(t, end)
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := load(filepath.Join(dir, "missing.so")); !errors.Is(err, discover.ErrNotInstalled) {
		t.Errorf("no library: got %v", err)
	}
	junk := filepath.Join(dir, "libmxsml.so")
	gputest.Must(t, os.WriteFile(junk, []byte("junk"), 0o600))
	_, err := load(junk)
	gputest.ErrorHas(t, "junk", "load "+junk, err)
	for _, other := range []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"} {
		if _, err := os.Stat(other); err != nil {
			continue
		}
		_, err := load(other)
		gputest.ErrorHas(t, "another library", "it has no function mxSmlInit", err)
	}
}

// A library that is asked to count again does so, but not all the time.
func TestRestarts(t *testing.T) {
	now := time.Unix(1000, 0)
	var starts, restarts int
	l := &library{
		start:          func() uint32 { starts++; return success },
		startWithFlags: func(uint32) uint32 { restarts++; return success },
		count:          func() uint32 { return 0 },
		errorString:    func(uint32) string { return "" },
	}
	s := sessionOf(l)
	s.now = func() time.Time { return now }
	step := func(refresh bool, after time.Duration, wantStarts, wantRestarts int) {
		t.Helper()
		now = now.Add(after)
		_, err := call(s.Look, refresh)
		gputest.Must(t, err)
		if starts != wantStarts || restarts != wantRestarts {
			t.Errorf("started %d and again %d times, want %d and %d", starts, restarts, wantStarts, wantRestarts)
		}
	}
	step(false, 0, 1, 0)
	step(false, time.Hour, 1, 0)
	step(true, time.Second, 1, 1)
	step(true, time.Second, 1, 1)
	step(false, restartInterval, 1, 2) // it was asked for before
	step(false, time.Hour, 1, 2)
	l.startWithFlags = nil
	step(true, time.Second, 2, 2)
	t.Run("what a card was called before is not what it is called now", func(t *testing.T) {
		s := sessionOf(goLibrary(2))
		healthy := s.lib.info
		look := func(refresh bool) discover.Card {
			got, err := call(s.Look, refresh)
			gputest.Must(t, err)
			return got.Cards[1]
		}
		look(false)
		s.lib.info = func(id uint32, out *deviceInfo) uint32 {
			if id == 1 {
				return noDevice
			}
			return healthy(id, out)
		}
		if c := look(false); c.UUID != "GPU-1" || *c.Vitals.Available {
			t.Errorf("a card that stops answering is %+v", c)
		}
		if c := look(true); c.UUID != "" || *c.Vitals.Available {
			t.Errorf("after the cards were counted again it is %+v", c)
		}
	})
	t.Run("a start that fails is tried again", func(t *testing.T) {
		l.start = func() uint32 { starts++; return 1 }
		now = now.Add(time.Hour)
		for range 2 {
			_, err := call(s.Look, true)
			gputest.ErrorHas(t, "Look", "start the library: no reason given (code 1)", err)
		}
	})
	t.Run("no device is no error", func(t *testing.T) {
		l.start = func() uint32 { return noDevice }
		if got, err := call(s.Look, true); err != nil || len(got.Cards) != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
