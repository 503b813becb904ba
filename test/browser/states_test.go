package browser

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// still is a source that never changes.
type still struct{ objects *cluster.Objects }

func (s still) Objects() (*cluster.Objects, error) { return s.objects, nil }
func (still) OnChange(func()) error                { return nil }

// show serves the dashboard of the example cluster with further documents, in a
// browser without a playground.
func show(t *testing.T, documents ...string) *world {
	t.Helper()
	if os.Getenv("E2E_BIN") == "" {
		t.Skip("make e2e-browser runs this test")
	}
	w := &world{T: t, ctx: t.Context()}
	objects := w.example(documents...)
	w.url = w.serve(objects, nil)
	var err error
	w.browser, err = StartChromium(w.ctx, t.TempDir())
	w.must(err)
	t.Cleanup(w.browser.Close)
	return w
}

// serve serves the dashboard of the objects, with a login if there is a reviewer.
func (w *world) serve(objects *cluster.Objects, reviewer kubernetes.Interface) string {
	w.Helper()
	h, err := dashboard.New(dashboard.Options{Source: still{objects}, Reviewer: reviewer, Clock: clock.RealClock{}, Logger: klog.Background()})
	w.must(err)
	server := httptest.NewServer(h)
	w.Cleanup(server.Close)
	return server.URL
}

// example reads the example cluster and further documents.
func (w *world) example(documents ...string) *cluster.Objects {
	w.Helper()
	objects, err := cluster.ReadFiles([]string{filepath.Join("..", "..", "examples", "cluster.yaml"), "-"}, strings.NewReader(strings.Join(documents, "---\n")))
	w.must(err)
	return objects
}

// held is a pod with a part of a card: "a0" is card 0 of metax-a.
func held(name, card string, compute, mib int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  namespace: team-b
  name: %s
  creationTimestamp: "2026-03-15T11:00:00Z"
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: owner-of-%[1]s, uid: u, controller: true}]
  annotations: {metax-tech.com/predicate-time: "1773572401000000000", metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-000000%s-c500-0000-0000-000000000000","compute":%d,"vRam":%d}]]'}
spec:
  nodeName: metax-%[5]s
  containers:
  - {name: server, resources: {limits: {metax-tech.com/sgpu: 1, metax-tech.com/vcore: %[3]d, metax-tech.com/vmemory: %[6]d}}}
`, name, card, compute, mib, card[:1], mib>>10)
}

// broken has a card that is booked twice, one out of slices, and one that is
// unhealthy and in use.
func broken() []string {
	documents := []string{held("intruder", "a0", 10, 4096), held("on-sick-card", "b6", 50, 32768)}
	for i := range 16 {
		documents = append(documents, held(fmt.Sprintf("tiny-%d", i), "a4", 1, 1024))
	}
	return documents
}

// TestMarks: a card that is booked twice, unhealthy and in use, or out of slices has a
// mark of its own, and is not shown as free.
func TestMarks(t *testing.T) {
	w := show(t, broken()...)
	page := w.tab("#/nodes", 1280, 900)
	// A broken rule is shown when a second audit confirms it.
	w.must(page.Wait("the double booking is marked", `document.querySelector('[data-card="metax-a/0"].broken')`))
	marks := value[map[string]string](w, page, `Object.fromEntries([...document.querySelectorAll('main .card')].map((c) => [c.dataset.card, c.querySelector('.free').textContent]))`)
	for card, want := range map[string]string{"metax-a/0": "‼", "metax-a/1": "whole", "metax-a/4": "no slice", "metax-a/5": "idle", "metax-b/6": "!", "metax-a/3": "48 GiB"} {
		gputest.Equal(t, "card "+card+" has the mark", want, marks[card])
	}
	// The frame lies over the slices.
	if frame := value[string](w, page, `getComputedStyle(document.querySelector('[data-card="metax-b/6"] .bar.memory'), '::after').borderTopStyle`); frame != "solid" {
		t.Errorf("the frame of an unhealthy card in use is %q", frame)
	}
	w.eval(page, `document.querySelector('[data-node="metax-a"] a.pill.bad').click()`)
	w.must(page.Wait("the findings of the node are listed", `location.hash === '#/findings?node=metax-a' && document.querySelector('main .findings li.bad')`))
	if hrefs := value[[]string](w, page, `[...document.querySelectorAll('main .findings a.runbook')].map((a) => a.href)`); len(hrefs) == 0 || !strings.HasSuffix(hrefs[0], "/docs/runbooks/double-booking.md") {
		t.Errorf("the runbooks are %v", hrefs)
	}
	w.to(page, "#/nodes/metax-a/cards/4")
	if text := value[string](w, page, `document.querySelector('main').innerText`); !strings.Contains(text, "No free slice") || !strings.Contains(text, "0 free / 64 GiB") || !strings.Contains(text, "0% free") || !strings.Contains(text, "server 1% and 1 GiB") {
		t.Errorf("the page of a card out of slices: %s", text)
	}
}

// TestTooFewPods: an unknown fragmentation is not shown as a number, and a tainted node
// not as one that takes pods.
func TestTooFewPods(t *testing.T) {
	w := show(t)
	page := w.tab("#/", 1280, 900)
	w.eval(page, `import(location.origin + '/assets/store.js').then(({ apply, store }) => {
		apply({ cluster: { ...store.cluster, fragmentationPercent: null, fragmentationUnknown: 'TooFewPods' }, nodes: [{ ...store.nodes.get('metax-c'), taint: 'maintenance=true:NoSchedule' }] });
	})`)
	w.to(page, "#/nodes?state=notready")
	if text := value[string](w, page, `document.querySelector('main .servers').innerText`); !strings.HasPrefix(text, "metax-c") || !strings.Contains(text, "Tainted") || strings.Contains(text, "metax-a") {
		t.Errorf("the nodes that take no pods are %s", text)
	}
	w.to(page, "#/")
	stats := value[[]string](w, page, `[...document.querySelectorAll('main .stat')].map((s) => s.innerText.replaceAll('\n', ' '))`)
	if !slices.Contains(stats, "Fragmentation – needs 32 pods") || !strings.Contains(stats[0], "8 of these on nodes not accepting pods") {
		t.Errorf("the figures are %q", stats)
	}
	w.to(page, "#/findings")
	if text := value[string](w, page, `document.querySelector('main').innerText`); !strings.Contains(text, "metax-c is tainted") || !strings.Contains(text, "maintenance=true:NoSchedule") {
		t.Errorf("the findings are %s", text)
	}
}

// TestNotServing: a Ready node whose agent does not serve is marked, and listed.
func TestNotServing(t *testing.T) {
	w := show(t)
	page := w.tab("#/", 1280, 900)
	w.eval(page, `import(location.origin + '/assets/store.js').then(({ apply, store }) => apply({ nodes: [{ ...store.nodes.get('metax-b'), paused: 'kubelet does not have the plugins' }] }))`)
	for language, want := range map[string][2]string{"en": {"Not serving", "metax-b is not serving"}, "zh": {"未提供服务", "metax-b 未提供服务"}} {
		w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
		w.to(page, "#/nodes")
		gputest.Equal(t, language+": the pill", want[0], value[string](w, page, `document.querySelector('[data-node="metax-b"] .pill').textContent`))
		w.to(page, "#/findings")
		if text := value[string](w, page, `document.querySelector('main').innerText`); !strings.Contains(text, want[1]) || !strings.Contains(text, "kubelet does not have the plugins") {
			t.Errorf("%s: the findings are %s", language, text)
		}
	}
}

// TestPrint: on paper there is no navigation, the colours are light, and nothing is cut
// off.
func TestPrint(t *testing.T) {
	w := show(t, broken()...)
	page := w.tab("#/", 718, 1000) // A4 between its margins
	w.must(page.Wait("the double booking is marked", `document.querySelector('main .card.broken')`))
	w.must(page.Print(true))
	for _, at := range []string{"#/", "#/nodes", "#/nodes/metax-a", "#/nodes/metax-a/cards/4", "#/pods", "#/namespaces", "#/pending", "#/findings"} {
		w.to(page, at)
		w.must(page.Wait(at+" is drawn", `document.querySelector('main h1')`))
		if seen := value[[]string](w, page, `[...document.querySelectorAll('#nav, .filters, .chips, .crumbs, button:not(.sort), #tip')].filter((el) => el.checkVisibility()).map((el) => el.className || el.tagName)`); len(seen) > 0 {
			t.Errorf("%s: %v are printed", at, seen)
		}
		gputest.Equal(t, at+": the text", "rgb(24, 29, 39)", value[string](w, page, `getComputedStyle(document.body).color`))
		if cut := value[[]string](w, page, `[...document.querySelectorAll('main h1, main h2, main td, main li, main p, main .stat')].filter((el) => el.checkVisibility() && el.getBoundingClientRect().right > innerWidth + 1).map((el) => el.textContent.slice(0, 40))`); len(cut) > 0 {
			t.Errorf("%s: cut off: %q", at, cut)
		}
	}
}

// TestNotFound: an address that is none of the dashboard's has a page that leads back.
func TestNotFound(t *testing.T) {
	w := show(t)
	page, err := w.browser.Open(360, 740)
	w.must(err)
	w.must(page.Go(w.url + "/nodes/metax-a"))
	w.must(page.Wait("the page is drawn", `document.documentElement.dataset.language === 'en' && getComputedStyle(document.querySelector('main')).width !== '360px'`))
	w.axe(page, "the page for unknown addresses")
	if text := value[string](w, page, `document.body.innerText`); !strings.Contains(text, "Page not found") || !strings.Contains(text, "/nodes/metax-a") || strings.Contains(text, "未找到") {
		t.Errorf("the page is %s", text)
	}
	w.eval(page, `document.getElementById('language').click()`)
	if text := value[string](w, page, `document.body.innerText`); !strings.Contains(text, "未找到页面") || strings.Contains(text, "not found") {
		t.Errorf("the page in Chinese is %s", text)
	}
	w.eval(page, `document.querySelector('main a').click()`)
	w.drawn(page)
	gputest.Equal(t, "the dashboard is then in", "zh-CN", value[string](w, page, `document.documentElement.lang`))
}

// TestPodPage: a pod's page has its age, owner, containers, and when it was placed.
func TestPodPage(t *testing.T) {
	w := show(t, held("chat-1", "a4", 20, 4096))
	page := w.tab("#/pods/team-b/chat-1", 1280, 900)
	w.must(page.Wait("the facts are there", `document.querySelector('main .facts')`))
	facts := value[map[string]string](w, page, `Object.fromEntries([...document.querySelectorAll('main .facts > div')].map((d) => [d.querySelector('dt').textContent, d.querySelector('dd').innerText]))`)
	for name, want := range map[string]string{
		"Created": `^15 Mar 2026, .* ago\)$`, "Owner": `^ReplicaSet owner-of-chat-1$`, "Placed": `^15 Mar 2026, .* ago\)$`, "Node": `^metax-a$`, "Containers": `^server Card 4 20% and 4 GiB$`,
	} {
		if !regexp.MustCompile(want).MatchString(facts[name]) {
			t.Errorf("%s is %q, want %s", name, facts[name], want)
		}
	}
}

// TestSearchAndSort: pods are found by name and sorted by columns, pending ones by
// namespace too, and an empty list says what is empty.
func TestSearchAndSort(t *testing.T) {
	documents := []string{held("chat-2", "a4", 20, 4096), held("chat-10", "a4", 30, 8192), pod("team-c", "huge", "gpu: 17"), pod("team-d", "giant", "gpu: 18")}
	w := show(t, documents...)
	page := w.tab("#/pods", 1280, 900)
	names := func(at string) string {
		t.Helper()
		w.to(page, at)
		return strings.Join(value[[]string](w, page, `[...document.querySelectorAll('main tbody tr td:first-child')].map((td) => td.textContent)`), " ")
	}
	for at, want := range map[string]string{
		"#/pods?pod=CHAT-":               "team-b/chat-2 team-b/chat-10",
		"#/pods?pod=chat-&sort=-memory":  "team-b/chat-10 team-b/chat-2",
		"#/pods?pod=chat-&sort=memory":   "team-b/chat-2 team-b/chat-10",
		"#/pods?pod=chat-&sort=-pod":     "team-b/chat-10 team-b/chat-2",
		"#/pods?state=pending&sort=pod":  "team-c/huge team-d/giant",
		"#/pods?node=metax-a&pod=chat-1": "team-b/chat-10",
		"#/pending?sort=-pod":            "team-d/giant team-c/huge",
		"#/pending?namespace=team-d":     "team-d/giant",
		"#/pending?pod=hug":              "team-c/huge",
	} {
		gputest.Equal(t, at+" lists", want, names(at))
	}
	w.to(page, "#/pods?pod=chat-")
	w.eval(page, `[...document.querySelectorAll('main th button')].find((b) => b.textContent.startsWith('Pod')).click()`)
	w.eval(page, `[...document.querySelectorAll('main th button')].find((b) => b.textContent.startsWith('Pod')).click()`)
	w.must(page.Wait("two clicks sort downwards", `location.hash === '#/pods?pod=chat-&sort=-pod' && document.querySelector('main th[aria-sort="descending"]')`))
	for at, want := range map[string]string{
		"#/pods?pod=none": "No pod matches these filters.", "#/pending?pod=none": "No pending pod matches these filters.", "#/nodes?node=none": "No node matches these filters.", "#/findings?node=metax-c": "No findings for metax-c.",
	} {
		w.to(page, at)
		gputest.Equal(t, at+" says", want, value[string](w, page, `(document.querySelector('main .empty')?.textContent ?? '') + (document.querySelector('main .servers')?.dataset.empty ?? '')`))
	}
}

// TestMap: the map keeps zones apart and explains all that it draws. A node that is
// cordoned is no failure.
func TestMap(t *testing.T) {
	example, err := os.ReadFile(filepath.Join("..", "..", "examples", "cluster.yaml"))
	gputest.Must(t, err)
	documents := broken()
	for document := range strings.SplitSeq(string(example), "\n---\n") {
		if !strings.Contains(document, "\n  name: metax-b\n") {
			continue
		}
		for i := range 8 {
			other := strings.ReplaceAll(strings.ReplaceAll(document, "metax-b", fmt.Sprintf("metax-%d", i+10)), "GPU-000000b", fmt.Sprintf("GPU-0000%d0b", i+10))
			other = strings.ReplaceAll(other, "health: false", "health: true")
			if strings.Contains(other, "kind: Node") && i == 0 {
				other += "\nspec: {unschedulable: true}\n"
			}
			documents = append(documents, other+"\n")
		}
	}
	w := show(t, documents...)
	page := w.tab("#/", 1280, 900)
	w.must(page.Wait("the map is drawn", `document.querySelectorAll('main .cells').length === 11 && document.querySelector('main .cells i.broken')`))
	if gaps := value[string](w, page, `[...document.querySelectorAll('a.cells[href$="/metax-11"] i')].map((i) => i.classList.contains('gap') ? '|' : '.').join('')`); gaps != "....|..." {
		t.Errorf("the zones of a node are %s", gaps)
	}
	for _, look := range []string{"bad", "broken", "full"} {
		if !value[bool](w, page, fmt.Sprintf(`Boolean(document.querySelector('main .cells i.%[1]s') && document.querySelector('main .legend .%[1]s'))`, look)) {
			t.Errorf("the map or its legend has no card that is %s", look)
		}
	}
	if !value[bool](w, page, `Boolean(document.querySelector('main .cells.off[href$="/metax-10"]') && document.querySelector('main .legend .off') && document.querySelector('main .legend .zoned'))`) {
		t.Error("the legend does not explain zones, or nodes that take no pods")
	}
	badge := value[string](w, page, `document.querySelector('#nav a[href="#/findings"] .badge').textContent`)
	w.to(page, "#/findings")
	if n := value[int](w, page, `document.querySelectorAll('main .findings li:not(.note)').length`); strconv.Itoa(n) != badge || !value[bool](w, page, `document.querySelector('main').innerText.includes('metax-10 is cordoned')`) {
		t.Errorf("the badge says %s, there are %d failures; or the cordoned node is not listed", badge, n)
	}
}

// TestPhone: at 360 pixels everything is reached without scrolling sideways, and names
// are not broken inside words.
func TestPhone(t *testing.T) {
	w := show(t, append(broken(), pod("research", "pretraining-worker-0", "gpu: 17"), held("embedding-service-production-7c9d8f5b6-abcde", "a5", 20, 4096))...)
	script, err := os.ReadFile("boxes.js")
	w.must(err)
	page := w.tab("#/", 360, 740)
	w.must(page.Wait("the double booking is marked", `document.querySelector('main .card.broken')`))
	for _, language := range []string{"en", "zh"} {
		w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
		for _, at := range []string{"#/", "#/nodes", "#/nodes/metax-a", "#/nodes/metax-a/cards/4", "#/pods", "#/pods/team-b/embedding-service-production-7c9d8f5b6-abcde", "#/namespaces", "#/pending", "#/findings"} {
			w.to(page, at)
			w.must(page.Wait(at+" is drawn", `document.querySelector('main h1') && !document.querySelector('main > p.dim:last-child')`))
			for _, problem := range value[[]string](w, page, string(script)) {
				t.Errorf("%s, %s: %s", at, language, problem)
			}
			for _, problem := range value[[]string](w, page, `[...document.querySelectorAll('#nav a, main td, main td a, main .pill')].filter((el) => el.checkVisibility()).map((el) => [el.textContent, el.getBoundingClientRect()])
				.filter(([, r]) => r.left < 0 || r.right > innerWidth).map(([text, r]) => text + ' ends at ' + r.right)`) {
				t.Errorf("%s, %s: outside of the window: %s", at, language, problem)
			}
		}
	}
	w.to(page, "#/pods")
	// A line of a name ends where a word does.
	bad := value[[]string](w, page, `[...document.querySelectorAll('main td a[href^="#/pods/"]')].flatMap((a) => {
		const text = a.firstChild; const range = document.createRange(); const bad = [];
		const top = (i) => { range.setStart(text, i); range.setEnd(text, i + 1); return range.getBoundingClientRect().top; };
		for (let i = 1; i < text.length; i++) if (top(i) > top(i - 1) + 4 && /\w/.test(text.data[i - 1])) bad.push(text.data.slice(0, i) + ' | ' + text.data.slice(i));
		return bad;
	})`)
	for _, b := range bad {
		t.Errorf("a name is broken inside a word: %s", b)
	}
}

// TestRounding: what is free is rounded down, what is used up, and never beyond all.
func TestRounding(t *testing.T) {
	w := show(t)
	page := w.tab("#/", 800, 600)
	for script, want := range map[string]string{
		"free(20 * 1048576 - 4096)": "19.9 TiB", "usedOf(4096, 20 * 1048576)": "4 GiB", "usedOf(20 * 1048576 - 1, 20 * 1048576)": "20 TiB", "free(20 * 1048576)": "20 TiB",
		"memory(1048576 - 1)": "1 TiB", "free(1048576 - 1)": "1,023.9 GiB", "free(0)": "0", "free(640)": "640 MiB", "memory(1088)": "1.1 GiB", "free(1088)": "1 GiB",
		"usedOf(2879 * 1024, 2880 * 1024)": "2.8 TiB", "percent(1, 1000)": "1", "percent(999, 1000)": "99", "percent(12.1, 100)": "13", "percent(0, 10)": "0", "percent(10, 10)": "100", "cardsUsed(1201)": "12.1", "cardsUsed(0)": "0",
	} {
		gputest.Equal(t, script, want, value[string](w, page, `import(location.origin + '/assets/i18n.js').then(({ free, memory, usedOf, percent, cardsUsed }) => String(`+script+`))`))
	}
}

// TestChinese: refusals in Chinese have the numbers of the English ones.
func TestChinese(t *testing.T) {
	w := show(t, pod("team-c", "huge", "gpu: 17"), pod("team-c", "thirsty", "sgpu: 1, vcore: 50, vmemory: 90"))
	page := w.tab("#/pods/team-c/huge", 1280, 900)
	w.eval(page, `document.getElementById('language').click()`)
	numbers := regexp.MustCompile(`\d+`)
	for _, name := range []string{"huge", "thirsty"} {
		w.to(page, "#/pods/team-c/"+name)
		w.must(page.Wait("the refusals are there", `document.querySelector('main .refusals')`))
		type refusal struct{ Message, Shown string }
		for _, r := range value[[]refusal](w, page, fmt.Sprintf(`(async () => {
			const { refusal } = await import(location.origin + '/assets/words.js');
			const pod = await (await fetch('api/v1/pods/team-c/%s')).json();
			return pod.refusals.map((r) => ({ Message: r.message, Shown: refusal(r) }));
		})()`, name)) {
			for _, n := range numbers.FindAllString(r.Message, -1) {
				if !strings.Contains(r.Shown, n) {
					t.Errorf("%s: %q lacks the %s of %q", name, r.Shown, n, r.Message)
				}
			}
		}
	}
}

// component returns the process of a part of the playground's cluster.
func (w *world) component(name string) int {
	w.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", w.playground.Pid)) // each thread has its own
	w.must(err)
	for _, list := range lists {
		children, err := os.ReadFile(list)
		w.must(err)
		for child := range strings.FieldsSeq(string(children)) {
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			w.must(err)
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == name {
				pid, err := strconv.Atoi(child)
				w.must(err)
				return pid
			}
		}
	}
	w.Fatalf("the playground runs no %s", name)
	return 0
}

// frozen: a page says that the manager or the API server does not answer, since when,
// and goes on by itself.
func (w *world) frozen(t *testing.T) {
	w = w.of(t)
	url, manager := w.manager()
	page, err := w.browser.Open(1280, 900)
	w.must(err)
	w.must(page.Go(url))
	live := `document.querySelector('.live.on') && document.getElementById('lost').hidden && !document.querySelector('main.stale')`
	w.must(page.Wait("the page is live", live))
	for _, c := range []struct {
		name string
		pid  int
	}{{"manager", manager}, {"API server", w.component(local.ComponentAPIServer)}} {
		w.must(syscall.Kill(c.pid, syscall.SIGSTOP))
		t.Cleanup(func() { _ = syscall.Kill(c.pid, syscall.SIGCONT) }) // or it could not be ended
		start := time.Now()
		w.must(page.Wait("the page notices", `document.querySelector('main.stale')`))
		t.Logf("the page notices that the %s is frozen after %.0f s", c.name, time.Since(start).Seconds())
		if text := value[string](w, page, `document.getElementById('lost').textContent`); !strings.Contains(text, "Connection to the "+c.name+" lost at ") || !strings.Contains(text, "retrying") {
			t.Errorf("the page says %q", text)
		}
		w.must(syscall.Kill(c.pid, syscall.SIGCONT))
		w.must(page.Wait("the page sees it answer", live+` || document.getElementById('lost').textContent.includes('catching up')`))
		w.must(page.Wait("the page is live again", live))
	}
	page.Close()
}
