package mxsml

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// conversation talks to serve as the agent does.
type conversation struct {
	t   *testing.T
	in  *io.PipeWriter
	out *bufio.Scanner
	end chan error
}

func converse(t *testing.T, library string) *conversation {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	c := &conversation{t: t, in: inWrite, out: bufio.NewScanner(outRead), end: make(chan error, 1)}
	c.out.Buffer(nil, discover.MaxHelperLine)
	go func() { c.end <- serve(t.Context(), inRead, outWrite, &operator{path: library}) }()
	t.Cleanup(func() { _ = inWrite.Close(); _ = outRead.Close() })
	return c
}

func (c *conversation) ask(line string) discover.HelperReply {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
	if !c.out.Scan() {
		c.t.Fatal("no answer")
	}
	var reply discover.HelperReply
	if err := json.Unmarshal(c.out.Bytes(), &reply); err != nil {
		c.t.Fatal(err)
	}
	return reply
}

func TestServe(t *testing.T) {
	config := filepath.Join(t.TempDir(), "machine")
	if err := fake.NewMachine(2, 2).Write(config); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fake.EnvConfig, config)
	c := converse(t, fake.Library(t, fake.V228))
	for line, want := range map[string]string{
		`not json`:                  "request: ",
		`{"id": 2, "op": "reboot"}`: `no operation "reboot"`,
		`{"id": 3, "op": "look", "params": "refresh"}`: "params of look",
	} {
		if reply := c.ask(line); !strings.Contains(reply.Error, want) || reply.Result != nil {
			t.Errorf("%s: got %+v, want an error with %q", line, reply, want)
		}
	}
	reply := c.ask(`{"id": 4, "op": "look", "params": {"refresh": true}}`)
	var s discover.Snapshot
	if err := json.Unmarshal(reply.Result, &s); err != nil || reply.ID != 4 || len(s.Cards) != 2 || len(s.Links) != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
	var functions discover.Functions
	reply = c.ask(`{"id": 5, "op": "functions"}`)
	if err := json.Unmarshal(reply.Result, &functions); err != nil || !slices.Contains(functions.Missing, "mxSmlGetMetaXLinkInfo_v2") || slices.Contains(functions.Missing, "mxSmlCreateSgpu") {
		t.Errorf("functions of an older library: %+v, %v", functions, err)
	}
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.end:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on although its input has ended")
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := load(filepath.Join(dir, "missing.so")); !errors.Is(err, discover.ErrNotInstalled) {
		t.Errorf("no library: got %v", err)
	}
	junk := filepath.Join(dir, "libmxsml.so")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(junk); err == nil || !strings.Contains(err.Error(), "load "+junk) {
		t.Errorf("junk: got %v", err)
	}
	for _, other := range []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"} {
		if _, err := os.Stat(other); err != nil {
			continue
		}
		if _, err := load(other); err == nil || !strings.Contains(err.Error(), "it has no function mxSmlInit") {
			t.Errorf("another library: got %v", err)
		}
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
	s := newSession(l)
	s.now = func() time.Time { return now }
	step := func(refresh bool, after time.Duration, wantStarts, wantRestarts int) {
		t.Helper()
		now = now.Add(after)
		if _, err := s.look(refresh); err != nil {
			t.Fatal(err)
		}
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
		s := newSession(goLibrary(2))
		healthy := s.lib.info
		look := func(refresh bool) discover.Card {
			got, err := s.look(refresh)
			if err != nil {
				t.Fatal(err)
			}
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
			if _, err := s.look(true); err == nil || !strings.Contains(err.Error(), "start the library: no reason given (code 1)") {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("no device is no error", func(t *testing.T) {
		l.start = func() uint32 { return noDevice }
		if got, err := s.look(true); err != nil || len(got.Cards) != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
