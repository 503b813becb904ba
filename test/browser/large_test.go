package browser

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// TestPaint measures when the page of a hundred nodes is there. The bound is for
// a machine that does much else at the same time.
func TestPaint(t *testing.T) {
	w := newWorld(t, 5*time.Minute, "--nodes", "100")
	for range 5 {
		page, p := w.paint(w.url)
		t.Logf("100 nodes, 800 cards: first paint after %.0f ms, the cluster after %.0f ms", p.First, p.Drawn)
		if p.First > 10_000 || p.Drawn > 20_000 {
			t.Errorf("it took %+v ms", p)
		}
		page.Close()
	}
}

// TestLarge measures the page of five hundred nodes with eight cards each, and
// what it costs the manager: a process of its own here.
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
	url, pid := w.manager()
	alone := rss(t, pid)
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
	heap, elements, err := page.HeapBytes()
	w.must(err)
	t.Logf("the page's scripts hold %.1f MiB, the page %d nodes; all processes of the browser %d MiB", float64(heap)/(1<<20), elements, tree(t, w.browser.PID)>>20)
	t.Logf("the manager holds %d MiB before anybody looks, %d MiB after", alone>>20, rss(t, pid)>>20)
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

// rss returns how much memory a process has.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// tree adds up the memory of a process and of all that it started; what they
// share is counted once.
func tree(t *testing.T, pid int) int64 {
	t.Helper()
	sum := int64(0)
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				kib, err := strconv.ParseInt(f[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sum = kib << 10
			}
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return sum // it has ended
	}
	for child := range strings.FieldsSeq(string(children)) {
		if id, err := strconv.Atoi(child); err == nil {
			sum += tree(t, id)
		}
	}
	return sum
}
