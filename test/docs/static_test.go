package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// englishOnly are pages of docs, or folders, that have no Chinese twin, each with
// the reason.
var englishOnly = map[string]string{
	"architecture.md": "for who changes the code, as the code is",
	"release.md":      "for who releases it",
	"reference/":      "generated tables; zh/reference/README.md explains them",
}

// chineseOnly are pages below zh without an English twin.
var chineseOnly = map[string]string{
	"reference/README.md": "says what is in the English tables",
}

// TestFences: fences say what is meant, and few blocks are not run.
func TestFences(t *testing.T) {
	total, skipped := 0, 0
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			if !b.counts() {
				continue
			}
			total++
			if b.kind == norun {
				skipped++
				t.Logf("%s:%d is not run: %s", p.path, b.line, b.reason)
			}
		}
	}
	t.Logf("%d of %d blocks are not run", skipped, total)
	if skipped*10 > total {
		t.Errorf("%d of %d blocks are not run: at most a tenth may be", skipped, total)
	}
}

// TestLanguages: a user finds the same pages with the same commands in both
// languages.
func TestLanguages(t *testing.T) {
	english, chinese := map[string]*page{}, map[string]*page{}
	for _, p := range loadPages(t) {
		name, ok := strings.CutPrefix(p.path, "docs/")
		if !ok {
			continue
		}
		if name, ok := strings.CutPrefix(name, "zh/"); ok {
			chinese[name] = p
		} else {
			english[name] = p
		}
	}
	pairs := 0
	for name, p := range english {
		twin := chinese[name]
		if excused(englishOnly, name) {
			if twin != nil {
				t.Errorf("docs/%s: it has a twin, take it off the list englishOnly", name)
			}
			continue
		}
		if twin == nil {
			t.Errorf("docs/%s: there is no docs/zh/%s", name, name)
			continue
		}
		pairs++
		if diff := cmp.Diff(typed(p), typed(twin)); diff != "" {
			t.Errorf("docs/%s and docs/zh/%s do not say to type the same (-English +Chinese):\n%s", name, name, diff)
		}
	}
	for name := range chinese {
		if english[name] == nil && !excused(chineseOnly, name) {
			t.Errorf("docs/zh/%s: there is no docs/%s", name, name)
		}
	}
	t.Logf("%d pages in both languages, %d in English only, %d in Chinese only", pairs, len(english)-pairs, len(chinese)-pairs)
}

// excused reports whether a page is on a list, or in a folder that is.
func excused(list map[string]string, name string) bool {
	folder, _, nested := strings.Cut(name, "/")
	return list[name] != "" || nested && list[folder+"/"] != ""
}

var remark = regexp.MustCompile(`(^|\s+)# .*$`)

// typed is all that a page says to type and what it says comes of it, without
// remarks, which are in the page's language.
func typed(p *page) []string {
	out := []string{"on cluster " + string(p.wants)}
	for _, b := range p.blocks {
		text := []string{string(b.kind)}
		for line := range strings.SplitSeq(b.code, "\n") {
			if line = remark.ReplaceAllString(line, ""); line != "" {
				text = append(text, line)
			}
		}
		if b.want != nil {
			text = append(text, "prints", tidy(*b.want))
		}
		out = append(out, strings.Join(text, "\n"))
	}
	return out
}

// TestParse: pages are read as doc.go says.
func TestParse(t *testing.T) {
	const text = "a\n```sh\none\n```\nprints\n```text output\n1 … 3\n```\n" +
		"<!-- docs:run\nhidden\n-->\n```sh norun: not here\ntwo\n```\n```sh exits 1\nthree\n```\n" +
		"```sh terminal\nfour\n```\n```console\n$ five\nout\n\n$ six\n```\n```yaml\n$ no\n```\n<!-- docs:cluster bare -->\n"
	p, problems := parse("x.md", text)
	if len(problems) > 0 || p.wants != bareCluster {
		t.Errorf("problems %q, cluster %q", problems, p.wants)
	}
	printed, session := "1 … 3", "$ five\nout\n\n$ six"
	want := []*block{
		{line: 2, kind: run, code: "one", want: &printed},
		{line: 9, kind: hidden, code: "hidden"},
		{line: 12, kind: norun, reason: "not here", code: "two"},
		{line: 15, kind: run, status: 1, code: "three"},
		{line: 18, kind: terminal, code: "four"},
		{line: 21, kind: console, want: &session},
	}
	if diff := cmp.Diff(want, p.blocks, cmp.AllowUnexported(block{})); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	steps := []command{{"five", "out\n\n"}, {"six", ""}}
	if diff := cmp.Diff(steps, commands(session), cmp.AllowUnexported(command{})); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"no end": "```sh\nls\n", "no reason": "```sh norun:\n```\n", "another shell": "```bash\n```\n", "an unknown word": "```sh later\n```\n",
		"output of nothing": "```text output\n```\n", "no command": "```console\nls\n```\n", "an unknown directive": "<!-- docs:walk -->\n",
		"output twice": "```sh\n```\n```text output\n```\n```text output\n```\n", "a comment without end": "<!-- docs:run\nls\n",
	} {
		if _, problems := parse("x.md", text); len(problems) != 1 {
			t.Errorf("%s: problems %q, want one", name, problems)
		}
	}
}

// TestMatches: … stands for anything in a line, or for lines.
func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		want, got     string
		part, matches bool
	}{
		"the same":                     {want: "a\nb\n", got: "a\nb", matches: true},
		"blanks at the end":            {want: "a", got: "a  \n\n", matches: true},
		"another line":                 {want: "a\nb", got: "a\nc"},
		"a line more":                  {want: "a", got: "a\nb"},
		"a line less":                  {want: "a\nb", got: "a"},
		"within a line":                {want: "a … c", got: "a (b) c", matches: true},
		"not over lines":               {want: "a … c", got: "a b\nd c"},
		"lines":                        {want: "a\n…\nd", got: "a\nb\nc\nd", matches: true},
		"no lines":                     {want: "a\n…\nd", got: "a\nd", matches: true},
		"lines at the end":             {want: "a\n…", got: "a\nb\nc", matches: true},
		"signs are no pattern":         {want: "a.c", got: "abc"},
		"a terminal that prints on":    {want: "a", got: "a\nb", part: true, matches: true},
		"a terminal that is too early": {want: "…\nready", got: "a\n", part: true},
	} {
		if matches(c.want, c.got, !c.part) != c.matches {
			t.Errorf("%s: not %v", name, c.matches)
		}
	}
}

// TestPagesAreFound: nothing is checked where no page is found.
func TestPagesAreFound(t *testing.T) {
	var paths []string
	for _, p := range loadPages(t) {
		paths = append(paths, p.path)
	}
	for _, path := range []string{"README.md", "CONTRIBUTING.md", "docs/install.md", "docs/zh/install.md", "docs/runbooks/pods-pending.md"} {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is not among %q", path, paths)
		}
	}
}

// TestNamedTests: a test that a page names as proof exists.
func TestNamedTests(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, path := range walk(t, "_test.go") {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
	}
	name := regexp.MustCompile("`(Test[A-Z]\\w*)`")
	found := 0
	for _, p := range loadPages(t) {
		for i, line := range p.lines {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				found++
				if !declared[m[1]] {
					t.Errorf("%s:%d: there is no %s", p.path, i+1, m[1])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("the pages name %d tests: they are not found", found)
	}
}
