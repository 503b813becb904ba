package discover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// MXSML asks the vendor's library, which runs in a process of its own: what it
// does there costs the look, never the agent. The process is kept from look to
// look. One that crashed is started again at the next look, but not at once
// after several failures in a row; one that does not answer in time is killed.
type MXSML struct {
	argv     []string
	now      func() time.Time
	children *children
	// turn is held by the look that talks to the process.
	turn    chan struct{}
	process *helper
	refresh bool
	// failures in a row make the next start wait until notBefore.
	failures  int
	notBefore time.Time
	last      error
}

// Limits of the process that runs the library.
const (
	// lookLimit ends a look whose context has no end of its own.
	lookLimit = 30 * time.Second
	// changeLimit ends what else is asked, whoever waits for it.
	changeLimit    = 15 * time.Second
	firstBackoff   = time.Second
	longestBackoff = time.Minute
)

// NewMXSML returns the source. argv starts the process: the agent's own binary
// with [HelperCommand] and its flags.
func NewMXSML(argv []string) *MXSML {
	return &MXSML{argv: argv, now: time.Now, children: &children{}, turn: make(chan struct{}, 1)}
}

// Name implements [Source].
func (m *MXSML) Name() string { return "mxsml" }

// Refresh makes the library count the cards again at the next look.
func (m *MXSML) Refresh() {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.refresh = true
}

// Look implements [Source].
func (m *MXSML) Look(ctx context.Context) (*Snapshot, error) {
	var out Snapshot
	err := m.ask(ctx, OpLook, func() any { return LookOptions{Refresh: m.refresh} }, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Functions returns which functions the library has.
func (m *MXSML) Functions(ctx context.Context) (*Functions, error) {
	var out Functions
	if err := m.ask(ctx, OpFunctions, func() any { return struct{}{} }, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// ask has the process do one thing; what it is told is made when its turn has
// come.
func (m *MXSML) ask(ctx context.Context, op string, params func() any, result any) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return fmt.Errorf("the library is still busy with what it was asked before: %w", context.Cause(ctx))
	}
	if err := m.ready(); err != nil {
		return err
	}
	text, err := json.Marshal(params())
	if err != nil {
		return err
	}
	if op != OpLook {
		// What changes a card is not given up half-way because someone has
		// stopped waiting.
		var end context.CancelFunc
		ctx, end = context.WithTimeout(context.WithoutCancel(ctx), changeLimit)
		defer end()
	}
	if err := m.process.ask(ctx, op, text, result); err != nil {
		if m.process.broken {
			m.giveUp(err)
		}
		return err
	}
	m.failures = 0
	if op == OpLook {
		m.refresh = false
	}
	return nil
}

// ready makes sure that there is a process to ask.
func (m *MXSML) ready() error {
	if m.process != nil {
		return nil
	}
	if wait := m.notBefore.Sub(m.now()); m.failures > 0 && wait > 0 {
		return fmt.Errorf("the library's process is started again in %s; last time: %w", wait.Round(time.Second/10), m.last)
	}
	process, err := startHelper(m.children, m.argv)
	if err != nil {
		err = fmt.Errorf("start the library's process: %w", err)
		m.giveUp(err)
		return err
	}
	m.process = process
	return nil
}

// giveUp ends the process and sets the time before which there is no other.
func (m *MXSML) giveUp(err error) {
	if m.process != nil {
		m.process.end()
		m.process = nil
	}
	backoff := firstBackoff << min(m.failures, 10)
	m.notBefore = m.now().Add(min(backoff, longestBackoff))
	m.failures++
	m.last = err
}

// Close ends the process.
func (m *MXSML) Close() {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if m.process != nil {
		m.process.end()
		m.process = nil
	}
}

// helper is a running process of [HelperCommand]. One goroutine uses it.
type helper struct {
	children *children
	stop     context.CancelFunc
	in       *os.File
	stderr   *head
	replies  chan HelperReply
	// unreadable is why no more replies come, before replies is closed.
	unreadable error
	ended      <-chan error
	asked      int64
	// broken: the process can't be asked again.
	broken bool
}

func startHelper(c *children, argv []string) (*helper, error) {
	ctx, stop := context.WithCancel(context.Background())
	cmd, err := c.command(ctx, argv)
	if err != nil {
		stop()
		return nil, err
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		stop()
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		stop()
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	h := &helper{children: c, stop: stop, in: inWrite, stderr: &head{limit: 1024}, replies: make(chan HelperReply, 1)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, h.stderr
	h.ended, err = c.wait(cmd)
	err = errors.Join(err, inRead.Close(), outWrite.Close())
	if err != nil {
		stop()
		return nil, errors.Join(err, inWrite.Close(), outRead.Close())
	}
	go h.read(outRead)
	return h, nil
}

// read hands on what the process answers, until it ends or says nonsense.
func (h *helper) read(out io.ReadCloser) {
	defer out.Close()
	defer close(h.replies)
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, MaxHelperLine)
	for scanner.Scan() {
		var reply HelperReply
		if err := json.Unmarshal(scanner.Bytes(), &reply); err != nil {
			h.unreadable = fmt.Errorf("the library's process said %.100q: %w", scanner.Text(), err)
			return
		}
		h.replies <- reply
	}
	h.unreadable = scanner.Err()
}

// ask sends one request and waits for its reply.
func (h *helper) ask(ctx context.Context, op string, params []byte, result any) error {
	h.asked++
	line, err := json.Marshal(HelperRequest{ID: h.asked, Op: op, Params: params})
	if err != nil {
		return err
	}
	h.broken = true
	// A process that has ended closes its output too; how it ended says more
	// than that it could not be written to.
	_, _ = h.in.Write(append(line, '\n'))
	select {
	case <-ctx.Done():
		return fmt.Errorf("the library does not answer, so its process is killed: %w", context.Cause(ctx))
	case reply, ok := <-h.replies:
		switch {
		case !ok:
			return h.crashed()
		case reply.ID != h.asked:
			return fmt.Errorf("the library's process answered request %d instead of %d", reply.ID, h.asked)
		}
		h.broken = false
		return reply.read(result)
	}
}

func (r *HelperReply) read(result any) error {
	switch {
	case r.NotInstalled:
		return fmt.Errorf("%s%w", trimCause(r.Error, ErrNotInstalled), ErrNotInstalled)
	case r.Busy:
		return fmt.Errorf("%s%w", trimCause(r.Error, ErrBusy), ErrBusy)
	case r.Gone:
		return fmt.Errorf("%s%w", trimCause(r.Error, ErrNoSlice), ErrNoSlice)
	case r.Error != "":
		return errors.New(r.Error)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return fmt.Errorf("the library's process: %w", err)
	}
	return nil
}

// crashed says how the process ended.
func (h *helper) crashed() error {
	if h.unreadable != nil {
		return h.unreadable
	}
	var how error
	select {
	case how = <-h.ended:
		h.ended = nil
	case <-time.After(time.Second):
		return errors.New("the library's process closed its output")
	}
	return fmt.Errorf("the library ended its process (%w): %s", errorOr(how, "exit status 0"), h.stderr)
}

// end kills the process and forgets it.
func (h *helper) end() {
	h.stop()
	_ = h.in.Close()
	if h.ended != nil {
		h.children.abandon(h.ended)
	}
	go func() { // let the reader go on to its end
		for range h.replies {
		}
	}()
}

func errorOr(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}
