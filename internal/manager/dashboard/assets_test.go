package dashboard

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// texts reads the texts of a language: the file is JSON after two words.
func texts(t *testing.T, language string) map[string]string {
	t.Helper()
	source, err := embedded.ReadFile("assets/strings/" + language + ".js")
	gputest.Must(t, err)
	var out map[string]string
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(string(source), "export default ")), ";")), &out); err != nil {
		t.Fatalf("%s: %v", language, err)
	}
	return out
}

// codeText finds the texts of the generated table.
var codeText = regexp.MustCompile(`(?m)^ {2}"(\w+)": \{"text":"(.+?)"`)

var parameter = regexp.MustCompile(`\{\w+\}`)

// TestTexts: both languages have the same texts, with the same parameters, and
// words for every code and rule.
func TestTexts(t *testing.T) {
	en, zh := texts(t, "en"), texts(t, "zh")
	codes, err := embedded.ReadFile("assets/strings/codes.js")
	gputest.Must(t, err)
	for _, m := range codeText.FindAllStringSubmatch(string(codes), -1) {
		en["code."+m[1]] = m[2]
	}
	// Chinese has no form for one thing.
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(en)), func(key string) bool { return strings.HasSuffix(key, ".one") })
	// English sentences with numbers are those of the server.
	own := func(key string) bool { return strings.HasPrefix(key, "sentence.") }
	gputest.Equal(t, "keys of English and Chinese", keys, slices.DeleteFunc(slices.Sorted(maps.Keys(zh)), own))
	for _, key := range keys {
		of := func(text string) []string {
			return slices.Compact(slices.Sorted(slices.Values(parameter.FindAllString(text, -1))))
		}
		if a, b := of(en[key]), of(zh[key]); !slices.Equal(a, b) {
			t.Errorf("%s: English has %v, Chinese %v", key, a, b)
		}
	}
	want := []string{"code." + view.CodeInadmissible, "code." + view.CodeOther}
	for _, code := range place.Codes() {
		want = append(want, "code."+code.String())
		// How many cards have this reason; those that fit are named by the sentence itself.
		if key := "sentence.tally." + code.String(); code.Description().Cards != "" && code != place.TooFewCards && zh[key] == "" {
			t.Errorf("no Chinese text for %s", key)
		}
	}
	for _, x := range place.Exclusions() {
		want = append(want, "exclusion."+x.String())
	}
	for _, rule := range slices.Concat(audit.Violations(), audit.Notes()) {
		want = append(want, "rule."+string(rule))
	}
	for _, reason := range []string{view.QuotaNotEnforced, view.QuotaUnreadable, view.QuotaOverrun, view.PodsUnmetered} {
		want = append(want, "quota."+reason)
	}
	for _, key := range want {
		if en[key] == "" {
			t.Errorf("no text for %s", key)
		}
	}
}

// TestScriptsHaveNoTexts: what scripts show is in the files of a language. The page to
// log in has both.
func TestScriptsHaveNoTexts(t *testing.T) {
	han := regexp.MustCompile(`\p{Han}+`)
	eachAsset(t, func(name string, text []byte) {
		if path.Ext(name) == ".js" && path.Base(path.Dir(name)) != "strings" && path.Base(name) != loginScript {
			if found := han.Find(text); found != nil {
				t.Errorf("%s has the text %s", name, found)
			}
		}
	})
}

// used finds the texts that scripts ask for by their whole name.
var used = regexp.MustCompile(`\bt\('([a-z][\w.-]*[a-zA-Z0-9])'`)

func TestTextsThatAreUsed(t *testing.T) {
	zh := texts(t, "zh")
	eachAsset(t, func(name string, text []byte) {
		if path.Ext(name) != ".js" {
			return
		}
		for _, m := range used.FindAllStringSubmatch(string(text), -1) {
			if zh[m[1]] == "" {
				t.Errorf("%s asks for the text %s, which is not there", name, m[1])
			}
		}
	})
}

func eachAsset(t *testing.T, do func(name string, text []byte)) {
	t.Helper()
	gputest.Must(t, fs.WalkDir(embedded, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		do(name, text)
		return err
	}))
}

// TestWeight: the page is light before it is compressed.
func TestWeight(t *testing.T) {
	sum := 0
	eachAsset(t, func(_ string, text []byte) { sum += len(text) })
	t.Logf("%d bytes", sum)
	if sum > 300<<10 {
		t.Errorf("the page has %d bytes, at most 300 KiB", sum)
	}
}

// TestNothingInline: the policy forbids scripts and styles in the page's text,
// and nothing comes from elsewhere.
func TestNothingInline(t *testing.T) {
	bad := regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:[^>]*)>\s*[^<\s]|\binnerHTML\b|\binsertAdjacentHTML\b|\beval\(|document\.write|src="(?:https?:)?//|href="(?:https?:)?//`)
	eachAsset(t, func(name string, text []byte) {
		if found := bad.Find(text); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	})
}

// TestRunbooks: findings lead to the page that the rule's own comment names, both
// languages have it, and it is where the alerts' runbooks are.
func TestRunbooks(t *testing.T) {
	text := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		gputest.Must(t, err)
		return string(b)
	}
	words := text("assets/words.js")
	_, list, _ := strings.Cut(words, "const runbooks = {")
	list, _, _ = strings.Cut(list, "};")
	linked := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+): '([\w-]+)'`).FindAllStringSubmatch(list, -1) {
		linked[m[1]] = m[2]
	}
	for _, m := range regexp.MustCompile(`Do: see the runbook ([\w-]+)\.\n\t(\w+) `).FindAllStringSubmatch(text("../../audit/audit.go"), -1) {
		if linked[m[2]] != m[1] {
			t.Errorf("%s leads to the runbook %q, its comment to %q", m[2], linked[m[2]], m[1])
		}
	}
	other := text("../../../docs/runbooks/audit-violation.md")
	for _, rule := range audit.Violations() {
		if linked[string(rule)] == "" && !strings.Contains(other, "`"+string(rule)+"`") {
			t.Errorf("%s has no runbook", rule)
		}
	}
	pages := append(slices.Collect(maps.Values(linked)), "audit-violation", "card-unhealthy")
	for _, page := range pages {
		text("../../../docs/runbooks/" + page + ".md")
		text("../../../docs/zh/runbooks/" + page + ".md")
	}
	docs := regexp.MustCompile(`const docs = '(.+)';`).FindStringSubmatch(words)
	if alerts := text("../../../charts/daybreak/monitoring/alerts.yaml"); len(docs) != 2 || !strings.Contains(alerts, "runbook_url: "+docs[1]+"runbooks/double-booking.md") {
		t.Errorf("the page's runbooks are at %v, not where those of the alerts are", docs)
	}
}
