package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// The pods of the test: slices of each QoS class and whole cards; and some that
// wait.
var pods = []string{
	pod("default", "chat", "sgpu: 1, vcore: 30, vmemory: 16", "metax-tech.com/sgpu-qos-policy: fixed-share"),
	pod("default", "embed", "sgpu: 1, vcore: 20, vmemory: 9", "metax-tech.com/sgpu-qos-policy: fixed-share"),
	pod("default", "rerank", "sgpu: 1, vcore: 25, vmemory: 21", "metax-tech.com/sgpu-qos-policy: fixed-share"),
	pod("default", "notebook", "sgpu: 1, vcore: 10, vmemory: 6"),
	pod("default", "notebook-2", "sgpu: 1, vcore: 40, vmemory: 24"),
	pod("research", "sweep", "sgpu: 1, vcore: 50, vmemory: 30", "metax-tech.com/sgpu-qos-policy: burst-share"),
	pod("research", "eval", "sgpu: 1, vcore: 15, vmemory: 12", "metax-tech.com/sgpu-qos-policy: burst-share"),
	pod("research", "train-4", "gpu: 4"),
	pod("research", "train-2", "gpu: 2"),
	pod("serving", "search", "sgpu: 1, vmemory: 20", "metax-tech.com/sgpu-app-class: online"),
}

var waiting = []string{
	pod("research", "huge", "gpu: 17"),
	// The nodes would take six of these if they were empty.
	pod("research", "job-1", "gpu: 8"), pod("research", "job-2", "gpu: 8"), pod("research", "job-3", "gpu: 8"),
	pod("research", "job-4", "gpu: 8"), pod("research", "job-5", "gpu: 8"), pod("research", "job-6", "gpu: 8"),
	pod("serving", "thirsty", "sgpu: 1, vcore: 50, vmemory: 90"),
}

// TestPage opens the playground's front page, fills cards and reads it.
func TestPage(t *testing.T) {
	w := newWorld(t, 8*time.Minute, "--nodes", "5", "--profile", "mixed")
	for _, namespace := range []string{"research", "serving"} {
		w.kubectl("", "create", "namespace", namespace)
	}
	page := w.tab("#/nodes", 1440, 900)
	t.Run("as many cards are drawn as there are", func(t *testing.T) {
		want := w.cards()
		if got := value[int](w, page, `document.querySelectorAll('main .card').length`); got != want || want == 0 {
			t.Errorf("%d cards are drawn, there are %d", got, want)
		}
	})
	t.Run("first run", w.firstRun(page))
	w.eval(page, `window.untouched = true`)
	w.apply(pods...)
	for _, p := range []string{"chat", "train-4", "search"} {
		w.must(page.Wait("pod "+p+" is drawn", fmt.Sprintf(`document.querySelector('main a.slice[href$="/%s"]')`, p)))
	}
	if !value[bool](w, page, `window.untouched === true`) {
		t.Error("the page was loaded again")
	}
	t.Run("a bind is seen", w.bindIsSeen(page))
	t.Run("slices are to scale", w.toScale(page))
	w.apply(waiting...)
	w.must(page.Wait("pods wait", `document.querySelector('#nav .badge')`))
	t.Run("keyboard", w.keyboard(page))
	t.Run("filters", w.filters(page))
	t.Run("pending", w.pendingPod(page))
	t.Run("boxes", w.boxes)
	t.Run("language", w.language(page))
	t.Run("accessible", w.accessible)
	// Frozen for longer than the leases last, the API server ends the playground's
	// manager and with it the stream of this page, which is not what is tested.
	w.must(page.Go("about:blank"))
	t.Run("frozen", w.frozen)
}

// bindIsSeen measures from the scheduler's decision, which is before the bind, to
// the frame that shows it.
func (w *world) bindIsSeen(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		for i := range 5 {
			name := fmt.Sprintf("timed-%d", i)
			w.eval(page, fmt.Sprintf(`window.seen = new Promise((done) => {
				const look = () => document.querySelector('main a.slice[href$="/%s"]') && requestAnimationFrame(() => done(Date.now()));
				new MutationObserver(look).observe(document.querySelector('main'), { childList: true, subtree: true });
			}); 1`, name))
			w.apply(pod("default", name, "sgpu: 1, vcore: 1, vmemory: 1"))
			seen := value[int64](w, page, `window.seen`)
			decided := w.kubectl("", "get", "pod", name, "-o", `jsonpath={.metadata.annotations.metax-tech\.com/predicate-time}`)
			nanoseconds, err := strconv.ParseInt(decided, 10, 64)
			w.must(err)
			took := time.UnixMilli(seen).Sub(time.Unix(0, nanoseconds))
			t.Logf("decision to picture: %d ms", took.Milliseconds())
			if took > 10*time.Second || took < 0 {
				t.Errorf("it took %s until a bind was seen", took)
			}
			w.kubectl("", "delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
		}
		w.must(page.Wait("what ended is gone", `!document.querySelector('main a.slice[href*="/timed-"]')`))
	}
}

// toScale: the width of a slice is its part of the card's memory, to a pixel.
func (w *world) toScale(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		bad := value[[]string](w, page, `(async () => {
			const state = await (await fetch('api/v1/state')).json();
			const bad = []; let n = 0;
			for (const node of state.nodes) for (const card of node.cards) {
				const box = document.querySelector('[data-card="' + CSS.escape(node.name + '/' + card.index) + '"]');
				const bar = box.querySelector('.bar.memory').getBoundingClientRect();
				const slices = [...box.querySelectorAll('.slice')];
				if (slices.length !== card.holders.length) bad.push(node.name + '/' + card.index + ': ' + slices.length + ' slices, ' + card.holders.length + ' pods');
				slices.forEach((slice, i) => {
					n++;
					const want = bar.width * card.holders[i].memoryMiB / card.memoryMiB, got = slice.getBoundingClientRect().width;
					if (Math.abs(want - got) > 1) bad.push(slice.getAttribute('aria-label') + ': ' + got + ' px, want ' + want);
				});
			}
			if (n < 10) bad.push('only ' + n + ' slices are drawn');
			return bad;
		})()`)
		for _, b := range bad {
			t.Error(b)
		}
	}
}

// keyboard: cards and the pods on them are reached by keys, and name their owner.
func (w *world) keyboard(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		w.to(page, "#/nodes")
		w.eval(page, `document.querySelector('main .card:has(a.slice[href$="/chat"])').closest('.chassis').querySelector('[tabindex="0"]').focus()`)
		key := func(keys string) { t.Helper(); w.must(page.Key(keys)) }
		at := func() string { return value[string](w, page, `document.activeElement.getAttribute('href') ?? ''`) }
		first := at()
		for range 70 {
			if value[bool](w, page, `Boolean(document.activeElement.closest('.card')?.querySelector('a.slice[href$="/chat"]'))`) {
				break
			}
			key(kb.ArrowRight)
		}
		if !strings.Contains(first, "/cards/") || !strings.Contains(at(), "/cards/") {
			t.Fatalf("the focus is on %q, then on %q", first, at())
		}
		key(kb.ArrowDown)
		if !strings.HasPrefix(at(), "#/pods/default/") {
			t.Errorf("down from a card leads to %q", at())
		}
		tip := value[string](w, page, `document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText`)
		if !strings.Contains(tip, "default/") || !strings.Contains(tip, "fixed-share") {
			t.Errorf("the tooltip says %q", tip)
		}
		key(kb.Escape)
		if value[bool](w, page, `!document.getElementById('tip').hidden`) {
			t.Error("the tooltip does not go away")
		}
		key(kb.Enter)
		w.must(page.Wait("the pod's page is open", `location.hash.startsWith('#/pods/default/') && document.querySelector('main .held')`))
		key("2")
		w.must(page.Wait("the nodes are back", `location.hash === '#/nodes' && document.querySelector('main .server')`))
		key("/")
		gputest.Equal(t, "/ leads to", "filter", value[string](w, page, `document.activeElement.id`))
	}
}

// filters: what is filtered is in the address, and the address filters.
func (w *world) filters(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		names := func(at string) []string {
			t.Helper()
			w.to(page, at)
			return value[[]string](w, page, `[...document.querySelectorAll('main .server')].map((s) => s.dataset.node)`)
		}
		if all := names("#/nodes"); len(all) != 5 {
			t.Errorf("without a filter: %v", all)
		}
		if got := names("#/nodes?node=metax-3"); len(got) != 1 || got[0] != "metax-3" {
			t.Errorf("by node: %v", got)
		}
		if got := names("#/nodes?model=C600"); len(got) != 1 {
			t.Errorf("by model: %v", got)
		}
		if got := names("#/nodes?namespace=serving"); len(got) != 1 {
			t.Errorf("by namespace: %v", got)
		}
		if got := names("#/nodes?state=unhealthy"); len(got) != 0 {
			t.Errorf("by state: %v", got)
		}
		names("#/nodes")
		w.eval(page, `(() => { const input = document.getElementById('filter'); input.focus(); input.value = 'metax-2'; input.dispatchEvent(new Event('input', { bubbles: true })); })()`)
		w.must(page.Wait("the filter is in the address", `location.hash === '#/nodes?node=metax-2' && document.querySelectorAll('main .server').length === 1 && document.activeElement.id === 'filter'`))
	}
}

// pendingPod: a pending pod shows why each node rejects it and what to do.
func (w *world) pendingPod(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		w.to(page, "#/pending")
		w.must(page.Wait("the pods that wait are listed", `document.querySelector('main a[href="#/pods/research/huge"]')`))
		w.eval(page, `document.querySelector('main a[href="#/pods/research/huge"]').click()`)
		w.must(page.Wait("the nodes' answers are there", `document.querySelectorAll('main .refusals li').length > 0`))
		text := value[string](w, page, `document.querySelector('main').innerText`)
		for _, want := range []string{"research/huge", "17 whole cards", "wants 17 cards", "Suggested actions", "Request less", "metax-1"} {
			if !strings.Contains(text, want) {
				t.Errorf("the page of a pod that waits does not say %q:\n%s", want, text)
			}
		}
		w.to(page, "#/pods/research/job-6")
		w.must(page.Wait("the suggested actions are there", `document.querySelectorAll('main .helps li').length > 0`))
		if text := value[string](w, page, `document.querySelector('main .helps').innerText`); !strings.Contains(text, "Free ") || !strings.Contains(text, "Stop ") {
			t.Errorf("the suggested actions are %s", text)
		}
	}
}

// pages are all kinds of them.
var pages = []string{
	"#/", "#/nodes", "#/nodes/metax-1", "#/nodes/metax-5", "#/nodes/metax-1/cards/0", "#/pods", "#/pods/default/chat", "#/pods/research/job-6", "#/namespaces", "#/pending", "#/findings", "#/nowhere",
}

// eachPage goes through all pages, in both languages and themes.
func (w *world) eachPage(width int, do func(page *Tab, name string)) {
	w.Helper()
	page := w.tab("#/", width, 900)
	for _, language := range []string{"en", "zh"} {
		w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
		for _, dark := range []bool{false, true} {
			w.must(page.Dark(dark))
			for _, at := range pages {
				w.to(page, at)
				w.must(page.Wait(at+" is drawn", `document.querySelector('main h1') && !document.querySelector('main > p.dim:last-child')`))
				do(page, fmt.Sprintf("%s at %d px, %s, dark %v", at, width, language, dark))
			}
		}
	}
	w.eval(page, `document.documentElement.lang.startsWith('en') || document.getElementById('language').click()`)
	page.Close()
}

// boxes: nothing is wider than the window, leaves its box, or lies over another
// text.
func (w *world) boxes(t *testing.T) {
	w = w.of(t)
	script, err := os.ReadFile("boxes.js")
	w.must(err)
	for _, width := range []int{360, 768, 1280, 2560} {
		w.eachPage(width, func(page *Tab, name string) {
			for _, problem := range value[[]string](w, page, string(script)) {
				t.Errorf("%s: %s", name, problem)
			}
		})
	}
}

// language: one click, and every text is in the other language.
func (w *world) language(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		w.to(page, "#/")
		w.eval(page, `document.getElementById('language').click()`)
		w.must(page.Wait("the page is in Chinese", `document.documentElement.lang === 'zh-CN' && document.querySelector('#nav').innerText.includes('总览')`))
		if text := value[string](w, page, `document.body.innerText`); strings.Contains(text, "Pending pods") || strings.Contains(text, "Compute allocated") {
			t.Errorf("some is still in English:\n%s", text)
		}
		w.to(page, "#/pods/research/huge")
		w.must(page.Wait("the nodes' answers are in Chinese", `document.querySelector('main .refusals')?.innerText.includes('需要 17 张 GPU')`))
		w.must(page.Reload())
		w.drawn(page)
		gputest.Equal(t, "after a reload the language", "zh-CN", value[string](w, page, `document.documentElement.lang`))
		w.eval(page, `document.getElementById('language').click()`)
		w.must(page.Wait("the page is in English", `document.documentElement.lang === 'en'`))
	}
}

// accessible: axe-core finds nothing serious.
func (w *world) accessible(t *testing.T) {
	w = w.of(t)
	checks := 0
	w.eachPage(1440, func(page *Tab, name string) {
		w.axe(page, name)
		checks++
	})
	t.Logf("axe-core looked at %d pages", checks)
}

// axe runs axe-core on the page as it is.
func (w *world) axe(page *Tab, name string) {
	w.Helper()
	axe, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		w.Fatalf("%v: make e2e-browser installs it", err)
	}
	w.eval(page, `window.axe ? 1 : (0, eval)(`+strconv.Quote(string(axe))+`), 1`)
	type finding struct {
		ID, Impact, Help string
		Nodes            []string
	}
	found := value[[]finding](w, page, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => ({ id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html + ' ' + (n.any[0]?.message ?? '')) })))`)
	for _, f := range found {
		if f.Impact == "serious" || f.Impact == "critical" {
			w.Errorf("%s: %s (%s): %s: %q", name, f.ID, f.Impact, f.Help, f.Nodes)
		} else {
			w.Logf("%s: %s (%s): %s: %q", name, f.ID, f.Impact, f.Help, f.Nodes)
		}
	}
}

// firstRun: while no pod uses cards the overview names commands to try, until it is
// dismissed. Nothing of that goes to the server.
func (w *world) firstRun(page *Tab) func(*testing.T) {
	return func(t *testing.T) {
		w := w.of(t)
		w.to(page, "#/")
		const hint = `document.querySelector('main .first')`
		for _, language := range []string{"en", "zh"} {
			w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
			commands := value[[]string](w, page, `[...document.querySelectorAll('main .first code')].map((c) => c.textContent)`)
			if len(commands) != 3 || !strings.HasPrefix(commands[0], "kubectl apply -f examples/") {
				t.Errorf("%s: the commands are %q", language, commands)
			}
			w.axe(page, "the first run, "+language)
		}
		w.eval(page, `document.getElementById('language').click(); document.querySelector('main .first button').click()`)
		w.must(page.Wait("the hint is gone", `!`+hint+` && document.querySelector('main .stat')`))
		w.must(page.Reload())
		w.drawn(page)
		if value[bool](w, page, `Boolean(`+hint+`)`) {
			t.Error("the hint is back after a reload")
		}
		w.eval(page, `localStorage.removeItem('daybreak.first')`)
		w.must(page.Reload())
		w.drawn(page)
		w.must(page.Wait("the hint is back", hint))
		w.apply(pod("default", "first", "sgpu: 1, vcore: 1, vmemory: 1"))
		w.must(page.Wait("the hint goes with the first pod", `!`+hint))
		w.kubectl("", "delete", "pod", "first", "--grace-period=0", "--force", "--wait=false")
		w.must(page.Wait("the hint returns with an empty cluster", hint))
		w.to(page, "#/nodes")
	}
}
