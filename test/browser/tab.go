package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Tab is a page in a browser.
type Tab struct {
	browser         *Chromium
	target, session string

	mu       sync.Mutex
	problems []string
	received int64 // bytes over the network
}

// Open opens a tab of the given width and height.
func (c *Chromium) Open(ctx context.Context, width, height int) (*Tab, error) {
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := c.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := c.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	t := &Tab{browser: c, target: target.TargetID, session: attached.SessionID}
	c.mu.Lock()
	c.listener[t.session] = t.hear
	c.mu.Unlock()
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable", "Performance.enable"} {
		if err := t.do(ctx, domain, nil, nil); err != nil {
			return nil, err
		}
	}
	err := t.Resize(ctx, width, height)
	return t, err
}

// Close closes the tab.
func (t *Tab) Close(ctx context.Context) error {
	return t.browser.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": t.target}, nil)
}

func (t *Tab) do(ctx context.Context, method string, params, result any) error {
	return t.browser.call(ctx, t.session, method, params, result)
}

// hear collects what the page complains of, and how much it loads.
func (t *Tab) hear(method string, params json.RawMessage) {
	var p struct {
		Type string `json:"type"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		ExceptionDetails struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		EncodedDataLength float64 `json:"encodedDataLength"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch method {
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "warning" || p.Type == "assert" {
			t.problems = append(t.problems, fmt.Sprintf("console.%s: %v", p.Type, p.Args))
		}
	case "Runtime.exceptionThrown":
		t.problems = append(t.problems, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			t.problems = append(t.problems, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.loadingFinished":
		t.received += int64(p.EncodedDataLength)
	}
}

// Problems returns what the page has complained of so far.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.problems...)
}

// Received returns how many bytes have come over the network, with headers,
// for what has been loaded to its end.
func (t *Tab) Received() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received
}

// Resize sets the size of the window.
func (t *Tab) Resize(ctx context.Context, width, height int) error {
	return t.do(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark makes the system's theme dark or light.
func (t *Tab) Dark(ctx context.Context, dark bool) error {
	value := "light"
	if dark {
		value = "dark"
	}
	return t.do(ctx, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": value}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// Go opens an address.
func (t *Tab) Go(ctx context.Context, url string) error {
	var result struct {
		ErrorText string `json:"errorText"`
	}
	if err := t.do(ctx, "Page.navigate", map[string]any{"url": url}, &result); err != nil {
		return err
	}
	if result.ErrorText != "" {
		return fmt.Errorf("open %s: %s", url, result.ErrorText)
	}
	return nil
}

// Reload loads the page anew, and returns when nothing of the old one is left.
func (t *Tab) Reload(ctx context.Context) error {
	if err := t.Eval(ctx, `window.old = true; location.reload()`, nil); err != nil {
		return err
	}
	return t.Wait(ctx, "the page is loaded anew", `!window.old && document.body`)
}

// Eval runs JavaScript, waits for a promise, and decodes what comes of it.
func (t *Tab) Eval(ctx context.Context, script string, result any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := t.do(ctx, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &r)
	switch {
	case err != nil:
		return err
	case r.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s %s", firstLine(script), r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	case result == nil:
		return nil
	case len(r.Result.Value) == 0:
		return fmt.Errorf("%s: no value", firstLine(script))
	}
	return json.Unmarshal(r.Result.Value, result)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

var errNotYet = errors.New("not yet")

// Wait waits until the script's value is true.
func (t *Tab) Wait(ctx context.Context, what, script string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		ok, err := false, error(nil)
		if err = t.Eval(ctx, "Boolean("+script+")", &ok); err == nil && ok {
			return nil
		}
		if err == nil {
			err = errNotYet
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; the page complains of %q", what, err, t.Problems())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Key presses a key that is named as in JavaScript: "Tab", "ArrowRight", "/".
func (t *Tab) Key(ctx context.Context, key string) error {
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	event := map[string]any{"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	down := "rawKeyDown"
	if len(key) == 1 {
		event["text"], down = key, "keyDown"
	} else if key == "Enter" {
		event["text"], down = "\r", "keyDown"
	}
	for _, kind := range []string{down, "keyUp"} {
		event["type"] = kind
		if err := t.do(ctx, "Input.dispatchKeyEvent", event, nil); err != nil {
			return err
		}
		delete(event, "text")
	}
	return nil
}

// Screenshot writes a picture of the window, or of the page's whole height.
func (t *Tab) Screenshot(ctx context.Context, path string, whole bool) error {
	var shot struct {
		Data string `json:"data"`
	}
	err := t.do(ctx, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole, "optimizeForSpeed": false}, &shot)
	if err != nil {
		return err
	}
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// HeapBytes returns how much memory the page's scripts use, after garbage was
// collected, and how many elements the page has.
func (t *Tab) HeapBytes(ctx context.Context) (bytes int64, elements int, err error) {
	if err := t.do(ctx, "HeapProfiler.collectGarbage", nil, nil); err != nil {
		return 0, 0, err
	}
	var r struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	if err := t.do(ctx, "Performance.getMetrics", nil, &r); err != nil {
		return 0, 0, err
	}
	for _, m := range r.Metrics {
		switch m.Name {
		case "JSHeapUsedSize":
			bytes = int64(m.Value)
		case "Nodes":
			elements = int(m.Value)
		}
	}
	return bytes, elements, nil
}
