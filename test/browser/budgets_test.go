package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/reviewer"
)

// budgets: team-a uses parts of its budgets, team-b is over one, team-c has none.
func budgets() []string {
	return []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {daybreak-gpu.io/quota: enforced}}\n",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n",
		resourceQuota("team-a", "gpus", "requests.daybreak-gpu.io/compute: 2000, requests.daybreak-gpu.io/memory: 2Ti, requests.daybreak-gpu.io/cards: 16", "requests.daybreak-gpu.io/compute: 1450, requests.daybreak-gpu.io/memory: 1Ti, requests.daybreak-gpu.io/cards: 15"),
		resourceQuota("team-b", "small", "requests.daybreak-gpu.io/memory: 1Gi", "requests.daybreak-gpu.io/memory: 4Gi"),
		held("chat-1", "a4", 20, 4096),
		pod("team-c", "huge", "gpu: 17"),
	}
}

func resourceQuota(namespace, name, hard, used string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {namespace: %s, name: %s}\nspec: {hard: {%s}}\nstatus: {hard: {%[3]s}, used: {%s}}\n", namespace, name, hard, used)
}

// budgetRow is what a row of the page shows: the texts of its cells, and the bars.
type budgetRow struct {
	Cells []string
	Bars  []struct {
		Text, Class string
		Now         int
		Part        float64 // of the track that is filled, in percent
	}
}

const budgetRows = `Object.fromEntries([...document.querySelectorAll('main > .scroll tbody tr')].map((tr) => [tr.cells[0].textContent, {
	Cells: [...tr.cells].map((td) => td.innerText.replaceAll('\n', ' ').trim()),
	Bars: [...tr.querySelectorAll('[role=meter]')].map((m) => ({ Text: m.getAttribute('aria-valuetext'), Class: m.className.replace('track', '').trim(), Now: Number(m.getAttribute('aria-valuenow')),
		Part: Math.round(100 * m.firstChild.getBoundingClientRect().width / m.getBoundingClientRect().width) })),
}]))`

// TestBudgets: the page shows what the server sends of namespaces, in both languages:
// budgets and what is used of them, which one is exceeded, and which namespace has none.
func TestBudgets(t *testing.T) {
	w := show(t, budgets()...)
	page := w.tab("#/namespaces", 1280, 900)
	for language, words := range map[string]struct{ of, over, none, warning string }{
		"en": {"%s of %s", "Over budget", "no budget", "team-b: Usage exceeds the quota"},
		"zh": {"%s / %s", "超出预算", "无预算", "team-b：用量超出配额"},
	} {
		w.eval(page, fmt.Sprintf(`document.documentElement.lang.startsWith(%q) || document.getElementById('language').click()`, language))
		rows := value[map[string]budgetRow](w, page, budgetRows)
		bars := rows["team-a"].Bars
		if len(bars) != 3 {
			t.Fatalf("%s: the bars of team-a are %+v of %v", language, bars, rows)
		}
		for i, want := range []struct {
			used, hard, class string
			part              int
		}{{"1,450%", "2,000%", "", 73}, {"1 TiB", "2 TiB", "", 50}, {"15", "16", "full", 94}} {
			text := fmt.Sprintf(words.of, want.used, want.hard)
			if b := bars[i]; b.Text != text || b.Class != want.class || b.Now != want.part || int(b.Part) < want.part-1 || int(b.Part) > want.part+1 {
				t.Errorf("%s: bar %d of team-a is %+v, want %q, %q and %d%%", language, i, b, text, want.class, want.part)
			}
		}
		over := rows["team-b"]
		if len(over.Bars) != 1 || over.Bars[0].Class != "over" || over.Bars[0].Part != 100 || over.Bars[0].Text != fmt.Sprintf(words.of, "4 GiB", "1 GiB") || !strings.Contains(over.Cells[4], words.over) {
			t.Errorf("%s: team-b, which is over its budget, is %+v", language, over)
		}
		if none := rows["team-c"]; len(none.Bars) != 0 || none.Cells[2] != "1" || none.Cells[5] != "0 "+words.none {
			t.Errorf("%s: team-c, which has no quota, is %+v", language, none)
		}
		if text := value[string](w, page, `document.querySelector('main .findings').innerText`); !strings.Contains(text, words.warning) {
			t.Errorf("%s: the warnings are %s", language, text)
		}
		if n := value[int](w, page, `document.querySelectorAll('main section table tbody tr').length`); n != 4 {
			t.Errorf("%s: %d limits are listed, want 4", language, n)
		}
		w.axe(page, "#/namespaces, "+language)
	}
	// What is shown is what was sent: nothing is added up again.
	w.eval(page, `import(location.origin + '/assets/store.js').then(({ apply, store }) => apply({ namespaces: store.namespaces.map((n) => (n.name === 'team-a' ? { ...n, computePercent: 7, counted: { ...n.counted, computePercent: 8 }, used: { ...n.used, computePercent: 500 } } : n)) }))`)
	w.to(page, "#/")
	w.to(page, "#/namespaces")
	if bars := value[map[string]budgetRow](w, page, budgetRows)["team-a"].Bars; len(bars) != 3 || bars[0].Now != 25 {
		t.Errorf("with 500 of 2000 used the bars are %+v", bars)
	}
}

// TestBudgetsOfViewers: a viewer logs in with a token, sees the namespaces whose pods the
// viewer may list, and no name of another. A wrong token is named in both languages.
func TestBudgetsOfViewers(t *testing.T) {
	w := show(t, budgets()...)
	users := map[string][]string{"admin": {"nodes", "devices", "pods"}, "alice": {"nodes", "devices", "pods/team-a"}, "blind": {"pods"}}
	w.url = w.serve(w.example(budgets()...), reviewer.NewClient(func(user string) ([]string, bool) { may, known := users[user]; return may, known }))
	page, err := w.browser.Open(1280, 900)
	w.must(err)
	w.must(page.Go(w.url + "/#/namespaces"))
	const form = `document.documentElement.dataset.language && document.getElementById('form')`
	w.must(page.Wait("the form is there", form))
	w.axe(page, "the form to log in")
	enter := func(token string) {
		t.Helper()
		w.eval(page, fmt.Sprintf(`window.old = true; document.getElementById('token').value = %q; document.querySelector('#form button').click()`, token))
		w.must(page.Wait("the form was sent", `!window.old && document.body && document.readyState === 'complete'`))
	}
	enter("forged")
	w.must(page.Wait("the form is back", form))
	gputest.Equal(t, "the problem", "Invalid or expired token", value[string](w, page, `document.querySelector('.problem').innerText.trim()`))
	enter("blind")
	w.must(page.Wait("the form is back", form))
	w.eval(page, `document.getElementById('language').click()`)
	if text := value[string](w, page, `document.body.innerText`); !strings.Contains(text, "没有访问权限") || strings.Contains(text, "Log in") {
		t.Errorf("the form in Chinese: %s", text)
	}
	w.axe(page, "the form to log in, with a problem")
	w.eval(page, `document.getElementById('language').click()`)
	namespaces := func() string {
		t.Helper()
		w.drawn(page)
		w.must(page.Wait("the budgets are there", `document.querySelector('main > .scroll')`))
		return strings.Join(value[[]string](w, page, `[...document.querySelectorAll('main > .scroll tbody tr')].map((tr) => tr.cells[0].textContent)`), " ")
	}
	enter("alice")
	gputest.Equal(t, "alice sees", "team-a", namespaces())
	text := value[string](w, page, `document.querySelector('main').innerText`)
	if !strings.Contains(text, "Pod names are shown only for namespaces where you may list pods.") || strings.Contains(text, "team-b") || strings.Contains(text, "team-c") {
		t.Errorf("alice's page is %s", text)
	}
	w.eval(page, `window.old = true; document.querySelector('.tools form button').click()`)
	w.must(page.Wait("the form is back", `!window.old && `+form))
	enter("admin")
	w.to(page, "#/namespaces")
	gputest.Equal(t, "admin sees", "team-a team-b team-c", namespaces())
}
