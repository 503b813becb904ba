package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// timeout limits one step in the browser.
const timeout = 30 * time.Second

// Chromium is a running browser.
type Chromium struct {
	ctx  context.Context //nolint:containedctx // chromedp keeps the browser in it
	stop func()
}

// StartChromium starts a browser whose profile is in the folder.
func StartChromium(ctx context.Context, dir string) (*Chromium, error) {
	name := os.Getenv("CHROMIUM")
	if name == "" {
		name = "chromium"
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(name), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("font-render-hinting", "none"), chromedp.WSURLReadTimeout(timeout))
	ctx, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, stop := chromedp.NewContext(ctx)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		stopAllocator()
		return nil, fmt.Errorf("start %s: %w: install Debian's package chromium, or name a browser with $CHROMIUM", name, err)
	}
	pid := chromedp.FromContext(ctx).Browser.Process().Pid
	return &Chromium{ctx: ctx, stop: func() { stop(); stopAllocator(); _ = syscall.Kill(pid, syscall.SIGKILL) }}, nil
}

// Close ends the browser with all of its processes.
func (c *Chromium) Close() { c.stop() }

// Tab is a page in a browser.
type Tab struct {
	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it
	stop func()

	mu       sync.Mutex
	problems []string
}

// Open opens a tab of the given width and height.
func (c *Chromium) Open(width, height int) (*Tab, error) {
	ctx, stop := chromedp.NewContext(c.ctx)
	t := &Tab{ctx: ctx, stop: stop}
	enable := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, log.Enable, cdp.Empty{})
		return err
	})
	if err := chromedp.Do(ctx, enable); err != nil { // starts the tab: a timeout would end it
		stop()
		return nil, err
	}
	record(t, runtime.ConsoleAPICalled, func(e runtime.EventConsoleAPICalled) {
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			for _, a := range e.Args {
				t.problems = append(t.problems, fmt.Sprintf("console.%s: %s %s", e.Type, a.Value, a.Description))
			}
		}
	})
	record(t, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) {
		t.problems = append(t.problems, describe(e.ExceptionDetails))
	})
	record(t, log.EntryAdded, func(e log.EventEntryAdded) {
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			t.problems = append(t.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	})
	err := t.Resize(width, height)
	return t, err
}

// record handles each event of a kind until the tab is closed.
func record[E any](t *Tab, event cdp.Event[E], handle func(E)) {
	events := chromedp.Events(t.ctx, event)
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			t.mu.Lock()
			handle(e)
			t.mu.Unlock()
		}
	}()
}

// Close closes the tab.
func (t *Tab) Close() { t.stop() }

// call runs a command of the DevTools protocol.
func call[P, R any](t *Tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return chromedp.Call(ctx, command, params)
}

// Problems returns the errors and warnings of the page so far.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.problems...)
}

// Resize sets the size of the window.
func (t *Tab) Resize(width, height int) error {
	_, err := call(t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(width), Height: int64(height), DeviceScaleFactor: 1,
	})
	return err
}

// Dark makes the system's theme dark or light.
func (t *Tab) Dark(dark bool) error {
	value := "light"
	if dark {
		value = "dark"
	}
	_, err := call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: value}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	return err
}

// Print makes the page look as it does on paper, in a system whose theme is dark.
func (t *Tab) Print(on bool) error {
	media := ""
	if on {
		media = "print"
	}
	_, err := call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	return err
}

// Go opens an address.
func (t *Tab) Go(url string) error {
	result, err := call(t, page.Navigate, page.NavigateParams{URL: url})
	if err == nil && result.ErrorText != "" {
		err = fmt.Errorf("open %s: %s", url, result.ErrorText)
	}
	return err
}

// Front brings the tab to the front: pages in the background have no frames.
func (t *Tab) Front() error {
	_, err := call(t, page.BringToFront, cdp.Empty{})
	return err
}

// Reload loads the page again, and returns when nothing of the old one is left.
func (t *Tab) Reload() error {
	if err := t.Eval(`window.old = true; location.reload()`, nil); err != nil {
		return err
	}
	return t.Wait("the page is loaded again", `!window.old && document.body`)
}

// Eval runs JavaScript, waits for a promise, and decodes the result.
func (t *Tab) Eval(script string, result any) error {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	r, err := chromedp.Call(ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: script, AwaitPromise: new(true), ReturnByValue: new(true)})
	line, _, _ := strings.Cut(strings.TrimSpace(script), "\n")
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", line, err)
	case r.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s", line, describe(r.ExceptionDetails))
	case result == nil:
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

func describe(e *runtime.ExceptionDetails) string {
	if e.Exception == nil {
		return e.Text
	}
	return e.Text + " " + e.Exception.Description
}

// Wait waits until the script's value is true.
func (t *Tab) Wait(what, script string) error {
	deadline := time.Now().Add(timeout)
	for {
		ok := false
		err := t.Eval("Boolean("+script+")", &ok)
		if err == nil && ok {
			return nil
		}
		if time.Now().After(deadline) || t.ctx.Err() != nil {
			return fmt.Errorf("wait until %s: %w; problems of the page: %q", what, err, t.Problems())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Key presses keys: characters, or those of chromedp's package kb.
func (t *Tab) Key(keys string) error {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return chromedp.Do(ctx, chromedp.KeyEvent(keys))
}

// Screenshot writes a picture of the window, or of the page's whole height.
func (t *Tab) Screenshot(path string, whole bool) error {
	shot, err := call(t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole})
	if err != nil {
		return err
	}
	return os.WriteFile(path, shot.Data, 0o644)
}
