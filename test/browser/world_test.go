package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// world is a playground and a browser.
type world struct {
	*testing.T
	ctx        context.Context
	bin        string
	url        string // of the dashboard
	kubeconfig string
	playground *os.Process
	browser    *Chromium
}

// newWorld starts both. Without E2E_BIN, the folder with the binaries, there is
// no playground to look at: make e2e-browser sets it.
func newWorld(t *testing.T, patience time.Duration, args ...string) *world {
	t.Helper()
	bin := os.Getenv("E2E_BIN")
	if bin == "" {
		t.Skip("make e2e-browser runs this test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx, bin: bin, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	cmd := exec.Command(filepath.Join(bin, "playground"), append(args, "--kubeconfig", w.kubeconfig)...) //nolint:noctx // it is asked to end
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	w.playground = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for w.url == "" && lines.Scan() {
		w.url, _ = strings.CutPrefix(lines.Text(), "dashboard: ")
		if !strings.HasPrefix(w.url, "http") {
			w.url = ""
		}
	}
	if w.url == "" {
		t.Fatal("the playground names no dashboard")
	}
	go func() {
		for lines.Scan() { // or it would block on a full pipe
		}
	}()
	w.browser, err = StartChromium(w.ctx, t.TempDir())
	w.must(err)
	t.Cleanup(w.browser.Close)
	return w
}

// of returns the world for a part of the test.
func (w *world) of(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

func (w *world) must(err error) {
	w.Helper()
	gputest.Must(w, err)
}

// kubectl runs kubectl, with the text as standard input, and returns its answer.
func (w *world) kubectl(input string, args ...string) string {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, filepath.Join(w.bin, "kubectl"), append([]string{"--kubeconfig", w.kubeconfig}, args...)...)
	cmd.Stdin, cmd.Dir = strings.NewReader(input), filepath.Join("..", "..")
	text, err := machine.Output(cmd)
	w.must(err)
	return text
}

// apply creates pods.
func (w *world) apply(pods ...string) {
	w.Helper()
	w.kubectl(strings.Join(pods, "---\n"), "create", "-f", "-")
}

// pod is a pod with the limits, "gpu: 1" or "sgpu: 1, vcore: 10", and annotations.
func pod(namespace, name, limits string, annotations ...string) string {
	limits = strings.ReplaceAll(", "+limits, ", ", ", metax-tech.com/")[2:]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  namespace: %s
  name: %s
  annotations: {%s}
spec:
  containers:
  - {name: main, image: none, resources: {limits: {%s}}}
`, namespace, name, strings.Join(annotations, ", "), limits)
}

// tab opens the page at the address, "#/nodes", and waits until it is drawn.
func (w *world) tab(at string, width, height int) *Tab {
	w.Helper()
	t, err := w.browser.Open(width, height)
	w.must(err)
	w.Cleanup(func() {
		for _, problem := range t.Problems() {
			w.Errorf("the page complains: %s", problem)
		}
	})
	w.must(t.Dark(false))
	w.must(t.Go(w.url + "/" + at))
	w.drawn(t)
	return t
}

// drawn waits until the page shows a cluster.
func (w *world) drawn(t *Tab) {
	w.Helper()
	w.must(t.Wait("the page is drawn", `document.querySelector('#nav a') && !document.querySelector('.loading')`))
}

// to goes to another part of the page.
func (w *world) to(t *Tab, at string) {
	w.Helper()
	w.must(t.Front())
	w.eval(t, fmt.Sprintf("location.hash = %q", at))
	w.must(t.Wait("the page is at "+at, fmt.Sprintf("location.hash === %q && document.querySelector('main > *')", at)))
	// Two frames later what was to be drawn at once is.
	w.eval(t, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
}

func (w *world) eval(t *Tab, script string) {
	w.Helper()
	w.must(t.Eval(script, nil))
}

// value returns what comes of a script.
func value[T any](w *world, t *Tab, script string) T {
	w.Helper()
	var v T
	w.must(t.Eval(script, &v))
	return v
}

// cards counts the cards of the cluster's Devices.
func (w *world) cards() int {
	w.Helper()
	var list struct {
		Items []struct {
			Spec struct {
				Devices []struct{} `json:"devices"`
			} `json:"spec"`
		} `json:"items"`
	}
	w.must(json.Unmarshal([]byte(w.kubectl("", "get", "devices", "-o", "json")), &list))
	n := 0
	for i := range list.Items {
		n += len(list.Items[i].Spec.Devices)
	}
	return n
}
