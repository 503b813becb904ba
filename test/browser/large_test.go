package browser

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

// paints are the times of a page's life, in ms after it was asked for.
type paints struct {
	First float64 `json:"first"` // anything at all
	Drawn float64 `json:"drawn"` // the cluster
}

// paint opens the page again and returns when it was painted.
func (w *world) paint(url string) (*Tab, paints) {
	w.Helper()
	page, err := w.browser.Open(1440, 900)
	w.must(err)
	w.must(page.Go(url))
	w.drawn(page)
	w.must(page.Wait("it is painted", `performance.getEntriesByName('first-contentful-paint').length && performance.getEntriesByName('daybreak-drawn').length`))
	return page, value[paints](w, page, `({
		first: performance.getEntriesByName('first-contentful-paint')[0].startTime,
		drawn: performance.getEntriesByName('daybreak-drawn')[0].startTime,
	})`)
}

// TestLarge measures the page of five hundred nodes with eight cards each, which draws
// the cards near the window only.
func TestLarge(t *testing.T) {
	w := newWorld(t, 9*time.Minute, "--nodes", "500")
	var pods []string
	for i := range 1000 {
		pods = append(pods, pod("default", fmt.Sprintf("p-%d", i), []string{
			"sgpu: 1, vcore: 25, vmemory: 12", "gpu: 2", "sgpu: 1, vcore: 40, vmemory: 20", "sgpu: 1, vcore: 10, vmemory: 4",
		}[i%4]))
	}
	w.apply(pods...)
	w.apply(pod("default", "huge", "gpu: 16"))
	url, _ := w.manager()
	var page *Tab
	for i := range 4 {
		if i > 0 {
			page.Close()
		}
		var p paints
		page, p = w.paint(url)
		t.Logf("500 nodes, 4000 cards, 1000 pods: first paint after %.0f ms, the overview after %.0f ms", p.First, p.Drawn)
	}
	w.must(page.Wait("all cards are drawn", `document.querySelectorAll('main .cells i').length === 4000`))
	took := value[float64](w, page, `new Promise((done) => {
		const start = performance.now();
		location.hash = '#/nodes';
		const look = () => (document.querySelectorAll('main .card').length > 0 ? done(performance.now() - start) : requestAnimationFrame(look));
		look();
	})`)
	t.Logf("from the overview to the page of nodes: %.0f ms", took)
	drawn := value[int](w, page, `document.querySelectorAll('main .card').length`)
	servers := value[int](w, page, `document.querySelectorAll('main .server').length`)
	if servers != 500 || drawn == 0 || drawn > 2000 {
		t.Errorf("%d servers and %d cards are drawn; want all servers, and the cards of those near the window", servers, drawn)
	}
	w.eval(page, `scrollTo(0, document.body.scrollHeight / 2); 1`)
	w.must(page.Wait("cards in the middle are drawn", `[...document.querySelectorAll('main .card')].some((c) => { const r = c.getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight; })`))
	took = value[float64](w, page, `(async () => { const start = performance.now(); await (await fetch('api/v1/pods/default/huge')).json(); return performance.now() - start; })()`)
	t.Logf("why a pod waits, of 500 nodes: %.0f ms", took)
}

// manager starts a manager of its own on the playground's cluster and returns
// its page and its process.
func (w *world) manager() (url string, pid int) {
	w.Helper()
	addresses, err := local.FreeAddresses(w.ctx, 1)
	w.must(err)
	cmd := exec.CommandContext(w.ctx, filepath.Join(w.bin, "daybreak"), "manager", "--kubeconfig", w.kubeconfig, "--leader-elect=false", "--admission-bind-address=0",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--dashboard-bind-address", addresses[0])
	w.must(cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = "http://" + addresses[0]
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url+"/assets/app.js", http.NoBody)
		w.must(err)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			time.Sleep(5 * time.Second) // the caches fill
			return url, cmd.Process.Pid
		}
		if time.Now().After(deadline) {
			w.Fatal(err)
		}
	}
}
