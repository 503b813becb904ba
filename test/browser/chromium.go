package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Patience is how long the browser may take for one thing.
const Patience = 30 * time.Second

// Chromium is a running browser.
type Chromium struct {
	cmd   *exec.Cmd
	write io.WriteCloser
	// PID is the browser's own process, whose children draw the pages.
	PID int

	mu       sync.Mutex
	next     int
	calls    map[int]chan answer
	listener map[string]func(method string, params json.RawMessage) // by session
	failed   error
	done     chan struct{}
}

type answer struct {
	result json.RawMessage
	err    error
}

// message is what goes through the pipe, in either direction.
type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// StartChromium starts a browser whose profile is in the folder.
func StartChromium(dir string, flags ...string) (*Chromium, error) {
	name := os.Getenv("CHROMIUM")
	if name == "" {
		name = "chromium"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w: install Debian's package chromium, or name a browser with $CHROMIUM", err)
	}
	toBrowser, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	read, fromBrowser, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &Chromium{write: write, calls: map[int]chan answer{}, listener: map[string]func(string, json.RawMessage){}, done: make(chan struct{})}
	c.cmd = exec.Command(path, append([]string{ //nolint:noctx // Close ends it
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none",
	}, flags...)...)
	c.cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4, as the browser expects them
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	c.PID = c.cmd.Process.Pid
	_ = toBrowser.Close()
	_ = fromBrowser.Close()
	go c.listen(read)
	return c, nil
}

// Close ends the browser with all of its processes.
func (c *Chromium) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.call(ctx, "", "Browser.close", nil, nil)
	_ = c.write.Close()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	_ = syscall.Kill(-c.PID, syscall.SIGKILL)
	_ = c.cmd.Wait()
}

// listen hands out what the browser says: texts that end in a zero byte.
func (c *Chromium) listen(read io.Reader) {
	defer close(c.done)
	r := bufio.NewReaderSize(read, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			c.fail(fmt.Errorf("the browser ended: %w", err))
			return
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			c.fail(err)
			return
		}
		c.mu.Lock()
		waiting, listener := c.calls[m.ID], c.listener[m.SessionID]
		delete(c.calls, m.ID)
		c.mu.Unlock()
		switch {
		case m.Method != "" && listener != nil:
			listener(m.Method, m.Params)
		case waiting != nil && m.Error != nil:
			waiting <- answer{err: errors.New(m.Error.Message)}
		case waiting != nil:
			waiting <- answer{result: m.Result}
		}
	}
}

func (c *Chromium) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	for id, waiting := range c.calls {
		waiting <- answer{err: err}
		delete(c.calls, id)
	}
}

// call tells the browser something and waits for the answer.
func (c *Chromium) call(ctx context.Context, session, method string, params, result any) error {
	c.mu.Lock()
	if c.failed != nil {
		defer c.mu.Unlock()
		return c.failed
	}
	c.next++
	id, waiting := c.next, make(chan answer, 1)
	c.calls[id] = waiting
	text, err := json.Marshal(message{ID: id, Method: method, Params: params, SessionID: session})
	if err == nil {
		_, err = c.write.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case a := <-waiting:
		if a.err != nil {
			return fmt.Errorf("%s: %w", method, a.err)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.result, result)
	}
}
