package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// englishOnly lists pages of docs, or folders, without a Chinese page, each with the reason.
var englishOnly = map[string]string{
	"architecture.md": "for contributors; code and commits are in English",
	"release.md":      "for maintainers",
	"glossary.md":     "one page for both languages",
	"reference/":      "generated tables; zh/reference/README.md explains them",
}

// chineseOnly lists pages below zh without an English page.
var chineseOnly = map[string]string{
	"reference/README.md": "explains the English tables",
}

// TestFences: fences are valid, and at most a tenth of the blocks is not run.
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

// TestLanguages: both languages have the same pages, with the same commands, headings, table rows, code
// blocks and pictures in the same sections, and Chinese pages link Chinese pages.
func TestLanguages(t *testing.T) {
	english, chinese := map[string]*page{}, map[string]*page{}
	for _, p := range loadPages(t) {
		name, inDocs := strings.CutPrefix(p.path, "docs/")
		translated, isChinese := strings.CutPrefix(name, "zh/")
		outside, isTwin := strings.CutSuffix(p.path, ".zh.md")
		switch {
		case isTwin:
			chinese["../"+outside+".md"] = p
		case isChinese:
			chinese[translated] = p
		case inDocs:
			english[name] = p
		default:
			english["../"+p.path] = p
		}
	}
	for name := range english { // outside docs, the README and what has a Chinese page
		if strings.HasPrefix(name, "../") && name != "../README.md" && chinese[name] == nil {
			delete(english, name)
		}
	}
	pairs, chineseOf := 0, map[string]string{}
	var total outline
	for name, p := range english {
		twin := chinese[name]
		if excused(englishOnly, name) {
			if twin != nil {
				t.Errorf("%s: it has a Chinese page, take it off the list englishOnly", p.path)
			}
			continue
		}
		if twin == nil {
			t.Errorf("%s: there is no Chinese page", p.path)
			continue
		}
		pairs++
		chineseOf[p.path] = twin.path
		gputest.Equal(t, fmt.Sprintf("commands of %s and %s", p.path, twin.path), typed(p), typed(twin))
		sections, sum := outlineOf(p)
		total = total.plus(sum)
		translated, theirs := outlineOf(twin)
		gputest.Equal(t, fmt.Sprintf("%s has %s, %s has %s; sections", p.path, sum, twin.path, theirs), sections, translated)
	}
	for name, p := range chinese {
		if english[name] == nil && !excused(chineseOnly, name) {
			t.Errorf("%s: there is no English page", p.path)
		}
		for _, l := range p.links() {
			target, _, _ := strings.Cut(l.target, "#")
			// The first lines have the link to the other language.
			if twin := chineseOf[path.Join(path.Dir(p.path), target)]; twin != "" && l.line > 3 {
				t.Errorf("%s:%d: %q: link %s", p.path, l.line, l.target, twin)
			}
		}
	}
	t.Logf("%d pages in both languages with %s each; %d in English only, %d in Chinese only", pairs, total, len(english)-pairs, len(chinese)-pairs)
}

// outline counts what a page, or a section of it, is made of.
type outline struct {
	headings [7]int // by level
	rows     int    // of tables, with their titles
	blocks   int    // of code
	pictures int
}

// plus returns the sum of two outlines.
func (o outline) plus(other outline) outline {
	for level, n := range other.headings {
		o.headings[level] += n
	}
	o.rows += other.rows
	o.blocks += other.blocks
	o.pictures += other.pictures
	return o
}

func (o outline) String() string {
	var headings []string
	for level, n := range o.headings {
		if n > 0 {
			headings = append(headings, fmt.Sprintf("%d of level %d", n, level))
		}
	}
	return fmt.Sprintf("headings: %s; %d table rows, %d code blocks, %d pictures", strings.Join(headings, ", "), o.rows, o.blocks, o.pictures)
}

var (
	separator = regexp.MustCompile(`^\s*\|[\s:|-]+\|\s*$`)
	picture   = regexp.MustCompile(`!\[|<img\s`)
)

// outlineOf returns the sections of a page in their order, each by its level and what it has, and the sum.
func outlineOf(p *page) (sections []string, sum outline) {
	var o outline
	end := func() {
		sections = append(sections, o.String())
		sum = sum.plus(o)
		o = outline{}
	}
	for i, line := range p.lines {
		switch m := heading.FindStringSubmatch(line); {
		case p.fenced[i]:
			if slices.Contains(p.fences, i) {
				o.blocks++
			}
		case m != nil:
			end()
			o.headings[len(line)-len(strings.TrimLeft(line, "#"))]++
		case strings.HasPrefix(strings.TrimSpace(line), "|") && !separator.MatchString(line):
			o.rows++
		}
		if !p.fenced[i] {
			o.pictures += len(picture.FindAllString(codeSpan.ReplaceAllString(line, ""), -1))
		}
	}
	end()
	return sections, sum
}

// TestOutline: what the languages are compared by is found, and each difference is reported.
func TestOutline(t *testing.T) {
	const text = "# A\n\n| a | b |\n|---|---|\n| c | d |\n\n## B\n\n```sh\n# no heading\n| no | row |\n```\n```text output\nx\n```\n### C\n![d](d.png) `![no](no)` <img src=\"e.svg\">\n<!-- docs:run\n# no\n-->\n```yaml\na: b\n```\n"
	parsed := func(text string) *page {
		p, problems := parse("x.md", text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return p
	}
	sections, sum := outlineOf(parsed(text))
	if want := (outline{headings: [7]int{1: 1, 2: 1, 3: 1}, rows: 2, blocks: 3, pictures: 2}); sum != want {
		t.Errorf("%s, want %s", sum, want)
	}
	for name, change := range map[string][2]string{
		"a heading less":             {"### C\n", ""},
		"a heading of another level": {"### C", "## C"},
		"a row less":                 {"| c | d |\n", ""},
		"a row in another section":   {"| c | d |\n\n## B\n", "\n## B\n\n| c | d |\n"},
		"a block less":               {"```yaml\na: b\n```\n", ""},
		"a picture less":             {"![d](d.png)", ""},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if other, _ := outlineOf(parsed(changed)); changed == text || slices.Equal(other, sections) {
			t.Errorf("%s: not found", name)
		}
	}
}

// excused reports whether a page is on a list, or in a folder that is.
func excused(list map[string]string, name string) bool {
	folder, _, nested := strings.Cut(name, "/")
	return list[name] != "" || nested && list[folder+"/"] != ""
}

var remark = regexp.MustCompile(`(^|\s+)# .*$`)

// typed returns the commands of a page with their output, without remarks, which are in
// the language of the page.
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

// TestParse: pages are parsed as doc.go describes.
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
	gputest.Equal(t, "blocks", want, p.blocks, cmp.AllowUnexported(block{}))
	steps := []command{{"five", "out\n\n"}, {"six", ""}}
	gputest.Equal(t, "commands", steps, commands(session), cmp.AllowUnexported(command{}))
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

// TestMatches: … matches anything within a line, or lines.
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
		gputest.Equal(t, name, c.matches, matches(c.want, c.got, !c.part))
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
		gputest.Must(t, err)
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
